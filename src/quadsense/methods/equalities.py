"""A last step onto equalities, which methods see as narrow intervals only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg as sl

from quadsense.arrays import Vector, device, is_numpy, to_numpy
from quadsense.core.intervals import Intervals
from quadsense.core.matrix import MeasuredForm, SensedMatrix
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import MAX_FORMED_ORDER
from quadsense.system.machine import MIB
from quadsense.system.watch import eigen_flops, look

Matrix = npt.NDArray[Any]

MAX_STEPS = 40
"""Newton steps at most: two or three, but where a positive semidefinite A must read 0."""

MIN_FALL = 0.6
"""Share of the worst miss that a step must leave, or it was the last: a double root leaves 1/4."""

MAX_ENTRIES = 32 * MIB
"""Numbers in the derivative of all equalities by a factor, 256 MiB: beyond, none is tried."""

MAX_EQUALITIES = 4000
"""Equalities whose Gram matrix is factored in a second or two."""

LOST_SHARE = 1e-14
"""Share of the largest eigenvalue below which others are rounding."""


def nearest_exact(rows: Sensing, ends: Intervals, matrix: SensedMatrix) -> SensedMatrix | None:
    """A matrix near this one that meets the equalities, as well as float64 can; None: not known.

    A symmetric A moves by ``F_E*(K_E^-1 r)``, the least that does it; ``A = X S X*`` by
    ``X + sum_j lam_j F_j X S``, so that it keeps its rank and its signs.

    Parameters
    ----------
    rows : Sensing
        Rows of unit norm.
    ends : Intervals
        Theirs.
    matrix : SensedMatrix
        Near to what is sought.
    """
    equal = np.flatnonzero(ends.exact)
    if not 0 < equal.size <= MAX_EQUALITIES:
        return None
    E, goal = equalities_of(rows, equal), ends.lo[equal]
    with np.errstate(all="ignore"):
        if matrix.factor is not None:
            X = to_numpy(matrix.factor)
            if equal.size * float(X.size) > MAX_ENTRIES:
                return None
            held = held_factor(E, goal, X, matrix.signs)
            if held is None:
                return None
            return SensedMatrix.from_factor(_beside(rows, held), matrix.signs)
        form = matrix.form
        if rows.n > MAX_FORMED_ORDER and isinstance(form, MeasuredForm) and form.rows is rows.raw:
            return _held_coefficients(rows, equal, goal, matrix)
        A = held_dense(E, goal, to_numpy(matrix.to_dense()))
        return None if A is None else SensedMatrix.from_dense(_beside(rows, A))


def equalities_of(rows: Sensing, equal: npt.NDArray[np.intp]) -> Sensing:
    """Those rows alone, for NumPy."""
    return rows.on_numpy().only(equal).narrowed()


def _beside(rows: Sensing, values: Matrix) -> Any:
    """An array where the rows live, of their type."""
    if not is_numpy(rows.norms):
        return rows._cast(rows.xp.asarray(values, device=device(rows.norms)))
    return values.astype(rows.dtype, copy=False)


class _Solver:
    """Solves with a symmetric positive semidefinite matrix, what is rounding left out."""

    def __init__(self, K: Matrix) -> None:
        look(eigen_flops(len(K)))
        values, self._vectors = sl.eigh(K, check_finite=False)
        kept = values > LOST_SHARE * max(float(values[-1]), 0.0)
        self._inverse = np.where(kept, 1.0 / np.where(kept, values, 1.0), 0.0)

    def __call__(self, r: Vector) -> Vector:
        return np.asarray(self._vectors @ (self._inverse * (self._vectors.T @ r)))


def held_dense(E: Sensing, goal: Vector, A: Matrix) -> Matrix | None:
    """The nearest matrix that meets equalities, rows E with readings `goal`."""
    solve, worst, best = _Solver(E.gram()), np.inf, None
    for _ in range(MAX_STEPS):
        r = goal - E.forward(A)
        miss = float(np.max(np.abs(r)))
        if miss < worst:
            best = A
        if not miss < MIN_FALL * worst or miss == 0.0:
            break
        worst = miss
        step = E.adjoint(solve(r))
        A = A + 0.5 * (step + step.conj().T)
    return best


def _held_coefficients(
    rows: Sensing, equal: npt.NDArray[np.intp], goal: Vector, matrix: SensedMatrix
) -> SensedMatrix | None:
    """The same for a matrix that is only known by its coefficients."""
    solve, worst, best = _Solver(equalities_of(rows, equal).gram()), np.inf, None
    for _ in range(MAX_STEPS):
        form = matrix.form
        assert isinstance(form, MeasuredForm)
        r = goal - to_numpy(rows.quadratic(matrix.times))[equal]
        miss = float(np.max(np.abs(r)))
        if miss < worst:
            best = matrix
        if not miss < MIN_FALL * worst or miss == 0.0:
            break
        worst, y = miss, np.zeros(rows.m)
        y[equal] = solve(r)
        c = form.c - rows.unmixed(rows._vector(y))
        matrix = SensedMatrix(replace(form, c=c))
    return best


def held_factor(E: Sensing, goal: Vector, X: Matrix, signs: Vector | None) -> Matrix | None:
    """A factor near X of a matrix that does."""
    worst, best = np.inf, None
    for _ in range(MAX_STEPS):
        look()
        r = goal - (E.factored(X) if signs is None else E.forward((X * signs) @ X.conj().T))
        miss = float(np.max(np.abs(r)))
        if miss < worst:
            best = X
        if not miss < MIN_FALL * worst or miss == 0.0:
            break
        worst = miss
        J = _derivative(E, X)
        step = E.adjoint(_Solver(2.0 * (J @ J.T))(r)) @ X
        X = X + (step if signs is None else step * signs)
    return best


def _derivative(E: Sensing, X: Matrix) -> Matrix:
    """Rows ``F_j X``, real and imaginary parts one after the other."""
    J = np.empty((E.m, 2 if E.is_complex else 1, X.size))
    unit = np.zeros(E.m)
    for j in range(E.m):
        unit[j] = 1.0
        image = (E.adjoint(unit) @ X).ravel()
        unit[j] = 0.0
        J[j, 0] = image.real
        if E.is_complex:
            J[j, 1] = image.imag
    return J.reshape(E.m, -1)
