"""A factor moved so that some readings are exactly what they are to be."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector
from quadsense.methods.least_squares.bounds import Rows
from quadsense.methods.least_squares.cone import LeastSquaresCone
from quadsense.methods.least_squares.program import SquaresProgram, features

Array = npt.NDArray[Any]

STEPS = 6
"""Each squares the error: three reach rounding from where the first-order steps end."""

ENTRIES = 2e7
"""Entries of measured matrices that are written out at once, at most."""


def with_trace(cone: LeastSquaresCone, X: Array) -> Array:
    """The factor of the trace that the cone asks for."""
    if cone.trace is None:
        return X
    trace = float((np.abs(X) ** 2).sum())
    return np.sqrt(cone.trace / trace) * X if trace > 0.0 else X


def shifted(program: SquaresProgram, x: Vector, rows: Rows, errors: Vector) -> Vector:
    """x changed as little as possible for its readings to change by `errors`, without a cone."""
    if rows.size == 0:
        return x
    return x + np.linalg.lstsq(features(program.F, rows), errors)[0]


def multipliers(program: SquaresProgram, X: Array, slope: Vector, rows: Rows, mu: Vector) -> Vector:
    """Multipliers of the rows that pull, such that ``T X`` is as near to 0 as can be.

    At a solution it is 0, and what steps of the first order leave of it is rounding many times
    over. Signs stay.
    """
    cone = program.cone
    pulling = np.flatnonzero(mu)
    if pulling.size == 0 or float(pulling.size) * cone.n**2 > ENTRIES:
        return mu
    images = [cone.unpack(line) @ X for line in features(program.F, rows[pulling])]
    if cone.trace is not None:
        images.append(X)
    M = np.stack(images).reshape(len(images), -1)
    right = -(cone.unpack(2.0 * slope) @ X).ravel()
    M, right = np.hstack([M.real, M.imag]), np.concatenate([right.real, right.imag])
    found = np.linalg.lstsq(M.T, right, rcond=1e-12)[0][: pulling.size]
    equal = (program.lo == program.hi)[rows[pulling]]
    better = mu.copy()
    better[pulling] = np.where((found * mu[pulling] >= 0.0) | equal, found, 0.0)
    return better


def moved(program: SquaresProgram, X: Array, rows: Rows, targets: Vector) -> Array | None:
    """X changed as little as possible, to first order, for ``F(X X*)`` of rows to be targets.

    None where that leads nowhere: X is too small there, or the rows are too many.
    """
    cone = program.cone
    if rows.size == 0:
        return with_trace(cone, X)
    if float(rows.size) * cone.n**2 > ENTRIES:
        return None
    matrices = [cone.unpack(line) for line in features(program.F, rows)]
    if cone.trace is not None:
        matrices.append(np.eye(cone.n, dtype=cone.dtype) / np.sqrt(cone.n))
        targets = np.append(targets, cone.trace / np.sqrt(cone.n))
    M = np.stack(matrices)
    last = np.inf
    for _ in range(STEPS):
        images = M @ X
        errors = targets - np.einsum("kij,ij->k", images, X.conj()).real
        size = float(np.abs(errors).max())
        if not size < 0.5 * last:  # rounding, or no way
            break
        last = size
        flat = images.reshape(len(M), -1)
        G = 2.0 * (flat @ flat.conj().T).real
        by = np.linalg.lstsq(G, errors, rcond=1e-12)[0]
        X = X + np.tensordot(by, images, axes=1)
    return with_trace(cone, X) if np.isfinite(X).all() else None
