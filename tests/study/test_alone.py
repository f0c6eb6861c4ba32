"""The control beside a run: the same features, the same rows, nothing sent, and each client measured on its own test rows."""

import numpy as np
import pytest

import homeward as hw
from homeward.core.method import Standardised
from homeward.study.alone import beside, control, counts, fitted_alone, rows_alone


def test_the_control_sees_what_the_method_sees() -> None:
    method = hw.APFL(maps=32, map_seed=3, activation="tanh", intercept=False)
    alone = control(method)
    assert {alone.settings[name] for name in ("maps", "map_seed", "activation", "intercept")} == {32, 3, "tanh", False}
    wrapped = control(hw.standardised(method))
    assert isinstance(wrapped, Standardised)
    assert wrapped.method == alone
    assert control(hw.FedHiP()).settings["maps"] is None


def test_each_client_is_scored_as_the_two_runs_score_it(toy: hw.Federation) -> None:
    run = hw.fit(hw.FedHiP(), toy.holdout(0.3))
    alone = fitted_alone(run)
    found = beside(run, alone)
    assert [one.difference for one in found] == sorted(one.difference for one in found)
    for one in found:
        scores = {row["model"]: row["value"] for row in run.scores("test") if row["client"] == one.client}
        assert (one.together, one.everybody) == (scores["personal"], scores["global"])
        assert one.alone == alone.model(one.client).score(run.federation.tests[one.client])
        assert one.paired.difference == pytest.approx(one.difference)
    assert sum(counts(found).values()) == len(found) == 3
    assert {(row["model"], row["method"]) for row in rows_alone(alone)} == {("local", "local-ridge")}


def test_one_model_for_all_stands_once(toy: hw.Federation) -> None:
    run = hw.fit(hw.AFL(), toy.holdout(0.3))
    assert {one.everybody for one in beside(run, fitted_alone(run))} == {None}


def test_a_client_without_test_rows_is_not_beside(toy: hw.Federation) -> None:
    fed = toy.holdout(0.3)
    tests = {name: data for name, data in fed.tests.items() if name != "b"}
    run = hw.fit(hw.FedHiP(), hw.Federation(fed.task, fed.clients, tests))
    assert {one.client for one in beside(run, fitted_alone(run))} == {"a", "c"}


def test_numbers_have_no_hits_to_count() -> None:
    draw = np.random.default_rng(0)
    fed = hw.Federation.from_arrays(draw.normal(size=(60, 3)), draw.normal(size=60), ["a", "b"] * 30, task="real")
    run = hw.fit(hw.FedHiP(), fed.holdout(0.3))
    found = beside(run, fitted_alone(run))
    assert {one.paired for one in found} == {None}
    assert counts(found) == {}


def test_all_clients_rows_as_one_tell_what_each_alone_cannot() -> None:
    from homeward.study.alone import Beside, together
    from homeward.study.paired import paired

    one = paired([1, 1, 1, 1, 0], [0, 0, 1, 1, 0])
    found = [Beside(f"c{i}", 10, 5, 0.4, 0.8, None, one) for i in range(6)]
    whole = together(found)
    assert one.verdict == "cannot tell" and whole is not None and whole.verdict == "helped"
    assert (whole.rows, whole.gained, whole.lost) == (30, 12, 0) and whole.difference == one.difference
    assert whole.low > one.low and together([]) is None
