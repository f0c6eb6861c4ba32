"""AFL: the sum of everybody's rows gives what the published recursion gives, and what one pooled table gives."""

import numpy as np
import oracles
import pytest
from cases import Table, gap, rows_of, scores, table

import homeward as hw
from benchmarks import published
from homeward.core.maps import RandomMap

Rows = list[tuple[np.ndarray, np.ndarray]]


def relu(data: Table, width: int) -> Table:
    """Through a random map, as non-negative as pooled features are."""
    drawn = RandomMap(0, "primary", data.x.shape[1], width)
    return Table(drawn(data.x), data.y, data.groups, data.kind, data.weights, data.classes)


def parts_of(data: Table) -> Rows:
    return [(rows.x, rows.y) for rows in rows_of(data).values()]


def head(data: Table, ridge: float) -> np.ndarray:
    return np.asarray(hw.fit(hw.AFL(ridge, intercept=False), data.federation()).progress.server["weights"])


def gaussian(clients: int, n: int = 10_000, d: int = 512, dtype: type = np.float64) -> Table:
    """The dummy test of the authors' notebook: Gaussian rows, ten random classes, dealt equally."""
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(n, d)).astype(dtype), draw.integers(0, 10, n)
    return Table(x, y, np.char.mod("%03d", np.arange(n) % clients), classes=np.arange(10))


def test_afl_1_without_a_ridge_it_is_least_squares_on_the_pooled_rows() -> None:
    data = relu(table(n=200), 20)
    pooled = oracles.together(list(rows_of(data).values()))
    assert (
        gap(
            hw.fit(hw.AFL.paper(), data.federation()).progress.server["weights"], np.linalg.lstsq(pooled.x, pooled.y)[0]
        )
        < 1e-10
    )


@pytest.mark.parametrize("width", [None, 90], ids=["gaussian", "relu"])
def test_afl_2_the_published_recursion_is_the_sum(width: int | None) -> None:
    """Clients of fewer rows than columns, gamma = 1: after the removal no ridge is left, before it K gamma is."""
    data = gaussian(6, n=240, d=90) if width is None else relu(gaussian(6, n=240, d=30), width)
    assert all(len(x) < x.shape[1] for x, _ in parts_of(data))
    assert gap(published.afl(parts_of(data), 1.0), head(data, 0.0)) < 1e-8
    assert gap(published.afl(parts_of(data), 1.0, remove=False), head(data, 6.0)) < 1e-8


def test_afl_3_the_law_of_two_is_a_matrix_weighted_mean() -> None:
    (_, c_u), (_, c_v) = (published.local_head(x, y, 1.0) for x, y in parts_of(gaussian(2, n=100, d=40)))
    t_u, t_v = published.weights_of_two(c_u, c_v)
    assert gap(t_u, np.linalg.solve(c_u + c_v, c_u)) < 1e-10
    assert gap(t_v, np.linalg.solve(c_u + c_v, c_v)) < 1e-10


def test_afl_4_the_recursion_does_not_depend_on_the_order_and_neither_does_the_sum() -> None:
    """The rest of check 4 (splits, moved rows) holds for every rule: see test_closed."""
    data = gaussian(5, n=200, d=30)
    parts = parts_of(data)
    assert gap(published.afl(parts[::-1], 1.0), published.afl(parts, 1.0)) < 1e-10
    dealt = np.random.default_rng(1).permutation(data.groups)
    assert gap(head(Table(data.x, data.y, dealt, classes=data.classes), 0.1), head(data, 0.1)) < 1e-10


def test_afl_5_6_joining_forgetting_and_the_low_rank_update() -> None:
    """The formulas for a head that is updated in place: W ∓ B X_S' (I ∓ X_S B X_S')⁻¹ (Y_S - X_S W)."""
    data, ridge = gaussian(4, n=120, d=20), 0.3
    run = hw.fit(hw.AFL(ridge, intercept=False), data.federation())
    gone = run.forget("002")
    w, w_gone = run.progress.server["weights"], gone.progress.server["weights"]
    assert gap(w_gone, head(data.chosen(data.groups != "002"), ridge)) < 1e-9
    assert gap(gone.join(data.federation().only("002")).progress.server["weights"], w) < 1e-9
    x, y = dict(zip(run.ids, parts_of(data), strict=True))["002"]
    for start, end, sign in ((w, w_gone, -1), (w_gone, w, 1)):
        rest = data.x if sign < 0 else data.x[data.groups != "002"]
        b = np.linalg.inv(rest.T @ rest + ridge * np.eye(20))
        step = b @ x.T @ np.linalg.solve(np.eye(len(x)) + sign * x @ b @ x.T, y - x @ start)
        assert gap(start + sign * step, end) < 1e-9


def test_afl_9_the_payload_gives_the_sums_away() -> None:
    x, y = parts_of(gaussian(1, n=30, d=50))[0]
    w, c = published.local_head(x, y, 1.0)
    assert gap(c @ w, x.T @ y) < 1e-9 and gap(c - np.eye(50), x.T @ x) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "theirs"), [(2, 4.5e-14), (10, 1.9e-12), (20, 6.1e-10), (50, 9.8e-10)])
def test_afl_10_the_dummy_table(clients: int, theirs: float) -> None:
    """Absolute differences to the pooled head, summed: the recursion within ten times of its column; the sum far below, whatever K."""
    data = gaussian(clients)
    pooled = np.linalg.solve(data.x.T @ data.x, data.x.T @ np.eye(10)[data.y])
    assert gap(head(data, 0.0), pooled) < 2e-14
    far = abs(published.afl(parts_of(data), 1.0) - pooled).sum()
    assert theirs / 10 < far < 10 * theirs
    single = Table(data.x.astype(np.float32), data.y, data.groups, classes=data.classes)
    assert gap(head(single, 0.0), pooled) < 5e-7


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "theirs"), [(2, 8.0e-7), (10, 7.8e-5), (20, 2.4e-2), (50, 3.8e-2)])
def test_afl_10_the_recursion_in_float32_loses_what_the_sum_keeps(clients: int, theirs: float) -> None:
    data = gaussian(clients)
    pooled = np.linalg.solve(data.x.T @ data.x, data.x.T @ np.eye(10)[data.y])
    single = [(x.astype(np.float32), y.astype(np.float32)) for x, y in parts_of(data)]
    assert theirs / 10 < gap(published.afl(single, 1.0), pooled) < 10 * theirs


def test_afl_11_the_recursion_refuses_singular_clients_and_the_sum_does_not_need_them_regular() -> None:
    data = gaussian(6, n=240, d=90)
    with pytest.raises(ValueError, match=r"40 rows span fewer than their 90 columns"):
        published.afl(parts_of(data), 0.0)
    twice = Table(np.hstack([data.x[:, :5], data.x[:, :5]]), data.y, data.groups, classes=data.classes)
    with pytest.raises(ValueError, match=r"40 rows span fewer than their 10 columns"):
        published.afl(parts_of(twice), 0.0)
    pooled = np.linalg.lstsq(data.x, np.eye(10)[data.y])[0]
    assert gap(head(data, 0.0), pooled) < 1e-10


def test_a_gain_for_each_client_is_the_recursion_and_keeps_more_digits() -> None:
    parts = [published.local_head(x, y, 0.01) for x, y in parts_of(gaussian(10, n=400, d=60))]
    exact = np.linalg.solve(sum(c for _, c in parts), sum(c @ w for w, c in parts))
    gain, law = (gap(form(parts)[0], exact) for form in (published.gain_aggregate, published.afl_aggregate))
    assert gain < 1e-12 and gain < law < 1e-6


def test_a_number_with_an_intercept_is_a_plain_ridge_for_everybody() -> None:
    """All of AFL by refits, with an intercept: test_closed holds it for the rules."""
    data = table("real", weighed=True)
    rows = oracles.together(list(rows_of(data).values()))
    run = hw.fit(hw.AFL(2.5), data.federation())
    expected = oracles.ridge(rows.x, rows.y, rows.w, 2.5, True)
    for client in run.ids:
        assert gap(scores(run, data.x, client), expected(data.x)) < 1e-12
    assert run.stranger is not None and gap(run.stranger.decision_function(data.x), expected(data.x)) < 1e-12
