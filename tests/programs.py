"""The least slack by linear programming (HiGHS) and over the positive cone (Clarabel)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import clarabel
import exact
import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp
from scipy.optimize import linprog

FAR = 1e6
"""Slacks beyond which an end does not matter to the program."""


@dataclass(frozen=True)
class Found:
    """What a program found.

    Attributes
    ----------
    lower : float
        Lower bound on the least slack, by the program's dual.
    matrix : (ndarray, bool)
        The matrix, or a factor of it with True.
    well_posed : bool
        Whether the map of the rows has no singular values that are small but not zero.
    """

    lower: float
    matrix: tuple[Any, bool]
    well_posed: bool


def basis(n: int, complex_: bool) -> list[Any]:
    """A real basis of the symmetric (Hermitian) matrices."""
    out = []
    for j in range(n):
        for k in range(j, n):
            E = np.zeros((n, n), dtype=complex if complex_ else float)
            E[j, k] = E[k, j] = 1.0
            out.append(E)
            if complex_ and k > j:
                E = np.zeros((n, n), dtype=complex)
                E[j, k], E[k, j] = 1j, -1j
                out.append(E)
    return out


def features(V: Any) -> Any:
    """``u_i* E_k u_i`` for the basis: (m, N)."""
    n = V.shape[1]
    return np.stack(
        [
            np.einsum("ij,jk,ik->i", V.conj(), E, V).real
            for E in basis(n, np.iscomplexobj(V))
        ],
        axis=1,
    )  # fmt: skip


def assemble(x: Any, n: int, complex_: bool) -> Any:
    """The matrix of these coefficients."""
    return sum(value * E for value, E in zip(x, basis(n, complex_), strict=True))


def least_slack(s: Any, positive: bool) -> Found | None:
    """The least slack of a `truth.System`; None where the numbers are beyond the programs."""
    far = 10**7 * s.scale  # ends that no matrix of moderate size reaches
    rows = [
        i
        for i in range(s.size)
        if (s.lo[i] is not None and s.lo[i] > -far) or (s.hi[i] is not None and s.hi[i] < far)
    ]
    if not rows:
        return None
    weights = np.array([exact.number(s.weight[i] / s.scale) for i in rows])
    if not np.isfinite(weights).all() or not 0.0 < weights.max() < 1e14 * weights.min():
        return None
    spread = weights.max() / weights.min()
    if weights.min() < 1e-13 or (positive and (weights.min() < 1e-8 or spread > 1e9)):
        return None
    return _positive(s, rows, weights) if positive else _symmetric(s, rows, weights)


def _well_posed(s: Any, F: Any) -> bool:
    live = F[np.any(F != 0, axis=1)]
    if not live.size:
        return True
    values = np.linalg.svd(live, compute_uv=False)
    rank = s.rank(s.live)
    return rank == 0 or bool(np.sum(values > 1e-5 * values[0]) == rank)


def _symmetric(s: Any, rows: list[int], weights: Any) -> Found | None:
    """By HiGHS, about a weighted least squares fit and in an orthonormal basis of the map's range.

    Residuals of the fit are exact, so tolerances far below the readings are seen; the basis keeps
    the program well scaled however uneven the weights are.
    """
    n, complex_ = s.V.shape[1], np.iscomplexobj(s.V)
    F = s.features(rows)
    order = np.argsort(weights)  # heavy rows first: stable by rows
    G = (F / weights[:, None])[order]
    Q, R, columns = sl.qr(G, mode="economic", pivoting=True)
    full = s.rank(rows)
    rank = min(full, int(np.sum(np.abs(np.diag(R)) > 1e-14 * abs(R[0, 0]))))
    Q, R = Q[:, :rank], R[:rank, :rank]
    back = np.empty_like(Q)
    back[order] = Q
    scale = exact.number(s.scale)

    def step(coordinates: Any) -> Any:
        x = np.zeros(F.shape[1])
        x[columns[:rank]] = sl.solve_triangular(R, coordinates) if rank else 0.0
        return assemble(x, n, complex_) * scale

    A = np.zeros((n, n), dtype=complex if complex_ else float)
    for _ in range(3):  # least squares with exact residuals
        lows, highs = _ends(s, rows, A)
        middle = np.where(np.isinf(lows), highs - 1.0, np.where(np.isinf(highs), lows + 1.0, 0.0))
        both = np.isfinite(lows) & np.isfinite(highs)
        middle[both] = (lows[both] + highs[both]) / 2.0
        A = A + step(back.T @ middle)
    lows, highs = _ends(s, rows, A)
    size = max(1.0, float(np.max(lows)), float(np.max(-highs)))
    if not math.isfinite(size):
        return None
    take_low, take_high = lows > -FAR * size, highs < FAR * size
    constraints = np.vstack(
        [
            np.column_stack([-back[take_low], -np.ones(take_low.sum())]),
            np.column_stack([back[take_high], -np.ones(take_high.sum())]),
        ]
    )
    ends = np.concatenate([-lows[take_low], highs[take_high]]) / size
    cost = np.append(np.zeros(rank), 1.0)
    least = -1.0 / size if s_has_width(s, rows) else 0.0
    if not ends.size:
        return Found(-1.0, (A, False), True)
    found = linprog(
        cost, A_ub=constraints, b_ub=ends, bounds=[(None, None)] * rank + [(least, None)],
        method="highs", options={"primal_feasibility_tolerance": 1e-10,
                                 "dual_feasibility_tolerance": 1e-10},
    )  # fmt: skip
    if found.status != 0:
        return None
    best = A + step(size * found.x[:rank])
    # A direction left out for rounding's sake might lower the slack.
    lower = size * found.fun if rank == full else -math.inf
    return Found(lower, (best, False), _well_posed(s, F))


def s_has_width(s: Any, rows: list[int]) -> bool:
    """Whether these are intervals, rather than readings without a tolerance."""
    return any(s.lo[i] != s.hi[i] for i in rows)


def _ends(s: Any, rows: list[int], A: Any) -> tuple[Any, Any]:
    """Intervals relative to the values of A, in units of the rows, exactly computed."""
    values = s.values(A, False, rows)
    lows, highs = np.full(len(rows), -np.inf), np.full(len(rows), np.inf)
    for k, i in enumerate(rows):
        if s.lo[i] is not None:
            lows[k] = exact.number((s.lo[i] - values[k]) / s.weight[i])
        if s.hi[i] is not None:
            highs[k] = exact.number((s.hi[i] - values[k]) / s.weight[i])
    return lows, highs


def _positive(s: Any, rows: list[int], weights: Any) -> Found | None:
    """By Clarabel: minimise s over ``A >= 0``; the bound is the dual objective, made safe."""
    n, complex_ = s.V.shape[1], np.iscomplexobj(s.V)
    F = s.features(rows) / weights[:, None]
    zero = np.zeros((n, n), dtype=complex if complex_ else float)
    lows, highs = _ends(s, rows, zero)
    keep_low, keep_high = np.isfinite(lows), np.isfinite(highs)
    cone_map = np.stack([triangle(embedded(E)) for E in basis(n, complex_)], axis=1)
    N, order = F.shape[1], 2 * n if complex_ else n
    least = -1.0 if s_has_width(s, rows) else 0.0
    # Rows of the program: one a finite end, s >= least, and the cone; the rest of A is free.
    top = np.vstack(
        [
            np.column_stack([-F[keep_low], -np.ones(keep_low.sum())]),
            np.column_stack([F[keep_high], -np.ones(keep_high.sum())]),
            np.append(np.zeros(N), -1.0)[None, :],
            np.column_stack([-cone_map, np.zeros(len(cone_map))]),
        ]
    )
    ends = np.concatenate([-lows[keep_low], highs[keep_high], [-least]])
    right = np.concatenate([ends, np.zeros(len(cone_map))])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    settings.reduced_tol_gap_abs = settings.reduced_tol_gap_rel = 1e-7
    cones = [clarabel.NonnegativeConeT(len(ends)), clarabel.PSDTriangleConeT(order)]
    cost = np.append(np.zeros(N), 1.0)
    solver = clarabel.DefaultSolver(
        sp.csc_matrix((N + 1, N + 1)), cost, sp.csc_matrix(top), right, cones, settings
    )
    found = solver.solve()
    if "Solved" not in str(found.status):
        return None
    x, y = np.array(found.x), np.array(found.z)
    A = assemble(x[:N], n, complex_)
    A = A * exact.number(s.scale)
    eigenvalues, vectors = np.linalg.eigh(A)
    factor = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    # Weak duality: -right.y is a lower bound, up to what the dual equations are violated by.
    errors = np.abs(top.T @ y + cost)
    trace = np.sum(np.abs(eigenvalues)) / exact.number(s.scale) + 1.0
    lower = -float(right @ y) - float(errors[:N].sum() * trace + errors[N] * (1.0 + abs(x[N])))
    return Found(lower, (factor, True), _well_posed(s, F * weights[:, None]))


def embedded(E: Any) -> Any:
    """A Hermitian matrix as a real symmetric one of twice the order."""
    if not np.iscomplexobj(E):
        return E
    return np.block([[E.real, -E.imag], [E.imag, E.real]])


def triangle(E: Any) -> Any:
    """Upper triangle by columns, off-diagonal entries times the root of 2: Clarabel's vector."""
    return np.concatenate([np.append(math.sqrt(2.0) * E[:k, k], E[k, k]) for k in range(len(E))])
