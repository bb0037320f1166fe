"""Meeting all but a few measurements: which to set aside, or a proof that no choice helps.

Any matrix that misses at most as many measurements as may be set aside is an answer. Where none
turns up, proofs decide: a dual vector that rules every matrix out uses some rows only, its
support, and one of these must be set aside. A set that hits all supports is the next to try; once
the smallest such set is too large, no choice helps (the implicit hitting set). Otherwise nothing
is known, and that is what is said, with the limit that kept runs from an answer if one did.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.intervals import TINY
from quadsense.core.records import changed
from quadsense.methods import METHODS, Problem
from quadsense.methods.minimax.program import MinimaxProgram, leaning, least_squares, prepare
from quadsense.methods.traits import Cone
from quadsense.preferences import Preference
from quadsense.proofs.infeasible import (
    cannot_be_hit,
    check_infeasible,
    smallest_hitting_set,
    thinned,
)
from quadsense.proofs.rounding import Enclosure, user_dual
from quadsense.run.loop import Outcome
from quadsense.stages.runs import Answer, Request, asking_for, found_in, run_method
from quadsense.system.watch import Stop
from quadsense.vocabulary import Reason, Status, because

Indices = npt.NDArray[np.int64]

MAX_ROBUST_STEPS = 60
"""Reweighted least-squares steps of the robust fit; it settles in ten to thirty."""

MIN_SMOOTHING = 0.3
"""Residuals below this share of their tolerance weigh the same in a robust fit."""

SMOOTHING_FACTOR = 0.2
"""How fast the smoothing falls to that."""

MAX_SETTLED_CHANGE = 1e-3
"""Relative change of a robust fit at which it has settled."""

SUSPECT_RATIOS = (3.0, 1.5, 1.0)
"""Tolerances beyond which a row is suspect, the clear cases first."""

MAX_TRIMS = 8
"""Fits in a row, each without what the one before missed most."""

MAX_PROOFS = 100
"""Proofs after which to give up; a dozen decide most small problems."""

MAX_IDLE_PROOFS = 12
"""Proofs in a row that leave the smallest hitting set as small, after which to give up where there
are more than `MAX_CHOICES_EXHAUSTED` of what to set aside."""

MAX_CHOICES_EXHAUSTED = 1000
"""Choices of what to set aside up to which proofs go on however little they add."""

MAX_PUT_BACK = 10
"""Rows set aside up to which it is tried whether fewer suffice."""

MAX_CHOICES_TRIED = 200
"""Choices of which every one is tried, as a last resort."""

MAX_ORDER_PROVED_FIRST = 100
"""Largest order at which a fit of low rank is looked for only where none of any rank is ruled out:
the proof is the quicker of the two, and a descent that finds nothing takes longest."""

MAX_ROBUST_RESTARTS = 100
"""Robust fits from random weights: they find what the one from even weights misses."""

MAX_SLACK_RESTARTS = 12
"""Fits of the least sum of misses from random weights, which take longer."""

REWEIGHTINGS = 4
"""Fits of the least sum of misses from each choice of weights; the rows missed settle in three."""

SMALLEST_MISS = 0.1
"""Misses far below this share of the tolerance are weighed alike."""

MAX_SLACK_ROWS = 3000
"""Rows up to which such fits are quick enough."""

ENDS = {
    "search": Status.UNDECIDED,
    "interrupted": Status.INTERRUPTED,
    "callback": Status.INTERRUPTED,
    "time_limit": Status.TIME_LIMIT,
    "max_iter": Status.MAX_ITER,
}
"""The status of a search that found nothing, by what ended it or its runs."""


@dataclass(frozen=True)
class _Best:
    """The fit that misses the fewest measurements so far."""

    answer: Answer
    missed: Indices


class _ViolationSearch:
    """One search, with the clock that started when the solve did."""

    def __init__(self, request: Request, answer: Answer) -> None:
        self.request, self.watch = request, request.limits.watch
        self.allowed = request.allowed
        self.best = _Best(answer, self._missed(answer))
        self.tried: set[bytes] = set()
        self.refuted: Indices | None = None  # the first that no matrix of any rank fits without
        self.proofs: list[Vector] = []
        self.decided = True
        self.ended = "search"
        self._note(answer)
        last = request.plan.methods[-1]
        kept = request.positive or request.problem.signs is not None
        self.method = last if kept else METHODS.able("symmetric", proves=True)[0]
        self.low = "rank" in METHODS.traits(self.method).cones
        cone: Cone = "psd" if request.positive else "symmetric"
        self.prover = METHODS.able(cone, proves=True)[0]  # proofs are about all ranks

    @property
    def found(self) -> bool:
        """Whether few enough are missed."""
        return self.best.missed.size <= self.allowed

    @property
    def over(self) -> bool:
        """Whether to stop looking."""
        return self.found or self.watch.over or self.ended in ("callback", "time_limit")

    def _run(self, method: str, rows: Indices) -> Answer:
        """The fit of the others by that method."""
        answer = run_method(self.request, method, rows)
        self._note(answer)
        return answer

    def _note(self, answer: Answer) -> None:
        """Keep in mind what stopped a run short of an answer of its own."""
        reason, status = answer.outcome.reason, answer.outcome.status
        if status is Status.TIME_LIMIT:
            self.ended = "time_limit"
        elif isinstance(reason, Reason) and reason.code in ("max_iter", "callback"):
            self.ended = reason.code

    def _missed(self, answer: Answer) -> Indices:
        """Measurements that the fit does not surely meet, of all."""
        found = _on_all(self.request, answer)
        ends, data = self.request.data.unit_ends, self.request.data
        if ends.allowance is not None:
            ends = ends.allowing(answer.matrix.norm())
        missed = ~ends.met(to_numpy(found.z), to_numpy(found.error))
        missed[data.contradictions()] = True
        if missed[data.measured :].any():  # a constraint cannot be set aside
            return np.arange(data.m)
        return np.flatnonzero(missed)

    def ranked(self, answer: Answer) -> Indices:
        """Measurements, the most missed first."""
        found = _on_all(self.request, answer)
        with np.errstate(over="ignore"):
            ratios = self.request.data.unit_ends.ratios(to_numpy(found.z))
        ratios[self.request.data.contradictions()] = np.inf
        return np.argsort(-ratios[: self.request.data.measured], kind="stable")

    def try_without(self, rows: Indices) -> Answer | None:
        """Fit the others, and learn from it; None where that was tried before."""
        rows = np.unique(rows).astype(np.int64)
        if rows.tobytes() in self.tried:
            return None
        self.tried.add(rows.tobytes())
        first = self.low and self.request.data.n <= MAX_ORDER_PROVED_FIRST
        if first:
            wide = self._run(self.prover, rows)
            if not self.over:
                self._keep(wide)
            if self.over or self.decided:
                self.refuted = rows if self.refuted is None else self.refuted
                return wide
        answer = self.fit(rows)
        if not (self.over or first):
            self.learn(answer)
        return answer

    def fit(self, rows: Indices) -> Answer:
        """The fit of the others; it is kept if it misses the fewest."""
        answer = self._run(self.method, rows)
        missed = self._missed(answer)
        if missed.size < self.best.missed.size:
            self.best = _Best(answer, missed)
        return answer

    def misses_by(self, weights: Vector) -> Vector:
        """Return by how many tolerances the fit of the least weighted sum of misses misses each.

        The fit is of any rank; it is an answer only where any rank was asked for.
        """
        request = self.request
        preference = Preference("slack_sum", psd=request.positive, weights=weights)
        problem = changed(asking_for(request, preference), rank=None)
        answer = run_method(changed(request, problem=problem), "conic")
        self._note(answer)
        if not self.low:
            missed = self._missed(answer)
            if missed.size < self.best.missed.size:
                self.best = _Best(answer, missed)
        ends = request.data.unit_ends
        return np.asarray(np.abs(ends.crossing(to_numpy(answer.outcome.found.z))) / ends.unit)

    def learn(self, answer: Answer) -> None:
        """Keep the proof, if there is one, that the rows left cannot be met either."""
        self._keep(self._run(self.prover, answer.set_aside) if self.low else answer)

    def _keep(self, answer: Answer) -> None:
        """The same from a run that may have found one."""
        request, claim = self.request, answer.outcome.claim
        self.decided = False
        if claim is None or claim.dual is None or answer.outcome.status is not Status.INFEASIBLE:
            return
        rows, ends = request.problem.rows, request.problem.ends
        with self.watch.part("proofs"):
            for dual in (thinned(rows, ends, claim.dual, request.positive), claim.dual):
                candidate = user_dual(request.data, dual)
                if check_infeasible(request.data, candidate, request.positive, alone=True).proved:
                    self.proofs.append(candidate)
                    self.decided = True
                    return


def _on_all(request: Request, answer: Answer) -> Enclosure:
    """Values of the fit at all measurements, those set aside included."""
    if not answer.set_aside.size:
        return answer.outcome.found
    return found_in(answer.matrix, request.problem)


def set_violations_aside(request: Request, answer: Answer) -> Answer:
    """Meet all but at most ``request.allowed`` measurements, or say that no choice helps.

    Parameters
    ----------
    request : Request
    answer : Answer
        Of all measurements together, not met.
    """
    search, impossible, fewest = _ViolationSearch(request, answer), False, False
    watch = request.limits.watch
    with watch.part("outliers"):
        try:
            with watch.heeded():
                impossible = _looked_for(search)
                fewest = search.found and _reduced(search)
        except Stop:  # the best until then stands
            search.ended = "time_limit"
    with watch.part("certify"):
        return _verdict(search, impossible, fewest)


def _reduced(search: _ViolationSearch) -> bool:
    """Look for smaller sets that suffice; True: none does, which the proofs show.

    First each row is put back in turn, the one missed least first: either the others fit, or there
    is a proof that uses that row.
    """
    try:
        while not search.watch.over:
            rows = search.best.missed
            search.allowed = rows.size - 1
            if not 0 <= search.allowed < MAX_PUT_BACK:
                return False
            order = search.ranked(search.best.answer)
            for row in order[np.isin(order, rows)][::-1]:
                search.try_without(rows[rows != row])
                if search.over:
                    break
            if not search.over and _by_proofs(search):
                return True
            if not search.found:
                return False
        return False
    finally:
        search.allowed = search.request.allowed


def _looked_for(search: _ViolationSearch) -> bool:
    """Look for what to set aside until something is found; True: no choice is left."""
    if not search.over:
        search.learn(search.best.answer)
    for rows in _guesses(search):
        if search.over:
            break
        fit = search.try_without(rows)
        for _ in range(MAX_TRIMS):
            if search.over or fit is None:
                break
            fit = search.try_without(search.ranked(fit)[: search.allowed])
    impossible = not search.over and _by_proofs(search)
    if not (search.over or impossible):
        _one_by_one(search)
    if not (search.over or impossible or search.refuted is None):
        search.fit(search.refuted)  # no answer, but nearer to one than the fit of all
    return impossible


def _one_by_one(search: _ViolationSearch) -> None:
    """Try every choice, where proofs failed and there are few."""
    m, k = search.request.data.measured, search.allowed
    quick = METHODS.traits(search.method).proves  # else it ends only when it has tried enough
    most = MAX_CHOICES_TRIED if quick else MAX_CHOICES_TRIED // 10
    if math.comb(m, k) > most:
        return
    for rows in itertools.combinations(range(m), k):
        if search.over:
            return
        search.try_without(np.array(rows))


def _guesses(search: _ViolationSearch) -> Iterator[Indices]:
    """Sets to begin with: what the fit of all, and fits of the least sum of misses, miss most.

    Where no cone is asked for, robust fits by least squares find the same sooner: they come first.
    Over the cone they know nothing of it, and come last.
    """
    yield search.ranked(search.best.answer)[: search.allowed]
    if search.over:
        return
    first, then = _robust_sets, _slack_sets
    if search.request.positive:
        first, then = then, first
    yield from first(search)
    yield from then(search)


def _slack_sets(search: _ViolationSearch) -> Iterator[Indices]:
    """Sets that fits of the least weighted sum of misses do not meet, the weights adapted.

    What is missed little gets a larger weight in the next fit, so that few rows are missed by much
    [Candes, Wakin and Boyd 2008]. Each restart begins with random weights.
    """
    request = search.request
    data, count = request.data, request.data.measured
    few = math.comb(count, search.allowed) <= MAX_CHOICES_EXHAUSTED  # which proofs settle sooner
    signs = request.problem.signs is not None  # which a fit of any rank says little of
    if few or request.shape.m > MAX_SLACK_ROWS or "conic" in request.refused or signs:
        return
    units = to_numpy(data.tolerance)[:count]
    rng = np.random.default_rng(1)
    for restart in range(1 + MAX_SLACK_RESTARTS):
        weights = 1.0 / units
        if restart:
            weights = weights * rng.exponential(size=count)
        for _ in range(REWEIGHTINGS):
            if search.over:
                return
            misses = search.misses_by(weights)[:count]
            yield np.argsort(-misses, kind="stable")[: search.allowed]
            weights = 1.0 / (units * (misses + SMALLEST_MISS))


def _robust_sets(search: _ViolationSearch) -> Iterator[Indices]:
    """Sets that robust fits by reweighted least squares miss most."""
    program = _in_tolerances(search.request.problem)
    begun = _robust_start(program, np.ones(program.b.size))
    convex = _robust(search, program, begun, 1.0)
    again = replace(convex, smoothing=1.0, settled=False)
    sharper = _robust(search, program, again, 2.0)
    yield from _suspects(search, program, (sharper, convex))
    rng = np.random.default_rng(0)
    for _ in range(MAX_ROBUST_RESTARTS):
        if search.over:
            return
        begun = _robust_start(program, rng.exponential(size=program.b.size))
        fit = _robust(search, program, replace(begun, smoothing=1.0), 2.0)
        yield from _suspects(search, program, (fit,))


def _suspects(
    search: _ViolationSearch, program: MinimaxProgram, fits: tuple[_RobustState, ...]
) -> Iterator[Indices]:
    """What robust fits miss, the clear cases alone first."""
    contradictory = search.request.data.contradictions()
    for fit in fits:
        previous = 0
        for clear in SUSPECT_RATIOS:
            worst = np.argsort(-fit.errors, kind="stable")[: search.allowed]
            rows = worst[fit.errors[worst] > clear]
            rows = rows[rows < search.request.data.measured]
            if rows.size > previous:
                previous = rows.size
                both = np.concatenate([contradictory, rows[~np.isin(rows, contradictory)]])
                yield both[: search.allowed]


def _in_tolerances(problem: Problem) -> MinimaxProgram:
    """The rows in units of the smallest tolerance, from A = 0: robust fits ask for no more."""
    delta = to_numpy(problem.delta)
    unit = float(delta.min())
    rows = problem.rows.at_work(problem.tf32)
    return prepare(rows, to_numpy(problem.b) / unit, delta / unit, problem.sides)


@dataclass(frozen=True)
class _RobustState:
    """A robust fit: a least-absolute-deviations fit by reweighted least squares.

    Gross errors hardly move it, and so it ranks the rows.

    Attributes
    ----------
    x : ndarray
        Unknowns.
    errors : ndarray, shape (m,)
        By how many tolerances it misses each row.
    smoothing : float
        Ratio below which the weights are the same.
    settled : bool
        Whether the fit no longer moves.
    """

    x: Array
    errors: Vector
    smoothing: float
    settled: bool


def _robust_start(program: MinimaxProgram, weights: Vector) -> _RobustState:
    """Least squares of these weights."""
    x, errors = _weighed_fit(program, weights)
    return _RobustState(x, errors, max(float(np.median(errors)), MIN_SMOOTHING), False)


def _weighed_fit(program: MinimaxProgram, weights: Vector) -> tuple[Array, Vector]:
    x, z = least_squares(program, weights * program.sides.any(axis=0), rounds=1)
    return x, leaning(program.sides, z)


def _robust(
    search: _ViolationSearch, program: MinimaxProgram, state: _RobustState, power: float
) -> _RobustState:
    """Reweight until the fit settles.

    A row weighs ``error^-power``: 1 is least absolute deviations; 2, a sum of logarithms, is not
    convex, but gives gross errors almost no weight, and begins well where the former ended.
    """
    for _ in range(MAX_ROBUST_STEPS):
        if state.settled or search.over:
            break
        x, errors = _weighed_fit(program, np.maximum(state.errors, state.smoothing) ** -power)
        moved = float(np.linalg.norm(x - state.x)) / max(float(np.linalg.norm(x)), TINY)
        settled = state.smoothing <= MIN_SMOOTHING and moved < MAX_SETTLED_CHANGE
        smoothing = min(SMOOTHING_FACTOR * state.smoothing, float(np.median(errors)))
        state = _RobustState(x, errors, max(smoothing, MIN_SMOOTHING), settled)
    return state


def _by_proofs(search: _ViolationSearch) -> bool:
    """Hit every proof with the fewest rows and try without them; True: no choice is left."""
    request = search.request
    contradictory = request.data.contradictions()
    for row in contradictory:
        proof = np.zeros(request.data.m)
        proof[row] = 1.0
        search.proofs.append(proof)
    measured = request.data.measured
    few = math.comb(measured, search.allowed) <= MAX_CHOICES_EXHAUSTED
    largest, idle = 0, 0
    while len(search.proofs) < MAX_PROOFS:
        supports = [proof[:measured] != 0.0 for proof in search.proofs]
        if cannot_be_hit(supports):
            return True
        hitting = smallest_hitting_set(supports)
        if hitting is None or search.over:
            return False
        if hitting.size > search.allowed:
            return True
        idle = 0 if hitting.size > largest else idle + 1
        largest = max(largest, hitting.size)
        if idle > MAX_IDLE_PROOFS and not few:
            return False
        # What else is missed most may go too: a proof without it says all the more.
        order = search.ranked(search.best.answer)
        spare = order[~np.isin(order, hitting)][: search.allowed - hitting.size]
        fit = search.try_without(np.concatenate([hitting, spare]))
        if search.over or fit is None or not search.decided:
            return False
    return False


def _verdict(search: _ViolationSearch, impossible: bool, fewest: bool) -> Answer:
    """The best fit with what it misses set aside, or the answer to all with what is known now.

    `fewest`: whether the proofs show that fewer would not suffice.
    """
    best, request = search.best, search.request
    outcome: Outcome = best.answer.outcome
    if search.found:
        found = found_in(best.answer.matrix, request.problem)
        outcome = replace(outcome, status=Status.MET, reason=None, claim=None, found=found)
        proofs = np.array(search.proofs) if fewest else None
        return replace(best.answer, outcome=outcome, set_aside=best.missed, proofs=proofs)
    found = found_in(best.answer.matrix, request.problem)
    outcome = replace(outcome, claim=None, found=found)
    whole = replace(best.answer, set_aside=np.empty(0, np.int64))
    if impossible:
        outcome = replace(outcome, status=Status.INFEASIBLE, reason=None)
        return replace(whole, outcome=outcome, proofs=np.array(search.proofs))
    limits, ended = request.limits, search.ended
    if limits.interrupts.pressed:
        ended = "interrupted"
    elif limits.watch.late:
        ended = "time_limit"
    numbers = {"seconds": limits.time_limit, "most": limits.max_iter}
    reason = because("no_set", allowed=search.allowed, ended=ended, **numbers)
    return replace(whole, outcome=replace(outcome, status=ENDS[ended], reason=reason))
