"""What the commands print with ``--json``, key by key, and its JSON Schema.

The schema is made from these classes and the dataclasses that they name (`Verdict`, `Plan`, `Check`
and the parts of these): types from their annotations, descriptions from the Attributes sections of
their docstrings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from enum import StrEnum
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from quadsense.measurements import Measurements
from quadsense.query.cluster_cost import ClusterCost
from quadsense.query.plan import Plan
from quadsense.ranges import Interval
from quadsense.result.facts import Verdict
from quadsense.result.result import Result
from quadsense.vocabulary import Check, Status, Verification

Kind = Literal["met", "optimal", "infeasible", "spectral", "none"]

Role = Literal["U", "b", "lo", "hi", "delta", "rtol", "weights", "mix", "conjugate"]


class ClaimFields(TypedDict):
    """What the result claims, and its bounds.

    Attributes
    ----------
    kind : str
        What is claimed; "none" where nothing is.
    upper_bound : float
        The worst ratio of this A to the tolerance, rounding included.
    lower_bound : float
        No matrix has a smaller one; 0 where nothing is proved.
    rounding : float
        Largest bound on rounding, as a part of the tolerance.
    """

    kind: Kind
    upper_bound: float
    lower_bound: float
    rounding: float


class SolveFields(TypedDict):
    """What `quadsense solve --json` prints.

    Attributes
    ----------
    status : Status
        How the solve ended.
    success : bool
        Whether every reading is within its interval, or the optimum proved.
    message : str
        The verdict in sentences, for people.
    verdict : Verdict
        All that there is to say of the solve, in numbers and names.
    prefer : str
        Which A was sought.
    objective : float or None
        What A costs by the preference.
    objective_bounds : (float, float) or None
        Proved bounds on the best value of the objective.
    optimal : bool or None
        Whether the preference is certified.
    n_iter : int
        Iterations taken to reach this A.
    max_residual : float
        Largest residual.
    max_ratio : float
        Largest ratio of a residual to its tolerance: 1 is the end of an interval.
    violations : list of int
        Rows over their tolerance.
    suspects : list of int
        Rows that carry a contradiction.
    set_aside : list of int
        Rows left out on request.
    unique : bool or None
        Whether the measurements determine A; null where that was not computed.
    unseen : int or None
        Dimensions of A that no measurement sees; null where that was not computed.
    certificate : ClaimFields
        What is claimed, and its bounds.
    timings : dict
        Seconds by part.
    plan : Plan
        What was chosen, what it was predicted to cost, and why.
    """

    status: Status
    success: bool
    message: str
    verdict: Verdict
    prefer: str
    objective: float | None
    objective_bounds: tuple[float, float] | None
    optimal: bool | None
    n_iter: int
    max_residual: float
    max_ratio: float
    violations: list[int]
    suspects: list[int]
    set_aside: list[int]
    unique: bool | None
    unseen: int | None
    certificate: ClaimFields
    timings: dict[str, float]
    plan: Plan


class VerifyFields(TypedDict):
    """What `quadsense verify --json` prints.

    Attributes
    ----------
    true : bool
        Whether every statement holds.
    status : Status
        How the solve ended.
    claim : str
        What the result claims.
    measurements : int
        How many there are in the data.
    set_aside : list of int
        Rows that the claim leaves out.
    checks : list of Check
        Statement by statement, what was checked.
    """

    true: bool
    status: Status
    claim: Kind
    measurements: int
    set_aside: list[int]
    checks: list[Check]


class RangeFields(TypedDict):
    """One certified range.

    Attributes
    ----------
    what : str
        C, as it was asked for.
    lower : float
        No fit has a smaller ``<C, A>``.
    upper : float
        No fit has a larger ``<C, A>``.
    lower_found : float
        The least value of a fit that was found.
    upper_found : float
        The largest value of a fit that was found.
    lower_condition : str
        What the lower end takes for granted; it may be empty.
    upper_condition : str
        What the upper end takes for granted; it may be empty.
    lower_proved_infinite : bool
        Whether it is proved that there is no lower end.
    upper_proved_infinite : bool
        Whether it is proved that there is no upper end.
    psd : bool
        Whether only positive semidefinite matrices count.
    relaxed : bool
        Whether a rank was asked for, which is not looked at.
    """

    what: str
    lower: float
    upper: float
    lower_found: float
    upper_found: float
    lower_condition: str
    upper_condition: str
    lower_proved_infinite: bool
    upper_proved_infinite: bool
    psd: bool
    relaxed: bool


class IntervalFields(TypedDict):
    """What `quadsense interval --json` prints.

    Attributes
    ----------
    fits : bool
        False where it is proved that nothing fits.
    message : str
        Why there are no ranges; it may be empty.
    intervals : list of RangeFields
        One for each C that was asked for, in that order.
    """

    fits: bool
    message: str
    intervals: list[RangeFields]


class EntryFields(TypedDict):
    """One array in a file.

    Attributes
    ----------
    name : str
        Its name there.
    shape : list of int
        Its shape.
    dtype : str
        NumPy's name of the type, or what else it is.
    sparse : bool
        Whether it is sparse.
    role : str or None
        What it was taken for.
    """

    name: str
    shape: list[int]
    dtype: str
    sparse: bool
    role: Role | None


class FileFields(TypedDict):
    """A file.

    Attributes
    ----------
    path : str
        Where it is.
    format : str
        The format of the file.
    result : bool
        Whether it is a result.
    entries : list of EntryFields
        The arrays in it.
    notes : list of str
        What was guessed.
    problem : str or None
        Why there are no measurements in it.
    """

    path: str
    format: str
    result: bool
    entries: list[EntryFields]
    notes: list[str]
    problem: str | None


class ScalingFields(TypedDict):
    """What a cluster takes for a problem: docs/scaling.md.

    Attributes
    ----------
    workers : int
        Processes, each on a machine of its own.
    threads : int
        Tasks that a worker has under way.
    network : float
        Bytes per second of a machine's link.
    disk : float
        Bytes per second of a worker's reading.
    task : float
        Seconds that the scheduler takes for a task.
    row_bytes : int
        Bytes of U.
    parts : int
        Parts into which the data divide the rows.
    part_rows : int
        Rows of the largest part.
    parts_a_worker : int
        Parts of the worker that has most.
    matrix_bytes : int
        Bytes of A.
    worker_memory : int
        Bytes that a worker needs.
    driver_memory : int
        Bytes that the driver needs.
    flops : float
        Arithmetic of one sweep.
    driver_bytes : float
        Bytes of a sweep to and from the driver.
    worker_bytes : float
        Bytes of a sweep between workers.
    tasks : int
        Tasks of a sweep.
    computing : float
        Seconds of arithmetic in a sweep.
    communicating : float
        Seconds of travel in a sweep.
    seconds : float
        Seconds of a sweep.
    crossing : int
        Workers from which on travel takes as long as arithmetic.
    loading : float
        Seconds until all rows are in memory.
    reading : float
        Seconds of a sweep of one process that reads a file.
    memory : float
        Bytes of memory of a machine.
    sweeps : dict
        Expected sweeps of a solve, by method.
    notes : list of str
        What does not fit.
    """

    workers: int
    threads: int
    network: float
    disk: float
    task: float
    row_bytes: int
    parts: int
    part_rows: int
    parts_a_worker: int
    matrix_bytes: int
    worker_memory: int
    driver_memory: int
    flops: float
    driver_bytes: float
    worker_bytes: float
    tasks: int
    computing: float
    communicating: float
    seconds: float
    crossing: int
    loading: float
    reading: float
    memory: float
    sweeps: dict[str, float]
    notes: list[str]


class DataFields(TypedDict, total=False):
    """What `quadsense inspect --json` says of measurements.

    Attributes
    ----------
    m : int
        Number of measurements.
    n : int
        Order of A.
    complex : bool
        Whether the probes are complex.
    sparse : bool
        Whether the probes are held sparse.
    row_norms : (float, float)
        The least and the largest norm of a row.
    zero_rows : int
        Rows that are zero.
    readings : (float, float)
        The least and the largest reading.
    spread : float
        Standard deviation of the readings.
    orthonormal : bool
        Whether the rows are orthonormal.
    coherence : float or None
        Largest inner product of two rows of unit norm; null where it was not computed.
    paper_holds : bool
        Whether the coherence is small enough for the paper's lemmas.
    unknowns : int
        Dimensions of A.
    rank : int or None
        Dimensions of A that the measurements see; null where that was not computed.
    """

    m: int
    n: int
    complex: bool
    sparse: bool
    row_norms: tuple[float, float]
    zero_rows: int
    readings: tuple[float, float]
    spread: float
    orthonormal: bool
    coherence: float | None
    paper_holds: bool
    unknowns: int
    rank: int | None


class InspectFields(DataFields, total=False):
    """What `quadsense inspect --json` prints: of a file, of a result, or of sizes.

    Attributes
    ----------
    file : FileFields
        The file, where one was given.
    result : SolveFields
        What the file holds, if it is a result.
    scaling : ScalingFields
        With --workers: what a cluster takes.
    plan : Plan
        What would be chosen, what it is predicted to cost, and why.
    """

    file: FileFields
    result: SolveFields
    scaling: ScalingFields
    plan: Plan


def _taken(kind: Any, thing: Any, **own: Any) -> Any:
    """Return what a class of fields asks for: what is given, and the attributes of a thing."""
    names = kind.__annotations__
    return {name: own[name] if name in own else getattr(thing, name) for name in names}


def result_fields(result: Result) -> SolveFields:
    """Return what `quadsense solve --json` prints."""
    verdict, claim = asdict(result.verdict), _taken(ClaimFields, result.certificate)
    found: SolveFields = _taken(SolveFields, result, verdict=verdict, certificate=claim)
    return found


def verify_fields(claimed: Result, data: Measurements, found: Verification) -> VerifyFields:
    """Return what `quadsense verify --json` prints."""
    claim = claimed.certificate
    fields: VerifyFields = _taken(
        VerifyFields, found, status=claimed.status, claim=claim.kind, measurements=data.m,
        set_aside=claim.set_aside, checks=[asdict(check) for check in found.checks],
    )  # fmt: skip
    return fields


def range_fields(what: str, found: Interval) -> RangeFields:
    """Return what `quadsense interval --json` prints of one range."""
    fields: RangeFields = _taken(
        RangeFields, found, what=what, lower_proved_infinite=found.lower_ray is not None,
        upper_proved_infinite=found.upper_ray is not None,
    )  # fmt: skip
    return fields


def data_fields(data: Measurements) -> DataFields:
    """Return what `quadsense inspect --json` prints of measurements."""
    rows, b = data.unit_rows, data.b
    fields: DataFields = _taken(
        DataFields, data.facts, m=data.m, n=data.n, complex=rows.is_complex, sparse=rows.is_sparse,
        row_norms=(float(rows.norms.min()), float(rows.norms.max())),
        zero_rows=int((rows.nonzero == 0).sum()), readings=(float(b.min()), float(b.max())),
        spread=float(b.std()),
    )  # fmt: skip
    return fields


def scaling_fields(found: ClusterCost, memory: float) -> ScalingFields:
    """Return what `quadsense inspect --workers --json` prints of a cluster with so much memory."""
    fields: ScalingFields = _taken(
        ScalingFields, found, memory=memory, sweeps=found.sweeps(memory), notes=found.notes(memory)
    )
    return fields


# --- the schema ------------------------------------------------------------------------------


PRINTED: dict[str, tuple[Any, ...]] = {
    "inspect": (InspectFields, DataFields),
    "interval": (IntervalFields,),
    "solve": (SolveFields,),
    "verify": (VerifyFields,),
}
"""What each command prints: a class, and its bases, which a `TypedDict` forgets."""

VERSION = 1
"""Of what is printed: it rises when a key vanishes or means something else."""

OPEN = (Plan,)
"""Classes that are printed with further keys: a result's plan has the request and more."""

PLAIN = {bool: "boolean", int: "integer", str: "string"}
"""JSON's names of types."""

NUMBER = {
    "description": 'A number; what JSON lacks is null (not a number), "inf" or "-inf".',
    "anyOf": [{"type": "number"}, {"type": "null"}, {"enum": ["inf", "-inf"]}],
}


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of what a command prints."""
    parts: dict[str, Any] = {"number": NUMBER}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"quadsense/{name}",
        "title": f"What `quadsense {name} --json` prints",
        "version": VERSION,
        **_object(*PRINTED[name], parts=parts),
        "$defs": parts,
    }


def _object(kind: Any, *bases: Any, parts: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a class; `parts` gets those of the classes that it names."""
    types = get_type_hints(kind)
    texts: dict[str, str] = {}
    for each in (*bases, kind):
        texts |= descriptions(each)
    if types.keys() != texts.keys():
        missing = ", ".join(sorted(types.keys() ^ texts.keys()))
        raise TypeError(f"{kind.__name__}: fields and descriptions differ in {missing}")
    properties = {name: {**_type(types[name], parts), "description": texts[name]} for name in types}
    required = kind.__required_keys__ if is_typeddict(kind) else types.keys()
    return {
        "type": "object",
        "description": str(kind.__doc__).partition("\n")[0],
        "properties": properties,
        "required": [name for name in types if name in required],
        "additionalProperties": kind in OPEN,
    }


def _type(kind: Any, parts: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an annotation."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _union(args, parts)
    if origin is Literal:
        return {"enum": list(args)}
    if origin is tuple and args[-1] is not Ellipsis:
        (each,) = set(args)
        return {"type": "array", "items": _type(each, parts), "minItems": len(args),
                "maxItems": len(args)}  # fmt: skip
    if origin in (list, tuple):
        return {"type": "array", "items": _type(args[0], parts)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _type(args[1], parts)}
    if kind is Any:
        return {}
    if kind is float:
        return {"$ref": "#/$defs/number"}
    if kind in PLAIN:
        return {"type": PLAIN[kind]}
    if issubclass(kind, StrEnum):
        return {"enum": [str(each) for each in kind]}
    name = kind.__name__.removesuffix("Fields").lower()
    if name not in parts:
        parts[name] = {}  # its place, before those of its own parts
        parts[name] = _object(kind, parts=parts)
    return {"$ref": f"#/$defs/{name}"}


def _union(kinds: tuple[Any, ...], parts: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value that may be missing."""
    each = [_type(kind, parts) for kind in kinds if kind is not NoneType]
    if NoneType in kinds and float not in kinds:  # a number may be null anyway
        each.append({"type": "null"})
    return each[0] if len(each) == 1 else {"anyOf": each}


def descriptions(kind: Any) -> dict[str, str]:
    """Return what the docstring of a class says of each attribute."""
    found: dict[str, str] = {}
    lines = str(kind.__doc__).splitlines()
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
    lines = [line[margin:] for line in lines[1:]]
    if "Attributes" not in lines:
        return found
    names: list[str] = []
    for line in lines[lines.index("Attributes") + 2 :]:
        entry = re.match(r"([\w, ]+) : ", line)
        if entry:
            names = entry[1].split(", ")
            found |= dict.fromkeys(names, "")
        elif re.match(r"\S", line):
            break
        else:
            found |= {name: f"{found[name]} {line.strip()}".strip() for name in names}
    empty = [name for name, text in found.items() if not text]
    if empty:
        raise TypeError(f"{kind.__name__}: no description of {', '.join(empty)}")
    return found
