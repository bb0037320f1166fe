"""Points of least squares: what they prove of the least cost, steps of the first order, states.

With ``y = 2 w (F(A) - b) + mu`` and ``T = F*(y) + 2 alpha (A - P)`` the cost of A exceeds the least
one by at most ``<T, A>`` plus, for every row, what Fenchel's inequality leaves between phi(v) +
phi*(y) and y v, where T is positive semidefinite. It is made so by the multiplier of the trace, or
by a little of ``F*(w)``. A state is measured by that gap, and by ends a little inside the true
ones.

The steps are FISTA on the cone, restarted where it turns back, about a point evaluated from the
rows. Every step leaps as far as the last one went. The weights of [Beck & Teboulle 2009], which
grow towards that, serve where nothing stops a leap that goes wrong; where the first turn does, they
took a fifth more steps on states, covariances and Gaussian rows alike, and so did the constant
weight of a known condition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector
from quadsense.core.matrix import EIGENVALUE_ERROR
from quadsense.core.records import changed, record
from quadsense.core.sums import ROUNDINGS, SPARE
from quadsense.device import numbers, scalar, waits
from quadsense.methods.least_squares.program import NONE, QuadraticPoint, Rows, SquaresProgram
from quadsense.methods.traits import GapOptions


@record(frozen=True)
class Judgement:
    """How far a cost may be from the least, and what shows it.

    Attributes
    ----------
    gap : float
    shift : float
        How much of w is added to y.
    level : float
        What is added to T as a multiple of I.
    trivial : bool
        Whether y = 0 shows most: no cost is negative.
    noise : float
        Gap that rounding A alone may make.
    """

    gap: float
    shift: float = 0.0
    level: float = 0.0
    trivial: bool = False
    noise: float = 0.0


MAX_PLAIN_LOSS = 1e-9
"""What a shorter proof may cost of the bound, relative to the cost."""

UNKNOWN = Judgement(np.inf)
"""Nothing is proved."""


class Judge:
    """Bounds for the points of a program.

    What is made once is kept by the program: were the judge itself, each would keep the other, and
    with it U, until the next garbage collection.
    """

    def __init__(self, program: SquaresProgram) -> None:
        self.program = program
        self._known: dict[str, Any] = program.memory.setdefault("judge", {})

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._known:
            self._known[name] = make()
        return self._known[name]

    @property
    def _weighed(self) -> float:
        """``sum w |b|``, of which rounding the readings takes its share."""
        cost = self.program.cost
        found: float = self._once("weighed", lambda: float(cost.w @ np.abs(cost.b)))
        return found

    @property
    def even(self) -> tuple[Vector, npt.NDArray[Any] | None]:
        """``E = F*(w)``, packed, and Z with ``Z* E Z = I`` on its range; None where E = 0."""
        found: tuple[Vector, npt.NDArray[Any] | None] = self._once("even", self._even)
        return found

    def _even(self) -> tuple[Vector, npt.NDArray[Any] | None]:
        program, cone = self.program, self.program.cone
        E = program.cost.sum_up(program.cost.w)
        values, V = cone.eigen(E)
        seen = values > EIGENVALUE_ERROR * cone.n * values[-1]
        return E, V[:, seen] / np.sqrt(values[seen]) if seen.any() else None

    @property
    def _spread(self) -> float:
        """By how much rounding T moves the eigenvalues of ``Z* T Z`` at most, over that of T's."""
        Z = self.even[1]
        if Z is None:
            return 0.0
        found: float = self._once("spread", lambda: float((np.abs(Z) ** 2).sum(axis=0).max()))
        return found

    @property
    def _total(self) -> float:
        found: float = self._once("total", lambda: float(self.program.cost.w.sum()))
        return found

    def judge(self, x: Vector, cost: float, T: Vector, loose: float, mass: float) -> Judgement:
        """The gap of x.

        Parameters
        ----------
        x, T : ndarray of shape (N,)
        cost : float
            That of x.
        loose : float
            What Fenchel's inequality leaves in the rows.
        mass : float
            Sum of ``|y_i|``, to which the rounding of T is in proportion.
        """
        inner, size = numbers(T @ x, np.linalg.norm(x))
        found = self._judge(x, T, inner, size, loose, mass, cost)
        noise = ROUNDINGS * (2.0 * mass + self._weighed) * size
        found = found if found.gap <= cost else Judgement(cost, trivial=True)
        return changed(found, noise=noise)

    def _judge(
        self,
        x: Vector,
        T: Vector,
        inner: float,
        size: float,
        loose: float,
        mass: float,
        cost: float,
    ) -> Judgement:
        """The gap of x, of that norm, cost and inner product with T."""
        cone, alpha = self.program.cone, self.program.cost.alpha
        if not cone.psd:
            pull = float(np.linalg.norm(T))
            gap = pull * size
            return Judgement((min(gap, (0.5 * pull) ** 2 / alpha) if alpha else gap) + loose)
        rounding = 4.0 * cone.rounding * mass
        if cone.trace is not None:
            level = rounding - float(cone.eigenvalues(T)[0])
            return Judgement(inner + cone.trace * level + loose, level=level)
        best = Judgement(np.inf)
        if alpha:
            # The least of <T - 2 alpha (A - P), B> + alpha ||B - P||^2 over B >= 0.
            away = cone.project(x - T / (2.0 * alpha)) - x
            along, square = numbers(T @ away, away @ away)
            best = Judgement(-along - alpha * square + loose)
        E, Z = self.even
        if Z is not None and self._within(T, mass):
            inside = Z.conj().T @ cone.unpack(T) @ Z
            least, reach = numbers(cone.spectrum(inside)[0], E @ x)
            shift = max(0.0, -least) + rounding * self._spread
            # By more, where that costs nothing: then a plain sum proves T to be definite.
            terms = cone.n + self.program.F.raw.m + 2 * SPARE
            plain = 2.0 * ROUNDINGS * terms * mass * self._spread
            if plain * reach <= MAX_PLAIN_LOSS * cost:
                shift += plain
            price = shift * reach + (0.5 * shift) ** 2 * self._total
            if not inner + price + loose >= best.gap:
                best = Judgement(inner + price + loose, shift=shift)
        return best

    def _within(self, T: Vector, mass: float) -> bool:
        """Whether T is zero up to rounding outside of the range of E."""
        cone, Z = self.program.cone, self.even[1]
        if Z is None or Z.shape[1] == cone.n:
            return True
        Q = Z / np.linalg.norm(Z, axis=0)
        M = cone.unpack(T)
        rest = M - Q @ (Q.conj().T @ M)
        return float(np.linalg.norm(rest)) <= NOISE_ROUNDINGS * cone.rounding * mass

    def loose(self, rows: Rows, values: Vector, mu: Vector, lo: Vector, hi: Vector) -> float:
        """What Fenchel's inequality leaves in those rows, with `mu` in addition to ``2 w (v - b)``.

        Between the ends `lo` and `hi`, of shape (k,).
        """
        cost = self.program.cost
        w, b = cost.w[rows], cost.b[rows]
        y = 2.0 * w * (values - b) + mu
        free = np.where(y > 0.0, hi, np.where(y < 0.0, lo, values))
        free = np.where(w > 0.0, b + y / (2.0 * w), free)
        best = np.minimum(np.maximum(free, lo), hi)
        left = y * (best - values) - w * ((best - b) ** 2 - (values - b) ** 2)
        return float(np.abs(left).sum())

    def dual(self, values: Vector, rows: Rows, mu: Vector, judged: Judgement) -> Vector:
        """y for the unit rows, in the user's scale; NumPy's, for proofs."""
        program = self.program
        w, b, values, mu = map(np.asarray, (program.cost.w, program.cost.b, values, mu))
        if judged.trivial:
            return np.zeros(w.size)
        y = 2.0 * w * (values - b) + judged.shift * w
        y[w == 0.0] = 0.0
        y[rows] += mu
        if program.trace_row is not None:
            square = float(program.F.squares[program.trace_row])
            y[program.trace_row] = judged.level * program.F.n / square
        return np.asarray(program.weight * program.scale * y)


# --- steps of the first order ---------------------------------------------------------------------


@dataclass(frozen=True)
class ConeDescent:
    """Two iterates as differences from `about`, and their images under the normal matrix.

    Differences are small near the solution, and so is what rounding does to their images.

    Attributes
    ----------
    about : QuadraticPoint
    d, before : ndarray of shape (N,)
    Hd, H_before : ndarray of shape (N,)
    leap : float
        Share of the last step by which the next one leaps ahead: 1, or 0 after a turn. On a device
        it stays there.
    """

    about: QuadraticPoint
    d: Vector
    before: Vector
    Hd: Vector
    H_before: Vector
    leap: Any = 0.0

    @property
    def x(self) -> Vector:
        """The iterate."""
        return self.about.x + self.d

    @property
    def slope(self) -> Vector:
        """Half the gradient."""
        return self.about.slope + self.Hd

    @property
    def cost(self) -> float:
        """What the iterate costs."""
        return self.about.cost + float(2.0 * self.about.slope @ self.d + self.d @ self.Hd)


def begin_descent(point: QuadraticPoint) -> ConeDescent:
    """From that point, at rest."""
    still = np.zeros_like(point.x)
    return ConeDescent(point, still, still, still, still)


def descent_step(program: SquaresProgram, at: ConeDescent) -> ConeDescent:
    """One projection and one product [Beck & Teboulle 2009], [O'Donoghue & Candes 2015]."""
    about, y, Hy = at.about, at.d, at.Hd
    if waits(at.leap) or at.leap:
        y = y + at.leap * (at.d - at.before)
        Hy = Hy + at.leap * (at.Hd - at.H_before)
    d = program.cone.project(about.x + y - (about.slope + Hy) / program.L) - about.x
    leap = scalar(1.0 - ((y - d) @ (d - at.d) > 0.0))
    return ConeDescent(about, d, at.d, program.cost.apply(d), at.Hd, leap)


def descent_anew(program: SquaresProgram, at: ConeDescent) -> ConeDescent:
    """The same, about the iterate, evaluated from the rows."""
    about = program.cost.point(at.x)
    return replace(
        at,
        about=about,
        d=np.zeros_like(at.d),
        before=at.before - at.d,
        Hd=np.zeros_like(at.d),
        H_before=at.H_before - at.Hd,
    )


# --- states ---------------------------------------------------------------------------------------


ROOM, KEPT_ROOM, ROOM_GROWTH = 1e-10, 0.1, 10.0
"""How far inside its interval a reading is put, in half-widths, unless rounding takes more; the
share of that which is to be left; and by how much it grows where that was not enough."""


class SquaresStage(Enum):
    """What the next step is."""

    DIRECT = "direct"
    DESCENT = "descent"


class SquaresVerdict(Enum):
    """What is known of the point."""

    OPEN = "open"
    OPTIMAL = "optimal"
    STALLED = "stalled"
    BINDS = "binds"  # intervals do, over the cone: other steps go on from there


@record(frozen=True)
class SquaresState:
    """Where the method stands.

    Attributes
    ----------
    stage : SquaresStage
    verdict : SquaresVerdict
    point : QuadraticPoint or None
        The last matrix that was evaluated from the rows.
    factor : ndarray of shape (n, r) or None
        X of that, where it is positive semidefinite.
    rows : ndarray of int, shape (k,)
    mu : ndarray of shape (k,)
        Rows whose ends pull, and their multipliers.
    judged : Judgement
    descent : ConeDescent or None
    iteration, since : int
        Steps taken, and those in this stage.
    orthogonal : bool
        Whether the point is of rows made orthogonal: no other method comes nearer.
    room : float
        See `ROOM`.
    mark, marked : float, int
        The least that remained to be done, in units of what suffices, and when that was.
    care : float
        Share of what suffices that is aimed at, below 1 where it did not.
    max_ratio : float
    """

    stage: SquaresStage
    verdict: SquaresVerdict = SquaresVerdict.OPEN
    point: QuadraticPoint | None = None
    factor: npt.NDArray[Any] | None = None
    rows: Rows = field(default_factory=lambda: NONE)
    mu: Vector = field(default_factory=lambda: np.empty(0))
    judged: Judgement = UNKNOWN
    descent: ConeDescent | None = None
    iteration: int = 0
    since: int = 0
    room: float = ROOM
    orthogonal: bool = False
    mark: float = np.inf
    marked: int = 0
    care: float = 1.0
    max_ratio: float = np.inf


GAP_GOAL = 1e-7
"""Gap in units of the cost that is aimed at: costs are compared to a hundred times that."""

MIN_COST_SHARE = 1e-6
"""Cost, in units of that of A = 0, below which dual matrices of cuts and of interior points lack
the digits of a proof."""

INWARD_SHARE = 1e-6
"""Share of half-widths by which intervals are made narrower, so that they are met within: there
is something to lose when A is projected to the cone."""

MAX_EXACT_COST = 1e-9
"""Cost in units of that of A = 0 below which the data may well be exact."""

NOISE_ROUNDINGS = 64.0
"""Rounding errors, as they are estimated, up to which a number may be noise."""

MIN_GAP_SHARE = 1e-10
"""Gap in units of the cost of A = 0 that is enough where it is small in the user's units too."""

ROUNDED_COST = 1e-26
"""Cost in units of that of A = 0 that is rounding: readings of twelve digits and more."""

MAX_ZERO_COST = 1e-16
"""Cost in units of that of A = 0 which counts as none where a claim is judged."""

MAX_TRUE_GAP_RATIO = 10.0
"""The gap between the true ends over that between those a little inside, at most."""


def judge_of(program: SquaresProgram) -> Judge:
    """The judge of a program."""
    return Judge(program)


def at(program: SquaresProgram, state: SquaresState, point: QuadraticPoint) -> SquaresState:
    """The state at a point, with its worst ratio."""
    return changed(state, point=point, max_ratio=worst_ratio(program, point.values))


def worst_ratio(program: SquaresProgram, values: Vector) -> float:
    """The worst ratio of readings, equalities and rows that ask nothing apart."""
    ends = program.ends
    ratios = ends.ratios(program.scale * values - ends.reading)
    ratios = ratios[(program.lo < program.hi) & np.isfinite(ratios)]
    return float(ratios.max(initial=0.0))


def mass(program: SquaresProgram, values: Vector, mu: Vector) -> float:
    """Sum of ``|y_i|``."""
    cost = program.cost
    return float(2.0 * cost.w @ np.abs(values - cost.b) + np.abs(mu).sum())


def goal(program: SquaresProgram, judged: Judgement, cost: float) -> float:
    """The gap that is aimed at.

    Where nothing better than 0 is known, a cost that is 0 up to rounding.
    """
    nothing = ROUNDED_COST * program.nothing
    if judged.trivial:
        return nothing
    return max(GAP_GOAL * cost, nothing, small(program), judged.noise)


def small(program: SquaresProgram) -> float:
    """A gap that does not matter to the user."""
    return float(min(np.divide(GAP_GOAL, program.unit), MIN_GAP_SHARE * program.nothing))


def acceptable(program: SquaresProgram, judged: Judgement, cost: float) -> bool:
    """Whether the gap is what was asked for, though not what was aimed at."""
    asked = float(getattr(program.problem.options, "gap", GapOptions.gap))
    return judged.gap <= max(asked * cost, small(program), ROUNDED_COST * program.nothing)


def rounding(program: SquaresProgram) -> float:
    """About what rounding does to a reading of the size of 1."""
    return 2.0 * NOISE_ROUNDINGS * program.cone.rounding * program.F.amplification


def margins(program: SquaresProgram, room: float, size: float = 1.0) -> tuple[Vector, Vector]:
    """Intervals a little inside the true ones: more than rounding takes away for A of that size."""
    lo, hi = program.lo, program.hi
    half = np.where(lo < hi, 0.5 * (hi - lo), 0.0)
    rounded = room / ROOM * rounding(program) * size
    inside = np.minimum(np.maximum(room * np.minimum(half, 1.0), rounded), 0.25 * half)
    return lo + inside, hi - inside


def crossed(program: SquaresProgram, point: QuadraticPoint, room: float) -> Rows:
    """Rows whose readings are not inside these."""
    lo, hi = margins(program, room)
    size = float(np.linalg.norm(point.x)) + np.abs(lo)
    slack = np.where(lo == hi, rounding(program) * size, 0.0)
    return np.flatnonzero((point.values < lo - slack) | (point.values > hi + slack))
