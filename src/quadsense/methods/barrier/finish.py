"""What a state comes to: a matrix in the user's units and coordinates, and a dual vector."""

from __future__ import annotations

import numpy as np

from quadsense.arrays import Vector, to_numpy
from quadsense.core.intervals import Array
from quadsense.core.packed import features
from quadsense.core.packed import unpack as unpacked
from quadsense.core.question import Question
from quadsense.methods.barrier.point import Point
from quadsense.methods.barrier.program import Program
from quadsense.methods.positive.maps import forward, project

CORRECTIONS = 3
"""Newton steps by which equalities are brought to rounding."""


def matrix(program: Program, at: Point) -> tuple[Array | None, Array | None]:
    """Return A, or where it is positive semidefinite a factor X of it: the other is None."""
    F, scale, basis = program.F, program.scale, program.basis
    equal = np.flatnonzero(program.equal)
    if at.X is None:
        A = at.A
        for _ in range(CORRECTIONS if equal.size else 0):
            some = F.only(equal)
            miss = program.level[equal] - np.asarray(some.forward(A))
            if not np.any(miss):
                break
            A = A + np.asarray(some.adjoint(_solved(np.asarray(some.gram()), miss)))
        return scale * A, None
    X = at.X
    for _ in range(CORRECTIONS if equal.size else 0):
        X = _corrected(program, X, equal)
    X = np.sqrt(scale) * X
    if basis is None:
        return None, X
    inside = basis @ X
    if not program.elsewhere:
        return None, inside
    outside = _complement(basis)
    return None, np.hstack([inside, np.sqrt(scale * program.elsewhere) * outside])


def _solved(M: Array, r: Vector) -> Vector:
    """Return the least solution of ``M x = r``, M positive semidefinite."""
    return np.asarray(np.linalg.lstsq(M, r, rcond=1e-12)[0])


def _corrected(program: Program, X: Array, equal: Array) -> Array:
    """Return ``X (I + B/2)``, ``B = X* F*(c) X``, such that equalities are met to first order."""
    F = program.F.only(equal)
    miss = program.level[equal] - forward(F, X)
    rows = np.asarray(F.mixed(features(project(F, X))))
    c = _solved(rows @ rows.T, miss)
    B = unpacked(c @ rows, X.shape[1], X.dtype)
    return np.asarray(X + 0.5 * (X @ B))


def _complement(basis: Array) -> Array:
    """Return an orthonormal basis of what is orthogonal to one."""
    Q, _ = np.linalg.qr(basis, mode="complete")
    return np.asarray(Q[:, basis.shape[1] :])


def dual(program: Program, at: Point) -> Vector:
    """Return y for all unit rows, in the user's units."""
    question = program.question
    y = np.zeros(question.m)
    y[program.index] = at.y(program) * (program.cost / program.scale)
    if question.rows == "slack_sum":
        y = np.where(question.soft, np.clip(y, -question.weights, question.weights), y)
    elif question.rows == "slack_max":
        _add_shares(question, y)
    silent = to_numpy(program.given.nonzero) == 0.0
    if bool(np.any(silent)):
        _add_silent(program, y, np.flatnonzero(silent))
    # An end that is not there has no multiplier, whatever rounding says.
    y = np.where((y > 0.0) & ~np.isfinite(question.hi) & (program_box(program)), 0.0, y)
    return np.where((y < 0.0) & ~np.isfinite(question.lo) & (program_box(program)), 0.0, y)


def _add_shares(question: Question, y: Vector) -> None:
    """Scale the multipliers of soft rows so that their shares add up to 1 at most."""
    soft = question.soft & (question.weights > 0.0)
    total = float(np.sum(np.abs(y[soft]) / question.weights[soft]))
    if total > 1.0:
        y[soft] /= total * (1.0 + 1e-15 * question.m)


def program_box(program: Program) -> Array:
    """Return which rows' multipliers are those of their ends alone."""
    question = program.question
    if question.rows == "squares":
        return np.asarray(question.hard | (question.weights == 0.0))
    return np.ones(question.m, bool)


def _add_silent(program: Program, y: Vector, silent: Array) -> None:
    """Add the slopes of what rows of zeros cost, which read 0 whatever A is."""
    question = program.question
    lo, hi, w = question.lo[silent], question.hi[silent], question.weights[silent]
    away = np.where(lo > 0.0, -lo, np.where(hi < 0.0, -hi, 0.0))  # v less the nearest end
    soft = question.soft[silent] & (w > 0.0)
    if question.rows == "slack_sum":
        y[silent] = np.where(soft, w * np.sign(away), 0.0)
    elif question.rows == "slack_squares":
        y[silent] = np.where(soft, 2.0 * w * away, 0.0)
    elif question.rows == "squares":
        y[silent] = np.where(question.hard[silent], 0.0, -2.0 * w * question.reading[silent])
    elif question.rows == "center":
        inside = (lo < 0.0) & (hi > 0.0)
        safe_lo, safe_hi = np.where(inside, lo, -1.0), np.where(inside, hi, 1.0)
        y[silent] = np.where(inside, 1.0 / safe_hi + 1.0 / safe_lo, 0.0)
