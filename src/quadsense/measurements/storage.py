"""Measurements from files and into them, with further rows, on a device or a cluster.

Each function says what the constructor of `Measurements` is given for that: the rows, the readings,
and the rest by name.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from quadsense import files
from quadsense.arrays import as_numbers, is_array, to_numpy
from quadsense.measurements.dense import Dense, Stored
from quadsense.measurements.disk import OnDisk
from quadsense.measurements.mixed import Mixed
from quadsense.measurements.probes import Probes
from quadsense.measurements.sensing import Sensing
from quadsense.measurements.shards import Shards, is_client, refuse_other_than_client
from quadsense.measurements.sparse import Sparse
from quadsense.measurements.stack import AsComplex, Stack
from quadsense.measurements.tensors import elsewhere
from quadsense.measurements.validate import (
    checked_bounds,
    checked_mix,
    checked_rows,
    checked_vector,
)
from quadsense.system.memory import room_for_rows
from quadsense.typing import MatrixLike, Real, RealOrVector, VectorLike

if TYPE_CHECKING:
    from quadsense.measurements.base import Measurements
    from quadsense.measurements.cluster import OnCluster


from quadsense.arrays import is_numpy, namespace

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
    """Those of arrays of a file; what is given with them takes precedence."""
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
    """What is given of measurements that are read from a file."""
    if mix is None:
        return files.Given(bounds=bounds is not None)
    shape = mix.shape if sp.issparse(mix) or is_array(mix) else as_numbers("mix", mix).shape
    return files.Given(int(shape[0]) if len(shape) == 2 else None, bounds is not None)


def into_arrays(data: Measurements) -> dict[str, Any]:
    """Arrays of a file that holds measurements without constraints."""
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
    """U as a file holds it: an array, or rows that are written some at a time."""
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
    """Arrays and strips of files that hold these rows as given; None where others do."""
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
    """Those of measurements and of further ones after them."""
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
    """Rows, readings, delta, bounds and weights of measurements that come after others."""
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
    """Those of the same measurements on a device, or on the cluster of a client."""
    if data._plain is not None:
        raise ValueError("these measurements have their constraints: use `plain`")
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
    """Rows in files as those of a cluster."""
    from quadsense.measurements.cluster import OnCluster  # brings asyncio, a tenth of an import

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
    """A value for all rows, or one per row of m rows and k further ones."""
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
    """What a file says of that, a single value as a number; None where it says nothing."""
    values = arrays.get(name)
    return float(values) if values is not None and np.ndim(values) == 0 else values


def joined_rows(first: Probes, second: Probes) -> Any:
    """The rows of both, as `Measurements` takes them.

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
