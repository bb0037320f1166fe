"""Steps of the first order: FISTA on the cone.

It is restarted where it turns back, about a point evaluated from the rows.

Every step leaps as far as the last one went. The weights of [Beck & Teboulle 2009], which grow
towards that, serve where nothing stops a leap that goes wrong; where the first turn does, they took
a fifth more steps on states, covariances and Gaussian rows alike, and so did the constant weight of
a known condition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quadsense.arrays import Vector
from quadsense.device import scalar, waits
from quadsense.methods.least_squares.program import QuadraticPoint, SquaresProgram


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
