"""Dual vectors of questions over all symmetric matrices, for which ``C + F*(y)`` must vanish.

A proof multiplies what is left of it by the largest norm that A can have, which may be a million
times that of the answer: so nothing is to be left but rounding. Over the cone it must be positive
semidefinite, and what is negative of it is multiplied by as much.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import scipy.linalg as sl

from quadsense.arrays import Vector, to_numpy
from quadsense.core import products
from quadsense.core.intervals import ZERO_SHARE, Array
from quadsense.core.question import Question
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import DIAGONAL_SHIFT, MIN_RESIDUAL
from quadsense.methods.traits import MAX_MOVED_UNKNOWNS
from quadsense.proofs.costs import conjugate_above, permitted
from quadsense.proofs.definite import cholesky, solve
from quadsense.system.watch import cholesky_flops, look

Real = npt.NDArray[np.float64]

MAX_ROW_FLOPS = 1e7
"""Work up to which all rows are factored by reflections: weights may differ by more than a normal
matrix can hold."""

MAX_MOVES = 4
"""How often a vector is moved."""

UNNOTICED_SHARE = 0.1
"""Share of the gap that may be lost."""

MAX_PROOF_SIZE = 1e7
"""Norm of a matrix that a proof may have to reckon with, in units of that of the answer."""

SLIGHT_SHARE = 1e-3
"""Share of the typical entry by which one that is 0 may be moved, of the largest eigenvalue that a
negative one may be, and of the sum's parts that the largest eigenvalue counts at least."""

LIFT_FACTOR = 0.1
"""What a negative eigenvalue becomes, in units of it."""

EIGENVALUE_PRICE = 2.0
"""What a negative eigenvalue costs a bound, about, in units of it and of the trace of A."""

MAX_LIFT_LOSS = 5.0
"""What it may cost that nothing is negative, in units of the loss that is of no account: half the
gap."""

WORST_EIGENVALUE_PRICE = 1e4
"""The same at worst, where rows see some directions hardly: below that nothing is moved."""


def balanced(F: Sensing, question: Question, y: Vector, A: Array, enough: float = 0.0) -> Vector:
    """The vector moved a little until ``C + F*(y) + 2 alpha (A - P)`` vanishes to rounding.

    Over the cone, until it is positive semidefinite.

    Parameters
    ----------
    F : Sensing
        Unit rows.
    question : Question
        On these.
    y : ndarray of shape (m,)
    A : ndarray of shape (n, n)
    enough : float
        Loss, in units of the objective, that is of no account; see `MAX_PROOF_SIZE`.
    """
    if F.unknowns > MAX_MOVED_UNKNOWNS or not (np.isfinite(y).all() and np.isfinite(A).all()):
        return y
    if question.psd:
        return _lifted(F, question, y, A, enough)
    live = to_numpy(F.nonzero) > 0.0
    C = _pull(question, A)
    given, unit = y, _unit(C, y)  # squares of what it measures are numbers
    C, y, enough = C / unit, y / unit, enough / unit
    least = MIN_RESIDUAL * (float(np.linalg.norm(C)) + float(np.abs(y) @ to_numpy(F.masses)))
    size = MAX_PROOF_SIZE * float(np.linalg.norm(A))
    rest = C + to_numpy(F.adjoint(y))
    left = float(np.linalg.norm(rest))
    if not left > max(least, enough / size if size > 0.0 else 0.0):
        return given
    if left * left <= 4.0 * (question.alpha / unit) * enough:  # the distance pays for it
        return given
    freedom = np.where(live, _freedom(question, given), 0.0)
    moves = _moves(F, freedom / (float(freedom.max()) or 1.0))
    for _ in range(MAX_MOVES if moves is not None else 0):
        assert moves is not None
        moved = y - moves(products.pack(rest))
        after = C + to_numpy(F.adjoint(moved))
        if not float(np.linalg.norm(after)) < 0.5 * float(np.linalg.norm(rest)):
            break
        y, rest = moved, after
    return y * unit


def _lifted(F: Sensing, question: Question, y: Vector, A: Array, enough: float) -> Vector:
    """The vector moved until no eigenvalue is negative, where few are and by little.

    And, if that proves more, until nothing is left where A is: what is left there is paid for by
    all of A, and rounding the readings alone may leave as much as small residuals cost.
    """
    if question.alpha > 0.0 or question.log_det:
        return y  # which make up for it
    C = _pull(question, A)
    T = C + to_numpy(F.adjoint(y))
    values, vectors = np.linalg.eigh(T)
    least, trace = float(values[0]), float(np.trace(A).real)
    # Where A has full rank within what the rows see, all eigenvalues are to be 0.
    parts = float(np.linalg.norm(C)) + float(np.abs(y) @ to_numpy(F.masses))
    if not least > -SLIGHT_SHARE * max(float(values[-1]), SLIGHT_SHARE * parts):
        return y
    if float(np.vdot(T, A).real) - WORST_EIGENVALUE_PRICE * min(least, 0.0) * trace <= enough:
        return y
    if isinstance(question.C, float) and question.C > 0.0:
        # A smaller vector does for the proof, at no cost to speak of (see `lifted`).
        proved = abs(conjugate_above(question, permitted(question, y)))
        if -least * proved <= enough * question.C:
            return y
    freedom = np.where(to_numpy(F.nonzero) > 0.0, _freedom(question, y), 0.0)
    moves = _moves(F, freedom / (float(freedom.max()) or 1.0))
    if moves is None:
        return y

    def measured(vector: Vector) -> tuple[float, float]:
        """Return the bound without what is negative, and the least eigenvalue."""
        lowest = float(np.linalg.eigvalsh(C + to_numpy(F.adjoint(vector)))[0])
        return -conjugate_above(question, permitted(question, vector)), lowest

    raised = np.maximum(values, -LIFT_FACTOR * least)
    found = [(*measured(y), y)]
    for goal in ((vectors * raised) @ vectors.conj().T, _beside(T, A)):
        rest = T - goal
        moved = y - moves(products.pack(0.5 * (rest + rest.conj().T)))
        found.append((*measured(moved), moved))
    # How much a negative eigenvalue costs is not known before the proof: it may be all.
    zero, wanted = -MIN_RESIDUAL * float(values[-1]), found[0][0] - MAX_LIFT_LOSS * enough
    without = [each for each in found if each[1] >= zero and each[0] >= wanted]
    if without:
        return max(without, key=lambda each: each[0])[2]
    return max(found, key=lambda each: each[0] + EIGENVALUE_PRICE * min(each[1], 0.0) * trace)[2]


def _beside(T: Array, A: Array) -> Array:
    """The positive part of T where A is 0, and nothing where it is not."""
    sizes, axes = np.linalg.eigh(A)
    V = axes[:, sizes <= ZERO_SHARE * float(sizes[-1])]
    values, vectors = np.linalg.eigh(V.conj().T @ T @ V)
    W = V @ vectors
    return np.asarray((W * np.maximum(values, 0.0)) @ W.conj().T)


def _unit(C: Array, y: Vector) -> float:
    """A power of two near the largest entry of either."""
    largest = max(float(np.abs(C).max()), float(np.abs(y).max(initial=0.0)))
    return float(np.ldexp(1.0, max(int(np.frexp(largest)[1]), -1000)))


def _pull(question: Question, A: Array) -> Array:
    """``C + 2 alpha (A - P)``."""
    C, P, one = question.C, question.prior, np.eye(len(A))
    pull = C * one if isinstance(C, float) else np.asarray(C)
    if question.alpha > 0.0:
        pull = pull + 2.0 * question.alpha * (A - (P * one if isinstance(P, float) else P))
    return pull if np.iscomplexobj(A) else np.ascontiguousarray(pull.real)


def _freedom(question: Question, y: Vector) -> Vector:
    """How far each entry may go, relatively: the less it costs, the further.

    A square by its weight; what belongs to an end in proportion to itself, so that it does not move
    to one that is not there, and a little by its price; an equality wherever it is needed.
    """
    sizes = np.abs(y)
    typical = float(np.mean(sizes)) or 1.0
    freedom = sizes + SLIGHT_SHARE * _typical(question, sizes)
    largest = float(sizes.max(initial=0.0))
    freedom = np.where(question.equal & ~question.soft, typical + largest, freedom)
    return question.term.freedom(question, y, freedom)


def _typical(question: Question, sizes: Vector) -> Vector:
    """What an entry with two ends would be if each had cost as much: 0 for others.

    The price of one is the width of its interval, or what a miss takes to cost 1: rows of uneven
    norms are of as uneven a price.
    """
    width = question.hi - question.lo
    prices = np.where(np.isfinite(width), width, 0.0)
    if question.term.power == 1:
        priced = question.soft & np.isfinite(width) & (question.weights > 0.0)
        prices = np.where(priced, 2.0 / np.where(priced, question.weights, 1.0), prices)
    priced = prices > 0.0
    spent = float(np.mean((prices * sizes)[priced])) if priced.any() else 0.0
    return np.divide(spent, prices, where=priced, out=np.zeros_like(sizes))


def _moves(F: Sensing, freedom: Vector) -> Callable[[Real], Vector] | None:
    """The least change of y, by that freedom, that takes off what it is given, packed."""
    m, size = F.m, F.unknowns
    if float(m) * size * min(m, size) <= MAX_ROW_FLOPS:
        return _by_rows(F, np.sqrt(freedom))
    M = F.normal(freedom)
    look(cholesky_flops(len(M)))
    M[np.diag_indices(len(M))] += DIAGONAL_SHIFT * float(np.trace(M)) / len(M)
    factor = cholesky(M, overwrite=True)
    if factor is None:
        return None

    def move(rest: Real) -> Vector:
        X = products.unpack(solve(factor, rest), F.n, F.dtype)
        return np.asarray(freedom * to_numpy(F.forward(X)))

    return move


def _by_rows(F: Sensing, roots: Vector) -> Callable[[Real], Vector] | None:
    """The same by reflections of the weighed rows, the heaviest first [Cox & Higham 1998]."""
    rows = roots[:, None] * np.asarray(F.features())
    order = np.argsort(-np.abs(rows).max(axis=1, initial=0.0), kind="stable")
    Q, R, columns = sl.qr(rows[order], mode="economic", pivoting=True, check_finite=False)
    pivots = np.abs(np.diagonal(R))
    count = int((pivots > MIN_RESIDUAL * max(rows.shape) * float(pivots.max(initial=0.0))).sum())
    if count == 0:
        return None
    Q, R = Q[:, :count], R[:count, :count]

    def move(rest: Real) -> Vector:
        q = sl.solve_triangular(R, rest[columns][:count], trans="T", check_finite=False)
        change = np.zeros(len(roots))
        change[order] = Q @ q
        return np.asarray(roots * change)

    return move
