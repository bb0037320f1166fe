"""The linear system of a step: ``H x + F*(y) = R`` and ``F(x) - E y = h``.

H is the matrix part of the Hessian, diagonal in the coordinates at hand; E is the inverse weight
of every row, 0 for an equality. It is solved in the order of the rows,
``(E + F H^-1 F*) y = F H^-1 R - h``, or in that of the unknowns,
``(H + F* E^-1 F) x = R + F* E^-1 h`` with the equalities by their own Schur complement, whichever
takes fewer flops; what rounding and a little regularisation leave is taken off by refinement.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as sl

from quadsense.arrays import Vector
from quadsense.core.cholesky import factor_upper
from quadsense.core.intervals import Array, Real
from quadsense.methods.barrier.coordinates import Coordinates
from quadsense.methods.barrier.program import Mask
from quadsense.watch import look

LIFT = 1e-14
"""Share of a diagonal entry that is added to it, by rows."""

REFINED = 1e-13
"""Relative residual at which a solution is left alone."""

REFINEMENTS = 3
"""At most so many."""

BLURRED = 1e-13
"""Eigenvalues of the equalities' Schur complement below this share of the largest are rounding."""


class System:
    """Factored once for all right-hand sides of a step.

    Parameters
    ----------
    coordinates : Coordinates
    E : ndarray, shape (m,)
    equal : ndarray of bool, shape (m,)
    """

    def __init__(self, coordinates: Coordinates, E: Real, equal: Mask) -> None:
        self.at, self.E, self.equal = coordinates, E, np.flatnonzero(equal)
        by_rows, by_unknowns = coordinates.flops()
        self.by_rows = coordinates.rowwise and by_rows <= by_unknowns
        if self.by_rows:
            self._factor_rows()
        else:
            self._factor_unknowns()

    def solve(self, R: Array, h: Real) -> tuple[Array, Real]:
        """Return x, (n, n), and y, (m,)."""
        x, y = self._once(R, h)
        r1, r2, error = self._residual(R, h, x, y)
        for _ in range(REFINEMENTS):
            if error <= REFINED or not np.isfinite(error):
                break
            dx, dy = self._once(r1, r2)
            x_, y_ = x + dx, y + dy
            r1_, r2_, error_ = self._residual(R, h, x_, y_)
            if not error_ < 0.5 * error:
                break
            x, y, r1, r2, error = x_, y_, r1_, r2_, error_
        return x, y

    def _residual(self, R: Array, h: Real, x: Array, y: Real) -> tuple[Array, Real, float]:
        """Return both residuals, and how large they are beside what they are differences of."""
        image, back, through = self.at.forward(x), self.at.adjoint(y), self.E * y
        own = (self.at.hessian - self.at.added) * x
        r1, r2 = R - own - back, h - image + through
        size1 = float(np.linalg.norm(R) + np.linalg.norm(own) + np.linalg.norm(back))
        size2 = float(np.max(np.abs(h) + np.abs(image) + np.abs(through), initial=0.0))
        error = float(np.linalg.norm(r1)) / (size1 or 1.0)
        return r1, r2, max(error, float(np.max(np.abs(r2), initial=0.0)) / (size2 or 1.0))

    # --- by rows -----------------------------------------------------------------------------

    def _factor_rows(self) -> None:
        M = self.at.gram()
        diagonal = np.diagonal(M).copy()
        lift = LIFT * (diagonal + float(np.max(diagonal, initial=0.0)) * 1e-3)
        E = np.maximum(self.E, lift) + np.finfo(float).tiny
        self.roots = 1.0 / np.sqrt(E)
        M *= self.roots[:, None]
        M *= self.roots
        M[np.diag_indices(len(M))] += 1.0
        look(len(M) ** 3 / 3.0)
        self.factor = _cholesky(M)

    def _once(self, R: Array, h: Real) -> tuple[Array, Real]:
        if not self.by_rows:
            return self._once_by_unknowns(R, h)
        look()
        known = self.at.forward(R / self.at.hessian) - h
        y = self.roots * _solve(self.factor, self.roots * known)
        return (R - self.at.adjoint(y)) / self.at.hessian, y

    # --- by unknowns -------------------------------------------------------------------------

    def _factor_unknowns(self) -> None:
        at, k = self.at, self.equal
        hessian, norms = self._packed_hessian(), at.squared()
        least = float(np.min(hessian))
        # No heavier than the rest of the matrix can be seen beside.
        E = self.E if at.added else np.maximum(self.E, LIFT * norms / least)
        weights = 1.0 / np.where(E > 0.0, E, 1.0)
        if k.size:  # of the size of the others, so that what only equalities see is seen
            weights[k] = 0.0
            typical = float(weights @ norms) / at.size + float(np.mean(hessian))
            weights[k] = typical * at.size / max(float(np.sum(norms[k])), 1e-300)
        self.weights = weights
        T = at.normal(weights)
        diagonal = np.diagonal(T) + hessian
        T[np.diag_indices(len(T))] = diagonal * (1.0 + LIFT)
        look(len(T) ** 3 / 3.0)
        self.factor = _cholesky(T)
        if k.size:
            self.rows = at.features(k)
            images = _solve(self.factor, np.asfortranarray(self.rows.T))
            values, vectors = np.linalg.eigh(self.rows @ images)
            clear = values > BLURRED * values[-1]
            self.vectors, self.values = vectors[:, clear], values[clear]

    def _packed_hessian(self) -> Vector:
        H = self.at.hessian
        if isinstance(H, float):
            return np.full(self.at.size, H)
        upper = H[np.triu_indices(self.at.n, 1)]
        twice = self.at.size > H.diagonal().size + upper.size
        return np.concatenate([H.diagonal(), upper, *([upper] if twice else [])])

    def _once_by_unknowns(self, R: Array, h: Real) -> tuple[Array, Real]:
        look()
        at, k = self.at, self.equal
        right = at.pack(R + at.adjoint(self.weights * h))
        x = _solve(self.factor, right)
        held = np.zeros(0)
        if k.size:
            miss = self.vectors.T @ (self.rows @ x - h[k])
            held = self.vectors @ (miss / self.values)
            x = x - _solve(self.factor, self.rows.T @ held)
        X = at.unpack(x)
        y = self.weights * (at.forward(X) - h)
        if k.size:
            y[k] += held
        return X, y


def _cholesky(M: Real) -> Any:
    """Return the upper factor of a matrix of which the upper triangle counts; overwritten."""
    upper, info = factor_upper(M if M.flags.f_contiguous else np.asfortranarray(M))
    if info != 0 or not np.all(np.isfinite(np.diagonal(upper))):
        raise sl.LinAlgError("not positive definite")
    return upper


def _solve(upper: Real, r: Real) -> Real:
    return np.asarray(sl.cho_solve((upper, False), r, check_finite=False))
