"""What holds for federations of any shape: hypothesis draws them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import homeward as hw

shapes = st.tuples(st.integers(0, 10**6), st.integers(2, 6), st.integers(2, 4), st.integers(12, 40))
NUMBERS = [
    hw.APFL(0.7, 0.9, 0.6, maps=9, intercept=False, joint=True),
    hw.APFL(0.7, 0.9, 0.6, maps=None, intercept=False, joint=True),
    hw.FedHiP(0.7, 0.9, intercept=False, joint=True),
    hw.LocalRidge(0.7, maps=None),
    hw.LocalRidge(0.7, maps=9, intercept=False),
]
RULES = [hw.AFL(), hw.APFL(maps=9), hw.APFL(maps=9, joint=True), hw.FedHiP(), hw.Masked(maps=9), hw.LogPrior(maps=9)]


def drawn(shape: tuple[int, int, int, int], kind: str = "classes") -> hw.Federation:
    """A federation of three clients, with weights, from (seed, columns, classes, rows)."""
    seed, d, c, n = shape
    draw = np.random.default_rng(seed)
    y = np.concatenate([np.arange(c), draw.integers(0, c, n - c)])
    x = draw.normal(size=(n, d)) + draw.normal(size=(c, d))[y]
    owner = np.concatenate([[0, 1, 2], draw.integers(0, 3, n - 3)])
    return hw.Federation.from_arrays(
        x, y, np.array(["a", "b", "c"])[owner], weights=draw.integers(1, 4, n) / 2.0, classes=list(range(c))
    )


@pytest.mark.parametrize("method", NUMBERS, ids=str)
@settings(max_examples=25, deadline=None)
@given(shapes, st.integers(0, 10**6))
def test_leave_one_out_is_a_fit_in_which_the_row_weighs_nothing(method, shape, which):
    federation = drawn(shape)
    data = federation.clients["a"]
    i = which % data.n
    run = hw.fit(method, federation)
    (claimed, *_) = method.estimate(run.shared, data, None, None).values() or [None]
    weight = data.weight.copy()
    weight[i] = 0.0
    without = replace(federation, clients={**federation.clients, "a": replace(data, weight=weight)})
    told = hw.fit(method, without).model("a").decision_function(data.x[i : i + 1])
    if claimed is not None and data.n > 1:
        np.testing.assert_allclose(claimed[i], told[0], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("method", RULES, ids=str)
@settings(max_examples=15, deadline=None)
@given(shapes)
def test_forget_is_never_there_and_join_brings_back(method, shape):
    federation = drawn(shape)
    x = federation.pooled.x
    whole, never = hw.fit(method, federation), hw.fit(method, federation.without("c"))
    left = whole.forget("c")
    back = left.join(federation.only("c"))
    for client in "ab":
        for ours, theirs in ((left, never), (back, whole)):
            a, b = (run.model(client).decision_function(x) for run in (ours, theirs))
            finite = np.isfinite(b)
            np.testing.assert_allclose(a[finite], b[finite], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    "method", [hw.APFL(maps=9), hw.APFL(maps=9, joint=True), hw.FedHiP(), hw.FedHiP(form="weighted")], ids=str
)
@settings(max_examples=15, deadline=None)
@given(shapes, st.integers(0, 10**6))
def test_a_client_s_model_does_not_know_who_holds_the_other_rows(method, shape, seed):
    federation = drawn(shape)
    b, c = federation.clients["b"], federation.clients["c"]
    deal = np.random.default_rng(seed).integers(0, 4, b.n + c.n)
    others = replace(federation, clients={"b": b, "c": c}).pooled
    dealt = {f"other {k}": others.rows(np.flatnonzero(deal == k)) for k in range(4)}
    anew = replace(federation, clients={"a": federation.clients["a"], **dealt})
    x = federation.pooled.x
    one, two = (hw.fit(method, f).model("a").decision_function(x) for f in (federation, anew))
    np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9 * np.abs(one).max())
