"""The recursions of AFL and APFL as their papers print them, matrix by matrix.

homeward sends sums instead (equal to rounding) and does not import this. It is what the tests compare the sums with, and what the
benchmarks time them against. Plain NumPy, in the precision of the rows that are given; no intercept, no rule, no safety net but one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Matrix: TypeAlias = NDArray[np.floating]
Local: TypeAlias = tuple[Matrix, Matrix]
"""What a client uploads: its own head (d, c), and its regularised autocorrelation XᵀX + γI (d, d)."""


def local_head(x: Matrix, y: Matrix, ridge: float) -> Local:
    """W_k = C_k⁻¹ X_kᵀY_k with C_k = X_kᵀX_k + γI. AFL's local stage (arXiv 2405.16240, section 3); equations (4)-(6) of APFL.

    Without a ridge, rows of less than full column rank have no unique head, and an inverse of their singular matrix usually gives
    garbage without a word: that is refused here.
    """
    n, d = x.shape
    if ridge == 0 and (n < d or np.linalg.matrix_rank(x) < d):
        raise ValueError(
            f"a client's {n} rows span fewer than their {d} columns, so its own head is not unique at ridge = 0: the published recursion "
            "needs a temporary ridge above 0 (the sum of all clients may still be regular)"
        )
    c = x.T @ x + ridge * np.eye(d, dtype=x.dtype)
    return np.linalg.inv(c) @ (x.T @ y), c


def weights_of_two(c_u: Matrix, c_v: Matrix) -> tuple[Matrix, Matrix]:
    """(T_u, T_v) of AFL's absolute aggregation law, W = T_u W_u + T_v W_v (arXiv 2405.16240, theorem 1; the authors' code).

    T_u = I − R_u C_v + R_u C_v (C_u + C_v)⁻¹ C_v, R_u = C_u⁻¹; T_v with u and v exchanged
    """
    one = np.eye(len(c_u), dtype=c_u.dtype)
    both, r_u, r_v = np.linalg.inv(c_u + c_v), np.linalg.inv(c_u), np.linalg.inv(c_v)
    return one - r_u @ c_v + r_u @ c_v @ both @ c_v, one - r_v @ c_u + r_v @ c_u @ both @ c_u


def afl_aggregate(clients: Sequence[Local]) -> Local:
    """Folds client after client into one head and one matrix by AFL's law: three inversions of d x d for each."""
    w, c = clients[0]
    for w_k, c_k in clients[1:]:
        t, t_k = weights_of_two(c, c_k)
        w, c = t @ w + t_k @ w_k, c + c_k
    return w, c


def afl_remove(w: Matrix, c: Matrix, ridge: float) -> Matrix:
    """AFL's removal of the regulariser: W + Kγ (C − KγI)⁻¹ W. `ridge` is Kγ, over the clients that were really folded in."""
    return w + ridge * (np.linalg.inv(c - ridge * np.eye(len(c), dtype=c.dtype)) @ w)


def afl(clients: Sequence[tuple[Matrix, Matrix]], gamma: float, remove: bool = True) -> Matrix:
    """AFL from rows (X_k, Y_k) to the global head: local stage, aggregation, removal (arXiv 2405.16240)."""
    w, c = afl_aggregate([local_head(x, y, gamma) for x, y in clients])
    return afl_remove(w, c, len(clients) * gamma) if remove and gamma else w


def apfl_aggregate(clients: Sequence[Local]) -> Local:
    """Equations (7)-(9) of APFL (arXiv 2508.10732), with the inverse of nothing read as "skip".

    M_k = U_k M + V_k W_k, A_k the sum so far:  U_k = I − A⁻¹A_k (I − A_(1:k)⁻¹A_k),  V_k = I − A_k⁻¹A (I − A_(1:k)⁻¹A)
    """
    m, a = clients[0]
    one = np.eye(len(a), dtype=a.dtype)
    for w_k, a_k in clients[1:]:
        both = np.linalg.inv(a + a_k)
        u = one - np.linalg.inv(a) @ a_k @ (one - both @ a_k)
        v = one - np.linalg.inv(a_k) @ a @ (one - both @ a)
        m, a = u @ m + v @ w_k, a + a_k
    return m, a


def gain_aggregate(clients: Sequence[Local]) -> Local:
    """The same head with one solve a client: M ← M + A_(1:k)⁻¹ A_k (W_k − M)."""
    m, a = clients[0]
    for w_k, a_k in clients[1:]:
        a = a + a_k
        m = m + np.linalg.solve(a, a_k @ (w_k - m))
    return m, a


def apfl_final(m: Matrix, a: Matrix, clients: int, ridge: float, rho: float) -> Matrix:
    """Equation (10) of APFL: W = (A − KλI + ρI)⁻¹ A M. λ is `ridge`; ρ is what stays in the head (0 removes all, Kλ nothing)."""
    return np.linalg.inv(a + (rho - clients * ridge) * np.eye(len(a), dtype=a.dtype)) @ a @ m


def apfl_refine(f: Matrix, left: Matrix, gamma: float) -> Matrix:
    """Equation (13) of APFL: R_k = (F_kᵀF_k + γI)⁻¹ F_kᵀ(Y_k − X_kW), the second head on what the first leaves."""
    return np.linalg.inv(f.T @ f + gamma * np.eye(f.shape[1], dtype=f.dtype)) @ (f.T @ left)


def apfl(
    clients: Sequence[tuple[Matrix, Matrix, Matrix]], ridge: float, rho: float, gamma: float
) -> tuple[Matrix, list[Matrix]]:
    """APFL from (X_k, F_k, Y_k) to the shared head W and every client's R_k: equations (4)-(10), (12) and (13) (arXiv 2508.10732).

    The score of a row is x W + a f R_k, equation (14).
    """
    m, a = apfl_aggregate([local_head(x, y, ridge) for x, _, y in clients])
    w = apfl_final(m, a, len(clients), ridge, rho)
    return w, [apfl_refine(f, y - x @ w, gamma) for x, f, y in clients]
