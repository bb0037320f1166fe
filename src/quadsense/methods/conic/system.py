"""The linear system of a step: ``H x + F*(y) = R`` and ``F(x) - E y = h``.

H is the matrix part of the Hessian, diagonal in the coordinates at hand; E is the inverse weight
of every row, 0 for an equality. It is solved in the order of the rows,
``(E + F H^-1 F*) y = F H^-1 R - h``, or in that of the unknowns,
``(H + F* E^-1 F) x = R + F* E^-1 h`` with the equalities by their own Schur complement, whichever
takes fewer flops. Factors are made in single precision where that will do, and what they,
rounding and a little regularisation leave is taken off: by conjugate gradients in the order of the
rows, by refinement in that of the unknowns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as sl
from scipy.linalg import blas

from quadsense.arrays import Vector, or_there
from quadsense.core import products
from quadsense.core.cholesky import (
    add_to_diagonal,
    factor_upper,
    set_diagonal,
    symmetric_product,
)
from quadsense.core.intervals import EPS, Array, Real
from quadsense.device import algebra, numbers, waits
from quadsense.methods.base import DIAGONAL_SHIFT, MIN_RESIDUAL
from quadsense.methods.conic.coordinates import MIN_SINGLE_ORDER, KernelCoordinates
from quadsense.methods.conic.program import Mask
from quadsense.system.watch import cholesky_flops, look

ROUNDING_FACTOR = 2.0
"""Residuals below this many roundings of a reading are left alone."""

MAX_REFINEMENTS = 4
"""Steps of iterative refinement at most."""

HEAVY_DIAGONAL_SHIFT = 1e-13
"""Share of a diagonal entry that is added to it for rows apart, of which some may say the same."""

MAX_RESIDUAL = 1e-12
"""Relative residual from which heavy rows are to be solved for apart."""

ROUGH_RESIDUAL = 1e-9
"""Relative residual that will do where much is left to do."""

MAX_GRADIENTS = 12
"""Products of conjugate gradients at most: of a factor in single precision that is worth it."""

MAX_FLOP_RATIO = 10.0
"""Factor by which the second way may take more flops, where the first rounds too much."""

MAX_EXTRA_HEAVY_ROWS = 400
"""Rows that may be solved for apart in addition to twice as many as there are unknowns."""

MIN_HEAVY_WEIGHT = 1e3
"""Weights beyond this multiple of what the other rows have are heavy."""


class Solved(NamedTuple):
    """A solution, ``F(x)``, what it leaves of the right-hand sides, and how much that is."""

    x: Array
    y: Real
    image: Real
    r1: Array
    r2: Real
    error: float


class KernelSystem:
    """Factored once for all right-hand sides of a step.

    Parameters
    ----------
    coordinates : KernelCoordinates
    E : ndarray, shape (m,)
    equal : ndarray of bool, shape (m,)
    enough : float
        Relative residual at which a solution is left alone: at most `ROUGH_RESIDUAL`.
    single : bool
        Whether to try factors in single precision: afterwards, whether they did.
    """

    def __init__(
        self,
        coordinates: KernelCoordinates,
        E: Real,
        equal: Mask,
        enough: float = MIN_RESIDUAL,
        single: bool = False,
    ) -> None:
        self.at, self.E, self.enough = coordinates, np.where(equal, 0.0, E), enough
        self.split = False
        self.sizes = np.sqrt(coordinates.squared())
        self.largest = np.max(self.sizes, initial=0.0)
        by_rows, by_unknowns = coordinates.flops()
        # More rows than unknowns depend on each other, and where the cone holds nothing on E alone.
        few = coordinates.rowwise and coordinates.m <= coordinates.size
        self.by_rows = few and by_rows <= by_unknowns
        self.second = by_unknowns <= MAX_FLOP_RATIO * by_rows
        side = coordinates.m if self.by_rows else coordinates.size
        self.single = single and side >= MIN_SINGLE_ORDER and not waits(E)
        self._factor()

    def _factor(self) -> None:
        """Factor; once more in double precision where single precision does not do."""
        factor = self._factor_rows if self.by_rows else self._factor_unknowns
        if self.single:
            try:
                factor()
                return
            except sl.LinAlgError:
                self.single = False
        factor()

    def solve(self, R: Array, h: Real) -> tuple[Array, Real, Real]:
        """Return x, (n, n), y, (m,), and ``F(x)``."""
        found = self._refined(R, h)
        if self.single and not found.error <= self.enough:
            self.single = False
            self._factor()
            found = self._refined(R, h)
        if (
            found.error > max(MAX_RESIDUAL, self.enough)
            and not self.split
            and (self.second or not self.by_rows)
        ):
            self.by_rows = False
            self._factor_unknowns(split=True)
            found = min(found, self._refined(R, h), key=lambda one: one.error)
        return found.x, found.y, found.image

    def _refined(self, R: Array, h: Real) -> Solved:
        found = self._checked(R, h, *self._once(R, h))
        for _ in range(MAX_REFINEMENTS):
            if found.error <= self.enough or not np.isfinite(found.error):
                break
            dx, dy, _, _ = self._once(found.r1, found.r2)
            # Of the sums as rounded, not the sums of what belongs to either part.
            other = self._checked(R, h, found.x + dx, found.y + dy, None, None)
            if not other.error < 0.5 * found.error:
                break
            found = other
        return found

    def _checked(
        self, R: Array, h: Real, x: Array, y: Real, image: Real | None, back: Array | None
    ) -> Solved:
        """Return a solution with both residuals, and how large these are relatively.

        `image` is ``F(x)`` and `back` is ``F*(y)`` where they are known.
        """
        image = self.at.forward(x) if image is None else image
        back = self.at.adjoint(y) if back is None else back
        through = self.E * y
        own = (self.at.hessian - self.at.added) * x
        r1, r2 = R - own - back, h - image + through
        size1, size2, left1, left2, rounded = numbers(
            np.linalg.norm(R) + np.linalg.norm(own) + np.linalg.norm(self.sizes * y),
            np.max(np.abs(h) + np.abs(image) + np.abs(through), initial=0.0),
            np.linalg.norm(r1),
            np.max(np.abs(r2), initial=0.0),
            self.largest * np.linalg.norm(x),
        )
        left2 = max(0.0, left2 - ROUNDING_FACTOR * EPS * rounded)  # of F(x) alone
        error = max(left1 / (size1 or 1.0), left2 / (size2 or 1.0))
        return Solved(x, y, image, r1, r2, error)

    # --- by rows -----------------------------------------------------------------------------

    def _factor_rows(self) -> None:
        gram: Any
        gram, self.per = self.at.gram(self.single)
        self.gram = gram if waits(gram) or gram.flags.f_contiguous else gram.T
        diagonal = self.gram.diagonal() * self.per
        lift = DIAGONAL_SHIFT * (diagonal + np.max(diagonal, initial=0.0) * 1e-3)
        E = np.maximum(self.E, lift) + np.finfo(float).tiny
        self.roots = 1.0 / np.sqrt(E)
        scales = np.sqrt(self.per) * self.roots
        dtype = np.float32 if self.single else np.float64
        M: Any = self.gram.T.astype(dtype)  # one of our own, in C order
        M *= scales.astype(dtype)
        M *= scales.astype(dtype)[:, None]
        M = M.T
        add_to_diagonal(M, 1.0)
        look(cholesky_flops(len(M)))
        self.factor = _cholesky(M)

    def _once(self, R: Array, h: Real) -> tuple[Array, Real, Real | None, Array | None]:
        """Return x, y and, where they are known, ``F(x)`` and ``F*(y)``."""
        if not self.by_rows:
            return self._once_by_unknowns(R, h)
        look()
        known = self.at.forward(R / self.at.hessian) - h
        image = None
        if known.size < MIN_SINGLE_ORDER:
            y = self._preconditioned(known)
        else:
            y, rest = self._conjugate_gradients(known, np.max(np.abs(h), initial=0.0))
            if self.enough >= ROUGH_RESIDUAL:  # then this is as good as another pass over the rows
                image = h + self.E * y + rest
        back = self.at.adjoint(y)
        return (R - back) / self.at.hessian, y, image, back

    def _conjugate_gradients(self, known: Real, size: float) -> tuple[Real, Real]:
        """Return y with ``(E + F H^-1 F*) y = known`` and what it leaves of that."""
        y = self._preconditioned(known)
        rest = known - self._through(y)
        p, before = np.zeros_like(y), 1.0
        best, least = (y, rest), np.inf
        for _ in range(MAX_GRADIENTS):
            left, through = (
                float(np.max(np.abs(each), initial=0.0)) for each in (rest, self.E * y)
            )
            if left < least:
                best, least = (y, rest), left
            if not left > 0.5 * self.enough * (size + through):
                break
            z = self._preconditioned(rest)
            after = float(rest @ z)
            p = z + (after / before) * p
            q = self._through(p)
            curved = float(p @ q)
            if not (after > 0.0 and curved > 0.0):
                break
            y, rest, before = y + (after / curved) * p, rest - (after / curved) * q, after
        return best

    def _preconditioned(self, r: Real) -> Real:
        return self.roots * _solve(self.factor, self.roots * r)

    def _through(self, y: Real) -> Real:
        """``(E + F H^-1 F*) y``."""
        if self.gram.dtype == np.float32:
            return self.E * y + self.at.forward(self.at.adjoint(y) / self.at.hessian)
        return self.E * y + self.per * symmetric_product(self.gram, y)

    # --- by unknowns -------------------------------------------------------------------------

    def _factor_unknowns(self, split: bool = False) -> None:
        """Factor the normal matrix, with equalities and, to split them off, heavy rows apart.

        A row apart has a weight w in the normal matrix that keeps that well conditioned; what is
        left of it is ``F(x) - E' u = h`` with ``y = u + w (F(x) - h)``, ``E' = E/(1 - w E)``.
        """
        at, equal = self.at, self.E == 0.0
        self.split = split
        hessian, norms = self._packed_hessian(), np.maximum(at.squared(), np.finfo(float).tiny)
        weights = 1.0 / np.where(equal, 1.0, self.E)
        sizes = np.where(equal, 0.0, weights * norms)
        others, apart = sizes, equal
        if split:  # all but as many as may be needed to hold A
            most = 2 * at.size + MAX_EXTRA_HEAVY_ROWS
            others = np.partition(sizes, -most)[:-most] if at.m > most else np.zeros(0)
        typical = float(np.mean(hessian)) - at.added + float(np.sum(others)) / at.size
        typical = typical if typical > 0.0 else 1.0  # nothing but equalities
        if split:
            apart = equal | (sizes > MIN_HEAVY_WEIGHT * typical)
        weights = np.where(apart, np.where(equal, 1.0, MIN_HEAVY_WEIGHT) * typical / norms, weights)
        T = at.normal(weights, self.single)
        set_diagonal(T, (np.diagonal(T) + hessian) * (1.0 + DIAGONAL_SHIFT))
        look(cholesky_flops(len(T)))
        try:
            self.factor = _cholesky(T)
        except sl.LinAlgError:
            if split or self.single:
                raise
            self._factor_unknowns(split=True)
            return
        self.weights, (self.apart,) = weights, np.nonzero(apart)
        if self.apart.size:
            self._factor_apart()

    def _factor_apart(self) -> None:
        k = self.apart
        self.rows = self.at.features(k)
        images = _solve(self.factor, self.rows.T)
        M = self.rows @ images
        E = self.E[k]
        set_diagonal(
            M, (M.diagonal() + E / (1.0 - self.weights[k] * E)) * (1.0 + HEAVY_DIAGONAL_SHIFT)
        )
        look(cholesky_flops(k.size))
        self.outer = _cholesky(M)

    def _packed_hessian(self) -> Vector:
        H = self.at.hessian
        if isinstance(H, float):
            return np.full_like(self.E, H, shape=(self.at.size,))
        return products.entries(H, self.at.size > products.size_of(self.at.n, False))

    def _once_by_unknowns(self, R: Array, h: Real) -> tuple[Array, Real, Real, None]:
        look()
        at, k = self.at, self.apart
        right = at.pack(R + at.adjoint(self.weights * h))
        x = _solve(self.factor, right)
        held = np.zeros(0)
        if k.size:
            held = _solve(self.outer, self.rows @ x - h[k])
            x = x - _solve(self.factor, self.rows.T @ held)
        X = at.unpack(x)
        image = at.forward(X)
        y = self.weights * (image - h)
        if k.size:
            y[k] += held
        return X, y, image, None


def system_of(
    coordinates: KernelCoordinates,
    E: Real,
    equal: Mask,
    enough: float = MIN_RESIDUAL,
    single: bool = False,
) -> KernelSystem:
    """Return the factored system, or the one that the coordinates have of their own."""
    make = getattr(coordinates, "system", KernelSystem)
    return make(coordinates, E, equal, enough, single)


def _cholesky(M: Real) -> Any:
    """Return the upper factor of a symmetric matrix, overwritten.

    In Fortran order its upper triangle counts; else it is whole.
    """
    if not waits(M) and not M.flags.f_contiguous:
        M = M.T if M.flags.c_contiguous else np.asfortranarray(M)
    upper, info = factor_upper(M)
    if info != 0 or not np.all(np.isfinite(np.diagonal(upper))):
        raise sl.LinAlgError("not positive definite")
    return upper


@or_there(algebra.solve_upper)
def _solve(upper: Real, r: Real) -> Real:
    """Return the solution in double precision, whatever that of the factor is."""
    if r.ndim == 1 and r.size:  # a quarter of the time of LAPACK's, which is made for many
        if upper.dtype == np.float64:
            half = blas.dtrsv(upper, r, trans=1, lower=0)
            return np.asarray(blas.dtrsv(upper, half, lower=0, overwrite_x=1))
        unit = float(np.max(np.abs(r))) or 1.0  # so that no entry leaves the range
        half = blas.strsv(upper, r / unit, trans=1, lower=0)
        return unit * blas.strsv(upper, half, lower=0, overwrite_x=1).astype(np.float64)
    right = np.asfortranarray(r, dtype=upper.dtype)
    found = sl.cho_solve((upper, False), right, check_finite=False)
    return np.asarray(found, dtype=np.float64)
