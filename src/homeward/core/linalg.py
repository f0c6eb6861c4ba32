"""The only place that factorises: symmetric products, packed storage, Cholesky, eigenvalues.

NumPy arrays go to SciPy's BLAS and LAPACK, torch tensors to torch on their own device. A symmetric matrix is formed once per pair of
columns and stored packed: the rows of its upper triangle, one after another, d(d+1)/2 numbers. Nothing here adds jitter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import array_api_compat
import numpy as np
import scipy.linalg
from scipy.linalg import lapack

from .algebra import Array, namespace
from .errors import Singular

EPS = float(np.finfo(np.float64).eps)


def width_of(packed: Array) -> int:
    """d, from the d(d+1)/2 numbers of a packed matrix."""
    return int((np.sqrt(8.0 * packed.shape[0] + 1.0) - 1.0) / 2.0 + 0.5)


class _Backend(Protocol):
    """What the array API lacks."""

    def gram(self, x: Array) -> Array: ...
    def pack(self, a: Array) -> Array: ...
    def unpack(self, packed: Array) -> Array: ...
    def unpack_lower(self, packed: Array) -> Array: ...
    def symmetric(self, x: Array) -> Array: ...
    def cholesky(self, a: Array) -> Array | None: ...
    def solve_lower(self, low: Array, b: Array, transposed: bool) -> Array: ...
    def eigh(self, a: Array) -> tuple[Array, Array]: ...
    def eigvalsh(self, a: Array) -> Array: ...


class _SciPy:
    """float32 or float64 NumPy arrays. Symmetric results are filled on both sides, except inside `pack`."""

    def gram(self, x: Array) -> Array:
        return (
            x.T @ x
        )  # NumPy sees that both are the same and multiplies every pair once, without holding the interpreter

    def symmetric(self, x: Array) -> Array:
        return self.gram(x)

    def pack(self, a: Array) -> Array:
        trttp = lapack.strttp if a.dtype == np.float32 else lapack.dtrttp
        return trttp(a.T, uplo="L")[0]

    def unpack(self, packed: Array) -> Array:
        return _mirrored(self.unpack_lower(packed))

    def unpack_lower(self, packed: Array) -> Array:
        tpttr = lapack.stpttr if packed.dtype == np.float32 else lapack.dtpttr
        return tpttr(width_of(packed), packed, uplo="L")[0]

    def cholesky(self, a: Array) -> Array | None:
        low, info = lapack.dpotrf(np.asfortranarray(a), lower=1, clean=1, overwrite_a=0)
        return low if info == 0 else None

    def solve_lower(self, low: Array, b: Array, transposed: bool) -> Array:
        return scipy.linalg.solve_triangular(low, b, lower=True, trans="T" if transposed else "N", check_finite=False)

    def eigh(self, a: Array) -> tuple[Array, Array]:
        values, vectors = np.linalg.eigh(a)
        return values, vectors

    def eigvalsh(self, a: Array) -> Array:
        return np.linalg.eigvalsh(a)


def _mirrored(low: Array) -> Array:
    """A full symmetric matrix from one whose lower triangle is filled, in its own memory, block by block."""
    d, step = low.shape[0], 512
    for i in range(0, d, step):
        low[:i, i : i + step] = low[i : i + step, :i].T
        corner = low[i : i + step, i : i + step]
        corner[...] = np.tril(corner) + np.tril(corner, -1).T
    return low


class _Torch:
    """torch tensors on any device."""

    def gram(self, x: Array, step: int = 512) -> Array:
        """Block row by block row of the upper triangle: nearly half the work of a full product."""
        d = x.shape[1]
        upper = x.new_zeros((d, d))
        for i in range(0, d, step):
            upper[i : i + step, i:] = x[:, i : i + step].T @ x[:, i:]
        return upper

    def pack(self, a: Array) -> Array:
        import torch

        i, j = torch.triu_indices(*a.shape, device=a.device)
        return a[i, j]

    def unpack(self, packed: Array) -> Array:
        import torch

        d = width_of(packed)
        i, j = torch.triu_indices(d, d, device=packed.device)
        full = packed.new_zeros((d, d))
        full[i, j] = packed
        full[j, i] = packed
        return full

    def unpack_lower(self, packed: Array) -> Array:
        return self.unpack(packed).tril()

    def symmetric(self, x: Array) -> Array:
        return self.unpack(self.pack(self.gram(x)))

    def cholesky(self, a: Array) -> Array | None:
        import torch

        low, info = torch.linalg.cholesky_ex(a)
        return low if int(info) == 0 else None

    def solve_lower(self, low: Array, b: Array, transposed: bool) -> Array:
        import torch

        side = b[:, None] if b.ndim == 1 else b
        out = torch.linalg.solve_triangular(low.T if transposed else low, side, upper=transposed)
        return out[:, 0] if b.ndim == 1 else out

    def eigh(self, a: Array) -> tuple[Array, Array]:
        import torch

        values, vectors = torch.linalg.eigh(a)
        return values, vectors

    def eigvalsh(self, a: Array) -> Array:
        import torch

        return torch.linalg.eigvalsh(a)


_SCIPY, _TORCH = _SciPy(), _Torch()


def _backend(a: Array) -> _Backend:
    return _TORCH if array_api_compat.is_torch_array(a) else _SCIPY


def double(a: Array) -> Array:
    """The same numbers in float64."""
    xp = namespace(a)
    return xp.astype(a, xp.float64, copy=False)


def gram(x: Array) -> Array:
    """x'x, packed, in the precision of x: every pair of columns is multiplied once. (d(d+1)/2,)"""
    back = _backend(x)
    return back.pack(back.gram(x))


def pack(a: Array) -> Array:
    """The upper triangle of a symmetric matrix, row after row. (d(d+1)/2,)"""
    return _backend(a).pack(a)


def unpack(packed: Array) -> Array:
    """The full symmetric matrix, in memory of its own. (d, d)"""
    return _backend(packed).unpack(packed)


def unpack_lower(packed: Array) -> Array:
    """A lower triangle whose transpose was packed. (d, d)"""
    return _backend(packed).unpack_lower(packed)


def eigh(a: Array) -> tuple[Array, Array]:
    """Eigenvalues, ascending and never below zero, and eigenvectors of a positive semi-definite matrix."""
    values, vectors = _backend(a).eigh(a)
    return namespace(values).clip(values, min=0.0), vectors


def eigenvalues(a: Array) -> Array:
    """Eigenvalues of a positive semi-definite matrix, ascending and never below zero."""
    values = _backend(a).eigvalsh(a)
    return namespace(values).clip(values, min=0.0)


def symmetric(x: Array) -> Array:
    """x'x as a full matrix. (d, d)"""
    return _backend(x).symmetric(x)


@dataclass(frozen=True, eq=False)
class Factor:
    """L with L L' = A + ridge I, lower."""

    low: Array

    def half(self, b: Array) -> Array:
        """L⁻¹ b"""
        return _backend(self.low).solve_lower(self.low, b, False)

    def back(self, b: Array) -> Array:
        """L⁻ᵀ b"""
        return _backend(self.low).solve_lower(self.low, b, True)

    def solve(self, b: Array) -> Array:
        """A⁻¹ b"""
        return self.back(self.half(b))


def ridged(a: Array, ridge: float) -> Array:
    """A + ridge I, in memory of its own."""
    xp = namespace(a)
    out = xp.asarray(a, copy=True)
    i = xp.arange(a.shape[0])
    out[i, i] += ridge
    return out


def cholesky(a: Array, ridge: float = 0.0, noise: float = 0.0) -> Factor:
    """The factor of A + ridge I. `noise` is what an eigenvalue may be by the rounding of how A came about.

    Where that is singular, to rounding, this raises and names a ridge that works: from (d + 10) eps times the largest eigenvalue on,
    the first power of ten that was tried and did.
    """
    low = _backend(a).cholesky(ridged(a, ridge))
    if low is None or (ridge == 0 and _singular(a, noise)):
        values = eigenvalues(a)
        works = _working_ridge(a, max(float(values[-1]), noise / EPS, 1e-280))
        raise Singular(
            f"The sum of all rows has no unique solution at ridge = {ridge:g}: {int(live(values, noise).sum())} of its "
            f"{a.shape[0]} directions hold data. Use a ridge of at least {works:g}, or ridge = 'gcv' to have one chosen, or 'pinv' "
            "for the shortest solution."
        )
    return Factor(low)


def _working_ridge(a: Array, largest: float) -> float:
    power = int(np.ceil(np.log10((a.shape[0] + 10) * EPS * largest)))
    while power < 300 and _backend(a).cholesky(ridged(a, float(f"1e{power}"))) is None:
        power += 1
    return float(f"1e{power}")


def live(values: Array, noise: float = 0.0) -> Array:
    """Which eigenvalues hold data: those above d eps times the largest and above the noise. (d,)"""
    return values > values.shape[0] * EPS * values[-1] + noise


def _singular(a: Array, noise: float) -> bool:
    """The least eigenvalue holds none: a Cholesky may slip through."""
    return not bool(live(eigenvalues(a), noise)[0])


def solve_ridge(a: Array, b: Array, ridge: float) -> Array:
    """(A + ridge I)⁻¹ b

    >>> solve_ridge(np.eye(2), np.array([[2.0], [4.0]]), 1.0)
    array([[1.],
           [2.]])
    """
    return cholesky(a, ridge).solve(b)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The singular vectors of rows F from the smaller of their two products: F F' = U diag(s) U', on U's columns.

    `vectors` is U itself where the rows were few, and the right-hand vectors V where they were many (then U = F V s^-1/2, thin), so that
    rows that come in blocks never have to be held together.
    """

    s: Array  # (m,)  positive
    vectors: Array  # (n, m) left, or (r, m) right
    right: bool

    def left(self, rows: Array) -> Array:
        """U for these rows. (n, m)"""
        return rows @ (self.vectors / namespace(self.s).sqrt(self.s)) if self.right else self.vectors


def spectrum_of_rows(rows: Array) -> Spectrum:
    """For n rows in r columns, n <= r. Directions that hold rounding, not data, are dropped."""
    s, u = eigh(symmetric(namespace(rows).permute_dims(rows, (1, 0))))
    first = int((s <= s.shape[0] * EPS * s[-1]).sum())
    return Spectrum(s[first:], u[:, first:], right=False)


def spectrum_of_gram(a: Array) -> Spectrum:
    """From F'F alone. Directions below 1e-12 of the strongest hold rounding, not data, and are dropped."""
    s, v = eigh(a)
    first = int((s <= 1e-12 * s[-1]).sum())
    return Spectrum(s[first:], v[:, first:], right=True)


def any_array(value: Any, like: Array) -> Array:
    """A NumPy value as an array of the same library and device as another."""
    if not array_api_compat.is_torch_array(like):
        return np.asarray(value)
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        value = value.copy()  # torch has no read-only memory
    return namespace(like).asarray(value, device=like.device)
