"""The scikit-learn face: the same fit, the same models, behind fit, predict and score."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.metrics import r2_score
from sklearn.utils import Tags
from sklearn.utils.validation import validate_data

from .core import check, settings
from .core.algebra import Array
from .core.errors import BadData, BadSetting, BadValue, GlobalModelUsed, UnknownClient, nearest
from .core.linalg import EPS
from .core.method import Method
from .core.model import Predictor, row_values
from .core.task import Dealt, Federation
from .engine.run import Run, fit
from .methods import METHODS

ALONE = "all"  # the one client of rows that name none: as `Federation.from_arrays` calls it
Groups: TypeAlias = Any
"""The client of every row (n,), a Partition, or None: all rows are of one client."""
Ask: TypeAlias = Callable[[Predictor, Array], NDArray[Any]]


class NotFitted(BadValue, NotFittedError):
    """An estimator that has learnt nothing yet; scikit-learn's error, and ours."""


class _Federated(BaseEstimator):
    """What both estimators share: settings, clients, and who answers which row."""

    # groups go to all of these, also through a Pipeline or a search, where scikit-learn's metadata routing is on
    __metadata_request__fit = {"groups": True}  # noqa: RUF012  # as scikit-learn reads it
    __metadata_request__predict = {"groups": True}  # noqa: RUF012
    # a Pipeline's score always names sample_weight: known here, so that it works, and refused where one is given
    __metadata_request__score = {"groups": True, "sample_weight": None}  # noqa: RUF012

    run_: Run

    def __init__(
        self,
        method: str | Method = "apfl",
        *,
        ridge: float | str | None = None,
        gamma: float | str | None = None,
        balance: float | str | None = None,
        random_state: int | np.random.RandomState | np.random.Generator | None = None,
    ) -> None:
        self.method = method
        self.ridge = ridge
        self.gamma = gamma
        self.balance = balance
        self.random_state = random_state

    # learning
    def _learnt(self, X: Any, y: Any, groups: Groups, task: str) -> Self:
        method, seed = self._method(), seed_of(self.random_state)
        x = self._rows(X, first=True)
        self.run_ = fit(method, Federation.from_arrays(x, y, groups, task=task), seed=seed)
        return self

    def _method(self) -> Method:
        """The method that the settings describe; they are looked at here, as scikit-learn wants, and not when they are stored."""
        given = {name: getattr(self, name) for name in ("ridge", "gamma", "balance")}
        given = {name: value for name, value in given.items() if value is not None}
        if isinstance(self.method, str):
            method: Method = settings.build(METHODS[self.method], given)
            return method
        if not isinstance(self.method, Method):
            raise BadSetting(
                f"method = {self.method!r}, but it is a name or a method such as hw.APFL(). {nearest(str(self.method), METHODS)}"
            )
        if given:
            name, value = next(iter(given.items()))
            raise BadSetting(
                f"{name} = {value!r} is given beside a method that has its settings already. "
                f"Set it there: method={type(self.method).__name__}({name}={value!r}, ...)."
            )
        return self.method

    def join(self, X: Any, y: Any, groups: Groups) -> Self:
        """Takes in new clients. The estimator itself is changed, to what a fit on everybody's rows would give."""
        run, x = self._run(), self._rows(X)
        if groups is None:
            raise BadData("join needs groups: the client of every row. Name the newcomers with groups=...")
        target = column(y) if run.task.kind == "classes" else y
        newcomers = Federation.from_arrays(x, target, groups, task=run.task.kind, classes=run.task.labels)
        self.run_ = run.join(newcomers)
        return self

    def forget(self, client: Any) -> Self:
        """Takes a client out. The estimator itself is changed, to what a fit that never saw it would give; classes stay."""
        self.run_ = self._run().forget(id_of(client))
        return self

    # answering
    def personal(self, client: Any) -> Predictor:
        """The model that a client takes home: it predicts, and saves itself to one file."""
        return self._run().model(id_of(client))

    def predict(self, X: Any, groups: Groups = None) -> NDArray[Any]:
        """Every row answered by its own client's model, in the order given; of a client nobody knows, by the global model."""
        return self._answers(X, groups, Predictor.predict)

    def _answers(self, X: Any, groups: Groups, ask: Ask) -> NDArray[Any]:
        run, x = self._run(), self._rows(X)
        ids, owner = np.unique(owners(groups, len(x)), return_inverse=True)
        strangers = set(ids.tolist()).difference(run.ids)
        stranger = _stranger(sorted(strangers), run, groups) if strangers else None
        models = [run.model(name) if name not in strangers or stranger is None else stranger for name in ids.tolist()]
        order = np.argsort(owner, kind="stable")
        parts = np.split(order, np.searchsorted(owner[order], np.arange(1, len(ids))))
        found = [ask(model, x[rows]) for model, rows in zip(models, parts, strict=True)]
        out = np.empty((len(x), *found[0].shape[1:]), dtype=found[0].dtype)
        out[order] = np.concatenate(found)
        return out

    # what enters
    def _run(self) -> Run:
        if not hasattr(self, "run_"):
            raise NotFitted(f"This {type(self).__name__} is not fitted yet. Call fit first.")
        return self.run_

    def _rows(self, X: Any, first: bool = False) -> Array:
        """X as rows of finite numbers, with as many columns, of the same names, as at the first fit."""
        x = check.features(X, "X")
        try:
            validate_data(self, X, reset=first, skip_check_array=True)
        except (TypeError, ValueError) as error:
            raise BadData(f"{str(error).rstrip()} Give rows made like those of fit.") from error
        return x

    def _target(self, y: Any, n: int) -> NDArray[Any]:
        """y, one for every row, as the class numbers (n,) or the numbers (n, c) of the fitted task."""
        check.same_length(n, y, "y")
        return check.targets(column(y) if self.run_.task.kind == "classes" else y, self.run_.task, "y")


def _stranger(strangers: list[str], run: Run, groups: Groups) -> Predictor:
    """Who answers the clients that nobody knows: the global model, with a warning, or nobody."""
    name, others = strangers[0] or "(nobody)", f" nor {len(strangers) - 1} others" if len(strangers) > 1 else ""
    if groups is None:
        who = f"No groups are given, and the {len(run.ids)} clients of this fit have names"
        known = remedy = "Say with groups=... whose each row is."
    else:
        who = f"No client '{name}'{others} in this fit of {len(run.ids)} clients"
        known, remedy = nearest(name, run.ids), "Let it join for a model of its own, or check the ids."
    if run.stranger is None:
        raise UnknownClient(f"{who}, and {type(run.method).__name__} has no global model to answer by. {known}")
    warnings.warn(f"{who}: the global model answers. {remedy}", GlobalModelUsed, stacklevel=4)
    return run.stranger


class FederatedClassifier(ClassifierMixin, _Federated):
    """Classification in which each client (group of rows) gets a model of its own, learnt together with all others.

    method: a name of `hw.METHODS`, or a Method with settings of its own. ridge, gamma, balance: that method's settings, for names; None is
    the method's default. random_state: the seed of `hw.fit`; None is 0.

    `fit`, `predict`, `predict_proba`, `decision_function` and `score` take `groups`, the client of every row; without it all rows are of
    one client. y holds labels of any one type, or 0 and 1 in a column for each label (n, labels). With metadata routing on, groups reach
    the estimator through Pipeline, GridSearchCV and cross_val_score(..., params={"groups": groups}). (A search's own predict takes no
    groups: ask its best_estimator_.)

    After fit: `run_`, what `hw.fit` gives, with the clients' rows, which join and forget need and which a pickle holds too; `classes_`,
    `n_features_in_`, and `feature_names_in_` where columns have names.

    >>> clf = FederatedClassifier("afl").fit([[0.0], [1.0], [2.0], [3.0]], ["no", "no", "yes", "yes"], groups=["a", "b", "a", "b"])
    >>> clf.predict([[0.5], [2.5]], groups=["b", "a"]).tolist()
    ['no', 'yes']
    """

    __metadata_request__predict_proba = {"groups": True}  # noqa: RUF012
    __metadata_request__decision_function = {"groups": True}  # noqa: RUF012

    classes_: NDArray[Any]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: Any, y: Any, groups: Groups = None) -> Self:
        """Learns from every client's rows; an old fit is dropped."""
        values = column(y)
        self._learnt(X, values, groups, "classes" if values.ndim == 1 else "multilabel")
        self.classes_ = self.run_.task.labels
        return self

    def predict_proba(self, X: Any, groups: Groups = None) -> NDArray[np.float64]:
        """The softmax of the scores, or the scores cut to [0, 1] where rows have several labels. Not calibrated: an order, not odds."""
        proba = self._answers(X, groups, Predictor.predict_proba)
        if self.run_.task.kind == "multilabel":  # scikit-learn wants them inside, not on, the ends
            proba = np.clip(proba, EPS, 1.0 - EPS)
        return np.asarray(proba, dtype=np.float64)

    def decision_function(self, X: Any, groups: Groups = None) -> NDArray[np.float64]:
        """Raw scores (n, classes); for two classes (n,), the second's less the first's, as scikit-learn has it."""
        scores = self._answers(X, groups, Predictor.decision_function)
        if self.run_.task.kind == "classes" and scores.shape[1] == 2:
            return np.asarray(scores[:, 1] - scores[:, 0])
        return scores

    def score(self, X: Any, y: Any, groups: Groups = None) -> float:
        """The share of rows answered right, in all their labels where they have several; every row counts alike, whoever owns it."""
        scores = self._answers(X, groups, Predictor.decision_function)
        return float(row_values(self.run_.task, scores, self._target(y, len(scores))).mean())


class FederatedRegressor(RegressorMixin, _Federated):
    """Regression in which each client (group of rows) gets a model of its own, learnt together with all others.

    y is (n,), or (n, outputs). All else is as in `FederatedClassifier`.

    >>> reg = FederatedRegressor("afl", ridge=0).fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0], groups=["a", "b", "a"])
    >>> reg.predict([[3.0]], groups=["b"]).round(6).tolist()
    [7.0]
    """

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, groups: Groups = None) -> Self:
        """Learns from every client's rows; an old fit is dropped."""
        if y is None:
            raise BadData(NO_TARGET)
        return self._learnt(X, y, groups, "real")

    def score(self, X: Any, y: Any, groups: Groups = None) -> float:
        """R² over all rows, whoever owns them; the mean of several outputs'."""
        answers = self.predict(X, groups)
        return float(r2_score(self._target(y, len(answers)), answers))


NO_TARGET = "fit requires y to be passed, but the target y is None. Give one target for every row."


def column(y: Any) -> NDArray[Any]:
    """Class labels in one dimension, or 0 and 1 in a column for each label; a single column is warned of and flattened."""
    if y is None:
        raise BadData(NO_TARGET)
    values = check.column(y, "y")
    if values.ndim == 2 and values.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Change it to (n,), for example by y.ravel().",
            DataConversionWarning,
            stacklevel=3,
        )
        return values[:, 0]
    return values


def owners(groups: Groups, n: int) -> NDArray[Any]:
    """The client of every row, as text; "" for rows that a Partition gives to nobody."""
    if groups is None:
        return np.full(n, ALONE)
    if isinstance(groups, Dealt):
        check.same_length(n, groups.owner, "groups")
        return np.array([*groups.ids, ""])[groups.owner]
    return check.group_names(groups, n, "groups")


def id_of(client: Any) -> str:
    """A client as its id, which is text: groups may have been numbers."""
    return str(check.group_names([client], 1, "client")[0])


def seed_of(random_state: Any) -> int:
    """scikit-learn's random_state as the seed of `hw.fit`."""
    match random_state:
        case None:
            return 0
        case bool():
            pass
        case int() | np.integer():
            return int(random_state)
        case np.random.RandomState():
            return int(random_state.randint(2**31 - 1))
        case np.random.Generator():
            return int(random_state.integers(2**31 - 1))
    raise BadSetting(
        f"random_state = {random_state!r}, but it is a whole number, None, or a generator of NumPy's. Use random_state=0."
    )
