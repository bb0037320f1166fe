"""The plan: which methods, coordinates and K, how much memory and time, and why.

What a method costs and where it serves it says itself (`methods.traits`); here the answers are put
together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from quadsense.arrays import available_memory, on_gpu, to_numpy
from quadsense.core.matrix import FactorForm, FramedForm, MeasuredForm, SensedMatrix
from quadsense.core.records import changed, record
from quadsense.measurements import Measurements
from quadsense.measurements.arrays import Dense, Stored
from quadsense.measurements.column_scaling import Columns, described, framed
from quadsense.measurements.gram import gram_form, known_basis
from quadsense.measurements.parted import OnDisk
from quadsense.measurements.sensing import Sensing
from quadsense.measurements.stack import Stack
from quadsense.measurements.views import beneath, is_sparse
from quadsense.methods import METHODS, Traits
from quadsense.methods.traits import VECTORS, Shape, Work
from quadsense.preferences import PREFERENCES, Preference
from quadsense.query.choice import check_preference, checked, decide, frame_for, in_frame
from quadsense.query.query import DEFAULTS, Query
from quadsense.query.request import check_ability, check_options, given_options, to_rank
from quadsense.system.machine import (
    BLOCK_ELEMENTS,
    FLOAT64_BYTES,
    Rates,
    in_bytes,
    is_limited,
    known_rates,
    limited_memory,
    room_in_words,
    to_bytes,
)
from quadsense.system.threads import one_blas_thread
from quadsense.system.watch import Watch

__all__ = [
    "Decision",
    "Plan",
    "Shape",
    "decided",
    "make_plan",
    "planned",
    "refuse_what_cannot_fit",
    "shape_of",
]

SOLVE_SECONDS = 8e-4
"""What surrounds the iterations of the smallest solve (`benchmarks/small.py`)."""

PASS_SECONDS = 1.2e-4
"""Calls of Python in a pass, whatever its size (`benchmarks/plans.py`)."""

PROMISE = 5.0
"""Factor within which a predicted time is to hold; where it cannot, none is given."""

ROUNDED_UP = 1.01
"""Factor on memory that is needed, for people, who round."""

TEMPORARIES = 2
"""A block of rows and a product with it, which are held at once."""


@dataclass(frozen=True, repr=False)
class Plan:
    """What was chosen for a problem.

    Attributes
    ----------
    methods : tuple of str
        Tried in turn: each hands over to the next what it cannot decide.
    coordinates : {"measurement", "matrix", "factor"}
        What the first method carries: m coefficients, A, or a factor of A.
    gram : str
        Form of K, where there is one.
    threads : dict
        BLAS threads of each method: "one", see `quadsense.system.threads`.
    memory : int
        Predicted bytes in addition to U as given, with conversions, copies and the start's.
    proof_memory : int
        Predicted bytes of a proof that nothing fits, where it comes to that.
    flops : float
        Predicted work of the first method.
    seconds : float or None
        Predicted time of the whole solve; None where it is not known to a factor of five.
    times : dict
        Predicted seconds of each method by itself; None where not known.
    reasons : tuple of str
        In words.
    """

    methods: tuple[str, ...]
    coordinates: str
    gram: str
    threads: dict[str, str]
    memory: int
    proof_memory: int
    flops: float
    seconds: float | None
    times: dict[str, float | None]
    reasons: tuple[str, ...]

    def __repr__(self) -> str:
        """Methods and cost; the reasons are in `reasons`."""
        methods, time = " then ".join(self.methods), in_words(self.seconds)
        return f"Plan({methods}, {self.memory / 2**20:.3g} MiB, {time} predicted)"

    def describe(self) -> dict[str, Any]:
        """The plan as plain data, for `Result.plan`."""
        return {**vars(self), "methods": list(self.methods), "reasons": list(self.reasons)}


def in_words(seconds: float | None) -> str:
    """A predicted time for people."""
    return "unknown time" if seconds is None else f"{seconds:.2g} s"


def shape_of(
    data: Measurements,
    *,
    psd: bool,
    rank: int | None,
    target: bool,
    given: Any = None,
    start: Any = None,
    tf32: bool = False,
) -> Shape:
    """Shape of measurements and request.

    Parameters
    ----------
    data : Measurements
        With a tolerance, or a unit of error.
    psd, rank, target
        As in `Shape`.
    given : object, optional
        The U from which `data` was made, where it was made for this solve.
    start : object, optional
        As in `solve`.
    tf32 : bool
        Whether steps may use TF32 products, of a copy of the rows.
    """
    rows, scaled = data.unit_rows, data.scaled()
    kind: Any = rows.kind
    ratio = 1.0
    if target:
        b = to_numpy(scaled.b)
        ratio = (float(np.maximum.reduce(b)) - float(np.minimum.reduce(b))) / scaled.least
    most = rows.n if rows.rank_one else rows.unknowns  # more are not orthonormal
    shape = Shape(
        m=data.m,
        n=data.n,
        complex=rows.is_complex,
        orthonormal=(data.m <= most or rows.has_zero_rows) and data.orthonormal,
        started=start is not None and _is_dense(start, rank is not None),
        psd=psd,
        rank=rank,
        target=target,
        one_sided=data.sides is not None,
        constrained=data.has_hard,
        ratio=2.0 ** min(200, math.ceil(math.log2(max(ratio, 1.0)))),
    )
    plain = type(rows) is Sensing and type(kind) is Dense and kind.is_widest
    if plain and kind.U is kind.given and (given is None or given is kind.U):
        return shape  # NumPy's rows in double precision, most often: the rest is as usual
    return changed(
        shape,
        sparse=rows.is_sparse,
        copied=(rows.at_work(tf32) if tf32 else rows).single_is_copied,
        converted=_is_converted(rows, given),
        density=kind.gram_density_bound() if is_sparse(kind) else 1.0,
        raw=0 if rows.rank_one else rows.raw.m,
        summed=not rows.rank_one and data.mix is not None,
        in_parts=rows.in_turn is not None and rows.rank_one,
        strip=_strip_bytes(rows.raw.kind),
        at_hand=rows.raw.kind.at_hand,
        diagonal=_is_diagonal(data),
        on_gpu=on_gpu(scaled.b),
    )


def _is_diagonal(data: Measurements) -> bool:
    """Whether least squares is diagonal in a basis that the rows know, with the weights given.

    A given trace is taken care of by the cone; other constraints have penalties of their own.
    """
    alone = len(data.constraints) == (data.fixed_trace is not None)
    basis = known_basis(data.unit_rows) if alone else None
    if basis is None or data.weights is None:
        return basis is not None
    weights = np.broadcast_to(to_numpy(data.weights), (data.measured,)).astype(np.float64)
    return basis.kind.normal_diagonal(weights) is not None


def _strip_bytes(kind: Any) -> int:
    """Bytes of the rows that are read together; 0 of rows in memory."""
    kind = beneath(kind)
    parts = kind.parts if isinstance(kind, Stack) else (kind,)
    strips = [part.strips for part in map(beneath, parts) if isinstance(part, OnDisk)]
    return max((each.largest * each.dtype.itemsize for each in strips), default=0)


def _is_converted(rows: Sensing, given: Any) -> bool:
    """Whether a copy of U was made, for its type or for the range of its norms."""
    kind = beneath(rows.kind)
    if not isinstance(kind, Stored) or given is kind:  # what was given, rows and all
        return False
    return kind.U is not kind.given or (given is not None and not _shared(given, kind.U))


def _shared(given: Any, rows: Any) -> bool:
    """Whether the rows are read where they were given; not known of other namespaces."""
    if isinstance(given, np.ndarray) and isinstance(rows, np.ndarray):
        return given is rows or np.may_share_memory(given, rows)
    return type(given) is type(rows) and bool(given.dtype == rows.dtype)


def _is_dense(start: Any, low_rank: bool) -> bool:
    """Return whether a start is kept as an n-by-n matrix; with a rank a factor stays a factor."""
    if isinstance(start, str):
        return False
    matrix = getattr(start, "matrix", start)
    kept = (MeasuredForm, FramedForm, FactorForm) if low_rank else (MeasuredForm, FramedForm)
    return not (isinstance(matrix, SensedMatrix) and isinstance(matrix.form, kept))


def make_plan(shape: Shape, method: str = "auto", rates: Rates | None = None) -> Plan:
    """Choose for a shape; `method` other than "auto" is the user's word."""
    return _made(tuple(vars(shape).values()), method, rates or known_rates(), METHODS.names())


@lru_cache(maxsize=16)  # many solves of one shape plan once
def _made(values: tuple[Any, ...], method: str, rates: Rates, known: tuple[str, ...]) -> Plan:
    """Choose among these methods for the shape of these values.

    The rates change the predicted seconds, and nothing else.
    """
    shape = Shape(*values)
    reasons: list[str] = []
    names = _chosen(shape, known, reasons) if method == "auto" else (method,)
    kinds = [METHODS.traits(name) for name in names]
    first = kinds[0]
    shapes = [shape] * len(kinds)
    gram = "none"
    user = next((i for i, kind in enumerate(kinds) if kind.uses_gram(shape)), None)
    if user is not None and (user == 0 or shape.prefer != "any"):
        density = shape.density if shape.sparse else 1.0
        gram, why = gram_form(shape.m, shape.n, shape.orthonormal, density)
        shapes[user] = replace(shape, gram=gram)
        reasons.append(why)
    if shape.cone == "symmetric" and "rows" in first.needs:  # by which they choose coordinates
        side = "as many as" if shape.m == shape.unknowns else "more than"
        side = "fewer than" if shape.m < shape.unknowns else side
        reasons.append(f"{shape.m:,} measurements are {side} the {shape.unknowns:,} unknowns")
    needed = max(kind.memory(its) for kind, its in zip(kinds, shapes, strict=True))
    works = [kind.work(its) for kind, its in zip(kinds, shapes, strict=True)]
    times = [None if shape.summed else _seconds(work, rates) for work in works]
    if shape.summed:
        reasons.append(f"readings are sums over {shape.raw:,} rows: the time is not predicted")
    seconds = _expected(first, shape, times, reasons)
    return Plan(
        methods=names,
        coordinates=first.coordinates(shape),
        gram=gram,
        threads=dict.fromkeys(names, "one"),
        memory=needed + _surroundings(shape),
        proof_memory=max(kind.proof_memory(shape) for kind in kinds),
        flops=works[0].flops,
        seconds=None if seconds is None else seconds + SOLVE_SECONDS,
        times=dict(zip(names, times, strict=True)),
        reasons=tuple(dict.fromkeys(reasons)),
    )


def _chosen(shape: Shape, known: tuple[str, ...], reasons: list[str]) -> tuple[str, ...]:
    """Methods for ``auto``, in the order in which they are tried.

    Those of the user's own are asked first; of the others exactly one suits.
    """
    for name in reversed(known):
        kind = METHODS.traits(name)
        why = kind.suits(shape) if kind.mixes or not shape.mixed else None
        if why is not None:
            reasons.append(why)
            after = kind.followers(shape)
            if shape.prefer != "any" and shape.target:
                # Where the question is not answered, any fit, or a proof that there is none.
                after += _chosen(replace(shape, prefer="any"), known, reasons)
            return tuple(dict.fromkeys((name, *after)))
    # Only where rank goes without a tolerance, which is refused with its own words.
    raise ValueError(f"no method seeks {shape.cone} matrices like this")


def _taken(shape: Shape) -> int:
    """Bytes of the plan that are taken already."""
    return shape.row_bytes if shape.converted else 0


def _surroundings(shape: Shape) -> int:
    """Bytes of the start, of a converted U, and of the checks before and after the method."""
    block = shape.item * TEMPORARIES * min(BLOCK_ELEMENTS, shape.m * shape.n)
    started = 3 * shape.matrix_bytes if shape.started else 0
    block += 2 * shape.strip  # one used, one read
    return block + started + _taken(shape) + VECTORS * FLOAT64_BYTES * shape.m


def _seconds(work: Work, rates: Rates) -> float | None:
    """Predicted time of a method, where it is known."""
    if not work.known:
        return None
    return rates.seconds(work.flops, work.traffic) + PASS_SECONDS * work.passes


def _expected(
    first: type[Traits], shape: Shape, times: list[float | None], reasons: list[str]
) -> float | None:
    """Seconds of the methods together, as far as they are expected to be needed."""
    if None in times or len(times) == 1 or first.settles(shape):
        return times[0]
    alone, together = float(times[0] or 0.0), float(sum(each or 0.0 for each in times))
    if together <= PROMISE * alone:
        return math.sqrt(alone * together)
    reasons.append(
        f"the time depends on the data: about {in_words(alone + SOLVE_SECONDS)} if {first.name} "
        f"meets delta, about {in_words(together + SOLVE_SECONDS)} if another method must follow"
    )
    return None


def refuse_what_cannot_fit(shape: Shape, plan: Plan) -> dict[str, str]:
    """Refuse, before anything is allocated, what cannot fit.

    Returns
    -------
    dict
        For each method after the first that cannot fit the words with which it is refused if it
        is reached. Such a method is rarely needed, and it stays in the plan: without it the same
        request would get another A on a smaller machine.

    Raises
    ------
    MemoryError
        If the first method cannot fit.
    """
    if plan.memory - (shape.row_bytes if shape.converted else 0) <= available_memory():
        return {}
    room = room_in_words(available_memory())
    needs = {name: _needed(shape, name) for name in plan.methods}
    refused = {
        name: f"method {name} would take {in_bytes(needed)} in addition to U and {room}"
        for name, needed in needs.items()
        if needed > available_memory()
    }
    first = plan.methods[0]
    if first in refused:
        raise MemoryError(f"{refused[first]}: {_advice(shape, plan)}")
    return {
        name: f"{said}; it is needed because {first} did not settle the question: raise "
        f"memory_limit, or use fewer measurements (method={first!r} stops before)"
        for name, said in refused.items()
    }


def _needed(shape: Shape, method: str) -> int:
    """Bytes that a method by itself takes, in addition to what is taken already."""
    return make_plan(shape, method).memory - _taken(shape)


def _advice(shape: Shape, plan: Plan) -> str:
    """What would fit instead of a plan that does not."""
    candidates = dict.fromkeys([*plan.methods, *METHODS])
    able = [name for name in candidates if METHODS.traits(name).serves(shape)]
    fitting = [name for name in able if _needed(shape, name) <= available_memory()]
    if fitting:
        return f"method={fitting[0]!r} would fit"
    least = {f"prefer={shape.prefer!r}": ROUNDED_UP * _needed(shape, plan.methods[0])}
    if shape.target and shape.prefer != "any" and shape.prefer in PREFERENCES:
        plain = replace(shape, prefer="any")
        needed = _needed(plain, make_plan(plain).methods[0])
        if needed <= available_memory():
            return "prefer='any' would fit"
        least["prefer='any'"] = ROUNDED_UP * needed
    with limited_memory(math.inf, instead=True):
        least = {what: limit for what, limit in least.items() if limit <= available_memory()}
    if not least or not is_limited(available_memory()):
        return "use fewer measurements, or a smaller n"
    lowest = min(least, key=lambda what: least[what])
    advice = f"raise memory_limit to about {in_bytes(least[lowest])}"
    for what, limit in least.items():
        if what != lowest:
            advice += f" for {lowest}, or to about {in_bytes(limit)} for {what}"
    return advice


# --- all that follows from a query -------------------------------------------------------------


@record(frozen=True)
class Decision:
    """Which A is sought, and how.

    Attributes
    ----------
    query : Query
        What was asked, in the form of `choice.checked`.
    user, data : Measurements
        With the constraints; and with the columns of U scaled, where they are.
    columns : ndarray of int or None
        The exponents of that scaling.
    preferences : tuple of Preference
        To be tried in turn: the next where one does not exist.
    shape : Shape
    plan : Plan
    options : dict
        Those of methods, as given.
    order : int or None
        Most columns of a factor; 0 where it may grow, None where no rank was asked for.
    signs : (int, int) or None
        Most positive and most negative eigenvalues, where some may be negative.
    positive : bool
        Whether A is sought among positive semidefinite matrices.
    allowed : int
        Measurements that may be set aside.
    """

    query: Query
    user: Measurements
    data: Measurements
    columns: Columns | None
    preferences: tuple[Preference, ...]
    shape: Shape
    plan: Plan
    options: dict[str, Any] = field(default_factory=dict)
    order: int | None = None
    signs: tuple[int, int] | None = None
    positive: bool = False
    allowed: int = 0

    @property
    def wanted(self) -> str:
        """The name of the preference that is wanted first."""
        named = self.query.prefer
        return self.preferences[0].name if named in ("auto", "any") else named


def decided(
    query: Query, data: Measurements, watch: Watch, given: Any = None, rates: Rates | None = None
) -> Decision:
    """Check the query against the data, and decide which A is sought, by which plan.

    Parameters
    ----------
    query : Query
    data : Measurements
        With their tolerance, if they have one.
    watch : Watch
    given : object, optional
        The U from which `data` was made, where it was made for this solve.
    rates : Rates, optional
        Of this machine, for the predicted seconds; by default what is known of it.
    """
    query.check(data)
    method = query.method
    target = data.tolerance is not None
    if not target:
        data = data.without_tolerance()
    user = data = data.constrained(query.trace, query.constraints)
    options: dict[str, Any] = {}
    if query.options or query.schedule is not DEFAULTS["schedule"]:
        options = given_options(query, data.m)
    named, order, signs = False, None, None
    if method != "auto" or query.rank is not None or query.allow_violations:
        check_ability(query, data, target)
        named = method != "auto" and METHODS.traits(method).cones.isdisjoint({"symmetric"})
        order, signs = to_rank(query.rank)
    positive = bool(query.psd) or (signs is None if order is not None else named)
    query = checked(query, data, target=target, positive=positive, low_rank=query.rank is not None)
    columns = frame_for(query, data)
    if columns is not None:
        data, query = framed(data, columns), in_frame(query, columns)
    shape = shape_of(
        data, psd=positive, rank=order, target=target, given=given, start=query.start,
        tf32=bool(options.get("allow_tf32")),
    )  # fmt: skip
    preferences, reasons = decide(query, data, shape, watch)
    shape = changed(shape, prefer=preferences[0].name, damped=preferences[0].ridge > 0.0)
    if method != "auto":
        check_preference(shape, query)
    plan = make_plan(shape, method, rates)
    scaling = () if columns is None else (described(columns),)
    plan = changed(plan, reasons=(*reasons, *scaling, *plan.reasons))
    if options:
        check_options(plan.methods, options, method)
    return Decision(
        query, user, data, columns, preferences, shape, plan, options, order, signs, positive,
        int(query.allow_violations),
    )  # fmt: skip


def planned(query: Query, rates: Rates) -> Plan:
    """Return the plan that `quadsense.solve` follows for this query about measurements.

    Parameters
    ----------
    query : Query
    rates : Rates
        Of this machine.
    """
    data = query.data
    assert isinstance(data, Measurements)
    with np.errstate(under="ignore"), one_blas_thread():
        with limited_memory(to_bytes(query.memory_limit)):
            data = data.settled()
        return decided(query, data, Watch(), rates=rates).plan
