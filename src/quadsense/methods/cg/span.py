"""What the steps so far have spanned, and what their gains foretell.

A span holds directions, their images and the best combination. From the decreases of ``||z||^2``
follows how far the iteration has to go, and how fast it goes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack

from quadsense.core.products import Float, Inexact
from quadsense.core.records import record

Vector = npt.NDArray[np.float64]


@record(frozen=True)
class Span:
    """Directions D, rows of length dim, and their images: ``D K = R^T Q``, rows of Q orthonormal.

    Directions are kept as they came, and only their images are made orthogonal: half the work of
    making both so. The combination that takes the component ``steps`` of each image away from the
    residual is ``coefficients @ D``.

    Attributes
    ----------
    directions, images : (room, .) array
        D and Q, of which the first `size` rows count; single precision where products are.
    triangle : (room, room) array
        R, upper triangular; where the images are, so that no step waits for it.
    steps : (room,) array
    size : int
    matrices : tuple of (n, n) arrays, or None
        ``F*`` of each direction, while these are few enough to be kept and all there is.
    """

    directions: Float
    images: Float
    triangle: Vector
    steps: Vector
    size: int
    matrices: tuple[Inexact, ...] | None

    @classmethod
    def empty(cls, x: Vector, z: Vector, dtype: npt.DTypeLike, whole: bool) -> Span:
        """Of no directions like x, and no images like z; `whole` where no step was before."""
        # Of NumPy's arrays in a tenth of the time.
        empty = np.empty if type(z) is np.ndarray else partial(np.empty_like, z)
        directions, images = (empty(shape=(0, each.size), dtype=dtype) for each in (x, z))
        triangle, steps = empty(shape=(0, 0)), empty(shape=(0,))
        return cls(directions, images, triangle, steps, 0, () if whole else None)

    def with_room(self, room: int) -> Span:
        """A copy that `add` may write to, with room for that many directions."""
        k = self.size
        triangle = np.zeros_like(self.triangle, shape=(room, room))
        triangle[:k, :k] = self.triangle[:k, :k]
        return replace(
            self,
            directions=_grown(self.directions[:k], room),
            images=_grown(self.images[:k], room),
            triangle=triangle,
            steps=_grown(self.steps[:k], room),
        )

    def add(
        self, w: Vector, q: Vector, z: Vector, S: Inexact | None, roundoff: float = 0.0
    ) -> tuple[Span, Vector]:
        """Take the direction w with image q in; return the step along its new part too.

        Writes to the arrays of this span, beyond its size.

        Parameters
        ----------
        w, q : (dim,), (m,) array
        z : (m,) array
            The residual.
        S : (n, n) array, optional
            ``F*`` of w.
        roundoff : float
            Of the image, where that is more than what images are kept with.

        Returns
        -------
        span : Span
        change : (m,) array
            What the step takes from z; nan where the image has no new part.
        """
        k = self.size
        least: Any = 0.0
        if k:
            known, whole = self.images[:k], np.linalg.norm(q)
            overlap = known @ q.astype(known.dtype)
            q = q - overlap @ known
            self.triangle[:k, k] = overlap
            # What rounding leaves.
            least = 4.0 * max(float(np.finfo(known.dtype).eps), 2.0 * roundoff) * whole
        length = np.linalg.norm(q)
        unit = q / np.where(length > least, length, np.nan)
        self.directions[k], self.images[k] = w, unit
        self.triangle[k, k] = length
        self.steps[k] = step = z @ unit
        kept = None if S is None or self.matrices is None else (*self.matrices, S)
        return replace(self, size=k + 1, matrices=kept), step * unit

    @property
    def coefficients(self) -> Vector:
        """Of the directions, in the combination."""
        k = self.size
        if not k:
            return np.empty(0)
        found, _ = lapack.dtrtrs(np.asarray(self.triangle[:k, :k]), np.asarray(self.steps[:k]))
        return np.asarray(found)

    def combination(self) -> Vector:
        """The step that all steps together are, in the coordinates of the directions."""
        c = self.coefficients
        scale = float(np.max(np.abs(c), initial=0.0)) or 1.0  # which single precision may not hold
        found = (c / scale).astype(self.directions.dtype) @ self.directions[: self.size]
        return scale * found.astype(np.float64, copy=False)

    def matrix(self) -> Inexact:
        """``F*`` of the combination, if `matrices` are there."""
        assert self.matrices
        terms = zip(self.coefficients, self.matrices, strict=True)
        wide = (float(c) * S.astype(np.result_type(S.dtype, np.float64)) for c, S in terms)
        return sum(wide, start=np.zeros(()))

    @property
    def double(self) -> bool:
        """Whether it is kept in double precision."""
        return self.images.dtype == np.float64

    def last(self, count: int) -> Span:
        """The last images with directions of their own; what the steps made is no longer in it."""
        k = self.size
        inverse = lapack.dtrtri(np.asarray(self.triangle[:k, :k]))[0][:, k - count :]
        directions = inverse.T.astype(self.directions.dtype) @ self.directions[:k]
        images = self.images[k - count : k].copy()
        triangle = np.zeros_like(self.triangle, shape=(count, count))
        triangle[np.diag_indices(count)] = 1.0
        steps = np.zeros_like(self.steps, shape=(count,))
        return Span(directions, images, triangle, steps, count, None)


def _grown(rows: Any, room: int) -> Any:
    grown = np.empty_like(rows, shape=(max(room, len(rows)), *rows.shape[1:]))
    grown[: len(rows)] = rows
    return grown


# Share of ||z||^2 below which a decrease is mostly rounding.
MIN_DECREASE = 1e-10


def distance_left(decreases: Vector, left: float) -> float:
    """Estimate ``||z - z_LS||_2``: the sum of the decreases to come, as a geometric series.

    Parameters
    ----------
    decreases : (k,) array
        What each step took from ``||z||_2^2``.
    left : float
        ``||z||_2^2`` now.
    """
    if len(decreases) > 1 and np.max(decreases[-2:]) <= MIN_DECREASE * left:
        return float(np.sqrt(np.sum(decreases[-2:])))
    if len(decreases) < 5:
        return np.inf
    if decreases[-1] >= decreases[-5]:
        return np.inf
    rate = (decreases[-1] / decreases[-5]) ** 0.25
    if rate == 1.0:
        return np.inf
    return float(np.sqrt(np.max(decreases[-2:]) * rate / (1.0 - rate)))


def steps_left(decreases: Vector, target: float) -> float:
    """Steps until the residual has fallen by another ``exp(target)``.

    From the decreases of ``||z||^2`` over the last three dyadic ranges. The logarithm of the
    residual is taken to fall like ``k^e``: e = 1 is geometric convergence, and e near 0 a power of
    the step number, as at a hard edge of the spectrum.
    """
    k = len(decreases)
    sums = [np.sum(decreases[k >> i : k >> (i - 1)]) for i in (3, 2, 1)]
    if not sums[0] > sums[1] > sums[2] > 0.0:
        # Not yet falling (or at a standstill): a slow power.
        first, second = 1.0, 0.5
    else:
        first, second = (0.5 * float(np.log(a / b)) for a, b in pairwise(sums))
    e = float(np.clip(np.log2(second / first), 0.02, 1.0))
    # The logarithm fell by `second` between the starts of the last two ranges.
    rate = second * e / (0.5**e - 0.25**e)
    return k * float(np.expm1(min(np.log1p(e * target / rate) / e, 50.0)))
