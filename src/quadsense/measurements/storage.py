"""Measurements from files and into them, with further rows, on a device or a cluster.

Each function says what the constructor of `Measurements` is given for that: the rows, the readings,
and the rest by name.
"""

from __future__ import annotations

import os
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from quadsense import files
from quadsense.arrays import as_numbers, is_array, is_numpy, namespace, to_numpy
from quadsense.core.noise import CONFIDENCE
from quadsense.measurements.arrays import Dense, NotFinite, Sparse, Stored
from quadsense.measurements.mixed import Mixed
from quadsense.measurements.parted import OnDisk
from quadsense.measurements.probes import Probes
from quadsense.measurements.sensing import Sensing
from quadsense.measurements.stack import AsComplex, Stack
from quadsense.measurements.tensors import elsewhere
from quadsense.measurements.validate import (
    checked_bounds,
    checked_mix,
    checked_rows,
    checked_vector,
)
from quadsense.system.machine import room_for_rows
from quadsense.typing import MatrixLike, MissingName, Real, RealOrVector, VectorLike, check_path

if TYPE_CHECKING:
    from quadsense.measurements.cluster import OnCluster
    from quadsense.measurements.measurements import Measurements


Given = tuple[Any, Any, dict[str, Any]]
"""Rows, readings or None, and what else the constructor is given by name."""


class Deferred:
    """Rows in files that are read into memory when they are first needed, if they fit there then.

    Measurements with other intervals share it with those they were made from.

    Parameters
    ----------
    strips : Strips
    conjugate : bool
    mix : array or None
        As in `Measurements`.
    """

    def __init__(self, strips: files.Strips, conjugate: bool, mix: Any) -> None:
        self.strips, self.conjugate, self.mix = strips, conjugate, mix
        self._rows: Sensing | None = None

    def rows(self) -> Sensing | None:
        """Return the rows in memory; None where half of what may be taken is too little."""
        if self._rows is None and self.strips.nbytes <= room_for_rows():
            self._rows = sensed(self.strips.load(), self.conjugate, self.mix)
        return self._rows


class StoredMeasurements:
    """Where measurements come from and go to: a base of `Measurements`."""

    notes: tuple[str, ...] = ()
    _opened: Any = None  # path and names of arrays, where they were read from a file
    _deferred: Deferred | None = None  # rows that stay in their files until they are needed
    _read_bytes = 0  # what such rows take in memory once they were read

    @property
    def _measurements(self) -> Measurements:
        whole: Any = self
        found: Measurements = whole
        return found

    def _made(self, *given: Any, **named: Any) -> Measurements:
        make: Any = type(self)
        found: Measurements = make(*given, **named)
        return found

    def on(self, device: Any) -> Measurements:
        """Return the same measurements, computed with on another device, or on a cluster.

        Rows stay where they are and travel to a device some at a time, the next ones while these
        are used: for data larger than the memory of a GPU. Those that fit are quicker there from
        the start (``U.to("cuda")``). Answers are on that device.

        Rows in files are loaded by the workers of a Dask cluster, each its own, and stay in their
        memory: every one of them must have the files under the same names. Answers are NumPy's.

        Parameters
        ----------
        device : str, torch.device or dask.distributed.Client
            For instance ``"cuda"``.

        Returns
        -------
        Measurements

        Examples
        --------
        >>> import quadsense  # U and b in the memory of the host
        >>> data = quadsense.Measurements(U, b, delta=0.1).on("cuda")  # doctest: +SKIP
        >>> quadsense.solve(data).A.device  # doctest: +SKIP
        device(type='cuda', index=0)
        """
        rows, readings, named = placed_on(self._measurements, device)
        return self._made(rows, readings, **named)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        U: str | None = None,
        b: str | os.PathLike[str] | VectorLike | None = None,
        delta: RealOrVector | None = None,
        rtol: Real = 0.0,
        bounds: tuple[RealOrVector, RealOrVector] | None = None,
        conjugate: bool | None = None,
        mix: MatrixLike | None = None,
        weights: RealOrVector | None = None,
        sigma: Real | None = None,
        shots: RealOrVector | None = None,
        confidence: Real = CONFIDENCE,
        missing: MissingName = "raise",
        memory_limit: Real | str | None = None,
    ) -> Measurements:
        """Read measurements from a file or many; what is in it is never unpickled.

        Parameters
        ----------
        path : path-like
            ``.npz``, ``.npy`` or a folder of such, ``.mat``, HDF5, Zarr, Parquet or CSV: see
            docs/files.md; a folder of such files, or a pattern (``run7/part-*.h5``), that hold some
            of the measurements each. `delta` and `rtol`, or `lo` and `hi`, are taken from it too
            where present and no tolerance is given here, and so are `mix` and `weights`.
        U, b : str, optional
            Names of the arrays in the file, by default those called so, or what else they can only
            be (`notes` says what was guessed). `b` may be another file, or ``FILE::NAME``, or the
            readings themselves, an array; U of a table is names of columns with commas between, or
            a pattern.
        delta, rtol, bounds, mix, weights, sigma, shots, confidence, missing
            As in the constructor; what the file says by default. With `bounds`, no b is needed.
        conjugate : bool, optional
            As in the constructor; what the file says by default.
        memory_limit : int or str, optional
            Bytes, as a number or as "1 GiB". A dense U that would take more than half of that, or
            of what is free, stays in its file and is read as it is used, again for each pass: see
            docs/scaling.md. One that would not, of more than 64 MiB in a format whose rows can be
            read by themselves (``.npy``, HDF5, Zarr), is read into memory when it is needed, if
            the limit of the solve that needs it allows. Leave the file as it is meanwhile.
        """
        b, given = name_or_readings(b), beside_file(mix, bounds)
        check_path("path", path)
        arrays = files.read_measured(path, U, b, room_for_rows(memory_limit), given)
        found = cls.from_arrays(
            path,
            arrays,
            delta=delta,
            rtol=rtol,
            bounds=bounds,
            conjugate=conjugate,
            mix=mix,
            weights=weights,
            sigma=sigma,
            shots=shots,
            confidence=confidence,
            missing=missing,
        )
        found._opened = path, U, b
        return found

    def append(
        self,
        U: MatrixLike | Measurements,
        b: VectorLike | None = None,
        *,
        delta: RealOrVector | None = None,
        bounds: tuple[RealOrVector, RealOrVector] | None = None,
        weights: RealOrVector | None = None,
    ) -> Measurements:
        """These measurements and further ones after them, for data that keep arriving.

        Parameters
        ----------
        U : array or sparse array of shape (k, n), probes, or Measurements
            Further rows, in the form of these or another; or measurements, which may be in files,
            with all that they have.
        b, delta, bounds, weights
            As in the constructor, of the further rows. One `delta`, `rtol` and weight for all hold
            for the further rows too; where each row has its own, theirs are needed.

        Returns
        -------
        Measurements
            Others: these stay what they are. An earlier result is a warm start of their solve.

        Examples
        --------
        >>> import numpy as np
        >>> import quadsense
        >>> data = quadsense.Measurements(np.eye(2), [1.0, 2.0], delta=0.1)
        >>> first = quadsense.solve(data)
        >>> more = data.append([[1.0, 1.0]], [4.0])
        >>> more, quadsense.solve(more, start=first).met
        (Measurements(m=3, n=2, dense, real), True)
        """
        rows, readings, named = with_further(self._measurements, U, b, delta, bounds, weights)
        return self._made(rows, readings, **named)

    @classmethod
    def from_arrays(
        cls,
        path: str | os.PathLike[str],
        arrays: files.Arrays,
        *,
        delta: RealOrVector | None = None,
        rtol: Real = 0.0,
        bounds: tuple[RealOrVector, RealOrVector] | None = None,
        conjugate: bool | None = None,
        mix: MatrixLike | None = None,
        weights: RealOrVector | None = None,
        sigma: Real | None = None,
        shots: RealOrVector | None = None,
        **noise: Any,
    ) -> Measurements:
        """Return measurements of what `files.read_measured` read; what is given here goes before.

        `noise` has confidence and missing of the constructor.
        """
        if sigma is not None or shots is not None:  # in place of the tolerance in the file
            for name in ("lo", "hi", "delta", "rtol"):
                arrays.pop(name, None)
        U, b, named = of_arrays(path, arrays, delta, rtol, bounds, conjugate, mix, weights)
        make: Any = cls
        try:
            found: Measurements = make(U, b, sigma=sigma, shots=shots, **named, **noise)
        except NotFinite as error:
            raise ValueError(f"{error}{arrays.place(error.row)}") from None
        found.notes = arrays.notes
        if isinstance(U, files.Strips) and U.nbytes <= arrays.room:
            found._deferred = Deferred(U, found.conjugate, found.mix)
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the measurements to a file that `open` and the command read.

        The end of its name says the format: ``.npz``, ``.mat``, ``.h5``, ``.zarr``, and where U is
        dense and there is no mix, ``.parquet`` and ``.csv``. Arrays `U` and `b`, `delta` and `rtol`
        as given, or `lo` and `hi`, `mix` and `weights`. Constraints belong to a solve and are not
        written. Rows that are in files are copied strip by strip into ``.npz``, ``.h5`` and
        ``.zarr``; for the others they must fit into memory.
        """
        data = self._measurements.plain
        files.writer_of(path, "measurements", square=data.mix is not None)
        metadata = {"format": "quadsense-measurements", "conjugate": data.conjugate}
        files.write(path, into_arrays(data), metadata)

    def settled(self) -> Measurements:
        """Return these measurements with their rows where they are for a whole solve.

        Rows that were left in their files are read into memory here if they fit there, for good;
        otherwise these measurements may read them later, and those returned never do.
        """
        data = self._measurements
        if self._deferred is None:
            return data
        rows = self._deferred.rows()
        if rows is None:
            other = copy(data)
            other._deferred = None
            return other
        self._read_bytes = self._deferred.strips.nbytes
        data._rows, self._deferred = rows, None
        return data


def sensed(U: Any, conjugate: bool, mix: Any) -> Sensing:
    """Return the operator of rows that were given, and of sums over them where `mix` is given."""
    rows = checked_rows(U, conjugate)
    return rows if mix is None else Mixed.over(rows, checked_mix(mix, rows.m))


def of_arrays(
    path: str | os.PathLike[str],
    arrays: files.Arrays,
    delta: RealOrVector | None,
    rtol: Real,
    bounds: tuple[RealOrVector, RealOrVector] | None,
    conjugate: bool | None,
    mix: MatrixLike | None,
    weights: RealOrVector | None,
) -> Given:
    """Return those of arrays of a file; what is given with them takes precedence."""
    named: dict[str, Any] = {"mix": arrays.get("mix") if mix is None else mix}
    named["conjugate"] = bool(arrays.get("conjugate")) if conjugate is None else conjugate
    named["weights"] = _held("weights", arrays) if weights is None else weights
    if bounds is not None:
        named |= {"bounds": bounds, "delta": delta, "rtol": rtol}
    elif "lo" in arrays and "hi" in arrays:
        if delta is not None or rtol != 0.0:
            raise ValueError(f"{path} holds intervals lo and hi: delta and rtol do not apply")
        named["bounds"] = (arrays["lo"], arrays["hi"])
    elif "b" not in arrays:
        raise ValueError(
            f"{path} holds no array named 'b', the readings; it holds {arrays.listing}: name "
            "it with b= (--b)"
        )
    else:
        named["delta"] = _held("delta", arrays) if delta is None else delta
        named["rtol"] = float(arrays.get("rtol", 0.0)) if rtol == 0.0 else rtol
    return arrays["U"], arrays.get("b"), named


def name_or_readings(b: Any) -> Any:
    """Where readings are, as a text, or an array of them; None stays None."""
    if b is None or isinstance(b, str):
        return b
    if isinstance(b, os.PathLike):
        return os.fspath(b)
    return as_numbers("b", b)


def beside_file(mix: Any, bounds: Any) -> files.Given:
    """Return what is given of measurements that are read from a file."""
    if mix is None:
        return files.Given(bounds=bounds is not None)
    shape = mix.shape if sp.issparse(mix) or is_array(mix) else as_numbers("mix", mix).shape
    return files.Given(int(shape[0]) if len(shape) == 2 else None, bounds is not None)


def into_arrays(data: Measurements) -> dict[str, Any]:
    """Return arrays of a file that holds measurements without constraints."""
    arrays: dict[str, Any] = {"U": _written(data._rows.kind)}
    if data.readings is not None:
        arrays["b"] = to_numpy(data.readings)
        if data._delta is not None:
            arrays["delta"] = to_numpy(data._delta)
        if data._rtol != 0.0:
            arrays["rtol"] = data._rtol
    if data.from_bounds:
        arrays |= {"lo": data.lo, "hi": data.hi}
    if data.weights is not None:
        arrays["weights"] = np.asarray(data.weights)
    if data.mix is not None:
        arrays["mix"] = data.mix
    return arrays


def _written(kind: Probes) -> Any:
    """Return U as a file holds it: an array, or rows that are written some at a time."""
    if isinstance(kind, Sparse):
        return kind.given
    parts = _dense_parts(kind)
    if parts is None:
        raise ValueError(
            f"the rows of U are not held as dense ones, nor all as sparse ones ({kind.storage}): "
            "they cannot be written to a file"
        )
    return parts[0] if isinstance(kind, Stored) else files.Pieces(parts)


def _dense_parts(kind: Probes) -> list[Any] | None:
    """Return arrays and strips of files that hold these rows as given; None where others do."""
    if isinstance(kind, OnDisk):
        return [kind.given]
    if isinstance(kind, Dense):
        return [to_numpy(kind.given)]
    if isinstance(kind, AsComplex):
        return _dense_parts(kind.kind)
    if isinstance(kind, Stack):
        found = [_dense_parts(part) for part in kind.parts]
        return None if None in found else [each for part in found for each in part or ()]
    return None


def with_further(
    data: Measurements,
    U: MatrixLike | Measurements,
    b: VectorLike | None,
    delta: RealOrVector | None,
    bounds: tuple[RealOrVector, RealOrVector] | None,
    weights: RealOrVector | None,
) -> Given:
    """Return those of measurements and of further ones after them."""
    if data._plain is not None:
        raise ValueError("these measurements have their constraints: use `plain`")
    if data.mix is not None:
        raise ValueError("readings that are sums of rows (mix) cannot be appended to")
    if isinstance(U, type(data)):
        if any(each is not None for each in (b, delta, bounds, weights)):
            raise ValueError("b, delta, bounds and weights belong to Measurements: give U alone")
        U, b, delta, bounds, weights = _further(data, U)
    if (bounds is not None) != data.from_bounds:
        has, lacks = ("bounds", "delta") if data.from_bounds else ("delta", "bounds")
        raise ValueError(f"these measurements have {has}: give {has} of the rows, not {lacks}")
    further = checked_rows(U, data.conjugate).kind
    rows, k = joined_rows(data.unit_rows.kind, further), further.m
    named: dict[str, Any] = {"weights": _extended("weights", data.weights, weights, data.m, k)}
    if bounds is not None:
        lo, hi = checked_bounds(bounds, k)
        named["bounds"] = (np.append(data.lo, lo), np.append(data.hi, hi))
    else:
        given = _on_host(data._delta)
        named |= {"delta": _extended("delta", given, delta, data.m, k), "rtol": data._rtol}
    before, readings = data.readings, None
    if (b is None) != (before is None):
        raise ValueError(
            "b is missing: these measurements have readings"
            if b is None
            else "b is given, and these measurements have no readings, but bounds alone"
        )
    if before is not None:
        readings = np.append(before, checked_vector("b", b, k))
    return rows, readings, {"conjugate": data.conjugate, **named}


def _further(data: Measurements, more: Measurements) -> tuple[Any, Any, Any, Any, Any]:
    """Return rows, readings, delta, bounds and weights of measurements that come after others."""
    if more._plain is not None or more.mix is not None:
        raise ValueError("measurements with constraints or sums of rows (mix) cannot be appended")
    for name, own, other in (
        ("conjugate", data.conjugate, more.conjugate),
        ("rtol", data._rtol, more._rtol),
    ):
        if own != other:
            raise ValueError(f"{name} is {other} in the measurements appended, but {own} in these")
    bounds = (more.lo, more.hi) if more.from_bounds else None
    kind = more.unit_rows.kind
    return kind, more.readings, _on_host(more._delta), bounds, more.weights


def placed_on(data: Measurements, device: Any) -> Given:
    """Return those of the same measurements on a device, or on the cluster of a client."""
    if data._plain is not None:
        raise ValueError("these measurements have their constraints: use `plain`")
    from quadsense.measurements.shards import is_client, refuse_other_than_client

    refuse_other_than_client(device)
    kind: Any = (data._rows if is_client(device) else data.unit_rows).raw.kind
    rows: Any = None
    if is_client(device):
        rows = _on_cluster(data, kind, device)
    elif not isinstance(kind, Dense):
        raise ValueError(
            f"only dense rows can be sent to another device, and these are {kind.storage}"
        )
    named: dict[str, Any] = {"weights": data.weights, "mix": data.mix}
    if data.from_bounds:
        named["bounds"] = (data.lo, data.hi)
    else:
        named |= {"delta": _on_host(data._delta), "rtol": data._rtol}
    rows = elsewhere(kind.given, device) if rows is None else rows
    return rows, data.readings, {"conjugate": data.conjugate, **named}


def _on_cluster(data: Measurements, kind: Any, client: Any) -> OnCluster:
    """Return rows in files as those of a cluster."""
    from quadsense.measurements.cluster import OnCluster  # brings asyncio, a tenth of an import
    from quadsense.measurements.shards import Shards

    if isinstance(kind, OnCluster):
        return OnCluster(client, kind.given)
    strips = kind.given if isinstance(kind, OnDisk) else None
    if data._opened is not None and not isinstance(strips, files.Strips):
        path, U, b = data._opened
        strips = files.read_measured(path, U, b, most=0.0)["U"]
    if not isinstance(strips, files.Strips):
        raise ValueError(
            f"a cluster loads dense rows from files, and these are {kind.storage}, in memory: "
            "save them in a file that every worker can read, and open that"
        )
    found = OnCluster(client, Shards.of_files(strips))
    if found.m != kind.m or not np.allclose(found.norms, to_numpy(kind.norms), rtol=1e-9):
        raise ValueError(f"{strips[0].path} was changed since it was opened: open it again")
    return found


def _on_host(values: Any) -> Any:
    return to_numpy(values) if is_array(values) else values


def _extended(name: str, own: Any, given: Any, m: int, k: int) -> Any:
    """Return a value for all rows, or one per row of m rows and k further ones."""
    if given is None:
        if own is not None and np.ndim(own) > 0:
            raise ValueError(f"{name} is missing: each row of these measurements has its own")
        return own
    if own is None:
        raise ValueError(f"{name} is given, and these measurements have none")
    further = checked_vector(name, given, k, scalar=True)
    if np.ndim(own) == 0 and np.ndim(given) == 0 and own == given:
        return own
    return np.append(np.broadcast_to(np.asarray(own, dtype=np.float64), (m,)), further)


def _held(name: str, arrays: files.Arrays) -> Any:
    """Return what a file says of that, a single value as a number; None where it says nothing."""
    values = arrays.get(name)
    return float(values) if values is not None and np.ndim(values) == 0 else values


def joined_rows(first: Probes, second: Probes) -> Any:
    """Return the rows of both, as `Measurements` takes them.

    Arrays become one, by a copy: a stack of many small ones would be slow in every product.

    Raises
    ------
    ValueError
        Where they are of several lengths, namespaces or devices.
    """
    if first.n != second.n:
        raise ValueError(f"U has rows of length {second.n}, but those before have {first.n}")
    if first.xp is not second.xp or first.device != second.device:
        raise ValueError("U is of another namespace or device than the rows before: bring it there")
    if isinstance(first, Sparse) and isinstance(second, Sparse):
        return sp.csr_array(sp.vstack([first.given, second.given]))
    if isinstance(first, Dense) and isinstance(second, Dense):
        xp = namespace(first.given)
        same = is_numpy(first.given) or first.given.dtype == second.given.dtype
        if same and first.given.device == second.given.device:
            return xp.concat([first.given, second.given])
    kinds = [first, second]
    if first.is_complex != second.is_complex:
        kinds = [kind if kind.is_complex else AsComplex(kind) for kind in kinds]
    return Stack(*kinds)
