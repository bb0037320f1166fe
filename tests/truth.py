"""Truth that is independent of the package: HiGHS, Clarabel, exact fractions.

A problem is reduced to exact intervals ``lo_i <= u_i* A u_i <= hi_i``. Rows are scaled by powers of
two to norms near one, ends with them, so nothing is rounded. With one unit ``w_i`` per row (half of
its interval; for a row with one end, the largest reading), the number sought is

    slack = min over A of the least s with  lo_i - s w_i <= u_i* A u_i <= hi_i + s w_i  for all i,

so a fit exists where slack <= 0, and it is clear of the edge by 1% where |slack| >= 0.01.
"feasible" is said only where exact arithmetic confirmed a matrix; "infeasible" where two rows or
one contradict each other exactly, or where solver and exact arithmetic bracket the slack.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import exact
import numpy as np
import programs
from generator import Case
from linear import Linear

CLEAR = 0.01
SMALLEST_WIDTH = 1e-10
"""Of the largest reading: below, a certificate in float64 may be out of reach."""


@dataclass(frozen=True)
class Truth:
    """What is true of a case.

    Attributes
    ----------
    verdict : {"feasible", "infeasible", "unknown"}
    clear : bool
        By 1%, for matrices of moderate size and tolerances that float64 can see.
    well_posed : bool
        Whether the map has no singular values that are small but not zero, as far as known.
    why : str
    slack : float
        Least slack of an exactly checked matrix (an upper bound on the true one).
    lower : float
        Lower bound on the true slack, by a dual solution or exact; minus infinity if none.
    norm : float
        Frobenius norm of that matrix for rows of unit norm, an upper bound.
    """

    verdict: str
    clear: bool
    why: str
    slack: float = math.inf
    lower: float = -math.inf
    norm: float = math.inf
    well_posed: bool = True


@dataclass(frozen=True)
class System:
    """Intervals of scaled rows, exactly.

    Attributes
    ----------
    V : ndarray of shape (m, n)
        Rows times powers of two, of norm between 1/2 and n.
    lo, hi : list of Fraction or None
    weight : list of Fraction
        The unit of each row.
    scale : Fraction
        The largest reading that A must have.
    """

    V: Any
    lo: list[Fraction | None]
    hi: list[Fraction | None]
    weight: list[Fraction]
    scale: Fraction
    linear: tuple[Linear, ...] = ()

    @property
    def size(self) -> int:
        """Number of rows, constraints among them."""
        return len(self.lo)

    @cached_property
    def live(self) -> list[int]:
        """Rows that are not zero."""
        found = [i for i, v in enumerate(self.V) if np.any(v != 0)]
        return found + [len(self.V) + k for k, C in enumerate(self.linear) if np.any(C.dense != 0)]

    def without(self, rows: Any) -> System:
        """The system without some rows."""
        keep = [i for i in range(self.size) if i not in rows]
        return System(
            self.V[[i for i in keep if i < len(self.V)]],
            *([part[i] for i in keep] for part in (self.lo, self.hi, self.weight)),
            self.scale,
            tuple(self.linear[i - len(self.V)] for i in keep if i >= len(self.V)),
        )

    def values(self, A: Any, is_factor: bool, rows: Any = None) -> list[Fraction]:
        """What A, or ``X X*`` of a factor, reads on these rows, or on all, exactly."""
        rows = range(self.size) if rows is None else rows
        probes = [i for i in rows if i < len(self.V)]
        found = (exact.factor_quadratic if is_factor else exact.quadratic)(self.V[probes], A)
        rest = [self.linear[i - len(self.V)] for i in rows if i >= len(self.V)]
        return found + [C.value(A, is_factor) for C in rest]

    def features(self, rows: Any) -> Any:
        """The map of these rows on the basis of `programs`."""
        probes = [i for i in rows if i < len(self.V)]
        top = programs.features(self.V[probes])
        rest = [self.linear[i - len(self.V)] for i in rows if i >= len(self.V)]
        basis = programs.basis(self.V.shape[1], np.iscomplexobj(self.V))
        below = [[np.vdot(C.dense, E).real for E in basis] for C in rest]
        return np.vstack([top, np.array(below)]) if rest else top

    def rank(self, rows: Any) -> int:
        """Rank of the map of these rows, by exact arithmetic."""
        probes = [i for i in rows if i < len(self.V)]
        complex_ = np.iscomplexobj(self.V)
        rest = [self.linear[i - len(self.V)] for i in rows if i >= len(self.V)]
        return exact.rank_of_map(self.V[probes], [C.features(complex_) for C in rest])

    def slack_of(self, values: list[Fraction]) -> Fraction:
        """The least s at these values of ``u_i* A u_i``, exactly."""
        worst = Fraction(-1)
        for value, lo, hi, w in zip(values, self.lo, self.hi, self.weight, strict=True):
            if lo is not None:
                worst = max(worst, (lo - value) / w)
            if hi is not None:
                worst = max(worst, (value - hi) / w)
        return worst


def system(case: Case) -> System:
    """The case as exact intervals; sums over rows (`mix`) are linear functions of A."""
    U, (lo, hi), shifts = case.rows, case.intervals, _shifts(case)
    U = U if case.mix is None else U[:0]
    V, lows, highs = np.zeros_like(U), [], []
    for i, (low, high) in enumerate(zip(lo, hi, strict=True)):
        four = Fraction(4) ** shifts[i]
        lows.append(None if low is None else low / four)
        highs.append(None if high is None else high / four)
    for i, u in enumerate(U):
        shift = shifts[i]
        half = shift // 2  # in two halves: the power alone may leave the range
        parts = [np.ldexp(np.ldexp(part, -half), half - shift) for part in (u.real, u.imag)]
        V[i] = parts[0] + 1j * parts[1] if np.iscomplexobj(U) else parts[0]
    pairs = zip(case.sums, shifts, strict=False)
    sums = [Linear(F.held, np.ldexp(F.signs, -2 * shift)) for F, shift in pairs]
    needed = [Fraction(0)]
    for live, low, high in zip(case.live, lows, highs, strict=True):
        if live:
            needed += [low or 0, -(high or 0)]
    for _, low, high in case.linear:
        needed += [low or 0, -(high or 0)]
    lows += [low for _, low, _ in case.linear]
    highs += [high for _, _, high in case.linear]
    scale = max(needed)
    if scale == 0:
        ends = [abs(end) for end in (*lows, *highs) if end]
        scale = min(ends, default=Fraction(1))
    weights = []
    for low, high in zip(lows, highs, strict=True):
        both = low is not None and high is not None
        weights.append((high - low) / 2 if both and low < high else scale)
    if not case.has_target:  # plain errors, in the user's units
        weights = [_unit_of(case, i, scale) for i in range(case.m)] + weights[case.m :]
    return System(V, lows, highs, weights, scale, (*sums, *(C for C, _, _ in case.linear)))


def _shifts(case: Case) -> list[int]:
    """By which powers of four readings are divided."""
    if case.mix is not None:  # of terms that cancel, not by the last bits
        masses = [exact.number(square) for square in case.squares]
        largest = [np.max(np.abs(F.dense)) for F in case.sums]
        sizes = np.sqrt(np.maximum(largest, 1e-20 * np.array(masses)))
    else:
        sizes = [np.max(np.abs(np.stack([u.real, u.imag]))) for u in case.rows]
    return [int(np.frexp(size)[1]) if size > 0 else 0 for size in sizes]


def _unit_of(case: Case, i: int, scale: Fraction) -> Fraction:
    """One unit of error of the reading, where no tolerance was given: that of the largest one."""
    return largest_reading(case) / Fraction(4) ** _shifts(case)[i]


def largest_reading(case: Case) -> Fraction:
    """The unit of the slack where no tolerance was given, in the user's units."""
    return max((abs(b) for b in case.readings), default=Fraction(0)) or Fraction(1)


def of(case: Case) -> Truth:
    """Whether a matrix fits, by every means at hand."""
    whole = system(case)
    known = _known(case)
    if not case.allowed or not case.has_target:
        return decide(case, whole, known)
    every: list[Truth] = []
    for rows in itertools.combinations(range(case.m), min(case.allowed, case.m - 1)):
        every.append(decide(case, whole.without(rows), known))
        if every[-1].clear and every[-1].verdict == "feasible":
            return every[-1]
    for verdict in ("feasible", "unknown"):
        for found in every:
            if found.verdict == verdict:
                return replace(found, clear=False)
    return replace(every[0], clear=all(found.clear for found in every))


def of_hard(case: Case, room: float = 0.0) -> tuple[float, float]:
    """Least slack of constraints and equalities alone: of a matrix, exactly; and a lower bound.

    In units of the largest of them where they are equalities; with some `room`, these are
    intervals of that half-width, in the same units.
    """
    lo, hi = case.intervals
    soft = [i for i in range(case.m) if not (case.has_target and lo[i] == hi[i])]
    s = system(case).without(soft)
    if not s.size:
        return -1.0, -1.0
    ends = list(zip(s.lo, s.hi, strict=True))
    scale = max((abs(end) for pair in ends for end in pair if end), default=Fraction(1))
    if room:
        half = Fraction(room) * scale
        ends = [(a - half, b + half) if a == b and a is not None else (a, b) for a, b in ends]
        s = replace(s, lo=[a for a, _ in ends], hi=[b for _, b in ends])
    wide = [None not in pair and pair[0] < pair[1] for pair in ends]
    weight = [(b - a) / 2 if w else scale for (a, b), w in zip(ends, wide, strict=True)]
    s = replace(s, scale=scale, weight=weight)
    candidates = [(np.zeros((case.n, 1)), True)] + ([known] if (known := _known(case)) else [])
    found = programs.least_slack(s, positive=case.positive)
    if found is not None:
        candidates.append(found.matrix)
    slack = min(exact.number(s.slack_of(s.values(*candidate))) for candidate in candidates)
    return slack, -1.0 if found is None else found.lower


def _known(case: Case) -> Any:
    """The matrix in mind, where it is one of those that are sought, as a factor or dense."""
    rank = case.options.get("rank")
    if isinstance(rank, tuple):
        A = case.known @ case.known.conj().T if case.known_is_factor else case.known
        size = exact.norm(A)
        eigenvalues = np.linalg.eigvalsh(A / size) if size > 0 else np.zeros(case.n)
        signs = [int(np.sum(sign * eigenvalues > 1e-12)) for sign in (1.0, -1.0)]
        fits = signs[0] <= rank[0] and signs[1] <= rank[1]
        return (case.known, case.known_is_factor) if fits else None
    if case.cone == "symmetric":
        return case.known, case.known_is_factor
    if not case.known_is_factor:
        return None
    too_high = case.cone == "rank" and rank != "auto" and case.known.shape[1] > rank
    return None if too_high else (case.known, True)


def decide(case: Case, s: System, known: Any) -> Truth:
    """The truth of one system of intervals."""
    stated = _contradiction(s, case.positive)
    if stated > 0 and case.has_target:
        clear = stated >= CLEAR and _visible(s, stated)
        return Truth("infeasible", clear, "rows contradict exactly", lower=stated)
    best = Truth("unknown", False, "not found out")
    candidates = [] if known is None else [known]
    zero = np.zeros((case.n, 1))
    candidates.append((zero, True))
    for held, is_factor in candidates:
        best = _better(best, _witness(case, s, held, is_factor, "known"))
    if best.clear and case.has_target:
        return best
    found = programs.least_slack(s, positive=case.positive)
    if found is not None:
        relaxed = _witness(case, s, *found.matrix, "solver")
        if case.cone != "rank" or case.options["rank"] == "auto":
            best = _better(best, relaxed)
        # A lower bound is believed where an exactly checked matrix comes near it.
        believed = relaxed.slack - found.lower <= 1e-3 * (0.01 + abs(found.lower))
        if believed and best.verdict != "feasible":
            best = _bracket(case, s, best, found)
        best = replace(best, well_posed=found.well_posed)
    if best.verdict == "unknown" and case.cone == "symmetric" and _independent(s):
        slack = best.slack if case.has_target else 0.0
        return replace(best, verdict="feasible", slack=slack, norm=math.inf, why="independent rows")
    return best


def _visible(s: System, slack: float) -> bool:
    """Whether float64 can see by how much the ends are missed."""
    least = min(exact.number(s.weight[i] / s.scale) for i in range(s.size))
    return slack * least >= SMALLEST_WIDTH


def _bracket(case: Case, s: System, best: Truth, found: Any) -> Truth:
    """Add the solver's lower bound."""
    if case.has_target and found.lower > 1e-3:
        clear = found.lower >= CLEAR and found.well_posed and _visible(s, found.lower)
        return replace(best, verdict="infeasible", clear=clear, why="solver", lower=found.lower)
    return replace(best, lower=found.lower)


def _better(one: Truth, other: Truth) -> Truth:
    return other if other.slack < one.slack else one


def _witness(case: Case, s: System, held: Any, is_factor: bool, name: str) -> Truth:
    """What an explicit matrix shows, in exact arithmetic."""
    slack = s.slack_of(s.values(held, is_factor))
    A = held @ held.conj().T if is_factor else held
    norm = exact.norm(A)
    scale = max(exact.number(s.scale), norm)
    widths = [
        exact.number(s.weight[i]) for i in s.live if s.lo[i] is not None or s.hi[i] is not None
    ]
    visible = min(widths, default=1.0) >= SMALLEST_WIDTH * scale
    moderate = norm <= 1e6 * exact.number(s.scale) or norm == 0
    clear = slack <= -CLEAR and visible and moderate
    verdict = "feasible" if slack <= 0 and case.has_target else "unknown"
    return Truth(verdict, clear, name, exact.number(slack), -1.0, norm)


def _independent(s: System) -> bool:
    """Whether any readings at all can be fitted by a symmetric matrix, exactly."""
    bounded = [i for i in range(s.size) if s.lo[i] is not None or s.hi[i] is not None]
    return not bounded or s.rank(bounded) == len(bounded)


def _same(one: Any, other: Any) -> bool:
    """Whether two rows, or two linear functions, are given by the same numbers."""
    if isinstance(one, Linear) or isinstance(other, Linear):
        both = isinstance(one, Linear) and isinstance(other, Linear)
        return both and one.same_as(other)
    return bool(np.array_equal(one, other))


def _contradiction(s: System, positive: bool) -> float:
    """Largest slack that one row, or two equal ones, need by themselves, exactly."""
    worst = Fraction(-1)
    forms = [*s.V, *s.linear]
    for i, v in enumerate(forms):
        zero = not np.any((v.dense if isinstance(v, Linear) else v) != 0)
        positive_row = positive and (not isinstance(v, Linear) or v.positive)
        if s.lo[i] is not None and zero:
            worst = max(worst, s.lo[i] / s.weight[i])
        if s.hi[i] is not None and (zero or positive_row):
            worst = max(worst, -s.hi[i] / s.weight[i])
    for i, j in itertools.permutations(s.live, 2):
        if s.lo[i] is not None and s.hi[j] is not None and _same(forms[i], forms[j]):
            worst = max(worst, (s.lo[i] - s.hi[j]) / (s.weight[i] + s.weight[j]))
    return exact.number(worst)
