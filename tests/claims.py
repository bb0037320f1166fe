"""What a result states, held against exact arithmetic and the truth.

Each function returns findings, pairs of a category and a detail; none where all is well.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import exact
import generator_structured as structured
import numpy as np
import truth
from generator import Case
from generator_rows import plain

from quadsense.core.matrix import FactorForm, FramedForm, MeasuredForm, SensedMatrix

EPS = 2.0**-52
EQUALITY = 1e3
"""Roundings that an equality may be missed by."""
NOTHING = 1e-12
"""Slack of equalities that float64 does not see."""
Findings = list[tuple[str, str]]


def mass_of(matrix: Any) -> float:
    """Size of the terms that cancel in an implicit matrix."""
    form = matrix.form
    if not isinstance(form, MeasuredForm):
        return 0.0
    base = 0.0 if form.base is None else exact.norm(form.base)
    return abs(form.tau) + float(np.sum(np.abs(form.c))) + base


def halves(form: FactorForm) -> list[tuple[int, Any]]:
    """The columns of a factor by their sign."""
    X = np.asarray(form.factor)
    signs = np.ones(X.shape[1]) if form.signs is None else np.asarray(form.signs)
    return [(1, X[:, signs > 0]), (-1, X[:, signs < 0])]


def values_of(case: Case, matrix: Any) -> tuple[list[Any], list[float]]:
    """``u_i* A u_i`` exactly, and what may be wrong because A was rounded to be dense."""
    if isinstance(matrix.form, FactorForm):
        parts = [case.values(X, True) for _, X in halves(matrix.form)]
        return [p - q for p, q in zip(*parts, strict=True)], [0.0] * case.m
    A, form = np.asarray(matrix), matrix.form
    values = case.values(A, False)
    if not isinstance(form, MeasuredForm | FramedForm):
        return values, [0.0] * case.m
    squares = [exact.number(value) for value in case.squares]
    size = exact.norm(A) + mass_of(matrix)
    if isinstance(form, FramedForm):  # rounded in scaled columns
        D = np.ldexp(1.0, form.columns)
        squares = exact.squared_norms(np.asarray(case.rows) * D)
        squares = squares if case.mix is None else structured.weighed(abs(case.mix), squares)
        squares = [exact.number(value) for value in squares]
        size = exact.norm(A / np.outer(D, D)) + mass_of(SensedMatrix(form.inner))
    room = 8 * (case.n + case.m) * EPS * size
    return values, [room * square for square in squares]


def met(case: Case, result: Any) -> Findings:
    """MET: every interval not set aside holds exactly, the cone is kept."""
    findings = []
    aside = {int(i) for i in result.set_aside}
    if not case.has_target:
        findings.append(("wrong verdict", "met without a tolerance"))
    if len(aside) > case.allowed:
        findings.append(("wrong verdict", f"{len(aside)} set aside, {case.allowed} allowed"))
    lo, hi = case.intervals
    values, room = values_of(case, result.matrix)
    for i in range(case.m):
        if i in aside:
            continue
        over = crossing(lo[i], hi[i], values[i])
        if over > room[i] + (equality_room(case, result.matrix, i) if lo[i] == hi[i] else 0.0):
            findings.append(("wrong verdict", f"met, but row {i} is out by {over:.3g}"))
            break
    return findings + constraints_kept(case, result.matrix) + cone_kept(case, result.matrix)


def equality_room(case: Case, matrix: Any, i: int) -> float:
    """What an equality may be missed by: rounding, of readings of this size."""
    square = exact.number(case.squares[i])
    return EQUALITY * case.n * EPS * square * (exact.norm(np.asarray(matrix)) + mass_of(matrix))


def constraints_kept(case: Case, matrix: Any) -> Findings:
    """Whether every linear constraint holds, exactly except for equalities."""
    parts: list[Any] = [(1, np.asarray(matrix), False)]
    if isinstance(matrix.form, FactorForm):
        parts = [(sign, X, True) for sign, X in halves(matrix.form) if X.shape[1]]
    size = exact.norm(np.asarray(matrix)) + mass_of(matrix)
    for C, lo, hi in case.linear:
        value = sum(
            (sign * C.value(held, is_factor) for sign, held, is_factor in parts), Fraction(0)
        )
        over = crossing(lo, hi, value)
        rounding = 8 * (case.n + case.m) * EPS * size * exact.norm(C.dense)
        room = EQUALITY * rounding if lo == hi else 0.0
        if isinstance(matrix.form, MeasuredForm):
            room += rounding
        if over > room:
            return [("wrong verdict", f"met, but <C, A> is out by {over:.3g}, room {room:.3g}")]
    return []


def cone_kept(case: Case, matrix: Any) -> Findings:
    """Whether the matrix is positive and of the rank asked for."""
    if case.cone == "symmetric":
        return []
    A = np.asarray(matrix)
    size = float(np.max(np.abs(A)))
    eigenvalues = np.linalg.eigvalsh(A / size) if size > 0 else np.zeros(case.n)
    tiny = 64 * case.n * EPS
    findings = []
    if isinstance(case.options.get("rank"), tuple):
        p, q = case.options["rank"]
        if np.sum(eigenvalues > tiny) > p or np.sum(eigenvalues < -tiny) > q:
            return [("wrong verdict", f"met with other signs than {p} and {q}: {eigenvalues}")]
        return []
    if matrix.factor is None and eigenvalues[0] < -tiny:
        findings.append(("wrong verdict", f"met, with an eigenvalue of {eigenvalues[0]:.3g}"))
    rank = case.options.get("rank")
    held = case.n if matrix.factor is None else matrix.factor.shape[1]
    found = min(held, int(np.sum(eigenvalues > tiny)))
    if isinstance(rank, int) and found > rank:
        findings.append(("wrong verdict", f"met with rank {found}, where {rank} was asked for"))
    return findings


def numbers(case: Case, result: Any) -> Findings:
    """Every number stated about the matrix, against exact ones; nothing where rows are set aside.

    Where a row has one end only, its residual is left alone: it has no reading.
    """
    if len(result.set_aside):
        return []
    stated = plain(result.residuals).astype(float)
    values, room = values_of(case, result.matrix)
    lo, hi = case.intervals
    size = exact.norm(np.asarray(result.matrix)) + mass_of(result.matrix)
    squares = [exact.number(value) for value in case.squares]
    worst, doubt, over = 0.0, 0.0, {int(i) for i in result.violations}
    for i in range(case.m):
        ends = [exact.number(abs(end)) for end in (lo[i], hi[i]) if end is not None]
        slack = room[i] + 64 * (case.n + case.m) * EPS * (size * squares[i] + max(ends, default=0))
        slack += 1e-300
        if len(ends) == 2:
            true = exact.number(values[i] - (lo[i] + hi[i]) / 2)
            if stated[i] != true and not abs(stated[i] - true) <= slack:
                return [("false number", f"residual {i} is {true:.6g}, stated {stated[i]:.6g}")]
            worst, doubt = max(worst, abs(true)), max(doubt, slack)
        crossed = crossing(lo[i], hi[i], values[i])
        if case.has_target and abs(crossed) > slack and (crossed > 0) != (i in over):
            return [("false number", f"row {i} is out by {crossed:.3g}, violations {sorted(over)}")]
    found = result.max_residual
    if None not in lo and None not in hi and found != worst and not abs(found - worst) <= doubt:
        return [("false number", f"max_residual is {worst:.6g}, stated {found:.6g}")]
    if math.isnan(found) or math.isnan(result.max_ratio):
        return [("false number", f"max_residual is {found}, max_ratio {result.max_ratio}")]
    return []


def crossing(lo: Any, hi: Any, value: Any) -> float:
    """How far a value is beyond its interval; negative inside."""
    return max(
        -math.inf if lo is None else exact.number(lo - value),
        -math.inf if hi is None else exact.number(value - hi),
    )


def _norm_bound(result: Any) -> float:
    """The norm up to which a conditional claim holds; infinite where it is unconditional."""
    condition = result.certificate.condition
    if not condition:
        return math.inf
    found = re.findall(r"up to ([-+0-9.e]+)", condition)
    return float(found[0].rstrip(".")) if found else 0.0


def infeasible(case: Case, result: Any, known: truth.Truth) -> Findings:
    """INFEASIBLE: no fit within the condition stated, or nothing that meets the constraints."""
    if not case.has_target or case.options.get("slack") is not None:
        if not result.certificate.hard:
            return [("wrong verdict", "infeasible though nothing must be met")]
        slack, _ = truth.of_hard(case)
        if slack <= NOTHING:
            return [("wrong verdict", f"constraints are missed by {slack:.3g} at most")]
        return []
    if known.verdict == "feasible" and known.norm <= _norm_bound(result):
        return [("wrong verdict", f"infeasible, but a fit exists ({known.why}, slack "
                 f"{known.slack:.3g}): {result.message[:120]}")]  # fmt: skip
    lower, (lo, hi) = result.certificate.lower_bound, case.intervals
    if case.allowed or None in lo or None in hi or known.norm > _norm_bound(result):
        return []
    if case.linear or any(low == high for low, high in zip(lo, hi, strict=True)):
        return []  # ratios are of readings alone
    if lower > (1.0 + known.slack) * (1.0 + 1e-9):
        return [("wrong verdict", f"lower bound {lower:.6g}, but {1 + known.slack:.6g} is reached")]
    return []


def optimal(case: Case, result: Any, known: truth.Truth) -> Findings:
    """OPTIMAL: both bounds hold for exactly evaluated matrices, and are as near as claimed."""
    slack = case.options.get("slack") is not None
    if case.has_target and not slack:
        return [("wrong verdict", "optimal where a tolerance was given")]
    certificate, findings = result.certificate, cone_kept(case, result.matrix)
    findings += constraints_kept(case, result.matrix)
    if slack or getattr(result, "prefer", "minimax") != "minimax" or case.linear:
        return findings
    unit = exact.number(truth.largest_reading(case))
    values, room = values_of(case, result.matrix)
    errors = [abs(exact.number(v - b)) for v, b in zip(values, case.readings, strict=True)]
    reached = max(e - r for e, r in zip(errors, room, strict=True))
    upper, lower = certificate.upper_bound, certificate.lower_bound
    if certificate.objective is not None:  # where a preference is the claim, its bounds are
        lower, upper = result.objective_bounds
    if reached > upper * (1.0 + 4 * EPS):
        findings.append(("wrong verdict", f"worst error {reached:.6g} above upper {upper:.6g}"))
    best = known.slack * unit
    if lower > best * (1.0 + 1e-12) and known.norm <= _norm_bound(result):
        findings.append(("wrong verdict", f"lower bound {lower:.9g} above a fit's {best:.9g}"))
    near = upper - lower <= 1.01 * certificate.gap * upper or upper <= 1.01e-8 * unit
    if not near or certificate.gap > case.options.get("gap", 0.01):
        findings.append(("wrong verdict", f"optimal with bounds {lower:.6g}, {upper:.6g}"))
    return findings
