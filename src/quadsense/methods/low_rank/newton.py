"""Least squares of a factor to second order along what must hold, and Newton's step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg.lapack import dposv

from quadsense.methods.low_rank.equalities import SINGULAR, Held, derivative
from quadsense.methods.low_rank.gauss_newton import jacobian, shortened
from quadsense.methods.low_rank.passes import Point
from quadsense.methods.low_rank.program import Matrix, Program, Vector


def flat(slope: Matrix) -> Vector:
    """Return a factor's changes as a vector of real numbers, Re and Im side by side."""
    return np.asarray(np.ascontiguousarray(slope).reshape(-1).view(np.float64))


@dataclass(frozen=True)
class Model:
    """The loss near a point, ``const - right.x + x.curved x / 2``.

    Attributes
    ----------
    right : (q,) float64
    H, curved : (q, q) float64
        ``J^T J``, and the second derivative itself.
    N : (size, q) float64 or None
        The changes of the factor are ``N x``; None: x is all of them.
    """

    right: Vector
    H: Matrix
    curved: Matrix
    N: Matrix | None

    def step(self, point: Point, x: Vector) -> Matrix:
        """The change of the factor at that point."""
        whole = np.ascontiguousarray(x if self.N is None else self.N @ x)
        return whole.view(point.Y.dtype).reshape(point.Y.shape)


def newton_step(problem: Program, point: Point, held: Held | None) -> Matrix:
    """Return the Newton step that keeps what is held, to first order."""
    found = model_of(problem, point, held)
    step = found.step(point, _definite_solve(found.curved, found.H, found.right))
    return shortened(point.Y, step)


def model_of(problem: Program, point: Point, held: Held | None) -> Model:
    """Return the loss to second order along changes that keep what is held, and change A.

    Notes
    -----
    The second derivative of the loss is ``J^T J`` and, for every row of Y, ``2 s_k F*(y)`` with y
    the derivative of the loss by the readings; with equalities the Lagrangian's, whose multipliers
    are part of y.
    """
    counts = np.flatnonzero(point.excess)
    J: Any = jacobian(problem, point, counts if counts.size < point.z.size else None)
    H = np.array(J.T @ J if isinstance(J, np.ndarray) else (J.T @ J).toarray(), dtype=np.float64)
    slope, y = flat(point.gradient), problem.weight * point.excess
    signs = problem.signs_of(len(point.Y))
    fixed = _turns(point.Y, signs)
    if held is not None:
        E = derivative(problem, point, held.index)
        y = y.copy()
        y[held.index] -= np.linalg.lstsq(E.T, slope, rcond=SINGULAR)[0]
        fixed = np.concatenate([fixed, E])
    N: Matrix | None = None
    if fixed.size:
        _, sizes, axes = np.linalg.svd(fixed, full_matrices=True)
        kept = int(np.count_nonzero(sizes > SINGULAR * float(sizes.max(initial=0.0))))
        N = axes[kept:].T  # directions that change A, and nothing of what is held
    G = _as_real(problem.F.adjoint(y))
    curved = H.copy()
    for k in range(len(point.Y)):
        part = slice(k * len(G), (k + 1) * len(G))
        curved[part, part] += (2.0 if signs is None else 2.0 * float(signs[k])) * G
    right = -slope
    if N is not None:
        H, curved, right = N.T @ H @ N, N.T @ curved @ N, N.T @ right
    return Model(right, H, curved, N)


def _turns(Y: Matrix, signs: Vector | None) -> Matrix:
    """Return the changes of Y that leave ``Y^T S conj(Y)`` as it is, one per row, as real numbers.

    They are ``K Y`` with ``K_ji = -s_i s_j conj(K_ij)``: without their loss of definiteness a
    second derivative could not be told from one at a saddle.
    """
    s = np.ones(len(Y)) if signs is None else signs
    parts: list[Any] = [1.0, 1j] if np.iscomplexobj(Y) else [1.0]
    turns = []
    for i in range(len(Y)):
        for j in range(i, len(Y)):
            for part in parts if j > i else parts[1:]:
                D = np.zeros_like(Y)
                D[i] = part * Y[j]
                if j > i:
                    D[j] = -s[i] * s[j] * np.conj(part) * Y[i]
                turns.append(flat(D))
    size = Y.size * (2 if np.iscomplexobj(Y) else 1)
    return np.array(turns) if turns else np.empty((0, size))


def _as_real(G: Matrix) -> Matrix:
    """Return a Hermitian matrix as one of real and imaginary parts side by side."""
    if not np.iscomplexobj(G):
        return np.asarray(G)
    n = len(G)
    real = np.empty((n, 2, n, 2))
    real[:, 0, :, 0] = real[:, 1, :, 1] = G.real
    real[:, 1, :, 0], real[:, 0, :, 1] = G.imag, -G.imag
    return real.reshape(2 * n, 2 * n)


def _definite_solve(curved: Matrix, H: Matrix, right: Vector) -> Vector:
    """Solve with the second derivative, or, where that is not definite, with more of ``J^T J``."""
    if not right.size:
        return right
    size = max(len(H), 1)
    unit = float(np.trace(H)) / size or 1.0
    shift = np.eye(len(H))
    for share, damping in ((1.0, 1e-12), (1.0, 1e-6), (0.5, 1e-6), (0.0, 1e-9), (0.0, 1e-3)):
        matrix = share * curved + (1.0 - share) * H + damping * unit * shift
        _, found, info = dposv(matrix, right)
        if info == 0 and np.isfinite(found).all():
            return np.asarray(found)
    return right / unit
