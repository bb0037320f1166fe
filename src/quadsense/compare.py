"""What other programs answer: the problem of a solve for CVXPY, and what is proved of an answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, as_numbers, to_numpy
from quadsense.core import products
from quadsense.core.matrix import SensedMatrix
from quadsense.core.noise import CONFIDENCE
from quadsense.core.question import Question
from quadsense.measurements import Measurements
from quadsense.measurements.validate import MAX_SKEW, checked_vector
from quadsense.preferences import MatrixTerm, Preference, make_question
from quadsense.proofs.definite import is_positive
from quadsense.proofs.infeasible import best_error_bound, check_infeasible
from quadsense.query.plan import decided
from quadsense.query.query import Query
from quadsense.result.certificate import Certificate, within_gap
from quadsense.result.result import Result
from quadsense.result.values import evaluate, is_admitted, make_objective
from quadsense.system.threads import one_blas_thread, with_one_blas_thread
from quadsense.system.watch import Watch
from quadsense.typing import (
    DEFAULT_GAP,
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
    confidence: Real = CONFIDENCE,
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
        decision = decided(query, query.measurements(), Watch())
        problem, A = _problem(decision.data, decision.preferences[0], cp)
        if decision.columns is not None:
            D = np.ldexp(1.0, decision.columns)
            A = cp.multiply(np.outer(D, D), A)
        return problem, A


def _problem(data: Measurements, preference: Preference, cp: Any) -> tuple[Any, Any]:
    """Return the preference on these data, its value as the user reads it."""
    question = make_question(data, preference) or _any(data, preference)
    rows, norms = data.unit_rows.on_numpy(), to_numpy(data.unit_rows.norms)
    safe = np.where(norms > 0.0, norms, 1.0)
    squared = preference.kind.matrix is MatrixTerm.DISTANCE
    n, is_complex = data.n, rows.is_complex
    # Rows of unit norm, so that no solver is put off by their scale.
    scaled = question.scaled(1.0 / safe / safe)
    if squared:
        scaled = replace(scaled, alpha=0.0)
    cost, constraints, A = question_to_cvxpy(rows.features(), scaled, n, is_complex)
    if squared:
        prior = _packed_of(question.prior, n, is_complex)
        objective = cp.Minimize(cp.norm(packed_expression(A, cp) - prior, 2))
    elif preference.upwards:
        ends = question.term.logarithms_of_ends(question)
        added = 2.0 * float(np.sum((ends * np.log(safe))[~question.equal]))
        objective = cp.Maximize(added - cost)
    else:
        objective = cp.Minimize(preference.unit * cost)  # as `reported` has it
    return cp.Problem(objective, constraints), A


def _any(data: Measurements, preference: Preference) -> Question:
    """Return any fit: within the intervals, at no cost."""
    zeros = np.zeros(data.m)
    return Question(
        rows="within", lo=data.lo, hi=data.hi, weights=zeros, reading=zeros,
        hard=np.zeros(data.m, dtype=bool), psd=preference.psd,
    )  # fmt: skip


def packed_expression(A: Any, cp: Any) -> Any:
    """Return the `pack` of a symmetric or Hermitian CVXPY expression: real, affine, (N,)."""
    n = A.shape[0]
    j, k = np.triu_indices(n, 1)
    diagonal, upper = A[np.arange(n), np.arange(n)], products.SQRT2 * A[j, k]
    if A.is_complex():
        parts = [cp.real(diagonal), cp.real(upper), cp.imag(upper)]
    else:
        parts = [diagonal, upper]
    return cp.hstack(parts if n > 1 else parts[:1])


def question_to_cvxpy(
    F: npt.NDArray[Any], question: Question, n: int, is_complex: bool
) -> tuple[Any, list[Any], Any]:
    """Return the question as a CVXPY expression to minimize and constraints.

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
    cost, rows = question.term.expression(question, v, cp)
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
    """Return CVXPY, or an ImportError that says how to get it."""
    try:
        import cvxpy
    except ImportError:
        raise ImportError(
            "to_cvxpy needs CVXPY, which is not installed: pip install cvxpy"
        ) from None
    return cvxpy


def _packed_of(matrix: Any, n: int, is_complex: bool) -> npt.NDArray[Any]:
    """Return the packed form of a matrix or of a multiple of I."""
    if isinstance(matrix, float):
        matrix = matrix * np.eye(n)
    if is_complex:
        matrix = np.asarray(matrix, dtype=np.complex128)
    return products.pack(np.asarray(matrix))


def _log_det(A: Any, cp: Any) -> Any:
    if not A.is_complex():
        return cp.log_det(A)
    re, im = cp.real(A), cp.imag(A)
    return 0.5 * cp.log_det(cp.bmat([[re, -im], [im, re]]))  # every eigenvalue twice


# --- answers of others ---------------------------------------------------------------------------

JUDGED = ("any", "minimax", "least_squares", "nearest", "min_trace")
"""What `certify` may be asked to bound."""


@with_one_blas_thread
def certify(
    U: MatrixLike | Measurements,
    b: VectorLike | None = None,
    A: MatrixLike | SensedMatrix | None = None,
    dual: VectorLike | None = None,
    *,
    delta: RealOrVector | None = None,
    rtol: Real = 0.0,
    bounds: tuple[RealOrVector, RealOrVector] | None = None,
    weights: RealOrVector | None = None,
    mix: MatrixLike | None = None,
    conjugate: bool = False,
    psd: bool = False,
    trace: Real | tuple[Real, Real] | None = None,
    constraints: Sequence[tuple[MatrixLike | SensedMatrix | tuple[Any, Any], Real, Real]] = (),
    prefer: str = "any",
    ridge: Real = 0.0,
    gap: Real = DEFAULT_GAP,
) -> Certificate:
    """Judge an answer that another program has found: what can be proved of A, and by `dual`.

    Parameters
    ----------
    U : array or sparse array of shape (m, n), or Measurements
        The probes, row i is ``u_i`` (then `b` or `bounds` is needed), or measurements.
    b : array_like of shape (m,), optional
        Readings.
    A : array of shape (n, n) or SensedMatrix, optional
        The answer, symmetric (Hermitian) up to 1e-8 of its size; its Hermitian part is judged.
    dual : array_like of shape (m,), optional
        A dual vector, of either sign: one entry per row, then one per constraint, the trace first.
    delta, rtol, bounds, weights, mix, conjugate, trace, constraints
        As in `solve`. Without a tolerance the worst error is bounded.
    psd : bool, default=False
        Whether only positive semidefinite A count. A must be so up to rounding.
    prefer : {"any", "least_squares", "nearest", "min_trace", "minimax"}, default="any"
        What A was to minimize, for bounds in ``.objective``; the prior is 0.
    ridge : float, default=0.0
        With "least_squares": ``ridge ||A||_F^2`` is added.
    gap : float, default=0.01
        Relative distance of the bounds at which A counts as optimal.

    Returns
    -------
    Certificate
        Its kind is "infeasible" where `dual` proves that nothing fits, otherwise "met" where A
        meets every measurement, "optimal" where the bounds without a tolerance are within `gap`,
        or "none". `upper_bound` is the worst ratio of A, `lower_bound` what `dual` proves of the
        best one.

    Examples
    --------
    >>> import numpy as np
    >>> import quadsense
    >>> U = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> quadsense.certify(U, [1.0, 1.0, 2.0], np.eye(2) + 1e-7, delta=1e-3)
    <Certificate met: ratio 0 to 0.0004, order 2>
    >>> quadsense.certify(U, [1.0, 1.0, 6.0], dual=[2.0, 2.0, -1.0], delta=0.25, psd=True).kind
    'infeasible'
    """
    if prefer not in JUDGED:
        raise ValueError(f"prefer must be one of {', '.join(JUDGED)}, got {prefer!r}")
    query = Query(
        U, b, delta=delta, rtol=rtol, bounds=bounds, weights=weights, mix=mix, conjugate=conjugate
    )
    data = query.measurements().constrained(trace, constraints)
    target = data.ends is not None and data.judged
    data = data if target else data.without_tolerance()
    matrix = _judged_matrix(A, data)
    vectors: list[Any] = []
    if dual is not None:
        y = checked_vector("dual", dual, data.m)
        vectors = [y, -y]
    preference = Preference(prefer, psd, target, ridge=float(ridge), weights=_weights(data))
    with np.errstate(over="ignore", under="ignore"):
        return _judged(data, matrix, vectors, preference, known=A is not None, gap=float(gap))


def _judged_matrix(A: Any, data: Measurements) -> SensedMatrix:
    """Return A as it is judged, 0 where there is none, or a ValueError."""
    if isinstance(A, SensedMatrix):
        return A
    dtype = np.complex128 if data.unit_rows.is_complex else np.float64
    values = np.zeros((data.n, data.n)) if A is None else as_numbers("A", A)
    if values.shape != (data.n, data.n):
        raise ValueError(f"A has shape {values.shape}, but must have shape ({data.n}, {data.n})")
    skew = np.abs(values - values.conj().T)
    if not np.isfinite(values).all() or np.max(skew) > MAX_SKEW * np.max(np.abs(values)):
        raise ValueError("A must be finite and symmetric (Hermitian): give (A + A.conj().T) / 2")
    if np.iscomplexobj(values) and dtype is np.float64:
        raise ValueError("A is complex, but U is real: give its real part")
    return SensedMatrix.from_dense((values / 2 + values.conj().T / 2).astype(dtype))


def _weights(data: Measurements) -> Vector | None:
    """Return the weights of least squares, where there are any."""
    if data.weights is None:
        return None
    return np.broadcast_to(np.asarray(to_numpy(data.weights), float), (data.measured,))


def _judged(
    data: Measurements,
    matrix: SensedMatrix,
    vectors: list[Vector],
    preference: Preference,
    *,
    known: bool,
    gap: float,
) -> Certificate:
    """Return the claim that is proved; `known` says whether there is an A."""
    psd, target = preference.psd, preference.target
    values = evaluate(data, matrix)
    upper = float(values.upper.max()) if known else math.inf
    sound = known and (not psd or is_positive(matrix))
    kind, lower, vector, condition, objective = "none", 0.0, None, "", None
    for y in vectors:
        if target:
            proof = check_infeasible(data, y, psd)
            least, assumed = proof.lower_bound, proof.condition
        else:
            least, assumed = best_error_bound(data, y, upper, psd, matrix.norm())
        if least > lower:
            lower, vector, condition = least, y, assumed
        if target and proof.proved:
            kind = "infeasible"
    if sound and target and kind == "none" and bool(values.met.all()):
        kind, lower, vector, condition = "met", 0.0, None, ""
    if sound and preference.name != "any" and kind != "infeasible":
        fits = is_admitted(preference, values.met, (), data.measured)
        reads, error = values.reads, values.error
        tried: list[Any] = vectors or [None]
        bounds = [
            make_objective(data, preference, matrix, reads, error, y, fits=fits, gap=gap)
            for y in tried
        ]
        objective = max(
            (each for each in bounds if each), key=lambda each: each.lower, default=None
        )
    if sound and not target and objective is None and vector is not None:
        kind = "optimal" if within_gap(data, upper, lower, gap) else "none"
    elif objective is not None and not target:
        kind, lower = "optimal" if objective.closed else "none", 0.0
    return Certificate(
        kind, upper, min(lower, upper), 0.0, matrix, vector, data.plain.stated_tolerance,
        data.plain.lo if data.from_bounds else None, data.plain.hi if data.from_bounds else None,
        data.unit_rows.conjugate, psd, gap=gap if kind == "optimal" else 0.0, condition=condition,
        objective=objective, constraints=data.constraints, data=data,
    )  # fmt: skip
