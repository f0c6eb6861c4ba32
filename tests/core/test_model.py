"""Models go home in one file: they answer there as they did here, with the user's own labels, or the file is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special

from homeward.core import wire
from homeward.core.algebra import Tree
from homeward.core.check import as_numpy
from homeward.core.errors import BadData, BadFile
from homeward.core.maps import ACTIVATIONS, RandomMap
from homeward.core.model import (
    Linear,
    Model,
    Predictor,
    Scaled,
    TwoStream,
    load_model,
    metric_of,
    model_from_bytes,
    score_of,
)
from homeward.core.task import ClientData, Federation, Task

DRAW = np.random.default_rng(0)
D, C = 4, 3
X = DRAW.standard_normal((9, D))


def linear(inputs: int = D, drawn: RandomMap | None = None) -> Linear:
    return Linear(DRAW.standard_normal((drawn.width if drawn else inputs, C)), DRAW.standard_normal(C), drawn)


MODELS: dict[str, Model] = {
    "linear": linear(),
    **{f"mapped by {name}": linear(drawn=RandomMap(3, "primary", D, 6, name)) for name in ACTIVATIONS},
    "masked": Linear(DRAW.standard_normal((D, C)), np.array([0.5, -np.inf, 0.0])),
    "two streams": TwoStream(
        linear(drawn=RandomMap(0, "primary", D, 7)), linear(drawn=RandomMap(0, "refine", D, 5)), np.array(0.7)
    ),
}
MODELS["scaled"] = Scaled(MODELS["two streams"], DRAW.standard_normal(D), 1.0 + DRAW.uniform(size=D))
MODELS["scaled twice"] = Scaled(MODELS["scaled"], np.zeros(D), np.full(D, 2.0))
LABELS: dict[str, Any] = {
    "text": np.array(["a", "ü", "long name"]),
    "objects": np.array(["a", "b", "c"], dtype=object),
    "ints": np.array([-1, 0, 70000], dtype=np.int32),
    "floats": np.array([0.0, 1.0, 2.0]),
    "bools": np.array([False, True]),
}


def predictor(model: Model, labels: Any = LABELS["text"], kind: str = "classes") -> Predictor:
    return Predictor(model, Task(kind, D, len(labels), labels), "clinic_07", "personal.R")


# ---- home and back


@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back_bit_for_bit(name: str, tmp_path: Path) -> None:
    mine = predictor(MODELS[name])
    again = load_model(mine.save(tmp_path / "models" / "a.safetensors"))
    assert again.to_bytes() == mine.to_bytes()
    assert (again.client, again.slot) == ("clinic_07", "personal.R")
    for x in (X, X.astype(np.float32), X[:1], X.tolist(), np.asfortranarray(X)):
        np.testing.assert_array_equal(again.decision_function(x), mine.decision_function(x), strict=True)
        np.testing.assert_array_equal(again.predict(x), mine.predict(x), strict=True)


@pytest.mark.parametrize("name", LABELS)
def test_labels_of_every_kind_survive(name: str) -> None:
    labels = LABELS[name]
    model = Linear(DRAW.standard_normal((D, len(labels))), np.zeros(len(labels)))
    again = model_from_bytes(predictor(model, labels).to_bytes(), "here")
    assert again.task.labels.dtype == labels.dtype and again.task.labels.tolist() == labels.tolist()
    assert set(again.predict(np.vstack([X, -X]))) <= set(labels.tolist())
    assert again.predict(X).dtype == labels.dtype


def test_a_model_of_nobody_in_particular_is_saved_too() -> None:
    model = Predictor(MODELS["linear"], Task("classes", D, C, LABELS["text"]))
    assert model_from_bytes(model.to_bytes(), "here").client is None


# ---- answers


def test_scores_are_their_formula() -> None:
    a, b = linear(drawn=RandomMap(0, "primary", D, 7, "tanh")), linear()
    assert a.map is not None
    primary = np.tanh(X @ a.map.matrix) @ a.weights + a.intercept
    personal = X @ b.weights + b.intercept
    mean, scale = DRAW.standard_normal(D), 1.0 + DRAW.uniform(size=D)
    for model, expected in (
        (a, primary),
        (TwoStream(a, b, np.array(0.25)), primary + 0.25 * personal),
        (Scaled(b, mean, scale), (X - mean) / scale @ b.weights + b.intercept),
    ):
        np.testing.assert_allclose(predictor(model).decision_function(X), expected, rtol=1e-12, atol=1e-13)


def test_a_class_that_is_ruled_out_is_never_answered() -> None:
    mine = predictor(MODELS["masked"])
    assert (mine.decision_function(X)[:, 1] == -np.inf).all()
    assert (mine.predict_proba(X)[:, 1] == 0).all()
    np.testing.assert_allclose(mine.predict_proba(X).sum(axis=1), 1.0)
    assert "ü" not in mine.predict(1e6 * X)


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_shapes_of_answers(outputs: int) -> None:
    model = Linear(DRAW.standard_normal((D, outputs)), np.full(outputs, 0.5))
    labels = np.arange(outputs)
    scores = model.scores(X)
    for kind in ("classes", "multilabel", "real"):
        mine = predictor(model, labels, kind)
        np.testing.assert_array_equal(mine.decision_function(X), scores)
        if kind == "classes":
            np.testing.assert_array_equal(mine.predict(X), scores.argmax(axis=1))
            np.testing.assert_array_equal(mine.predict_proba(X), scipy.special.softmax(scores, axis=1))
            assert np.isfinite(mine.predict_proba(1e3 * X)).all()
        elif kind == "multilabel":
            np.testing.assert_array_equal(mine.predict(X), scores > 0.5)
            assert mine.predict(X).dtype == np.int64
            np.testing.assert_array_equal(mine.predict_proba(X), np.clip(scores, 0, 1))
        else:
            np.testing.assert_array_equal(mine.predict(X), scores[:, 0] if outputs == 1 else scores)
            with pytest.raises(BadData, match=r"no probabilities\. Use predict"):
                mine.predict_proba(X)


@pytest.mark.parametrize("name", MODELS)
def test_torch_rows_get_the_same_answers(name: str) -> None:
    torch = pytest.importorskip("torch")
    mine = predictor(MODELS[name])
    np.testing.assert_allclose(mine.decision_function(torch.from_numpy(X)), mine.decision_function(X), rtol=1e-12)
    scores = MODELS[name].scores(torch.from_numpy(X).float())
    assert scores.dtype == torch.float64
    np.testing.assert_allclose(as_numpy(scores), mine.decision_function(X), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("ask", ["predict", "predict_proba", "decision_function"])
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (X[:, :3], "X has 3 columns, but 4 are expected"),
        (np.where(np.arange(D) == 2, np.nan, X), "X, row 0, column 2 is nan"),
        (X[0], r"X has shape \(4,\)"),
        ([["a"] * D], "X holds .*'a'"),
    ],
)
def test_rows_that_cannot_be_answered_are_refused(ask: str, x: Any, message: str) -> None:
    with pytest.raises(BadData, match=message):
        getattr(predictor(MODELS["linear"]), ask)(x)


# ---- scores


@pytest.mark.parametrize(
    ("kind", "y", "right"),
    [
        ("classes", np.array([0, 1, 1, 0]), [1, 1, 0, 1]),
        ("multilabel", np.array([[1, 0], [0, 1], [1, 1], [0, 0]]), [1, 1, 0, 0]),
    ],
)
def test_accuracy_counts_rows_with_their_weight(kind: str, y: Any, right: list[int]) -> None:
    scores = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.5]])
    weight = np.array([1.0, 2.0, 3.0, 0.0])
    data = ClientData(Task(kind, 1, 2, np.arange(2)), np.zeros((4, 1)), y, weight)
    assert score_of(data, scores) == pytest.approx(np.average(right, weights=weight))
    assert metric_of(data.task) == ("accuracy" if kind == "classes" else "subset_accuracy")


def test_r2_is_one_minus_the_share_of_the_spread_that_is_left() -> None:
    y, scores, w = DRAW.standard_normal((6, 2)), DRAW.standard_normal((6, 2)), np.array([1.0, 2, 0, 1, 1, 3])
    facts = Task("real", 1, 2, np.arange(2))

    def r2(y: Any, scores: Any, w: Any = w) -> float:
        return score_of(ClientData(facts, np.zeros((len(y), 1)), y, w), scores)

    again = np.repeat(np.arange(6), w.astype(int))
    assert r2(y, scores) == pytest.approx(r2(y[again], scores[again], np.ones(len(again))))
    assert r2(y, y) == 1.0
    assert r2(y, np.broadcast_to(np.average(y, axis=0, weights=w), y.shape)) == pytest.approx(0.0)
    flat = np.ones_like(y)
    assert (r2(flat, flat), r2(flat, flat + 1)) == (1.0, 0.0)
    assert metric_of(facts) == "r2"


def test_a_score_reads_rows_in_blocks() -> None:
    x = DRAW.standard_normal((40_000, D))
    mine = predictor(MODELS["linear"])
    y = mine.predict(x)
    fed = Federation.from_arrays(x, y, classes=LABELS["text"])
    pieces = Federation.from_chunks({"all": lambda: [(x[:9], y[:9]), (x[9:], y[9:])]}, classes=LABELS["text"])
    assert mine.score(fed.clients["all"]) == mine.score(pieces.clients["all"]) == 1.0


# ---- files that are refused


def test_a_map_that_is_drawn_otherwise_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    content = predictor(MODELS["two streams"]).to_bytes()
    monkeypatch.setattr(RandomMap, "hash", property(lambda self: "0" * 64))
    with pytest.raises(BadFile, match=r"here.*the random map drawn here is not the one"):
        model_from_bytes(content, "here")


def test_damaged_model_files_are_refused(tmp_path: Path) -> None:
    content = predictor(MODELS["linear"]).to_bytes()
    path = tmp_path / "m.safetensors"
    for wrong in (
        b"",
        content[:-1],
        content[: len(content) // 2],
        content + b"x",
        content.replace(b"classes", b"glasses"),
    ):
        path.write_bytes(wrong)
        with pytest.raises(BadFile, match=r"m\.safetensors is damaged"):
            load_model(path)
    with pytest.raises(BadFile, match="does not exist"):
        load_model(tmp_path / "nowhere")


FACTS: dict[str, Any] = {
    "kind": "model",
    "client": None,
    "slot": "personal",
    "model": {"type": "Linear", "weights": "w", "intercept": "b", "map": None},
    "task": {"kind": "classes", "dimension": D, "labels": wire.listed(LABELS["text"])},
}


def written(**changed: Any) -> bytes:
    return wire.to_bytes(Tree(w=np.ones((D, C)), b=np.ones(C)), **{**FACTS, **changed})


def test_the_facts_of_a_model_are_what_they_are() -> None:
    assert model_from_bytes(written(), "here").predict(X).tolist() == ["a"] * 9


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "server"}, "no model but a server of homeward's"),
        ({"model": {"type": "Oracle"}}, "a model of type 'Oracle', which is not defined here"),
        ({"model": {"type": "Linear", "weights": "nowhere", "intercept": "b"}}, "damaged"),
        ({"model": {"type": "Linear", "weights": "w"}}, "damaged"),
        ({"model": {"type": "Linear", "weights": "w", "intercept": "b", "bias": "b"}}, "damaged"),
        *(({"model": wrong}, "damaged") for wrong in (None, "w", 3, [], {}, {"type": []}, {"random_map": {}})),
        (
            {"model": {"type": "Linear", "weights": "w", "intercept": "b", "map": {"random_map": {"seed": 0}}}},
            "damaged",
        ),
        *(({"task": wrong}, "damaged") for wrong in (None, [], {}, {"kind": "classes"}, {"labels": {}})),
        ({"task": {**FACTS["task"], "labels": {"dtype": "<q9", "values": [1]}}}, "damaged"),
        ({"task": {**FACTS["task"], "labels": {"dtype": "<i8", "values": ["a"]}}}, "damaged"),
    ],
)
def test_facts_that_are_no_model_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(BadFile, match=f"^here.*{message}"):
        model_from_bytes(written(**changed), "here")
