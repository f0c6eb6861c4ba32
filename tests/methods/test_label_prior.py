"""masked and log-prior: the global head and the client's own class counts."""

import numpy as np
import oracles
import pytest
from cases import Table, gap, rows_of, scores, table

import homeward as hw
from homeward.core.algebra import Tree
from homeward.core.errors import BadSetting
from homeward.core.rng import rng_for

intercepts = pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "origin"])


@intercepts
@pytest.mark.parametrize("maps", [None, 60], ids=["N>d", "N<d"])
def test_tau_is_chosen_by_refits_with_the_row_out_of_its_class_count(intercept: bool, maps: int | None) -> None:
    data = table(n=40, outputs=4, weighed=True, seed=5)
    method = hw.LogPrior(0.3, maps=maps, intercept=intercept)
    run, rows = hw.fit(method, data.federation()), rows_of(data, method)
    expected = oracles.tau_costs(list(rows.values()), 0.3, intercept)
    fed, down = data.federation(), summarised(method, data)
    found = sum(method.tally_tau(down, c, Tree(), rng_for(0))[0].losses for c in fed.clients.values())
    assert found == pytest.approx(expected)
    tau = oracles.TAUS[oracles.least(expected)]
    assert float(run.progress.server["tau"]) == tau
    assert "factor" not in run.progress.server  # it went down in the second round only
    everyone = oracles.together(list(rows.values()))
    head = oracles.ridge(everyone.x, everyone.y, everyone.w, 0.3, intercept)
    for client, own in rows.items():
        said = head(everyone.x) + tau * oracles.log_prior(own.y.sum(0))
        drawn = np.concatenate([data.x[(data.groups == k) & (data.weights > 0)] for k in rows])
        assert gap(scores(run, drawn, client), said) < 1e-9


def summarised(method: hw.LogPrior, data: Table) -> Tree:
    """What goes down in the second round."""
    fed = data.federation()
    start = method.init(fed.task, rng_for(0))
    parts = [method.summarise(start, rows, Tree(), rng_for(0))[0] for rows in fed.clients.values()]
    return method.shared(method.solve(start, sum(parts[1:], parts[0]), fed.task, rng_for(0)))


def test_tau_of_a_federation_with_clients_of_one_class_each_is_positive() -> None:
    draw = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 25)
    x = draw.normal(size=(4, 6))[y] + 1.5 * draw.normal(size=(100, 6))
    fed = Table(x, y, np.array(list("abcd"))[y], classes=np.arange(4)).federation()
    run = hw.fit(hw.LogPrior(maps=None), fed)
    assert float(run.progress.server["tau"]) > 0
    better = {row["model"]: [r["value"] for r in run.scores() if r["model"] == row["model"]] for row in run.scores()}
    assert np.mean(better["personal"]) > np.mean(better["global"])


def test_a_tau_of_zero_is_the_global_head_and_needs_one_round() -> None:
    data = table()
    run = hw.fit(hw.LogPrior(0.3, 0.0, maps=None), data.federation())
    assert (scores(run, data.x, "a", "personal") == scores(run, data.x, "a", "global")).all()
    assert len(hw.LogPrior("loo").plan()) == 3 and len(hw.LogPrior(tau=0.1).plan()) == 1


def test_masked_rules_out_what_a_client_has_no_row_of() -> None:
    data = table(weighed=True, outputs=4)
    weights = np.where((data.groups == "a") & (data.y == 1), 0.0, data.weights)  # rows of weight 0 do not count
    run = hw.fit(hw.Masked(maps=None), data.federation(weights=weights))
    for client, own in rows_of(Table(data.x, data.y, data.groups, "classes", weights, data.classes)).items():
        said, head = (scores(run, data.x, client, slot) for slot in ("personal", "global"))
        absent = own.y.sum(0) == 0
        assert (said[:, absent] == -np.inf).all() and (said[:, ~absent] == head[:, ~absent]).all()
    assert (rows_of(Table(data.x, data.y, data.groups, "classes", weights, data.classes))["a"].y[:, 1] == 0).all()


@pytest.mark.parametrize("method", [hw.Masked, hw.LogPrior])
def test_a_client_without_rows_rules_nothing_out(method: type) -> None:
    data = table()
    weights = np.where(data.groups == "a", 0.0, 1.0)
    run = hw.fit(method(maps=None), data.federation(weights=weights))
    assert gap(*(scores(run, data.x, "a", slot).argmax(1) for slot in ("personal", "global"))) == 0


@pytest.mark.parametrize("kind", ["real", "multilabel"])
@pytest.mark.parametrize("method", [hw.Masked, hw.LogPrior])
def test_other_kinds_of_target_are_refused_before_anything_is_sent(kind: str, method: type) -> None:
    with pytest.raises(BadSetting, match="needs task = 'classes'"):
        method().init(table(kind).federation().task, rng_for(0))


def test_the_pseudo_inverse_has_no_factor_for_tau() -> None:
    with pytest.raises(BadSetting, match="pinv"):
        hw.LogPrior("pinv")
    hw.LogPrior("pinv", 0.1)
