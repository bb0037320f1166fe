"""Write the problem of a solve for CVXPY."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from quadsense.arrays import to_numpy
from quadsense.core import packed
from quadsense.core.matrix import SensedMatrix
from quadsense.core.question import Question
from quadsense.measurements import Measurements
from quadsense.preferences import Preference, make_question
from quadsense.query.plan import decided
from quadsense.query.query import Query
from quadsense.query.request import to_measurements
from quadsense.result.result import Result
from quadsense.system.threads import one_blas_thread
from quadsense.system.watch import Watch
from quadsense.typing import (
    MatrixLike,
    MissingName,
    PreferName,
    Real,
    RealOrVector,
    SlackName,
    VectorLike,
    Whole,
)


def to_cvxpy(
    data: MatrixLike | Measurements,
    b: VectorLike | None = None,
    *,
    delta: RealOrVector | None = None,
    rtol: Real = 0.0,
    bounds: tuple[RealOrVector, RealOrVector] | None = None,
    sigma: Real | None = None,
    shots: RealOrVector | None = None,
    confidence: Real = 0.95,
    missing: MissingName = "raise",
    weights: RealOrVector | None = None,
    mix: MatrixLike | None = None,
    conjugate: bool = False,
    psd: bool | None = None,
    rank: Whole | tuple[Whole, Whole] | Literal["auto"] | None = None,
    trace: Real | tuple[Real, Real] | None = None,
    constraints: Sequence[tuple[MatrixLike | SensedMatrix | tuple[Any, Any], Real, Real]] = (),
    prefer: PreferName = "auto",
    prior: Real | MatrixLike | SensedMatrix | Result | None = None,
    ridge: Real | Literal["auto"] = "auto",
    slack: SlackName | None = None,
) -> tuple[Any, Any]:
    """Return the problem that `solve` would solve, for CVXPY, so that anyone can compare.

    Parameters
    ----------
    data, b, delta, rtol, bounds, sigma, shots, confidence, missing, weights, mix, conjugate, psd, \
trace, constraints, prefer, prior, ridge, slack
        As in `solve`.
    rank : None
        A rank is no convex question: refused.

    Returns
    -------
    problem : cvxpy.Problem
        Its value, once solved, is the objective of `solve`: a sum of squares (with its pull or
        entropy), a distance (not its square), a sum of logarithms to maximise, a trace, a ratio or
        a slack.
    A : cvxpy.Variable or cvxpy.Expression
        (n, n), symmetric or Hermitian: the unknown, or, where the columns of U are scaled as in
        `solve`, ``D X D`` of the unknown X.

    Raises
    ------
    ImportError
        Where CVXPY is not installed; it is no dependency.
    ValueError
        For what `solve` refuses, and for a rank.

    Examples
    --------
    >>> import numpy as np, quadsense
    >>> U = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> problem, A = quadsense.to_cvxpy(U, [1.0, 2.0, 2.0], delta=0.1, psd=True, prefer="min_trace")
    >>> round(float(problem.solve()), 3)
    2.8
    """
    arguments = locals()
    cp = import_cvxpy()
    if rank is not None:
        raise ValueError(
            f"rank={rank!r} is no convex question, so CVXPY cannot take it: leave it out, or give "
            "psd=True for its relaxation"
        )
    query = Query(**arguments)
    with np.errstate(under="ignore"), one_blas_thread():
        decision = decided(query, to_measurements(query), Watch())
        problem, A = _problem(decision.data, decision.preferences[0], cp)
        if decision.columns is not None:
            D = np.ldexp(1.0, decision.columns)
            A = cp.multiply(np.outer(D, D), A)
        return problem, A


def _problem(data: Measurements, preference: Preference, cp: Any) -> tuple[Any, Any]:
    """The preference on these data, its value as the user reads it."""
    question = make_question(data, preference) or _any(data, preference)
    rows, norms = data.unit_rows.on_numpy(), to_numpy(data.unit_rows.norms)
    safe = np.where(norms > 0.0, norms, 1.0)
    squared, n, is_complex = preference.name == "nearest", data.n, rows.is_complex
    # Rows of unit norm, so that no solver is put off by their scale.
    scaled = question.scaled(1.0 / safe / safe)
    if squared:
        scaled = replace(scaled, alpha=0.0)
    cost, constraints, A = question_to_cvxpy(rows.features(), scaled, n, is_complex)
    if squared:
        prior = _packed_of(question.prior, n, is_complex)
        objective = cp.Minimize(cp.norm(packed_expression(A, cp) - prior, 2))
    elif preference.upwards:
        ends = np.isfinite(question.lo).astype(float) + np.isfinite(question.hi)
        added = 2.0 * float(np.sum((ends * np.log(safe))[~question.equal]))
        objective = cp.Maximize(added - cost)
    else:
        unit = preference.ridge if preference.name == "entropy" else 1.0  # as `reported` has it
        objective = cp.Minimize(unit * cost)
    return cp.Problem(objective, constraints), A


def _any(data: Measurements, preference: Preference) -> Question:
    """Any fit: within the intervals, at no cost."""
    zeros = np.zeros(data.m)
    return Question(
        rows="within", lo=data.lo, hi=data.hi, weights=zeros, reading=zeros,
        hard=np.zeros(data.m, dtype=bool), psd=preference.psd,
    )  # fmt: skip


def packed_expression(A: Any, cp: Any) -> Any:
    """The `packed.pack` of a symmetric or Hermitian CVXPY expression: real, affine, (N,)."""
    n = A.shape[0]
    j, k = np.triu_indices(n, 1)
    diagonal, upper = A[np.arange(n), np.arange(n)], packed.SQRT2 * A[j, k]
    if A.is_complex():
        parts = [cp.real(diagonal), cp.real(upper), cp.imag(upper)]
    else:
        parts = [diagonal, upper]
    return cp.hstack(parts if n > 1 else parts[:1])


def question_to_cvxpy(
    F: npt.NDArray[Any], question: Question, n: int, is_complex: bool
) -> tuple[Any, list[Any], Any]:
    """The question as a CVXPY expression to minimise and constraints.

    Parameters
    ----------
    F : ndarray of shape (m, N)
        The sensing map on packed matrices (`Sensing.features`), of the rows that the question is
        on.
    question : Question
    n : int
        Order of A.
    is_complex : bool
        Whether A is Hermitian rather than real.

    Returns
    -------
    cost : cvxpy.Expression
    constraints : list of cvxpy.Constraint
    A : cvxpy.Variable
        (n, n), symmetric or Hermitian.

    Notes
    -----
    The rows enter as one matrix product with one use, which CVXPY compiles several times faster
    than m rows, or than a product in each of the constraints (measured, n = 32, m = 7776, complex:
    7 s against 23 s).
    """
    cp = import_cvxpy()
    A = cp.Variable((n, n), hermitian=True) if is_complex else cp.Variable((n, n), symmetric=True)
    x = packed_expression(A, cp)
    v = cp.Variable(question.m)  # so that the product, dense, is compiled once
    constraints = [v == F @ x, *([A >> 0] if question.psd else [])]
    cost, rows = _row_terms(v, question, cp)
    constraints += rows
    if question.linear:
        cost = cost + _packed_of(question.C, n, is_complex) @ x
    if question.alpha:
        prior = _packed_of(question.prior, n, is_complex)
        cost = cost + question.alpha * cp.sum_squares(x - prior)
    if question.log_det:
        cost = cost - _log_det(A, cp)
    return cost, constraints, A


def import_cvxpy() -> Any:
    """CVXPY, or an ImportError that says how to get it."""
    try:
        import cvxpy
    except ImportError:
        raise ImportError(
            "to_cvxpy needs CVXPY, which is not installed: pip install cvxpy"
        ) from None
    return cvxpy


def _packed_of(matrix: Any, n: int, is_complex: bool) -> npt.NDArray[Any]:
    """The packed form of a matrix or of a multiple of I."""
    if isinstance(matrix, float):
        matrix = matrix * np.eye(n)
    if is_complex:
        matrix = np.asarray(matrix, dtype=np.complex128)
    return packed.pack(np.asarray(matrix))


def _log_det(A: Any, cp: Any) -> Any:
    if not A.is_complex():
        return cp.log_det(A)
    re, im = cp.real(A), cp.imag(A)
    return 0.5 * cp.log_det(cp.bmat([[re, -im], [im, re]]))  # every eigenvalue twice


def _row_terms(v: Any, question: Question, cp: Any) -> tuple[Any, list[Any]]:
    """What the readings v cost, and what they must satisfy."""
    if question.rows == "center":
        ends = ~question.equal
        above, below = ends & np.isfinite(question.hi), ends & np.isfinite(question.lo)
        logs = [
            *(cp.sum(cp.log(v[k] - question.lo[k])) for k in _some(below)),
            *(cp.sum(cp.log(question.hi[k] - v[k])) for k in _some(above)),
        ]
        return -sum(logs, start=cp.Constant(0.0)), _within(v, question, question.equal)
    if question.rows == "likelihood":
        free = ~question.hard
        lo, reading, w = question.lo, question.reading, question.weights
        slope = np.broadcast_to(question.slope, w.shape)
        linear = sum((slope[k] @ (v[k] - reading[k]) for k in _some(free)), cp.Constant(0.0))
        counted, rows = free & (w > 0.0), question.hard | (w == 0.0)
        ratios = ((k, (v[k] - lo[k]) / (reading - lo)[k]) for k in _some(counted))
        likely = sum((w[k] @ cp.log(ratio) for k, ratio in ratios), cp.Constant(0.0))
        return linear - likely, _within(v, question, rows)
    if question.rows == "within":
        return cp.Constant(0.0), _within(v, question, ~question.soft)
    constraints = _within(v, question, ~question.soft)
    weighed = ~question.hard & (question.weights > 0.0)
    if not weighed.any():
        return cp.Constant(0.0), constraints
    index = np.flatnonzero(weighed)
    weights = question.weights[index]
    if question.rows == "squares":
        misses = v[index] - question.reading[index]
        return cp.sum_squares(cp.multiply(np.sqrt(weights), misses)), constraints
    misses = cp.Variable(index.size, nonneg=True)
    for k in _some(np.isfinite(question.hi[index])):
        constraints.append(v[index[k]] - question.hi[index[k]] <= misses[k])
    for k in _some(np.isfinite(question.lo[index])):
        constraints.append(question.lo[index[k]] - v[index[k]] <= misses[k])
    if question.rows == "slack_max":
        return cp.max(cp.multiply(weights, misses)), constraints
    if question.rows == "slack_sum":
        return weights @ misses, constraints
    return cp.sum_squares(cp.multiply(np.sqrt(weights), misses)), constraints


def _within(v: Any, question: Question, rows: npt.NDArray[np.bool_]) -> list[Any]:
    """``lo <= v <= hi`` for those rows."""
    found = [v[k] == question.lo[k] for k in _some(rows & question.equal)]
    apart = rows & ~question.equal
    found += [v[k] >= question.lo[k] for k in _some(apart & np.isfinite(question.lo))]
    found += [v[k] <= question.hi[k] for k in _some(apart & np.isfinite(question.hi))]
    return found


def _some(rows: npt.NDArray[np.bool_]) -> list[npt.NDArray[np.intp]]:
    """The numbers of those rows, once, or not at all where there are none."""
    index = np.flatnonzero(rows)
    return [index] if index.size else []
