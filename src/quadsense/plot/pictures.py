"""The numbers behind every picture.

Large matrices and many rows are made small here, and each says how.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, is_array, to_numpy
from quadsense.core.matrix import (
    EIGENVALUE_ERROR,
    DenseForm,
    FactorForm,
    FramedForm,
    MeasuredForm,
    SensedMatrix,
)
from quadsense.measurements import Measurements
from quadsense.measurements.sensing import Sensing
from quadsense.ranges import Interval
from quadsense.result.result import Result
from quadsense.system.watch import BLOCK_FLOPS
from quadsense.typing import to_list

MOST_CELLS = 200
"""Rows and columns of a matrix that a picture shows."""

MOST_FLOPS = BLOCK_FLOPS
"""What making a matrix dense for a picture may cost: about a tenth of a second."""

MOST_DENSE = 1000
"""Order up to which a matrix is made dense, and all its eigenvalues are found, for a picture."""

FEW_EIGENVALUES = 12
"""How many are found of larger matrices."""

PRODUCTS = 48
"""Products with a matrix that finding these takes, about."""

MOST_POINTS = 1500
"""Rows up to which each is a point; of more, a picture shows how many are where."""


@dataclass(frozen=True)
class ReadingsPicture:
    """The residuals of a result and what was asked of each row, whatever form that had.

    Attributes
    ----------
    residuals : ndarray of shape (m,)
        As in `Result`.
    ratios : ndarray of shape (m,)
        Residuals in tolerances: 1 and -1 are the ends of the interval. A row of one end, or an
        equality, is 0 where it is met, beyond 1 where not. Without a tolerance, the residuals.
    target : bool
        Whether there are tolerances.
    over, aside, one_sided, exact : ndarray of bool, shape (m,)
        Rows over their tolerance, set aside, with one end, and equalities.
    worst : int
        The row with the largest ratio of those that are not set aside.
    """

    residuals: Vector
    ratios: Vector
    target: bool
    over: npt.NDArray[np.bool_]
    aside: npt.NDArray[np.bool_]
    one_sided: npt.NDArray[np.bool_]
    exact: npt.NDArray[np.bool_]
    worst: int

    @property
    def size(self) -> int:
        """Number of rows."""
        return int(self.residuals.size)


def readings_of(result: Result) -> ReadingsPicture:
    """Return the residuals of a result in tolerances."""
    claim, target = result.certificate, result.verdict.asked != "least"
    z = np.asarray(to_numpy(result.residuals), dtype=np.float64)
    over, aside = np.zeros(z.size, bool), np.zeros(z.size, bool)
    over[result.violations], aside[result.set_aside] = True, True
    one_sided = exact = np.zeros(z.size, bool)
    ratios = z
    if target:
        unit = np.asarray(to_numpy(claim.tolerance), dtype=np.float64)
        if claim.lo is not None and claim.hi is not None:
            one_sided = np.isinf(claim.lo) | np.isinf(claim.hi)
        exact = (unit == 0.0) & ~one_sided
        wide = unit[unit > 0.0]
        safe = np.where(unit > 0.0, unit, float(np.median(wide)) if wide.size else 1.0)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            beyond = np.where(z == 0.0, 0.0, np.sign(z) * (1.0 + np.abs(z) / safe))
            ratios = np.where(one_sided, beyond, z / safe)
            ratios = np.where(exact, np.where(over, beyond, 0.0), ratios)
    kept = np.where(aside, -1.0, np.abs(ratios))
    return ReadingsPicture(z, ratios, target, over, aside, one_sided, exact, int(np.argmax(kept)))


@dataclass(frozen=True)
class Patch:
    """A matrix as a picture shows it.

    Attributes
    ----------
    values : ndarray of shape (k, k)
        Entries, real or complex, for k up to `MOST_CELLS`.
    order : int
        Of the matrix.
    how : str
        What was left out, in words; empty where nothing was.
    """

    values: npt.NDArray[Any]
    order: int
    how: str = ""


def matrix_of(thing: Any) -> SensedMatrix:
    """Return the matrix of a result, or a matrix that was given: dense, sparse or implicit."""
    if isinstance(thing, Result):
        return thing.matrix
    if isinstance(thing, SensedMatrix):
        return thing
    dense = thing.toarray() if hasattr(thing, "toarray") else thing
    values = to_numpy(dense) if is_array(dense) else np.asarray(dense)
    if values.ndim != 2 or values.shape[0] != values.shape[1] or not values.size:
        raise ValueError(f"a matrix must be square, got shape {values.shape}")
    return SensedMatrix.from_dense(values)


def _work(matrix: SensedMatrix) -> float:
    """Return the flops of a column of the matrix."""
    form, n = matrix.form, float(matrix.shape[0])
    if isinstance(form, DenseForm):
        return n
    if isinstance(form, FactorForm):
        return 2.0 * n * form.factor.shape[1]
    form = form.inner if isinstance(form, FramedForm) else form
    return 2.0 * n * form.rows.m if isinstance(form, MeasuredForm) else n * n


def is_cheap(matrix: SensedMatrix) -> bool:
    """Return whether all columns of the matrix cost no more than `MOST_FLOPS`."""
    return _work(matrix) * float(matrix.shape[0]) <= MOST_FLOPS


def patch_of(matrix: SensedMatrix, most: int = MOST_CELLS) -> Patch:
    """Return the matrix, made smaller if it has more than `most` rows or costs much to form."""
    n = int(matrix.shape[0])
    with np.errstate(under="ignore", over="ignore"):
        if n <= MOST_DENSE and is_cheap(matrix):
            dense = np.asarray(matrix)
            if n <= most:
                return Patch(dense, n)
            size = -(-n // most)
            return Patch(
                _largest(dense, size), n, f"each cell the largest of {size} × {size} entries"
            )
        width = int(max(2.0, min(most, MOST_FLOPS / _work(matrix))))
        chosen = np.unique(np.linspace(0, n - 1, width).astype(np.int64))
        part = np.empty((chosen.size, chosen.size), dtype=matrix.dtype)
        for column, index in enumerate(chosen):  # one at a time: columns may be very long
            unit = np.zeros((n, 1), dtype=matrix.dtype)
            unit[index] = 1.0
            part[:, column] = to_numpy(matrix.times(unit))[chosen, 0]
    return Patch(part, n, f"{chosen.size} of {n:,} rows and columns, evenly spaced")


def _largest(dense: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Return the entry of largest modulus of every block of that size."""
    n = len(dense)
    count = -(-n // size)
    padded = np.zeros((count * size, count * size), dtype=dense.dtype)
    padded[:n, :n] = dense
    blocks = padded.reshape(count, size, count, size).transpose(0, 2, 1, 3)
    flat = blocks.reshape(count, count, size * size)
    best = np.argmax(np.abs(flat), axis=2)[..., None]
    return np.take_along_axis(flat, best, axis=2)[..., 0]


@dataclass(frozen=True)
class SpectrumPicture:
    """Eigenvalues, the largest first, and what was left out, in words."""

    values: Vector
    how: str = ""


def rounding_of(values: Vector) -> float:
    """Return the size up to which a computed eigenvalue cannot be told from 0."""
    return 2.0 * EIGENVALUE_ERROR * values.size * float(np.max(np.abs(values), initial=0.0))


def spectrum_of(matrix: SensedMatrix) -> SpectrumPicture | None:
    """Return eigenvalues, of a large matrix the largest ones; None where that costs too much."""
    n, form = int(matrix.shape[0]), matrix.form
    with np.errstate(under="ignore", over="ignore"):
        if isinstance(form, FactorForm) and 0 < form.factor.shape[1] < n:
            basis: Any = np.linalg.qr(to_numpy(form.factor), mode="r")
            signs = 1.0 if form.signs is None else form.signs
            found = np.linalg.eigvalsh((basis * signs) @ basis.conj().T)
            rest = n - found.size
            return SpectrumPicture(
                found[::-1],
                "the other eigenvalue is 0"
                if rest == 1
                else f"the other {rest:,} eigenvalues are 0",
            )
        if n <= MOST_DENSE and is_cheap(matrix):
            return SpectrumPicture(np.linalg.eigvalsh(np.asarray(matrix))[::-1])
        if n <= FEW_EIGENVALUES or _work(matrix) * PRODUCTS > MOST_FLOPS:
            return None
        try:
            found, _ = matrix.eigsh(FEW_EIGENVALUES)
        except np.linalg.LinAlgError:  # not found to the last digit: ARPACK says so thus
            return None
    found = np.sort(found)[::-1]
    return SpectrumPicture(found, f"the {found.size} largest of {n:,} in modulus")


@dataclass(frozen=True)
class Coherences:
    """How alike probes are: ``|<u_i, u_j>|`` of the unit rows.

    Attributes
    ----------
    values : ndarray of shape (k, k)
        Where readings are sums of rows, the root of ``|<F_i, F_j>|``.
    rows : ndarray of int, shape (k,)
        Which.
    m : int
        Number of rows in all.
    """

    values: npt.NDArray[np.float64]
    rows: npt.NDArray[np.int64]
    m: int

    @property
    def apart(self) -> Vector:
        """Those of different rows, each pair once."""
        return np.asarray(self.values[np.triu_indices(len(self.rows), 1)])


def coherences_of(data: Measurements, most: int = MOST_CELLS) -> Coherences:
    """Return the Gram matrix of the probes, of some of them where there are many."""
    m = data.plain.m
    chosen = np.unique(np.linspace(0, m - 1, min(m, most)).astype(np.int64))
    rows, every = _some(data, chosen), slice(0, chosen.size)
    with np.errstate(under="ignore"):
        K = np.abs(to_numpy(rows.gram_block(every, every)))
    return Coherences(np.sqrt(np.minimum(K, 1.0)), chosen, m)


def density_of(ratios: Vector, columns: int, edges: Vector) -> npt.NDArray[np.int64]:
    """Count the rows of each cell, (levels, columns), top first.

    Parameters
    ----------
    ratios : ndarray of shape (m,)
        In order of the rows.
    columns : int
        Number of stretches of rows.
    edges : ndarray of shape (levels + 1,)
        Ascending; what lies beyond counts at the ends.
    """
    levels = edges.size - 1
    column = (np.arange(ratios.size) * columns) // max(ratios.size, 1)
    level = np.clip(np.searchsorted(edges, ratios, side="right") - 1, 0, levels - 1)
    counts = np.bincount(column * levels + level, minlength=columns * levels)
    return counts.reshape(columns, levels).T[::-1]


def reads_of(data: Measurements, matrix: SensedMatrix, index: npt.NDArray[np.int64]) -> Vector:
    """Return ``u_i* A u_i`` of some rows, from the data."""
    norms = to_numpy(data.plain.unit_rows.norms)[index]
    with np.errstate(under="ignore", over="ignore"):
        units = _some(data, index).quadratic(lambda X: to_numpy(matrix.times(X)))
        return np.asarray(to_numpy(units) * norms * norms)


def _some(data: Measurements, index: npt.NDArray[np.int64]) -> Sensing:
    """Some of the unit rows, of those that are sums no more rows than they are over."""
    return data.plain.unit_rows.on_numpy().only(index).narrowed()


def labelled(intervals: Any, labels: Any = None) -> dict[str, Interval]:
    """Return intervals by name, from one, a list, or a dict of them.

    Parameters
    ----------
    intervals : Interval, sequence of Interval, or dict of str to Interval
    labels : sequence of str, optional
        By default what was asked for, where that has a short name.
    """
    if isinstance(intervals, Mapping):
        every, labels = list(intervals.values()), list(intervals)
    else:
        one = isinstance(intervals, Interval)
        every = [intervals] if one else to_list("intervals", intervals, "Interval")
    for each in every:
        if not isinstance(each, Interval):
            raise ValueError(f"intervals must be of quadsense.interval, got {each!r}")
    names = [name_of(each) for each in every] if labels is None else [str(x) for x in labels]
    if len(names) != len(every):
        raise ValueError(f"{len(every)} intervals need as many labels, got {len(names)}")
    named: dict[str, Interval] = {}
    for name, each in zip(names, every, strict=True):
        unique, count = name, 2
        while unique in named:
            unique, count = f"{name} ({count})", count + 1
        named[unique] = each
    return named


def name_of(interval: Interval) -> str:
    """Return what an interval is of, where that has a short name."""
    C = np.asarray(interval.C)
    if C.ndim != 2:
        return "⟨C, A⟩"
    places = np.argwhere(C)
    if len(places) == len(C) and np.array_equal(C, np.eye(len(C))) and len(C) > 1:
        return "trace"
    i, j = (int(k) for k in places[0]) if len(places) in (1, 2) else (0, 0)
    if len(places) == 1 and i == j and C[i, i] == 1.0:
        return f"A[{i}, {i}]"
    if len(places) == 2 and i != j and C[i, j] == 0.5 and C[j, i] == 0.5:
        return f"Re A[{i}, {j}]" if np.iscomplexobj(C) else f"A[{i}, {j}]"
    if len(places) == 2 and i != j and C[i, j] == -0.5j and C[j, i] == 0.5j:
        return f"Im A[{i}, {j}]"
    return "⟨C, A⟩"


def value_of(interval: Interval, matrix: SensedMatrix) -> float | None:
    """Return ``<C, A>`` of one matrix; None where the two are not of one order."""
    C = np.asarray(interval.C)
    if C.shape != matrix.shape:
        return None
    with np.errstate(under="ignore", over="ignore"):
        return float(np.vdot(C, np.asarray(matrix)).real)
