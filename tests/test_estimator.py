"""The scikit-learn face: its conventions, and that nothing is learnt here that `hw.fit` would not learn."""

import pickle
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import sklearn
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import DataConversionWarning
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import homeward as hw
from homeward import errors
from homeward.estimator import NotFitted

# Small maps: what is tested here is the face, not the arithmetic of 1024 columns.
METHODS = [hw.AFL(), hw.APFL(maps=32), hw.FedHiP(), hw.LocalRidge(maps=32), hw.Masked(maps=32), hw.LogPrior(maps=32)]


@pytest.fixture(scope="module")
def flowers() -> tuple[NDArray[np.float64], NDArray[np.str_], NDArray[np.str_]]:
    """Iris, with names for labels, dealt to four clients of unlike labels."""
    X, y = load_iris(return_X_y=True)
    labels = np.array(["setosa", "versicolor", "virginica"])[y]
    rng = np.random.default_rng(0)
    skew = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1], [0.1, 0.1, 0.2, 0.6]])
    groups = np.array([rng.choice(["north", "south", "east", "west"], p=skew[c]) for c in y])
    order = rng.permutation(len(y))
    return X[order], labels[order], groups[order]


@pytest.fixture
def routed() -> Iterator[None]:
    """With scikit-learn's metadata routing on."""
    with sklearn.config_context(enable_metadata_routing=True):
        yield


# ---- scikit-learn's own suite


def failures(estimator: hw.FederatedClassifier | hw.FederatedRegressor) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, on_skip=None, on_fail=None)
    assert len(results) > 40
    return [f"{r['check_name']}: {r['exception']!r}" for r in results if r["status"] == "failed"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [hw.FederatedClassifier, hw.FederatedRegressor])
def test_scikit_learn_finds_no_fault_with_the_defaults(kind: type[hw.FederatedClassifier]) -> None:
    assert failures(kind()) == []


@pytest.mark.parametrize("kind", [hw.FederatedClassifier, hw.FederatedRegressor])
@pytest.mark.parametrize("method", ["afl", "fedhip"])
def test_scikit_learn_finds_no_fault_with_other_methods(kind: type[hw.FederatedClassifier], method: str) -> None:
    assert failures(kind(method)) == []


@pytest.mark.parametrize("kind", [hw.FederatedClassifier, hw.FederatedRegressor])
def test_scikit_learn_finds_no_fault_with_a_method_that_has_no_global_model(
    kind: type[hw.FederatedClassifier],
) -> None:
    assert failures(kind(hw.LocalRidge(maps=None))) == []


# ---- the same as hw.fit


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_rows_are_answered_as_by_the_models_of_fit(method, flowers) -> None:
    X, y, groups = flowers
    run = hw.fit(method, hw.Federation.from_arrays(X, y, groups), seed=3)
    clf = hw.FederatedClassifier(method, random_state=3).fit(X, y, groups=groups)
    for ask in ("predict", "predict_proba", "decision_function"):
        answers = getattr(clf, ask)(X, groups=groups)
        for name in run.ids:
            mine = groups == name
            np.testing.assert_array_equal(answers[mine], getattr(run.model(name), ask)(X[mine]))
    assert clf.run_.progress.done == run.progress.done


def test_settings_of_a_name_are_those_of_the_method(flowers) -> None:
    X, y, groups = flowers
    by_name = hw.FederatedClassifier("fedhip", ridge=0.3, gamma=2.0).fit(X, y, groups=groups)
    by_method = hw.FederatedClassifier(hw.FedHiP(ridge=0.3, gamma=2.0)).fit(X, y, groups=groups)
    assert by_name.run_.method == by_method.run_.method == hw.FedHiP(ridge=0.3, gamma=2.0)
    np.testing.assert_array_equal(by_name.decision_function(X, groups), by_method.decision_function(X, groups))


def test_rows_are_answered_in_the_order_given(flowers) -> None:
    X, y, groups = flowers
    clf = hw.FederatedClassifier("fedhip").fit(X, y, groups=groups)
    order = np.random.default_rng(1).permutation(len(X))
    scores = clf.decision_function(X, groups)
    np.testing.assert_allclose(clf.decision_function(X[order], groups[order]), scores[order], rtol=1e-12)
    for i in (0, 17, 149):
        np.testing.assert_allclose(clf.decision_function(X[[i]], groups[[i]])[0], scores[i], rtol=1e-12)


def test_personal_is_the_model_that_a_client_takes_home(flowers, tmp_path) -> None:
    X, y, groups = flowers
    clf = hw.FederatedClassifier("fedhip").fit(X, y, groups=groups)
    mine = groups == "east"
    clf.personal("east").save(tmp_path / "east.safetensors")
    home = hw.load_model(tmp_path / "east.safetensors")
    np.testing.assert_array_equal(home.predict(X[mine]), clf.predict(X[mine], groups=groups[mine]))


def test_no_groups_are_one_client(flowers) -> None:
    X, y, _ = flowers
    clf = hw.FederatedClassifier("fedhip").fit(X, y)
    assert clf.run_.ids == ("all",)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(clf.predict(X), clf.personal("all").predict(X))


def test_groups_may_be_numbers(flowers) -> None:
    X, y, groups = flowers
    ids, numbers = np.unique(groups, return_inverse=True)
    clf = hw.FederatedClassifier("fedhip").fit(X, y, groups=numbers)
    assert clf.run_.ids == tuple(str(k) for k in range(len(ids)))
    named = hw.FederatedClassifier("fedhip").fit(X, y, groups=groups)
    np.testing.assert_array_equal(
        clf.personal(2).decision_function(X), named.personal(str(ids[2])).decision_function(X)
    )
    with_nan_type = numbers.astype(np.float64)  # as a table with a missing id somewhere would have it
    np.testing.assert_array_equal(clf.predict(X, groups=with_nan_type), clf.predict(X, groups=numbers))


def test_groups_may_be_a_partition(flowers) -> None:
    X, y, _ = flowers
    part = hw.iid(y, clients=3, seed=1)
    clf = hw.FederatedClassifier("fedhip").fit(X, y, groups=part)
    named = np.array(part.ids)[part.owner]
    np.testing.assert_array_equal(clf.predict(X, groups=part), clf.predict(X, groups=named))


# ---- clients that nobody knows


def test_an_unknown_client_is_answered_by_the_global_model_with_a_warning(flowers) -> None:
    X, y, groups = flowers
    clf = hw.FederatedClassifier("fedhip").fit(X, y, groups=groups)
    asked = np.where(np.arange(len(X)) % 2, groups, "moon")
    with pytest.warns(errors.GlobalModelUsed, match="'moon'.*global model.*join") as caught:
        scores = clf.decision_function(X, groups=asked)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    moon = asked == "moon"
    np.testing.assert_array_equal(scores[moon], clf.run_.stranger.decision_function(X[moon]))
    np.testing.assert_allclose(scores[~moon], clf.decision_function(X, groups)[~moon], rtol=1e-12)


def test_rows_without_groups_after_a_fit_with_groups_are_of_an_unknown_client(flowers) -> None:
    X, y, groups = flowers
    clf = hw.FederatedClassifier("fedhip").fit(X, y, groups=groups)
    with pytest.warns(errors.GlobalModelUsed, match="groups=..."):
        answers = clf.predict(X)
    np.testing.assert_array_equal(answers, clf.run_.stranger.predict(X))


@pytest.mark.parametrize("asked", ["moon", None])
def test_without_a_global_model_an_unknown_client_is_an_error(flowers, asked) -> None:
    X, y, groups = flowers
    clf = hw.FederatedClassifier("local-ridge").fit(X, y, groups=groups)
    with pytest.raises(errors.UnknownClient, match="LocalRidge has no global model"):
        clf.predict(X, groups=None if asked is None else np.full(len(X), asked))


# ---- kinds of targets


def test_a_binary_decision_is_one_number_a_row(flowers) -> None:
    X, y, groups = flowers
    clf = hw.FederatedClassifier("fedhip").fit(X, y == "virginica", groups=groups)
    scores = clf.decision_function(X, groups)
    assert scores.shape == (len(X),)
    assert clf.classes_.tolist() == [False, True]
    np.testing.assert_array_equal(clf.predict(X, groups), clf.classes_[(scores > 0).astype(int)])
    proba = clf.predict_proba(X, groups)
    assert proba.shape == (len(X), 2)
    np.testing.assert_array_equal(proba[:, 1] > 0.5, scores > 0)


@pytest.mark.parametrize(
    "names",
    [
        np.array(["a", "b", "c"]),
        np.array(["a", "a longer name", "ü"], dtype=object),
        np.array([-3, 0, 10**12]),
        np.array([0.0, 1.0, 7.0]),
        np.array([1, 2, 3], dtype=np.uint8),
    ],
    ids=lambda names: str(names.dtype),
)
def test_labels_come_back_as_they_went_in(flowers, names) -> None:
    X, y, groups = flowers
    labels = names[np.unique(y, return_inverse=True)[1]]
    clf = hw.FederatedClassifier("fedhip").fit(X, labels, groups=groups)
    answers = clf.predict(X, groups)
    assert clf.score(X, labels.astype(object), groups) == (answers == labels).mean()
    assert answers.dtype == names.dtype
    np.testing.assert_array_equal(clf.classes_, np.sort(names))
    assert (answers == labels).mean() > 0.9


def test_one_class_is_answered_always(flowers) -> None:
    X, _, groups = flowers
    clf = hw.FederatedClassifier("fedhip").fit(X, ["only"] * len(X), groups=groups)
    assert set(clf.predict(X, groups)) == {"only"}


def test_several_labels_a_row(flowers) -> None:
    X, y, groups = flowers
    many = np.stack([y == "setosa", X[:, 0] > 6, X[:, 3] > 1], axis=1).astype(int)
    clf = hw.FederatedClassifier("fedhip").fit(X, many, groups=groups)
    answers, proba = clf.predict(X, groups), clf.predict_proba(X, groups)
    assert answers.shape == proba.shape == clf.decision_function(X, groups).shape == many.shape
    assert proba.min() > 0
    assert proba.max() < 1
    np.testing.assert_array_equal(answers, proba > 0.5)
    assert clf.score(X, many, groups) == accuracy_score(many, answers) > 0.6
    assert clf.classes_.tolist() == [0, 1, 2]


def test_a_column_of_labels_is_flattened_with_a_warning(flowers) -> None:
    X, y, groups = flowers
    with pytest.warns(DataConversionWarning, match="ravel"):
        clf = hw.FederatedClassifier("afl").fit(X, y[:, None], groups=groups)
    flat = hw.FederatedClassifier("afl").fit(X, y, groups=groups)
    np.testing.assert_array_equal(clf.predict(X, groups), flat.predict(X, groups))


def test_score_counts_every_row_alike(flowers) -> None:
    X, y, groups = flowers
    clf = hw.FederatedClassifier("fedhip").fit(X, y, groups=groups)
    assert clf.score(X, y, groups) == accuracy_score(y, clf.predict(X, groups))
    sizes = {name: (groups == name).sum() for name in clf.run_.ids}
    per_client = {row["client"]: row["value"] for row in clf.run_.scores("train") if row["model"] == "personal"}
    assert clf.score(X, y, groups) == pytest.approx(sum(per_client[k] * n for k, n in sizes.items()) / len(X))


def test_regression_of_one_output_and_of_several() -> None:
    X, y = load_diabetes(return_X_y=True)
    groups = np.arange(len(X)) % 3
    one = hw.FederatedRegressor("fedhip").fit(X, y, groups=groups)
    assert one.predict(X, groups).shape == y.shape
    assert one.score(X, y, groups) == r2_score(y, one.predict(X, groups)) > 0.4
    several = hw.FederatedRegressor("afl", ridge=1.0).fit(X, np.stack([y, -2 * y], axis=1), groups=groups)
    answers = several.predict(X, groups)
    assert answers.shape == (len(X), 2)
    np.testing.assert_allclose(answers[:, 1], -2 * answers[:, 0])
    assert several.score(X, np.stack([y, -2 * y], axis=1), groups) == pytest.approx(r2_score(y, answers[:, 0]))


# ---- clients that come and go


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_a_client_that_joins_was_there_from_the_start(method, flowers) -> None:
    X, y, groups = flowers
    late = groups == "west"
    clf = hw.FederatedClassifier(method).fit(X[~late], y[~late], groups=groups[~late])
    assert clf.join(X[late], y[late], groups=groups[late]) is clf
    refit = hw.FederatedClassifier(method).fit(X, y, groups=groups)
    assert clf.run_.ids == refit.run_.ids
    np.testing.assert_allclose(clf.predict_proba(X, groups), refit.predict_proba(X, groups), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_a_client_that_is_forgotten_was_never_there(method, flowers) -> None:
    X, y, groups = flowers
    stay = groups != "west"
    clf = hw.FederatedClassifier(method).fit(X, y, groups=groups)
    assert clf.forget("west") is clf
    refit = hw.FederatedClassifier(method).fit(X[stay], y[stay], groups=groups[stay])
    X, groups = X[stay], groups[stay]
    np.testing.assert_allclose(clf.predict_proba(X, groups), refit.predict_proba(X, groups), rtol=1e-6, atol=1e-9)
    with pytest.raises(errors.UnknownClient):
        clf.personal("west")


def test_who_joins_with_fewer_classes_is_answered_with_all(flowers) -> None:
    X, y, groups = flowers
    late = groups == "west"
    clf = hw.FederatedClassifier("fedhip").fit(X[~late], y[~late], groups=groups[~late])
    some = late & (y == "virginica")
    clf.join(X[some], y[some], groups=groups[some])
    assert clf.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert clf.decision_function(X[some], groups[some]).shape[1] == 3


def test_a_join_that_fails_leaves_the_estimator_as_it_was(flowers) -> None:
    X, y, groups = flowers
    clf = hw.FederatedClassifier("fedhip").fit(X, y, groups=groups)
    run, before = clf.run_, clf.decision_function(X, groups)
    with pytest.raises(errors.BadData, match="already"):
        clf.join(X, y, groups=groups)
    with pytest.raises(errors.UnknownClient):
        clf.forget("moon")
    assert clf.run_ is run
    np.testing.assert_array_equal(clf.decision_function(X, groups), before)


# ---- scikit-learn's tools


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_a_clone_has_the_settings_and_nothing_learnt(method, flowers) -> None:
    X, y, groups = flowers
    clf = hw.FederatedClassifier(method, random_state=1).fit(X, y, groups=groups)
    copy = clone(clf)
    assert copy.get_params() == clf.get_params()
    assert not hasattr(copy, "run_")
    np.testing.assert_array_equal(copy.fit(X, y, groups=groups).predict(X, groups), clf.predict(X, groups))


@pytest.mark.parametrize("asked_before", [True, False])
@pytest.mark.parametrize("method", [*METHODS, hw.standardised(hw.FedHiP())], ids=lambda m: type(m).__name__)
def test_a_pickle_answers_alike_and_can_still_change(method, flowers, asked_before) -> None:
    X, y, groups = flowers
    clf = hw.FederatedClassifier(method).fit(X, y, groups=groups)
    if asked_before:
        clf.predict(X, groups)
    again = pickle.loads(pickle.dumps(clf))  # noqa: S301  # our own, a line ago
    np.testing.assert_array_equal(again.decision_function(X, groups), clf.decision_function(X, groups))
    np.testing.assert_array_equal(
        again.forget("west").decision_function(X[groups != "west"], groups[groups != "west"]),
        clf.forget("west").decision_function(X[groups != "west"], groups[groups != "west"]),
    )


def test_a_generator_seeds_the_fit(flowers) -> None:
    X, y, groups = flowers
    for make in (np.random.RandomState, np.random.default_rng):
        first = hw.FederatedClassifier("afl", random_state=make(5)).fit(X, y, groups=groups)
        second = hw.FederatedClassifier("afl", random_state=make(5)).fit(X, y, groups=groups)
        assert first.run_.seed == second.run_.seed > 0


def test_groups_reach_the_last_step_of_a_pipeline(flowers, routed) -> None:
    X, y, groups = flowers
    pipe = make_pipeline(StandardScaler(), hw.FederatedClassifier("fedhip")).fit(X, y, groups=groups)
    Z = StandardScaler().fit_transform(X)
    clf = hw.FederatedClassifier("fedhip").fit(Z, y, groups=groups)
    assert pipe[-1].run_.ids == clf.run_.ids
    for ask in ("predict", "predict_proba", "decision_function"):
        np.testing.assert_array_equal(getattr(pipe, ask)(X, groups=groups), getattr(clf, ask)(Z, groups=groups))
    assert pipe.score(X, y, groups=groups) == clf.score(Z, y, groups=groups)


def test_weights_are_refused_and_not_left_out_in_silence(flowers, routed) -> None:
    X, y, groups = flowers
    pipe = make_pipeline(StandardScaler(), hw.FederatedClassifier("afl")).fit(X, y, groups=groups)
    with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError, match="sample_weight"):
        pipe.score(X, y, groups=groups, sample_weight=np.ones(len(X)))


def test_groups_reach_a_pipeline_without_routing(flowers) -> None:
    X, y, groups = flowers
    pipe = make_pipeline(StandardScaler(), hw.FederatedClassifier("fedhip"))
    pipe.fit(X, y, federatedclassifier__groups=groups)
    assert pipe[-1].run_.ids == ("east", "north", "south", "west")
    pipe.predict(X, groups=groups)


def test_cross_validation_hands_out_groups(flowers, routed) -> None:
    X, y, groups = flowers
    clf, folds = hw.FederatedClassifier("fedhip"), KFold(3, shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = cross_val_score(clf, X, y, cv=folds, params={"groups": groups}, error_score="raise")
    for score, (train, test) in zip(scores, folds.split(X), strict=True):
        clf.fit(X[train], y[train], groups=groups[train])
        assert score == clf.score(X[test], y[test], groups=groups[test])


def test_folds_of_whole_clients_ask_the_global_model(flowers, routed) -> None:
    X, y, groups = flowers
    with pytest.warns(errors.GlobalModelUsed):
        scores = cross_val_score(
            hw.FederatedClassifier("afl"), X, y, cv=GroupKFold(4), params={"groups": groups}, error_score="raise"
        )
    assert scores.shape == (4,)


@pytest.mark.parametrize("piped", [False, True])
def test_a_search_over_ridge_and_gamma(flowers, routed, piped) -> None:
    X, y, groups = flowers
    grid = {"ridge": [0.01, 1e4, "gcv"], "gamma": [0.1, 1e6]}
    clf = hw.FederatedClassifier("fedhip")
    if piped:
        clf, grid = make_pipeline(StandardScaler(), clf), {f"federatedclassifier__{k}": v for k, v in grid.items()}
    search = GridSearchCV(clf, grid, cv=KFold(3, shuffle=True, random_state=0), error_score="raise")
    search.fit(X, y, groups=groups)
    assert len(search.cv_results_["params"]) == 6
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_score_ > 0.85
    assert search.score(X, y, groups=groups) > 0.85
    assert (search.best_estimator_.predict(X, groups=groups) == y).mean() > 0.85


def test_a_search_over_methods(flowers, routed) -> None:
    X, y, groups = flowers
    search = GridSearchCV(
        hw.FederatedClassifier(), {"method": ["afl", hw.FedHiP(gamma=1.0)]}, cv=3, error_score="raise"
    )
    search.fit(X, y, groups=groups)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_columns_of_a_table_keep_their_names(flowers) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed, and homeward does not need it")
    X, y, groups = flowers
    table = pandas.DataFrame(X, columns=["a", "b", "c", "d"])
    clf = hw.FederatedClassifier("afl").fit(table, pandas.Series(y), groups=pandas.Series(groups))
    assert clf.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(clf.predict(table, groups=groups), clf.run_.model("east").predict(X))
    with pytest.raises(errors.BadData, match="feature names"):
        clf.predict(table[["b", "a", "c", "d"]], groups=groups)


def test_attributes_of_a_fit(flowers) -> None:
    X, y, groups = flowers
    clf = hw.FederatedClassifier("afl").fit(X.tolist(), y.tolist(), groups=groups.tolist())
    assert isinstance(clf.run_, hw.Run)
    assert clf.n_features_in_ == 4
    assert clf.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    with pytest.raises(NotFitted, match="Call fit first"):
        hw.FederatedClassifier().predict(X)
