"""`Measurements`: probes, readings and tolerances, checked once and scaled to unit rows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpotrf, dpstrf, spotrf

from quadsense import files
from quadsense.arrays import Array, Vector, device, is_array, like, to_numpy
from quadsense.core.certificate import excess
from quadsense.measurements.gram import ExplicitGram, Gram
from quadsense.measurements.rows import BaseRows
from quadsense.measurements.sparse import SparseRows
from quadsense.measurements.validate import (
    checked_bounds,
    checked_rows,
    checked_tolerance,
    checked_vector,
)
from quadsense.threads import blas_threads

ORTHONORMAL = 1e-6
"""Frobenius distance of U U* from I below which K = I: K differs from I by its square."""

LARGEST_RANK_PROBLEM = 4000
"""Measurements up to which the rank of F is worth a pivoted Cholesky of K (m^3/3 flops)."""

QUICK_RANK_PROBLEM = 600
"""The same where nobody asked for the rank, and it must not cost more than the solve."""


@dataclass(frozen=True)
class Facts:
    """What is known of the probes.

    Attributes
    ----------
    orthonormal : bool
        Whether the rows, scaled to unit norm, are orthonormal (found by random probes).
    unit_norm : bool
        Whether the rows came with unit norm (they are scaled to it in any case).
    coherence : float or None
        Largest ``|<u_i, u_j>|``, i != j, of the scaled rows: the paper's rho. None where it would
        cost more than some seconds to find; with m > n it is over 1/(10m) in any case.
    paper_holds : bool
        Whether ``rho <= 1/(10 m)``, the assumption of the paper's lemmas on the scaled rows.
    rank : int or None
        Rank of the sensing map F (numerical, at 1e-7), None where too costly to find.
    unknowns : int
        Real dimensions of A.
    """

    orthonormal: bool
    unit_norm: bool
    coherence: float | None
    paper_holds: bool
    rank: int | None
    unknowns: int


class UnitReadings(NamedTuple):
    """Readings and tolerances of the unit rows, each of shape (m,)."""

    b: Array
    delta: Array


class Measurements:
    """Probes ``u_i``, readings ``b_i`` and tolerances: what is to be met.

    Parameters
    ----------
    U : array or sparse array of shape (m, n)
        Row i is ``u_i``; a reading is ``u_i* A u_i``. Real or complex, any row norms.
    b : array_like of shape (m,), optional
        Readings, real. Not needed with `bounds`.
    delta : float or array_like of shape (m,), optional
        Tolerance, one for all or one a measurement.
    rtol : float, default=0.0
        Added tolerance in proportion to the reading: ``delta_i + rtol |b_i|``.
    bounds : (lo, hi), optional
        Intervals in place of `b` and `delta`: each a float or of shape (m,); an end may be
        infinite.
    conjugate : bool, default=False
        Rows are given as ``u_i*`` (as in ``b = |U x|^2``).

    Attributes
    ----------
    m, n : int
        Number of measurements, order of A.
    b : array of shape (m,)
        Readings (the middle of the interval with `bounds`).
    tolerance : array of shape (m,) or None
        Half-width of each interval.
    sides : ndarray of bool, shape (2, m), or None
        Which upper and which lower ends exist, where one is missing.

    Examples
    --------
    >>> import numpy as np
    >>> from quadsense import Measurements
    >>> data = Measurements(np.eye(2), [1.0, 2.0], delta=0.1)
    >>> data.facts.orthonormal, data.facts.rank, data.facts.unknowns
    (True, 2, 3)
    """

    def __init__(
        self,
        U: Any,
        b: Any = None,
        *,
        delta: Any = None,
        rtol: float = 0.0,
        bounds: tuple[Any, Any] | None = None,
        conjugate: bool = False,
    ) -> None:
        rows = checked_rows(U, conjugate)
        if bounds is not None:
            if b is not None or delta is not None or rtol != 0.0:
                raise ValueError("bounds replaces b, delta and rtol: give either, not both")
            tolerance: Vector | None
            middle, tolerance, sides = checked_bounds(bounds, rows.m)
        else:
            if b is None:
                raise ValueError("b is missing: give the readings b, or bounds=(lo, hi)")
            middle = checked_vector("b", b, rows.m)
            tolerance, sides = checked_tolerance(delta, rtol, middle), None
        self._fill(rows, middle, tolerance, sides)
        self.from_bounds = bounds is not None

    def _fill(self, rows: BaseRows, b: Vector, tolerance: Vector | None, sides: Any) -> None:
        self._rows = rows
        self.sides = sides
        self.from_bounds = False
        self.m, self.n = rows.m, rows.n
        self.b = like(b, rows.norms)
        self.tolerance = None if tolerance is None else like(tolerance, rows.norms)
        self.gram: Gram | None = None  # K, once a solve has formed it: the facts reuse it

    @property
    def lo(self) -> Vector:
        """Lower ends of the intervals, minus infinity where there is none."""
        ends = to_numpy(self.b) - to_numpy(self.tolerance)
        return ends if self.sides is None else np.where(self.sides[1], ends, -np.inf)

    @property
    def hi(self) -> Vector:
        """Upper ends of the intervals, infinity where there is none."""
        ends = to_numpy(self.b) + to_numpy(self.tolerance)
        return ends if self.sides is None else np.where(self.sides[0], ends, np.inf)

    def with_tolerance(self, delta: Any = None, rtol: float = 0.0) -> Measurements:
        """The same probes and readings, nothing copied, with another tolerance."""
        b = to_numpy(self.b)
        other = object.__new__(Measurements)
        other._fill(self._rows, b, checked_tolerance(delta, rtol, b), None)
        for name in ("facts", "orthonormal", "rank", "gram"):  # what is known of the probes
            if name in self.__dict__:
                other.__dict__[name] = self.__dict__[name]
        return other

    def set_aside(self, index: Any) -> Measurements:
        """The same measurements with those in `index` asked for nothing."""
        sides = np.ones((2, self.m), dtype=bool) if self.sides is None else self.sides.copy()
        sides[:, index] = False
        other = object.__new__(Measurements)
        other._fill(self._rows, to_numpy(self.b), to_numpy(self.tolerance), sides)
        other.from_bounds = self.from_bounds
        other.__dict__.update(
            {key: self.__dict__[key] for key in ("orthonormal", "gram") if key in self.__dict__}
        )
        return other

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        U: str = "U",
        b: str = "b",
        delta: Any = None,
        rtol: float = 0.0,
        conjugate: bool = False,
    ) -> Measurements:
        """Read measurements from an ``.npz`` file (never unpickled).

        Parameters
        ----------
        path : path-like
            File with the arrays named by `U` and `b`; `delta`, or `lo` and `hi`, are taken from
            it too where present and not given here.
        U, b : str
            Names of the arrays in the file.
        delta, rtol, conjugate
            As in the constructor.
        """
        arrays = files.read_arrays(path, wanted=(U, b, "delta", "lo", "hi"))
        if U not in arrays:
            raise ValueError(f"{path} holds no array named {U!r}; it holds {arrays.listing}")
        if b not in arrays and "lo" in arrays and "hi" in arrays:
            if delta is not None or rtol != 0.0:
                raise ValueError(f"{path} holds intervals lo and hi: delta and rtol do not apply")
            return cls(arrays[U], bounds=(arrays["lo"], arrays["hi"]), conjugate=conjugate)
        if b not in arrays:
            raise ValueError(f"{path} holds no array named {b!r}; it holds {arrays.listing}")
        if delta is None and "delta" in arrays:
            delta = arrays["delta"]
        return cls(arrays[U], arrays[b], delta=delta, rtol=rtol, conjugate=conjugate)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the measurements to an ``.npz`` file that `open` and the command read.

        Arrays `U` and `b` and `delta`, or `lo` and `hi`. A sparse U is stored in CSR parts
        ``U.data``, ``U.indices``, ``U.indptr`` and ``U.shape``.
        """
        files.check_writable(path)
        rows = self._rows
        arrays: dict[str, Any] = {"U": rows.given()}
        if self.from_bounds:
            arrays |= {"lo": self.lo, "hi": self.hi}
        else:
            arrays["b"] = to_numpy(self.b)
            if self.tolerance is not None:
                arrays["delta"] = to_numpy(self.tolerance)
        files.write_arrays(path, arrays, {"format": "quadsense-measurements"})

    # --- the sensing map, in the user's scaling ----------------------------------------------

    @property
    def unit_rows(self) -> BaseRows:
        """The probes scaled to unit norm, for the methods."""
        return self._rows

    @property
    def dtype(self) -> Any:
        """Type of A: float64 or complex128."""
        return self._rows.dtype

    def forward(self, A: Array) -> Array:
        """``F(A)_i = u_i* A u_i``: (n, n) to (m,)."""
        return self._rows.forward(A) * self._rows.norms * self._rows.norms

    def adjoint(self, y: Array) -> Array:
        """``F*(y) = sum_i y_i u_i u_i*``: (m,) to (n, n)."""
        y = y if is_array(y) else like(y, self._rows.norms)
        return self._rows.adjoint(y * self._rows.norms * self._rows.norms)

    def rows(self, index: Any = slice(None)) -> Array:
        """Dense measurement vectors ``u_i``, as meant (conjugated where asked): (k, n)."""
        xp = self._rows.xp
        chosen = np.atleast_1d(np.arange(self.m)[index])
        return self._rows.take(xp.asarray(chosen, device=device(self._rows.norms)))

    def scaled(self) -> UnitReadings:
        """Readings and tolerances divided by the squared row norms.

        A row of zeros measures nothing: it gets reading 0 and tolerance 1, which every A meets.
        """
        if self.tolerance is None:
            raise ValueError("these measurements have no tolerance: use with_tolerance(delta)")
        return self._unit_readings

    @cached_property
    def _unit_readings(self) -> UnitReadings:
        assert self.tolerance is not None
        xp, live = self._rows.xp, self._rows.nonzero
        norms = xp.where(live > 0, self._rows.norms, 1.0)
        with np.errstate(over="ignore", under="ignore"):
            b = live * self.b / norms / norms
            delta = xp.where(live > 0, self.tolerance / norms / norms, 1.0)
        bad = np.flatnonzero(
            ~(np.isfinite(to_numpy(b)) & np.isfinite(to_numpy(delta)) & (to_numpy(delta) > 0))
        )
        if bad.size:
            i = int(bad[0])
            raise ValueError(
                f"row {i} of U has norm {float(self._rows.norms[i]):.3g}, which takes b[{i}] = "
                f"{float(self.b[i]):.3g} or its tolerance {float(self.tolerance[i]):.3g} out of "
                "float64's range when scaled to a unit row: rescale the row"
            )
        return UnitReadings(b, delta)

    def contradictions(self) -> npt.NDArray[np.int64]:
        """Rows of zeros whose interval leaves out zero: no matrix meets them."""
        if self.tolerance is None:
            return np.empty(0, np.int64)
        dead = to_numpy(self._rows.nonzero) == 0
        return np.flatnonzero(dead & (excess(-self.b, self.tolerance, self.sides) > 1.0))

    def __len__(self) -> int:
        """Number of measurements."""
        return self.m

    def __repr__(self) -> str:
        """Sizes and storage."""
        storage = "sparse" if isinstance(self._rows, SparseRows) else "dense"
        kind = "complex" if self._rows.is_complex else "real"
        return f"Measurements(m={self.m}, n={self.n}, {storage}, {kind})"

    # --- the facts ---------------------------------------------------------------------------

    @cached_property
    def orthonormal(self) -> bool:
        """Whether the unit rows are orthonormal, by random probes in O(mn).

        A wrong guess costs time, never truth: every claim is recomputed from the data.
        """
        rows = self._rows
        live = int(np.count_nonzero(to_numpy(rows.nonzero)))
        if live > self.n:
            return False
        X = np.random.default_rng(0).standard_normal((self.m, 3)) * to_numpy(rows.nonzero)[:, None]
        probe = rows._cast(like(X, rows.norms))
        xp = rows.xp
        image = rows.times(rows.combine(probe))
        distance = xp.sqrt(xp.sum(xp.abs(image - probe) ** 2, axis=0))
        return float(xp.max(distance)) <= ORTHONORMAL

    @cached_property
    def facts(self) -> Facts:
        """Orthonormality, coherence, rank: what is known of the probes."""
        rows = self._rows
        norms = to_numpy(rows.norms)
        costly = float(self.m) ** 2 * self.n > 1e12
        coherence = 0.0 if self.orthonormal else None if costly else self._coherence()
        return Facts(
            orthonormal=self.orthonormal,
            unit_norm=bool(np.all(np.abs(norms - 1.0) <= 1e-10)),
            coherence=coherence,
            # Up to rounding.
            paper_holds=coherence is not None and coherence <= (1.0 + 1e-9) / (10 * self.m),
            rank=self.rank,
            unknowns=rows.unknowns,
        )

    def _coherence(self) -> float:
        rows, best = self._rows, 0.0
        explicit = self.gram.values if isinstance(self.gram, ExplicitGram) else None
        for block in rows.blocks(self.m):
            K = to_numpy(
                explicit[block, :]
                if explicit is not None
                else rows.gram_block(block, slice(0, self.m))
            ).copy()
            K[np.arange(K.shape[0]), np.arange(block.start, block.stop)] = 0.0
            best = max(best, float(K.max(initial=0.0)))
        return float(np.sqrt(best))

    @property
    def quick_rank(self) -> int | None:
        """`rank` where it is known or costs next to nothing, else None."""
        at_hand = isinstance(self.gram, ExplicitGram) and self.m <= 2 * QUICK_RANK_PROBLEM
        known = "rank" in self.__dict__ or self.orthonormal
        return self.rank if known or at_hand or self.m <= QUICK_RANK_PROBLEM else None

    @cached_property
    def rank(self) -> int | None:
        """Numerical rank of F (that of K), None where it would cost too much to find."""
        rows = self._rows
        live = int(np.count_nonzero(to_numpy(rows.nonzero)))
        if self.orthonormal or live <= 1:
            return live
        if self.m > LARGEST_RANK_PROBLEM:
            return None
        with blas_threads("one" if self.m <= QUICK_RANK_PROBLEM else "as set"):
            return self._factored_rank(live)

    def _factored_rank(self, live: int) -> int:
        """Rank by a Cholesky factorisation of K; `live` rows are not zero.

        A pivot is the distance of ``u_i u_i*`` from the span of those before it. Without pivoting
        the factorisation is several times faster, and in single precision twice as fast again.
        """
        rows, full = self._rows, live == self.m <= self._rows.unknowns
        known = to_numpy(self.gram.values).T if isinstance(self.gram, ExplicitGram) else None
        if full:
            K = rows.gram_triangle(single=True) if known is None else known.astype(np.float32)
            R, info = spotrf(K, lower=0, clean=0, overwrite_a=1)
            if info == 0 and np.diagonal(R).min() > 0.1:
                return live
        K = rows.gram_triangle() if known is None else known.copy(order="F")
        if full:
            R, info = dpotrf(K, lower=0, clean=0)
            if info == 0 and np.diagonal(R).min() > 1e-7:
                return live
        _, _, rank, _ = dpstrf(K, tol=1e-14, lower=0, overwrite_a=1)
        return int(min(rank, rows.unknowns))
