"""FISTA on the cone, restarted where it turns back, about a point evaluated from the rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from quadsense.arrays import Vector
from quadsense.methods.squares.program import Program
from quadsense.methods.squares.quadratic import Point


@dataclass(frozen=True)
class Descent:
    """Two iterates as differences from `about`, and their images under the normal matrix.

    Differences are small near the solution, and so is what rounding does to their images.

    Attributes
    ----------
    about : Point
    d, before : ndarray of shape (N,)
    Hd, H_before : ndarray of shape (N,)
    momentum, extrapolation : float
        t of [Beck & Teboulle 2009], and how far the next step leaps.
    """

    about: Point
    d: Vector
    before: Vector
    Hd: Vector
    H_before: Vector
    momentum: float = 1.0
    extrapolation: float = 0.0

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


def begin(point: Point) -> Descent:
    """From that point, at rest."""
    still = np.zeros_like(point.x)
    return Descent(point, still, still, still, still)


def step(program: Program, at: Descent) -> Descent:
    """One projection and one product [Beck & Teboulle 2009], [O'Donoghue & Candes 2015]."""
    leap = at.extrapolation
    y = at.d + leap * (at.d - at.before)
    slope = at.about.slope + at.Hd + leap * (at.Hd - at.H_before)
    d = program.cone.project(at.about.x + y - slope / program.L) - at.about.x
    turned = float((y - d) @ (d - at.d)) > 0.0
    momentum = 1.0 if turned else at.momentum
    following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum))
    return Descent(
        at.about, d, at.d, program.cost.apply(d), at.Hd, following, (momentum - 1.0) / following
    )


def anew(program: Program, at: Descent) -> Descent:
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
