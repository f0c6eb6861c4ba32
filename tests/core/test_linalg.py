"""Factorisations: whatever the memory layout, block edge, precision and library, the matrix is the same one."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeward.core import linalg
from homeward.core.check import as_numpy
from homeward.core.errors import Singular

DIMENSIONS = (1, 2, 511, 512, 513, 1030)  # around the edges of blocks of 512
LAYOUTS = ("C", "F", "every other", "reversed")


@pytest.fixture(params=["numpy", "torch"])
def on(request: pytest.FixtureRequest) -> Any:
    """From a NumPy array to one of the library, in memory that it shares."""
    if request.param == "numpy":
        return lambda a: a
    torch = pytest.importorskip("torch")
    return lambda a: torch.from_numpy(a.copy() if any(s < 0 for s in a.strides) else a)


def rows(n: int, d: int, layout: str = "C", dtype: Any = np.float64) -> Any:
    draw = np.random.default_rng([n, d])
    match layout:
        case "C" | "F":
            return np.asarray(draw.standard_normal((n, d)), dtype=dtype, order=layout)
        case "every other":
            return draw.standard_normal((2 * n, 2 * d)).astype(dtype)[::2, 1::2]
        case _:
            return draw.standard_normal((n, d)).astype(dtype)[::-1, ::-1]


def frozen(a: Any) -> Any:
    a.flags.writeable = False
    return a


def definite(d: int) -> Any:
    x = rows(2 * d + 3, d)
    return x.T @ x / d


# ---- symmetric products and packed storage


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", DIMENSIONS)
def test_gram_packs_the_upper_triangle_row_after_row(d: int, dtype: Any, on: Any) -> None:
    x = rows(7, d, dtype=dtype)
    full = x.astype(np.float64).T @ x.astype(np.float64)
    packed = linalg.gram(on(x))
    assert packed.dtype == on(x).dtype and tuple(packed.shape) == (d * (d + 1) // 2,)
    np.testing.assert_allclose(as_numpy(packed), full[np.triu_indices(d)], rtol=0, atol=50 * np.finfo(dtype).eps)
    unpacked = as_numpy(linalg.unpack(packed))
    np.testing.assert_array_equal(unpacked, unpacked.T)
    np.testing.assert_array_equal(unpacked[np.triu_indices(d)], as_numpy(packed))
    np.testing.assert_array_equal(as_numpy(linalg.pack(linalg.unpack(packed))), as_numpy(packed))
    np.testing.assert_array_equal(as_numpy(linalg.symmetric(on(x))), unpacked)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("n", "d"), [(1, 1), (1, 5), (9, 4), (3, 600)])
def test_gram_does_not_depend_on_memory_layout(layout: str, dtype: Any, n: int, d: int, on: Any) -> None:
    x = rows(n, d, layout, dtype)
    expected = linalg.gram(np.ascontiguousarray(x))
    np.testing.assert_allclose(as_numpy(linalg.gram(on(x))), expected, rtol=0, atol=30 * np.finfo(dtype).eps)


@given(d=st.integers(1, 40), seed=st.integers(0, 2**32))
def test_unpacking_undoes_packing(d: int, seed: int) -> None:
    a = np.random.default_rng(seed).integers(-9, 9, (d, d)).astype(np.float64)
    a = np.triu(a) + np.triu(a, 1).T
    for layout in ("C", "F"):
        packed = linalg.pack(np.asarray(a, order=layout))
        assert packed.tolist() == [a[i, j] for i in range(d) for j in range(i, d)]
        assert linalg.unpack(packed).tolist() == a.tolist()
    low = np.tril(a)
    assert linalg.unpack_lower(linalg.pack(np.ascontiguousarray(low.T))).tolist() == low.tolist()


@given(d=st.integers(1, 10**6))
def test_the_width_is_found_from_the_length(d: int) -> None:
    assert linalg.width_of(np.broadcast_to(np.zeros(1), (d * (d + 1) // 2,))) == d


def test_inputs_are_never_written_to(on: Any) -> None:
    a, b, x = definite(6), rows(6, 2), rows(9, 6)
    packed = linalg.pack(a)
    before = [m.copy() for m in (a, b, x, packed)]
    mine = [on(m) if on(a) is not a else frozen(m) for m in (a, b, x, packed)]
    for use in (
        lambda a, b, x, p: linalg.gram(x),
        lambda a, b, x, p: linalg.unpack(linalg.pack(a)).__iadd__(1.0),
        lambda a, b, x, p: linalg.unpack(p).__iadd__(1.0),
        lambda a, b, x, p: linalg.unpack_lower(p).__iadd__(1.0),
        lambda a, b, x, p: linalg.ridged(a, 0.0).__iadd__(1.0),
        lambda a, b, x, p: linalg.cholesky(a, 0.0).solve(b),
        lambda a, b, x, p: linalg.solve_ridge(a, b, 1.0),
        lambda a, b, x, p: (linalg.eigh(a), linalg.eigenvalues(a)),
        lambda a, b, x, p: linalg.spectrum_of_rows(x.T).left(x.T),
        lambda a, b, x, p: linalg.spectrum_of_gram(a).left(b.T),
    ):
        use(*mine)
        for m, was in zip(mine, before, strict=True):
            np.testing.assert_array_equal(as_numpy(m), was)


# ---- factors


@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize(("d", "ridge"), [(1, 0.0), (5, 0.0), (5, 2.5), (60, 1e-3)])
def test_a_factor_solves(d: int, ridge: float, layout: str, on: Any) -> None:
    a = np.asarray(definite(d), order=layout)
    factor = linalg.cholesky(on(a), ridge)
    whole = a + ridge * np.eye(d)
    low = as_numpy(factor.low)
    np.testing.assert_array_equal(low, np.tril(low))
    np.testing.assert_allclose(low, np.linalg.cholesky(whole), rtol=1e-10, atol=1e-12)
    for b in (rows(d, 3), rows(d, 3, "F"), rows(d, 1)[:, 0]):
        close = {"rtol": 1e-9, "atol": 1e-11, "strict": True}
        np.testing.assert_allclose(as_numpy(factor.solve(on(b))), np.linalg.solve(whole, b), **close)
        np.testing.assert_allclose(as_numpy(factor.half(on(b))), np.linalg.solve(low, b), **close)
        np.testing.assert_allclose(as_numpy(factor.back(on(b))), np.linalg.solve(low.T, b), **close)
        np.testing.assert_allclose(
            as_numpy(linalg.solve_ridge(on(a), on(b), ridge)), np.linalg.solve(whole, b), **close
        )


def named_ridge(error: pytest.ExceptionInfo[Singular]) -> float:
    found = re.search(r"at least (\S+),", str(error.value))
    assert found is not None
    return float(found[1])


@given(
    d=st.integers(1, 60), rank=st.integers(0, 59), seed=st.integers(0, 2**32), scale=st.sampled_from([1e-9, 1.0, 1e9])
)
def test_a_failed_factorisation_names_a_ridge_that_works(d: int, rank: int, seed: int, scale: float) -> None:
    draw = np.random.default_rng(seed)
    rank = min(rank, d - 1)
    x = scale * draw.standard_normal((rank, d)) * 10.0 ** draw.uniform(-2, 2, d)
    a = linalg.symmetric(x) if rank else np.zeros((d, d))
    with pytest.raises(Singular, match=r"ridge = 'gcv'") as error:
        linalg.cholesky(a)
    assert f"of its {d} directions" in str(error.value)
    b = draw.standard_normal((d, 2))
    assert np.isfinite(linalg.cholesky(a, named_ridge(error)).half(b)).all()


@pytest.mark.parametrize(("n", "d"), [(300, 400), (5, 700), (899, 900)])
def test_the_named_ridge_works_for_many_columns_too(n: int, d: int) -> None:
    a = linalg.symmetric(np.abs(rows(n, d)))
    with pytest.raises(Singular) as error:
        linalg.cholesky(a)
    linalg.cholesky(a, named_ridge(error))


def test_a_singular_sum_is_refused_even_where_a_cholesky_slips_through(on: Any) -> None:
    a = np.diag([1.0, 1e-17])
    assert np.isfinite(np.linalg.cholesky(a)).all()
    with pytest.raises(Singular, match="1 of its 2 directions hold data") as error:
        linalg.cholesky(on(a))
    linalg.cholesky(on(a), named_ridge(error))
    twins = rows(50, 3)[:, [0, 1, 2, 0]]
    with pytest.raises(Singular, match="3 of its 4 directions"):
        linalg.solve_ridge(on(twins.T @ twins), on(rows(4, 1)), 0.0)


def test_a_negative_matrix_is_refused_at_a_ridge_too(on: Any) -> None:
    with pytest.raises(Singular, match=r"at ridge = 0\.5"):
        linalg.cholesky(on(np.array([[1.0, 3.0], [3.0, 1.0]])), 0.5)


# ---- spectra


@pytest.mark.parametrize(("n", "r"), [(1, 1), (3, 8), (20, 20), (2, 40)])
def test_the_spectrum_of_rows_reconstructs_them(n: int, r: int, on: Any) -> None:
    f = rows(n, r)
    spectrum = linalg.spectrum_of_rows(on(f))
    u, s = as_numpy(spectrum.left(on(f))), as_numpy(spectrum.s)
    assert u.shape == (n, n)
    np.testing.assert_allclose(u.T @ u, np.eye(n), atol=1e-12)
    np.testing.assert_allclose((u * s) @ u.T, f @ f.T, atol=1e-11)


@pytest.mark.parametrize(("n", "r", "rank"), [(1, 1, 1), (30, 4, 4), (30, 6, 2), (3, 5, 3)])
def test_the_spectrum_of_a_gram_reconstructs_on_the_directions_that_hold_data(
    n: int, r: int, rank: int, on: Any
) -> None:
    f = rows(n, rank) @ rows(rank, r)
    spectrum = linalg.spectrum_of_gram(on(f.T @ f))
    assert tuple(spectrum.s.shape) == (rank,)
    v, s, u = (as_numpy(a) for a in (spectrum.vectors, spectrum.s, spectrum.left(on(f))))
    np.testing.assert_allclose((v * s) @ v.T, f.T @ f, atol=1e-10)
    np.testing.assert_allclose(u.T @ u, np.eye(rank), atol=1e-9)
    np.testing.assert_allclose((u * np.sqrt(s)) @ v.T, f, atol=1e-9)


def test_eigenvalues_are_ascending_and_never_negative(on: Any) -> None:
    a = linalg.symmetric(rows(3, 20))
    values, vectors = (as_numpy(m) for m in linalg.eigh(on(a)))
    assert values.min() >= 0 and (np.diff(values) >= 0).all()
    np.testing.assert_allclose((vectors * values) @ vectors.T, a, atol=1e-12)
    np.testing.assert_allclose(as_numpy(linalg.eigenvalues(on(a))), values, atol=1e-12)


def test_arrays_follow_the_library_of_another() -> None:
    torch = pytest.importorskip("torch")
    like = torch.zeros(1)
    assert isinstance(linalg.any_array(np.ones(2), like), torch.Tensor)
    assert isinstance(linalg.any_array([1.0], np.zeros(1)), np.ndarray)
    assert linalg.double(like).dtype == torch.float64
    assert linalg.double(np.zeros(1, np.float32)).dtype == np.float64
