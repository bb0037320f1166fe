"""Whether two solves are about the same data and ask the same: small marks of both.

An array is known by its type, its shape and a hash of its bytes; of one larger than
`MAX_HASHED_BYTES`, by rows of that many bytes in total, evenly spaced, the first and the last among
them. Probes that are not held are known by what they make of two fixed vectors, summed in groups of
rows, to `MAX_RELATIVE_DIFFERENCE`; rows in parts by all their bytes, which takes one pass.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from quadsense.arrays import is_array, is_tensor, to_numpy
from quadsense.core.matrix import FactorForm, FramedForm, MeasuredForm, SensedMatrix
from quadsense.measurements import Measurements
from quadsense.measurements.arrays import Dense, Stored
from quadsense.measurements.parted import Parted
from quadsense.measurements.probes import Probes
from quadsense.measurements.stack import Stack
from quadsense.measurements.views import beneath
from quadsense.typing import is_number

MAX_HASHED_BYTES = 2**26
"""Bytes of an array that are hashed: a tenth of a second."""

DIGEST_BYTES = 16
"""Of a hash: what two others share by chance once in 2^64."""

SUM_GROUPS = 8
"""Of the rows of probes that are not held, each with a sum of its own."""

MAX_RELATIVE_DIFFERENCE = 1e-6
"""Part of its size by which such a sum may differ: threads change the order of sums within."""

DATA = ("U", "b", "mix")
"""What is called data."""

HELD = "held"
"""Name of how and where the rows are held, in words: told where they differ, and no difference."""

Marks = dict[str, Any]
"""Texts by name of the argument, or lists of a text and numbers that may differ a little."""


def marks_of(data: Measurements, given: Mapping[str, Any]) -> Marks:
    """Return what the rows of the data and the other arguments of `solve` are known by.

    Parameters
    ----------
    data : Measurements
    given : dict
        The arguments other than U that decide which A is returned, by name.
    """
    kind = data.plain.unit_rows.raw.kind
    marks = {key: mark(value) for key, value in given.items()}
    own = {"rng": _mark_of(given["rng"]), HELD: [_held(kind), kind.m, kind.n]}
    return {**_marks_of_rows(kind), **marks, **own}


def difference(here: Marks, there: Marks) -> str | None:
    """The first argument in which two solves differ; None where they ask the same."""
    order = dict.fromkeys(key for key in (*here, *there) if key != HELD)
    return next((key for key in order if not _alike(here.get(key), there.get(key))), None)


def held_otherwise(here: Marks, there: Marks) -> str | None:
    """How rows of one shape are held here and there, where that differs; None where it does not."""
    one, two = here[HELD], there.get(HELD)
    if two is None or one[0] == two[0] or one[1:] != two[1:]:
        return None
    return f"{two[0]} there, {one[0]} here"


def _alike(one: Any, two: Any) -> bool:
    if isinstance(one, list) and isinstance(two, list) and one[0] == two[0]:
        a, b = np.array(one[1:]), np.array(two[1:])
        return bool(np.all(np.abs(a - b) <= MAX_RELATIVE_DIFFERENCE * float(np.max(np.abs(a)))))
    return bool(one == two)


def _marks_of_rows(kind: Probes) -> Marks:
    """Of the probes, part by part where there are several kinds."""
    parts = kind.parts if isinstance(kind, Stack) else (kind,)
    if len(parts) == 1:
        return {"U": _mark_of_rows(parts[0])}
    return {f"U (part {i})": _mark_of_rows(part) for i, part in enumerate(parts)}


def _held(kind: Probes) -> str:
    """Where rows are, and in how many parts: sums are made accordingly, to their last bits."""
    if isinstance(kind, Stack):
        return " and ".join(map(_held, kind.parts))
    if isinstance(kind, Parted):
        return f"{kind.storage} in {len(kind.begins) - 1} parts"
    if isinstance(kind, Stored):
        return f"{kind.storage} of {type(kind.given).__module__.partition('.')[0]}"
    return kind.storage


def _mark_of_rows(kind: Probes) -> Any:
    if isinstance(kind, Stored):
        return mark(kind.given)
    if isinstance(kind, Parted):  # where they are held: nothing of them is moved
        return _short(kind.each(digest), f"{kind.held} {(kind.m, kind.n)}")
    rng = np.random.default_rng(0)
    with np.errstate(over="ignore", invalid="ignore"):
        image = to_numpy(kind.times(kind.own(rng.standard_normal((kind.n, 2)))))
        signed = rng.choice((-1.0, 1.0), size=(kind.m, 1)) * image
        sums = np.array([np.sum(signed[group::SUM_GROUPS], axis=0) for group in range(SUM_GROUPS)])
    both = np.nan_to_num(np.concatenate([np.real(sums).ravel(), np.imag(sums).ravel()]))
    return [f"{kind.storage} {kind.m} {kind.n} {kind.is_complex}", *both.tolist()]


def _mark_of(rng: Any) -> str:
    """A seed is the same or not; a generator has moved on, and the journal knows its seed."""
    if rng is None or is_number(rng) or isinstance(rng, tuple | list | np.ndarray):
        return mark(rng)
    return mark(str(rng.state)) if isinstance(rng, np.random.SeedSequence) else "generator"


def mark(value: Any) -> str:
    """A short text that tells values apart."""
    if value is None or isinstance(value, bool | np.bool):
        return str(bool(value))  # None and False ask for the same
    if isinstance(value, str):
        return repr(value)
    if is_number(value):
        return str(value) if abs(value) >= 2**53 else repr(float(value))
    if isinstance(value, tuple | list):
        return _short([mark(each) for each in value], "several")
    if isinstance(value, Mapping):
        return _short([f"{key} {mark(each)}" for key, each in sorted(value.items())], "several")
    if isinstance(value, SensedMatrix):
        return _short(_parts_of(value), "matrix")
    if sp.issparse(value):
        csr = sp.csr_array(value)
        return _short([mark(part) for part in (csr.data, csr.indices, csr.indptr)], str(csr.shape))
    if is_array(value):
        return _mark_of_array(value)
    inner = getattr(value, "matrix", None)  # an earlier result
    if isinstance(inner, SensedMatrix):
        return mark(inner)
    return _mark_of_array(value) if hasattr(value, "__array__") else str(type(value))


def _parts_of(matrix: SensedMatrix) -> list[str]:
    """Marks of what a matrix is made of."""
    form: Any = matrix.form
    if isinstance(form, FramedForm):
        return [*_parts_of(SensedMatrix(form.inner)), mark(form.columns)]
    if isinstance(form, MeasuredForm):
        rows: Any = form.rows
        kind = beneath(rows.kind)
        held = isinstance(kind, Stored)
        seen = kind.given if held else rows.norms
        return [mark(form.tau), mark(form.c), mark(form.base), mark(seen)]
    if isinstance(form, FactorForm):
        return [mark(form.factor), mark(form.signs)]
    return [mark(form.values)]


def _mark_of_array(values: Any) -> str:
    """Of an array of any namespace, wherever it is: no more of it is moved than is hashed."""
    if not is_tensor(values):
        values = to_numpy(values)
        if values.dtype.hasobject:
            return mark(values.tolist())
    step = -(-values.nbytes // MAX_HASHED_BYTES)
    found = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in (values,) if step <= 1 else (values[::step], values[-1:]):
        found.update(bytes_of(np.ascontiguousarray(to_numpy(part))))
    return f"{values.dtype} {tuple(values.shape)} {found.hexdigest()}"


def bytes_of(values: npt.NDArray[Any]) -> memoryview:
    """Return the bytes of an array in one piece."""
    return values.reshape(-1).view(np.uint8).data


def digest(rows: Dense) -> str:
    """A hash of the bytes of rows."""
    held = np.ascontiguousarray(rows.given)
    return hashlib.blake2b(bytes_of(held), digest_size=DIGEST_BYTES).hexdigest()


def _short(parts: list[str], what: str) -> str:
    text = hashlib.blake2b("\n".join(parts).encode(), digest_size=DIGEST_BYTES).hexdigest()
    return f"{what} {text}"
