"""What the user asked for, checked before any work is done."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from quadsense.arrays import Array, Vector, like, placed, to_numpy
from quadsense.core.matrix import FactorForm, MeasuredForm, SensedMatrix
from quadsense.core.noise import delta_from_sigma
from quadsense.core.records import record
from quadsense.measurements import Measurements
from quadsense.measurements.column_scaling import Columns
from quadsense.measurements.oracle import checked_square
from quadsense.measurements.readings import HARMLESS, UnitReadings
from quadsense.measurements.sensing import Sensing
from quadsense.methods import COLD, METHODS, Options, Traits, Warm
from quadsense.query.query import STARTS, Query, nearest_name
from quadsense.result.result import Result
from quadsense.result.values import on_rows_of
from quadsense.run.loop import Limits
from quadsense.system.watch import Watch
from quadsense.typing import check_flag, to_generator

if TYPE_CHECKING:
    from quadsense.run.journal import Journal


def refuse_unknown(call: str, named: Iterable[str], options: Mapping[str, object]) -> None:
    """Raise TypeError, as Python does, for a keyword that nothing knows.

    Parameters
    ----------
    call : str
        The name of the function.
    named : iterable of str
        Its parameters.
    options : dict
        Its other keywords.
    """
    known = option_names() if options else []
    for name in options:
        if name not in known:
            close = nearest_name(name, [*named, *known])
            advice = f"did you mean {close!r}?" if close else f"see help(quadsense.{call})"
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}: {advice}")


def option_names() -> list[str]:
    """Every option that some method knows, but the schedule, which is a parameter of its own."""
    names = (key for name in METHODS for key in METHODS.traits(name).options.names())
    return [key for key in dict.fromkeys(names) if key != "schedule"]


def to_measurements(query: Query) -> Measurements:
    """Measurements, with a tolerance if one was given, from whatever form they came in."""
    data: Any = query.data
    if not isinstance(data, Measurements):
        return Measurements(
            data, query.b, delta=query.delta, rtol=query.rtol, bounds=query.bounds,
            weights=query.weights, conjugate=query.conjugate, mix=query.mix, sigma=query.sigma,
            shots=query.shots, confidence=query.confidence, missing=query.missing,
        )  # fmt: skip
    check_flag("conjugate", query.conjugate)
    names = ("b", "bounds", "weights", "shots", "mix")
    found = [name for name in names if getattr(query, name) is not None]
    found += ["conjugate"] * bool(query.conjugate) + ["missing"] * (query.missing != "raise")
    if found:
        raise ValueError(
            "b, bounds, weights, shots, missing, conjugate and mix belong to Measurements: give "
            f"{' and '.join(found)} when making it"
        )
    delta = query.delta
    if query.sigma is not None:
        if delta is not None:
            raise ValueError("delta and sigma do not go together: give one of them")
        delta = delta_from_sigma(query.sigma, data.measured, query.confidence)
    if delta is None and query.rtol == 0.0:
        return data
    return data.with_tolerance(delta, query.rtol)


def check_ability(query: Query, data: Measurements, target: bool) -> None:
    """Refuse a method that cannot honour what is asked, and say which can."""
    rank: Any = query.rank
    method, psd = query.method, query.psd
    pair = isinstance(rank, tuple | list)
    if pair and psd:
        raise ValueError(
            f"rank={tuple(rank)} asks for signs, psd=True for none that is minus: give one of them"
        )
    if rank is not None and not pair and psd is not None and not psd:
        raise ValueError("rank implies psd=True: a matrix of low rank is sought as X X*")
    if query.allow_violations and not target:
        raise ValueError("allow_violations needs delta or bounds: without, nothing is violated")
    if method == "auto":
        return
    kind = METHODS.traits(method)
    if rank is None and kind.cones == {"rank"}:
        raise ValueError(f"method {method!r} needs rank: a whole number, or 'auto' to let it grow")
    demands: list[tuple[bool, Callable[[type[Traits]], bool], str]] = [
        (rank is not None, lambda its: "rank" in its.cones, "keep the rank of A low"),
        (
            bool(psd) and rank is None,
            lambda its: "psd" in its.cones,
            "keep A positive semidefinite",
        ),
        (data.sides is not None, lambda its: its.one_sided, "take one-sided bounds"),
        (data.mix is not None, lambda its: its.mixes, "take sums over rows (mix)"),
        (bool(data.constraints), lambda its: its.constraints, "take constraints"),
        (data.has_hard, lambda its: its.constraints, "take equalities"),
        (not target, lambda its: its.without_tolerance, "run without a delta"),
    ]
    for asked, is_able, words in demands:
        if asked and not is_able(kind):
            able = [name for name in METHODS if is_able(METHODS.traits(name))]
            names = " and ".join(repr(name) for name in able)
            which = "one of them" if len(able) > 1 else "that"
            raise ValueError(
                f"method {method!r} cannot {words}; {names} can: give method='auto' or {which}"
            )


def to_rank(rank: Any) -> tuple[int | None, tuple[int, int] | None]:
    """Return what a checked rank asks for: ``(p, 0)`` is the same as p.

    Returns
    -------
    order : int or None
        Most columns of a factor; 0 where it may grow, None where no rank was asked for.
    signs : (int, int) or None
        Most positive and most negative eigenvalues, where some may be negative.
    """
    if rank is None or isinstance(rank, str):
        return (None if rank is None else 0), None
    if isinstance(rank, tuple | list):
        plus, minus = (int(count) for count in rank)
        return plus + minus, (plus, minus) if minus else None
    return int(rank), None


RENAMED_METHODS = {"fista": "least_squares", "factored": "low_rank"}
"""Former names of methods, and what they are called now."""


def current_method(method: Any) -> Any:
    """Return the present name of a method, with a FutureWarning where it was given a former one."""
    if not (isinstance(method, str) and method in RENAMED_METHODS):
        return method
    new = RENAMED_METHODS[method]
    warnings.warn(
        f"method={method!r} is now called {new!r}: write method={new!r}",
        FutureWarning,
        stacklevel=4,
    )
    return new


def given_options(query: Query, m: int) -> dict[str, Any]:
    """The options that were given, the schedule among them where it is not the default.

    Every value is checked by the methods that take it, whether or not one of them will run.
    """
    schedule = query.schedule
    given = {**query.options}
    if not (isinstance(schedule, str) and schedule == "continuation"):
        given["schedule"] = schedule
    for name in METHODS if given else ():
        known = METHODS.traits(name).options
        if not given.keys().isdisjoint(known.names()):
            options_of(name, given).check(m)
    return given


@cache
def _usual_options(kind: Any) -> Any:
    """Return the options of a method where none is given."""
    return kind()


def options_of(name: str, given: Mapping[str, Any]) -> Options:
    """What of the options given a method knows, as its own."""
    known: Any = METHODS.traits(name).options
    if not given:
        return _usual_options(known)
    return known(**{key: value for key, value in given.items() if key in known.names()})


def check_options(methods: tuple[str, ...], given: Mapping[str, Any], method: str) -> None:
    """Raise a ValueError for an option that all of the chosen methods would ignore.

    With method "auto" `gap` is always accepted: whether anything is left to optimize depends on
    the rows, and where nothing is, it has no effect.
    """
    if not given:
        return
    known = {key for name in methods for key in METHODS.traits(name).options.names()}
    if method == "auto":
        known.add("gap")
    for key in sorted(given.keys() - known):
        takers = [name for name in METHODS if key in METHODS.traits(name).options.names()]
        verb = "do" if len(takers) > 1 else "does"
        raise ValueError(
            f"method {methods[0]!r} takes no {key!r}; {' and '.join(takers)} {verb}: "
            f"give method={takers[-1]!r}"
        )


def error_units(data: Measurements) -> tuple[float, Array]:
    """A unit of error where no tolerance is given, and what it is for each of the unit rows.

    A power of two of the size of the readings, so that their size does not matter. Rows of tiny
    norm read far less than that: for them a smaller one, still far too large, serves.
    """
    largest = float(np.max(np.abs(to_numpy(data.b))))
    unit = math.ldexp(1.0, math.frexp(largest)[1]) if largest > 0.0 else 1.0
    b, delta = to_numpy(data.scaled().b), to_numpy(data.scaled().delta)
    with np.errstate(over="ignore"):
        units = unit * delta
    units = np.minimum(units, HARMLESS * max(float(np.max(np.abs(b))), float(units.min())))
    return unit, like(units, data.scaled().b)


def to_limits(query: Query, watch: Watch, journal: Journal | None = None) -> Limits:
    """Limits of a run; the time limit is the watch's from now on."""
    most: Any = query.max_iter
    seconds: Any = query.time_limit
    watch.time_limit = seconds
    return Limits(most, query.callback, query.progress, watch, journal)


@lru_cache(maxsize=16)
def _draw(methods: tuple[str, ...]) -> bool:
    """Whether one of these methods draws random numbers."""
    return any(METHODS.traits(name).random for name in methods)


def to_seed(rng: Any, methods: tuple[str, ...]) -> int:
    """A whole number for these methods from a seed, a generator, which moves on, or None."""
    draws = _draw(methods)
    if rng is None:  # NumPy's own way takes ten times as long
        return int.from_bytes(os.urandom(7), "little") if draws else 0
    generator = to_generator("rng", rng)
    return int(generator.integers(2**63)) if draws else 0


@record(frozen=True)
class Start:
    """``A_1 = tau I + base - F*(c)``, and what is known of it where it was given."""

    tau: float
    base: Array | None = None
    c: Array | None = None
    warm: Warm = COLD


def to_start(
    query: Query, data: Measurements, scaled: UnitReadings, columns: Columns | None = None
) -> Start:
    """Return A_1 from a word, a matrix or an earlier result.

    With a rank, where methods carry a factor, a start that is held as a factor stays one.
    `columns` are the exponents by which the columns of the data are scaled: the start is of the
    unscaled ones.
    """
    start: Any = query.start
    if start is None:
        start = "tau" if query.schedule == "paper" else "mean"
    if isinstance(start, str):
        if start not in STARTS:
            raise ValueError(
                f"start must be one of {', '.join(STARTS)}, a matrix or an earlier result, "
                f"got {start!r}"
            )
        return Start(start_value(start, scaled.b, scaled.telling, data.unit_rows))
    matrix = start.matrix if isinstance(start, Result) else start
    if sp.issparse(matrix):
        matrix = matrix.toarray()
    if not isinstance(matrix, SensedMatrix):
        matrix = SensedMatrix.from_dense(checked_square("start", matrix))
    if matrix.shape[0] != data.n:
        raise ValueError(f"start is of order {matrix.shape[0]}, but U has n = {data.n} columns")
    dual = _dual_of(start, data) if isinstance(start, Result) else None
    if columns is not None:
        matrix = matrix.stretched(-columns)
    form = on_rows_of(matrix, data).form
    if isinstance(form, MeasuredForm) and form.rows is data.unit_rows:
        return Start(form.tau, form.base, form.c, Warm(matrix, dual=dual))
    if query.rank is not None and isinstance(form, FactorForm):
        return _factored_start(form, data, scaled)
    values, factor = np.asarray(matrix), None if matrix.signs is not None else matrix.factor
    if np.iscomplexobj(values) and not data.unit_rows.is_complex:
        # Real rows see the real part alone.
        values, factor = np.ascontiguousarray(values.real), None
    dense = data.unit_rows._cast(placed(values, scaled.b))
    return Start(0.0, dense, warm=Warm(SensedMatrix.from_dense(dense), factor, dual))


def _dual_of(start: Result, data: Measurements) -> Vector | None:
    """Return the dual vector of an earlier result for these unit rows; None if it has none.

    Rows are taken to be in the same order, and further ones to come last: their entries are 0. Any
    vector gives a true bound, so that a wrong guess costs steps only.
    """
    claim = start.certificate.objective
    if claim is None or claim.dual is None:
        return None
    y, before = np.zeros(data.m), int(to_numpy(start.residuals).size)
    common, tied = min(before, data.measured), len(data.constraints)
    y[:common] = claim.dual[:common]
    if tied and tied == len(claim.dual) - before:
        y[data.measured :] = claim.dual[before:]
    norms = to_numpy(data.unit_rows.norms)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        y = np.where(norms > 0.0, y * norms * norms, y)
    return y if np.isfinite(y).all() else None


def _factored_start(form: FactorForm, data: Measurements, scaled: UnitReadings) -> Start:
    """Return ``X S X*`` to start from, without its (n, n) array."""
    rows, X, signs = data.unit_rows, to_numpy(form.factor), form.signs
    if np.iscomplexobj(X) and not rows.is_complex:  # real rows see the real part alone
        X = np.concatenate([np.real(X), np.imag(X)], axis=1)
        signs = None if signs is None else np.concatenate([signs, signs])
    X = rows._cast(placed(X, scaled.b))
    return Start(0.0, warm=Warm(SensedMatrix.from_factor(X, signs), X if signs is None else None))


def start_value(start: str, b: Array, telling: Array, rows: Sensing | None = None) -> float:
    """The tau of ``A_1 = tau I``, from the readings of the unit rows that say something."""
    known, readings = to_numpy(telling) > 0, to_numpy(b)
    if not np.logical_and.reduce(known):
        readings = readings[known]
    if start == "zero" or not readings.size:
        return 0.0
    if start == "mean" and not (rows is None or rows.rank_one):  # sums read other than 1 of I
        identity = to_numpy(rows.squares)[known]
        square = float(identity @ identity)
        return float(identity @ readings) / square if square > 1e-12 * identity.size else 0.0
    return float(np.add.reduce(readings) / readings.size if start == "mean" else readings.max())
