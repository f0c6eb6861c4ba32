"""FedHiP: three readings of its third phase, each against refits; nobody else's dealing matters in any."""

from functools import partial
from typing import Any

import numpy as np
import oracles
import pytest
from cases import Table, accuracy, all_scores, estimate, gap, mixture, rows_of, scores, split, table
from hypothesis import given, settings
from hypothesis import strategies as st

import homeward as hw
from benchmarks import published
from homeward.core.errors import BadSetting
from homeward.methods import fedhip

intercepts = pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "origin"])
weighing = pytest.mark.parametrize("weighed", [False, True], ids=["plain", "weighed"])
joints = pytest.mark.parametrize("joint", [False, True], ids=["fixed", "joint"])
shapes = pytest.mark.parametrize("d", [4, 40], ids=["n>d", "n<d"])
FORMS = {form: partial(hw.FedHiP, form=form) for form in ("proximal", "weighted", "blend")}
forms = pytest.mark.parametrize("form", FORMS)


def pooled(rows: dict[str, oracles.Rows]) -> oracles.Rows:
    return oracles.together(list(rows.values()))


@forms
@intercepts
def test_fedhip_1_phase_two_is_the_pooled_ridge(form: str, intercept: bool) -> None:
    """Check 1, whatever the third phase; without an intercept it is the published recursion too."""
    data = table(weighed=not intercept)
    run, everyone = hw.fit(FORMS[form](0.5, intercept=intercept), data.federation()), pooled(rows_of(data))
    expected = oracles.ridge(everyone.x, everyone.y, everyone.w, 0.5, intercept)
    assert gap(scores(run, data.x, slot="global"), expected(data.x)) < 1e-10
    if not intercept:
        parts = [(np.sqrt(r.w)[:, None] * r.x, np.sqrt(r.w)[:, None] * r.y) for r in rows_of(data).values()]
        m, a = published.apfl_aggregate([published.local_head(x, y, 0.5) for x, y in parts])
        assert gap(run.progress.server["weights"], published.apfl_final(m, a, len(parts), 0.5, 0.5)) < 1e-8


@shapes
def test_fedhip_2_proximal_primal_is_dual_is_apfl(d: int) -> None:
    """(G_k + beta I)⁻¹ (Q_k + beta W), its dual, and a second ridge on the same features with balance 1."""
    data, beta = table("real", d=d), 0.7
    run = hw.fit(hw.FedHiP(0.5, beta, intercept=False), data.federation())
    apfl = hw.fit(hw.APFL(0.5, beta, 1.0, maps=None, intercept=False), data.federation())
    w = run.progress.server["weights"]
    for client, r in rows_of(data).items():
        primal = np.linalg.solve(r.x.T @ r.x + beta * np.eye(d), r.x.T @ r.y + beta * w)
        dual = w + r.x.T @ np.linalg.solve(r.x @ r.x.T + beta * np.eye(len(r)), r.y - r.x @ w)
        found = run.model(client).model.weights  # type: ignore[attr-defined]
        assert gap(found, primal) < 1e-10 and gap(found, dual) < 1e-10
        assert gap(scores(apfl, data.x, client), scores(run, data.x, client)) < 1e-10


@pytest.mark.parametrize("mu", [1, 2, 3, 0.37])
@intercepts
@weighing
@shapes
def test_fedhip_3_weighted_is_a_ridge_on_repeated_rows(mu: float, intercept: bool, weighed: bool, d: int) -> None:
    data = table("real", d=d, weighed=weighed)
    run, rows = hw.fit(hw.FedHiP(0.5, mu, form="weighted", intercept=intercept), data.federation()), rows_of(data)
    for client in rows:
        assert (
            gap(scores(run, data.x, client), oracles.repeated(*split(rows, client), mu, 0.5, intercept)(data.x)) < 1e-9
        )
    if float(mu).is_integer():  # really repeated
        times = np.where(data.groups == "a", 1 + int(mu), 1)
        many = hw.fit(
            hw.AFL(0.5, intercept=intercept), data.chosen(np.repeat(np.arange(len(data.x)), times)).federation()
        )
        assert gap(scores(run, data.x), scores(many, data.x)) < 1e-9


def test_fedhip_3_weighted_in_its_dual_form() -> None:
    """W + A⁻¹X' (I/mu + X A⁻¹ X')⁻¹ (Y - XW), A = G + ridge I"""
    data, mu = table("real", d=9), 2.0
    run = hw.fit(hw.FedHiP(0.5, mu, form="weighted", intercept=False), data.federation())
    w, every = run.progress.server["weights"], pooled(rows_of(data)).x
    back = np.linalg.inv(every.T @ every + 0.5 * np.eye(9))
    for client, r in rows_of(data).items():
        dual = w + back @ r.x.T @ np.linalg.solve(np.eye(len(r)) / mu + r.x @ back @ r.x.T, r.y - r.x @ w)
        assert gap(run.model(client).model.weights, dual) < 1e-9  # type: ignore[attr-defined]


def test_fedhip_4_limits() -> None:
    data = table()
    fed = data.federation()

    def of(*args: Any, **more: Any) -> np.ndarray:
        return all_scores(hw.fit(hw.FedHiP(0.5, *args, **more), fed), data.x)[::2]

    w = all_scores(hw.fit(hw.AFL(0.5), fed), data.x)
    alone = all_scores(hw.fit(hw.LocalRidge(0.7, maps=None), fed), data.x)
    assert gap(of(1e12), w) < 1e-9
    assert gap(of(0.0, "weighted"), w) < 1e-12
    assert gap(of(0.7, "blend", 0.0), w) < 1e-12
    assert gap(of(0.7, "blend", 1.0), alone) < 1e-10
    assert gap(of(0.7, "blend", 0.3), 0.7 * w + 0.3 * alone) < 1e-12
    few = table("real", n=24, d=60)  # beta -> 0 interpolates few rows
    near = hw.fit(hw.FedHiP(0.5, 1e-9, intercept=False), few.federation())
    assert gap(scores(near, few.x[few.groups == "a"]), few.y[few.groups == "a"]) < 1e-6


# leave-one-out, by refits
@intercepts
@weighing
@joints
@shapes
def test_fedhip_5_proximal_leave_one_out_is_a_refit(intercept: bool, weighed: bool, joint: bool, d: int) -> None:
    data = table("real", d=d, weighed=weighed)
    run = hw.fit(hw.FedHiP(0.5, 0.7, joint=joint, intercept=intercept), data.federation())
    rows = rows_of(data)
    for client in rows:
        first, added = oracles.both_without_each(*split(rows, client), 0.5, 0.7, intercept, joint)
        found = estimate(run, client)
        assert gap(found["global"], first) < 1e-8 and gap(found["personal"], first + added) < 1e-8


@intercepts
@weighing
@shapes
def test_fedhip_5_weighted_leave_one_out_is_a_refit(
    intercept: bool, weighed: bool, d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row leaves with its weight 1 + mu; ties go to the smaller mu."""
    data = table("real", d=d, weighed=weighed)
    rows, found = rows_of(data), []
    formula = fedhip.weighted_error
    monkeypatch.setattr(fedhip, "weighted_error", lambda path, gamma: found.append(formula(path, gamma)) or found[-1])
    run = hw.fit(hw.FedHiP(0.5, form="weighted", intercept=intercept), data.federation())
    for client in rows:
        found.clear()
        said = scores(run, data.x, client)
        errors = [oracles.repeated_error(*split(rows, client), mu, 0.5, intercept) for mu in oracles.MUS]
        assert found == pytest.approx(errors, rel=1e-8)
        best = oracles.MUS[oracles.least(errors)]
        assert gap(said, oracles.repeated(*split(rows, client), best, 0.5, intercept)(data.x)) < 1e-9


@intercepts
@weighing
@joints
@shapes
@pytest.mark.parametrize(("gamma", "t"), [("loo", "loo"), (0.7, "loo"), ("loo", 0.4)])
def test_fedhip_5_blend_leave_one_out_is_a_refit(
    intercept: bool, weighed: bool, joint: bool, d: int, gamma: Any, t: Any
) -> None:
    """t in closed form within [0, 1]; the own ridge has its own intercept, which leaves with the row too."""
    data = table("real", d=d, weighed=weighed, seed=6)
    rows = rows_of(data)
    method = hw.FedHiP(0.5, gamma, "blend", None if t == "loo" else t, joint=joint, intercept=intercept)
    run = hw.fit(method, data.federation())
    for client in rows:
        expected, _ = oracles.blend(*split(rows, client), 0.5, gamma, t, intercept, joint)
        assert gap(scores(run, data.x, client), expected(data.x)) < 1e-7


@pytest.mark.parametrize("kind", ["classes", "real"])
@intercepts
@joints
@shapes
def test_the_whole_proximal_model_is_what_refits_choose(kind: str, intercept: bool, joint: bool, d: int) -> None:
    data = table(kind, d=d, weighed=True)
    rows, run = rows_of(data), hw.fit(hw.FedHiP(joint=joint, intercept=intercept), data.federation())
    everyone = pooled(rows)
    strength = oracles.strength_of("gcv", everyone, intercept)
    for client in rows:
        expected = oracles.two_stream(*split(rows, client), strength, balance=1.0, intercept=intercept, joint=joint)
        assert gap(scores(run, data.x, client), expected(data.x, data.x)) < 1e-7


# who is there, and who is not
@forms
def test_fedhip_7_a_client_joins_continuously_and_leaves_without_a_trace(form: str) -> None:
    data = table(n=60, clients=4)
    fed, method = data.federation(), FORMS[form](0.5, 0.7)
    before = hw.fit(method, fed.without("d"))
    after = before.join(fed.only("d"))
    assert gap(scores(after.forget("d"), data.x), scores(before, data.x)) < 1e-9
    moved = []
    for weight in (1e-3, 1e-6):  # a newcomer of next to no weight moves next to nothing
        faint = data.federation(weights=np.where(data.groups == "d", weight, 1.0))
        moved.append(gap(scores(hw.fit(method, faint), data.x), scores(before, data.x)))
    assert moved[1] < 2e-3 * moved[0] < 1e-4
    assert gap(scores(after, data.x), scores(before, data.x)) > 1e-3


@forms
@joints
def test_fedhip_8_9_clients_of_one_row_of_few_classes_or_without_rows(form: str, joint: bool) -> None:
    """Whoever has no row gets W; so does the blend's single row, whose own ridge says nothing."""
    if joint and form == "weighted":
        pytest.skip("takes a row out of both fits anyway")
    data = table(n=60)
    data = Table(data.x, data.y, data.groups.astype("U9"), classes=data.classes)
    data.groups[:2] = ["empty", "single"]
    data.groups[(data.y == 1) & (data.groups == "c")] = "one class"
    run = hw.fit(
        FORMS[form](**{} if form == "weighted" else {"joint": joint}),
        data.federation(weights=np.where(data.groups == "empty", 0.0, 1.0)),
    )
    assert np.isfinite(all_scores(run, data.x)).all()
    for client in ("empty", "single")[: 2 if form == "blend" else 1]:
        assert (scores(run, data.x, client) == scores(run, data.x, client, "global")).all()


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    st.integers(0, 2**32), st.integers(1, 9), st.sampled_from(["gcv", "loo", 0.5]), st.sampled_from([*FORMS, "joint"])
)
def test_fedhip_6_how_the_others_are_dealt_changes_nothing(seed: int, clients: int, ridge: Any, form: str) -> None:
    """Split, merged, permuted, dealt anew: relative 1e-10, 1e-9 where a rule compares."""
    data = table(n=60, weighed=True)
    dealt = np.char.mod("z%d", np.random.default_rng(seed).integers(0, clients, 60))
    method = hw.FedHiP(ridge, joint=True) if form == "joint" else FORMS[form](ridge)
    runs = [hw.fit(method, data.federation(groups=g)) for g in (data.groups, np.where(data.groups == "a", "a", dealt))]
    assert gap(*(scores(run, data.x) for run in runs)) < 1e-9
    if form != "joint":
        fixed = [hw.fit(FORMS[form](0.5, 0.7), run.federation) for run in runs if run.federation]
        assert gap(*(scores(run, data.x) for run in fixed)) < 1e-10


# the notes' synthetic set
NOTES = {  # global W, local ridge, proximal, weighted, blend; masked and log-prior beside them; weights tuned on test rows
    (0.1, 0.0): (87.2, 90.0, 95.0, 92.6, 95.3, 92.7, 95.0),
    (0.5, 0.0): (88.2, 78.1, 91.0, 89.4, 91.7, 88.5, 91.3),
    (1.0, 0.0): (87.4, 73.8, 89.1, 88.1, 89.6, 87.7, 89.6),
    (0.5, 0.5): (85.6, 78.6, 88.9, 88.2, 88.9, None, None),
}


@pytest.mark.slow
@pytest.mark.parametrize(("alpha", "shift"), NOTES)
def test_fedhip_the_synthetic_table_and_its_controls(alpha: float, shift: float) -> None:
    """Within 1.5 points (the blend: 3.5 below) of what is best on test rows, though here nothing is chosen on them; and check 10.

    Check 10: what joint leave-one-out promises is within 2 points of what the test rows give.
    """
    plain: dict[str, Any] = {"maps": 256, "intercept": False}
    methods = [
        hw.FedHiP(0.01, joint=True, **plain),
        hw.LocalRidge(**plain),
        hw.FedHiP(0.01, **plain),
        hw.FedHiP(0.01, form="weighted", **plain),
        hw.FedHiP(0.01, form="blend", **plain),
        hw.Masked(0.01, **plain),
        hw.LogPrior(0.01, **plain),
    ]
    means, promised = [], []
    for seed in range(3):
        runs = [hw.fit(method, mixture(alpha, seed, shift)) for method in methods]
        means.append([accuracy(runs[0], "global"), *(accuracy(run, "personal") for run in runs[1:])])
        promised.append(accuracy(runs[0], "personal", "loo") - accuracy(runs[0], "personal"))
    for i, (got, bound) in enumerate(zip(np.mean(means, axis=0), NOTES[alpha, shift], strict=True)):
        # a blend chosen by squared error with W fixed trusts W too much where a client has few classes
        assert bound is None or -(3.5 if i == 4 else 1.5) < got - bound < 1.5, (i, got, bound)
    assert abs(np.mean(promised)) < 2.0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"balance": 0.5}, "only form = 'blend' has a balance"),
        ({"gamma": 0.0}, "above 0"),
        ({"gamma": 0.0, "form": "blend"}, "above 0"),
        ({"form": "blend", "balance": 1.1}, "<= 1"),
        ({"form": "nearest"}, "proximal"),
        ({"form": "weighted", "joint": True}, "leave joint out"),
        ({"form": "weighted", "ridge": "pinv"}, "pinv"),
        ({"joint": True, "ridge": "pinv"}, "pinv"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        hw.FedHiP(**wrong)
