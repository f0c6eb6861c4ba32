"""A client's own ridge along its grid: one eigendecomposition, exact leave-one-out, rows in blocks."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import oracles
import pytest
from cases import gap

from homeward.core.algebra import Array
from homeward.core.linalg import cholesky
from homeward.methods import _own
from homeward.methods._own import OwnRows, Path, Reader, Second, choose, left_out_scores

tall_or_wide = pytest.mark.parametrize("r", [4, 30], ids=["n>r", "n<r"])
BLOCKS = [[12], [5, 4, 3]]


def own(n: int = 12, r: int = 4, c: int = 2, seed: int = 0, f: Array = None, halves: int = 0) -> OwnRows:
    draw = np.random.default_rng(seed)
    weight = draw.uniform(0.3, 2.0, n)
    root = np.sqrt(weight)[:, None]
    features = root * (draw.normal(size=(n, r)) if f is None else f)
    left = draw.normal(size=(n, c))
    y = left + 1.0
    half = 0.3 * root * draw.normal(size=(n, halves))
    return OwnRows(features, root * left, np.ones((n, c)), y, weight, half)


def path_of(rows: OwnRows, sizes: list[int], build: Callable[..., Path | None] | None = None) -> Path:
    cuts = np.cumsum([0, *sizes])
    fields = ("features", "targets", "scores", "y", "weight", "half")
    blocks = [OwnRows(*(getattr(rows, f)[a:b] for f in fields)) for a, b in pairwise(cuts)]
    n, r = rows.features.shape
    read = Reader(lambda: iter(blocks), tuple(blocks) if len(blocks) == 1 else None)
    path = build(read, 0.0) if build else Path.of(read, n, r)
    assert path is not None
    return path


@tall_or_wide
@pytest.mark.parametrize("sizes", BLOCKS, ids=["one block", "three"])
def test_apfl_6_the_path_is_a_direct_solve_at_every_strength(r: int, sizes: list[int]) -> None:
    rows = own(r=r)
    path = path_of(rows, sizes)
    for gamma in (1e-3, 0.1, 1.0, 10.0, 1e3):
        direct = np.linalg.solve(rows.features.T @ rows.features + gamma * np.eye(r), rows.features.T @ rows.targets)
        assert gap(path.coefficients(gamma), direct) < 1e-9


@tall_or_wide
@pytest.mark.parametrize("sizes", BLOCKS, ids=["one block", "three"])
@pytest.mark.parametrize("halves", [0, 6], ids=["fixed", "joint"])
def test_apfl_4_primal_is_dual(r: int, sizes: list[int], halves: int) -> None:
    """Rows outnumbering columns or not, either way of the eigendecomposition gives the same fit and the same leave-one-out."""
    rows = own(r=r, halves=halves)
    primal, dual = path_of(rows, sizes, _own._many), path_of(rows, sizes, _own._few)
    assert primal.spectrum.right and not dual.spectrum.right
    for gamma in (0.01, 1.0, 100.0):
        assert gap(primal.coefficients(gamma), dual.coefficients(gamma)) < 1e-10
        one, two = (
            np.concatenate([np.hstack(parts[1:]) for parts in left_out_scores(p, gamma)]) for p in (primal, dual)
        )
        assert gap(one, two) < 1e-10


@tall_or_wide
def test_leave_one_out_is_exact_where_rows_nearly_fit_themselves(r: int) -> None:
    """At gamma = 1e-4 six rows in 30 columns leave some millionths of themselves, and that is right to eight digits."""
    rows, gamma = own(n=6, r=r, c=1), 1e-4
    ((_, _, fit),) = path_of(rows, [6]).left_out(gamma)
    assert fit is not None
    root = np.sqrt(rows.weight)[:, None]
    f, e = rows.features / root, rows.targets / root
    for i in range(6):
        rest = np.arange(6) != i
        alone = oracles.second(f[rest], e[rest], rows.weight[rest], gamma, 0.0)
        assert gap(fit[i] / root[i], alone(f[i])) < 1e-8


def test_a_strength_at_which_a_row_has_leverage_1_is_skipped() -> None:
    rows = own(n=4, r=9)
    path = path_of(rows, [4])
    tiny = 1e-14
    assert all(fit is None for _, _, fit in path.left_out(tiny))
    assert choose(path, [tiny], None) == Second(tiny, 0.0)
    assert choose(path, [1.0, tiny], 1.0) == Second(1.0, 1.0)
    assert all((second == 0).all() for _, _, second in left_out_scores(path, tiny))


@pytest.mark.parametrize("f", [np.ones((1, 5)), 3 * np.eye(5), np.eye(5)[:3]], ids=["one row", "orthogonal", "fewer"])
def test_apfl_13_nothing_is_learnt_from_rows_that_say_nothing_of_each_other(f: Array) -> None:
    """The balance would be 0/0, in floats anything: it is 0, and gamma the largest."""
    for seed in range(20):
        path = path_of(own(n=len(f), f=f, seed=seed), [len(f)])
        assert choose(path, [10.0, 1.0, 1e-3], None) == Second(10.0, 0.0)


def test_ties_of_gamma_go_to_the_larger() -> None:
    path = path_of(own(), [12])
    assert choose(path, [2.0, 1.0 + 1e-13, 1.0], 0.0).gamma == 2.0  # with balance 0 all are alike
    best = choose(path, [g * path.unit for g in reversed(_own.GAMMAS)], None)
    assert choose(path, [best.gamma * (1 + 1e-13), best.gamma], None).gamma > best.gamma


def test_the_balance_is_the_best_one_and_is_cut() -> None:
    path = path_of(own(r=3), [12])
    gamma = path.unit
    free = choose(path, [gamma], None, most=np.inf).balance

    def error(a: float) -> float:
        return sum(float(((left - a * fit) ** 2).sum()) for _, left, fit in path.left_out(gamma) if fit is not None)

    best = max(free, 0.0)
    assert error(best) <= min(error(best + 1e-3), error(max(best - 1e-3, 0.0)))
    assert choose(path, [gamma], None, most=best / 2).balance == best / 2


def test_rows_that_do_not_vary_are_exactly_zero_about_their_mean() -> None:
    """What rounding leaves of equal rows, unlike in weight, once made a client's own ridge forget its level."""
    draw = np.random.default_rng(0)
    from homeward.core.task import Federation

    for _ in range(50):
        n = int(draw.integers(1, 5))
        fed = Federation.from_arrays(
            np.tile(draw.normal(size=5), (n, 1)), draw.normal(size=n) + 3, task="real", weights=draw.random(n)
        )
        read, *_ = _own.centred_rows(fed.clients["all"], lambda x: x, 5, True)
        assert all((block.features == 0).all() for block in read())


def test_the_factor_of_the_joint_fit_is_not_the_clients_concern() -> None:
    """Halves L⁻¹z of any factor give the same S, so a client needs only one of them."""
    draw = np.random.default_rng(0)
    z = draw.normal(size=(5, 3))
    a = 4 * np.eye(3) + z.T @ z
    half = cholesky(a).half(z.T).T
    assert gap(half @ half.T, z @ np.linalg.solve(a, z.T)) < 1e-13
