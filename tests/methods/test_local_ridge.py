"""local-ridge: what a client reaches alone."""

import numpy as np
import oracles
import pytest
from cases import Table, estimate, gap, rows_of, scores, table

import homeward as hw
from homeward.core.errors import BadSetting

intercepts = pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "origin"])
weighing = pytest.mark.parametrize("weighed", [False, True], ids=["plain", "weighed"])
shapes = pytest.mark.parametrize("d", [4, 40], ids=["n>d", "n<d"])


@intercepts
@weighing
@shapes
def test_it_is_the_clients_own_ridge_chosen_by_refits(intercept: bool, weighed: bool, d: int) -> None:
    """The intercept leaves with the row too: the mean that the others have is another one."""
    data = table("real", n=30, d=d, weighed=weighed)
    run = hw.fit(hw.LocalRidge(maps=None, intercept=intercept), data.federation())
    for client, own in rows_of(data).items():
        plain = (own.x, own.y, own.w)
        grid = [r * oracles.unit(own.x, own.w, intercept) for r in reversed(oracles.RIDGES)]
        refits = [oracles.without_each(*plain, r, intercept) for r in grid]
        best = oracles.least([oracles.cost("real", said, own.y, own.w) for said in refits])
        expected = oracles.ridge(*plain, grid[best], intercept)
        assert gap(scores(run, data.x, client), expected(data.x)) < 1e-8
        assert gap(estimate(run, client)["personal"], refits[best]) < 1e-8


@intercepts
@shapes
def test_leave_one_out_of_every_strength_is_a_refit(intercept: bool, d: int) -> None:
    data = table("real", n=24, d=d, weighed=True)
    own = rows_of(data)["c"]
    for strength in (1e-3, 0.1, 10.0):
        run = hw.fit(hw.LocalRidge(strength, maps=None, intercept=intercept), data.federation())
        expected = oracles.without_each(own.x, own.y, own.w, strength, intercept)
        assert gap(estimate(run, "c")["personal"], expected) < 1e-8


def test_nothing_is_sent_and_nobody_else_matters() -> None:
    data = table()
    run = hw.fit(hw.LocalRidge(maps=8), data.federation())
    assert run.progress.totals == () and run.stranger is None
    assert all(sums["up"] == 0 for sums in run.traffic.values())
    alone = hw.fit(hw.LocalRidge(maps=8), data.federation().only("a"))
    assert (scores(alone, data.x) == scores(run, data.x)).all()


@pytest.mark.parametrize("n", [1, 4])
def test_rows_that_do_not_vary_give_their_level(n: int) -> None:
    draw = np.random.default_rng(0)
    for _ in range(30):
        x, y, w = np.tile(draw.normal(size=5), (n, 1)), draw.normal(size=n) + 3, draw.random(n) + 0.1
        run = hw.fit(hw.LocalRidge(maps=None), Table(x, y, np.full(n, "a"), "real", w).federation())
        assert gap(scores(run, draw.normal(size=(9, 5))), np.full((9, 1), np.average(y, weights=w))) < 1e-12


def test_a_ridge_of_zero_is_refused() -> None:
    with pytest.raises(BadSetting, match="above 0"):
        hw.LocalRidge(0.0)


def test_two_rows_say_nothing_of_the_strength() -> None:
    """Each foretells the other by its own target at every ridge: a tie, so the largest, whatever the rounding."""
    draw = np.random.default_rng(0)
    for _ in range(30):
        x, y, w = draw.normal(size=(2, 3)) + 10, draw.normal(size=2), draw.random(2) + 0.1
        run = hw.fit(hw.LocalRidge(maps=None), Table(x, y, np.full(2, "a"), "real", w).federation())
        expected = oracles.ridge(x, y[:, None], w, 100 * oracles.unit(x, w, True), True)
        assert gap(scores(run, x), expected(x)) < 1e-9
