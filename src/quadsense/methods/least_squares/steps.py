"""Steps of the first order: FISTA on the cone, and ADMM where ends of intervals bind.

FISTA is restarted where it turns back, about a point evaluated from the rows.

Every step leaps as far as the last one went. The weights of [Beck & Teboulle 2009], which grow
towards that, serve where nothing stops a leap that goes wrong; where the first turn does, they took
a fifth more steps on states, covariances and Gaussian rows alike, and so did the constant weight of
a known condition.

ADMM has copies of A in the cone and of some readings in their intervals. One factorisation serves
many steps, each of which is a product with its inverse, a projection and a clip; about a hundred
steps where sigma lies between the extreme eigenvalues of the normal matrix [Boyd et al. 2011].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector
from quadsense.core.cholesky import (
    add_inner,
    add_to_diagonal,
    factor_upper,
    inverse_upper,
    symmetric_product,
)
from quadsense.device import numbers, scalar, waits
from quadsense.methods.least_squares.program import QuadraticPoint, Rows, SquaresProgram
from quadsense.system.watch import look


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


RELAXATION = 1.6
"""Over-relaxation: 1.5 to 1.8 in [Boyd et al. 2011, section 3.4.3]."""

SIGMA_SHARE = 2.0
"""sigma over the mean of the extreme eigenvalues: 1 to 3 took the fewest steps."""

MIN_EIGENVALUE_SHARE = 1e-3
"""Share of the largest eigenvalue below which the least counts as that."""

EQUALITY_PENALTY = 10.0
"""Penalty of an equality over that of an interval, which clips only one of its sides."""


@dataclass(frozen=True)
class Splitting:
    """Where the iteration stands, as differences from `about`.

    Attributes
    ----------
    about : QuadraticPoint
    d : ndarray of shape (N,)
        The copy in the cone.
    u : ndarray of shape (N,)
        Its multiplier over ``2 sigma``.
    rows : ndarray of int, shape (k,)
        Readings with copies.
    base : ndarray of shape (k,)
        What they are at `about`.
    s, r : ndarray of shape (k,)
        These copies, and their multipliers over ``2 rho``.
    lo, hi : ndarray of shape (k,)
        Intervals, a little inside the true ones.
    sigma : float
    apart, moved : float
        How far A is from its copies, and how far these went in the last step; on a device they stay
        there.
    """

    about: QuadraticPoint
    d: Vector
    u: Vector
    rows: Rows
    base: Vector
    s: Vector
    r: Vector
    lo: Vector
    hi: Vector
    sigma: float
    apart: Any = np.inf
    moved: Any = np.inf

    @property
    def rho(self) -> Vector:
        """Penalties of the rows."""
        return self.sigma * np.where(self.lo == self.hi, EQUALITY_PENALTY, 1.0)

    @property
    def mu(self) -> Vector:
        """Multipliers of the rows."""
        return 2.0 * self.rho * self.r


@dataclass(frozen=True)
class AdmmFactor:
    """What the steps share: rows on packed matrices, and the inverse of ``H + sigma I + ...``."""

    key: tuple[bytes, float]
    J: npt.NDArray[np.float64]
    inverse: npt.NDArray[Any]


def begin_splitting(
    program: SquaresProgram,
    point: QuadraticPoint,
    rows: Rows,
    lo: Vector,
    hi: Vector,
    before: Splitting | None,
) -> Splitting:
    """From a point, with multipliers of what went before."""
    values = point.values[rows]
    if before is None:
        sigma = SIGMA_SHARE * np.sqrt(
            max(program.least, MIN_EIGENVALUE_SHARE * program.L) * program.L
        )
        u, r = -point.slope / sigma, np.zeros_like(lo)
        if not program.cone.psd:  # the copy is free
            u = np.zeros_like(u)
    else:
        sigma, u, r = before.sigma, before.u, np.zeros_like(lo)
        r[: before.rows.size] = before.r
    zero = np.zeros_like(point.x)
    return Splitting(point, zero, u, rows, values, np.clip(values, lo, hi), r, lo, hi, sigma)


def splitting_factor(program: SquaresProgram, at: Splitting) -> AdmmFactor | None:
    """The factor of these rows and this sigma; None where it breaks down."""
    key = (at.rows.tobytes(), at.sigma)
    known: AdmmFactor | None = program.memory.get("factor")
    if known is not None and known.key == key:
        return known
    same = known is not None and known.key[0] == key[0]
    J = known.J if known is not None and same else program.cost.features(at.rows)
    M = program.cost.H.copy(order="F")
    add_to_diagonal(M, at.sigma + program.cost.alpha)
    look(float(len(M)) ** 2 * (at.rows.size + len(M)))
    if at.rows.size:
        M = add_inner(M, np.sqrt(at.rho)[:, None] * J)
    R, info = factor_upper(M)
    if info != 0:
        return None
    found = AdmmFactor(key, J, inverse_upper(R))
    program.memory["factor"] = found
    return found


def splitting_step(program: SquaresProgram, at: Splitting, by: AdmmFactor) -> Splitting:
    """One step: A, then its copies, then the multipliers."""
    cone, about, base = program.cone, at.about, at.base
    pull = at.sigma * (at.d - at.u) - about.slope
    if at.rows.size:
        pull = pull + by.J.T @ (at.rho * (at.s - base - at.r))
    look(2.0 * pull.size**2)
    x = symmetric_product(by.inverse, pull)
    seen = by.J @ x
    leap = RELAXATION * x + (1.0 - RELAXATION) * at.d
    read = RELAXATION * (base + seen) + (1.0 - RELAXATION) * at.s
    d = cone.project(about.x + leap + at.u) - about.x
    s = np.clip(read + at.r, at.lo, at.hi)
    apart = np.hypot(np.linalg.norm(x - d), np.linalg.norm(base + seen - s))
    moved = np.hypot(np.linalg.norm(d - at.d), np.linalg.norm(s - at.s))
    return replace(
        at, d=d, u=at.u + leap - d, s=s, r=at.r + read - s, apart=scalar(apart), moved=scalar(moved)
    )


def splitting_tuned(at: Splitting) -> Splitting:
    """With another sigma where A is far further from its copies than these still go, or less."""
    apart, moved = numbers(at.apart, at.moved)
    ratio = np.sqrt(apart / moved) if apart > 0.0 and moved > 0.0 else 1.0
    if 0.4 < ratio < 2.5:
        return at
    factor = float(np.clip(ratio, 0.1, 10.0))
    return replace(at, u=at.u / factor, r=at.r / factor, sigma=at.sigma * factor)
