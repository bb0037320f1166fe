"""What a point and multipliers of its ends prove of the least cost.

With ``y = 2 w (F(A) - b) + mu`` and ``T = F*(y) + 2 alpha (A - P)`` the cost of A exceeds the least
one by at most ``<T, A>`` plus, for every row, what Fenchel's inequality leaves between phi(v) +
phi*(y) and y v, where T is positive semidefinite. It is made so by the multiplier of the trace, or
by a little of ``F*(w)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector
from quadsense.core.intervals import UNIT
from quadsense.device import numbers
from quadsense.methods.least_squares.program import SquaresProgram

Rows = npt.NDArray[np.int64]

NONE: Rows = np.empty(0, np.int64)


@dataclass(frozen=True)
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
        E = cone.pack(program.F.adjoint(program.cost.w))
        values, V = cone.eigen(E)
        seen = values > 16.0 * cone.n * UNIT * values[-1]
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
        found = self._judge(x, T, inner, size, loose, mass)
        noise = UNIT * (8.0 * mass + 4.0 * self._weighed) * size
        found = found if found.gap <= cost else Judgement(cost, trivial=True)
        return replace(found, noise=noise)

    def _judge(
        self, x: Vector, T: Vector, inner: float, size: float, loose: float, mass: float
    ) -> Judgement:
        """The gap of x, of that norm and inner product with T."""
        cone, alpha = self.program.cone, self.program.cost.alpha
        if not cone.psd:
            pull = float(np.linalg.norm(T))
            gap = pull * size
            return Judgement((min(gap, pull * pull / (4.0 * alpha)) if alpha else gap) + loose)
        rounding = 4.0 * (cone.n + 8) * UNIT * mass
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
            least, reach = numbers(np.linalg.eigvalsh(inside)[0], E @ x)
            shift = max(0.0, -least) + rounding * self._spread
            price = shift * reach + 0.25 * shift * shift * self._total
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
        return float(np.linalg.norm(rest)) <= 64.0 * (cone.n + 8) * UNIT * mass

    def loose(self, rows: Rows, values: Vector, mu: Vector, lo: Vector, hi: Vector) -> float:
        """What Fenchel's inequality leaves in those rows, with `mu` in addition to ``2 w (v - b)``.

        Between the ends `lo` and `hi`, of shape (k,).
        """
        cost = self.program.cost
        w, b = cost.w[rows], cost.b[rows]
        y = 2.0 * w * (values - b) + mu
        free = np.where(y > 0.0, hi, np.where(y < 0.0, lo, values))
        free = np.where(w > 0.0, b + y / np.where(w > 0.0, 2.0 * w, 1.0), free)
        best = np.clip(free, lo, hi)
        with np.errstate(invalid="ignore"):
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
