"""What the user asked for, checked before any work is done."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from quadsense.arrays import Array, device, to_numpy
from quadsense.certificate import on_rows_of
from quadsense.core.forms import MeasuredForm
from quadsense.core.matrix import SensedMatrix
from quadsense.interrupts import Interrupts
from quadsense.loop import Limits
from quadsense.measurements import Measurements
from quadsense.measurements.validate import is_number, is_whole
from quadsense.methods import METHODS, Options
from quadsense.methods.base import option_names
from quadsense.methods.spectral import checked_square
from quadsense.result import Result

STARTS = ("mean", "tau", "zero")
SCHEDULES = ("continuation", "paper")


def to_measurements(
    data: Any, b: Any, delta: Any, rtol: float, bounds: Any, conjugate: bool
) -> Measurements:
    """Measurements, with a tolerance if one was given, from whatever form they came in."""
    if not isinstance(data, Measurements):
        return Measurements(data, b, delta=delta, rtol=rtol, bounds=bounds, conjugate=conjugate)
    if b is not None or bounds is not None or conjugate:
        raise ValueError("b, bounds and conjugate belong to Measurements: give them when making it")
    return data if delta is None and rtol == 0.0 else data.with_tolerance(delta, rtol)


def check_priors(method: str, data: Measurements, psd: Any, rank: Any, target: bool) -> None:
    """Refuse a method that cannot honour what is asked, and say which can."""
    if psd not in (None, True, False):
        raise ValueError(f"psd must be True, False or None, got {psd!r}")
    if rank is not None and rank != "auto" and not (is_whole(rank) and 1 <= rank <= data.n):
        raise ValueError(
            f"rank must be 'auto' or a whole number between 1 and n = {data.n}, got {rank!r}"
        )
    if rank is not None and psd is False:
        raise ValueError("rank implies psd=True: a matrix of low rank is sought as X X*")
    wishes = [
        (rank is not None, ("factored",), "keep the rank of A low"),
        (bool(psd), ("dual", "factored"), "keep A positive semidefinite"),
        (data.sides is not None, ("minimax", "dual"), "take one-sided bounds"),
        (not target, ("minimax", "dual"), "run without a delta"),
    ]
    for asked, able, words in wishes:
        if asked and method != "auto" and method not in able:
            names = " and ".join(repr(name) for name in able)
            raise ValueError(
                f"method {method!r} cannot {words}; {names} can: give method='auto' or one of them"
            )
    if method == "factored" and rank is None:
        raise ValueError("method 'factored' needs rank: a whole number, or 'auto' to let it grow")
    if rank is not None and (data.sides is not None or not target):
        raise ValueError("rank needs delta or finite bounds")


def to_options(method: str, schedule: str, options: dict[str, Any], m: int) -> Options:
    """`options` as `Options`, each value checked."""
    if method != "auto" and method not in METHODS:
        raise ValueError(
            f"unknown method {method!r}: the methods are auto, {', '.join(METHODS)}"
            + _nearest(method, [*METHODS, "auto"])
        )
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}, got {schedule!r}")
    known = [name for name in option_names() if name != "schedule"]
    for name in options:
        if name not in known:
            raise ValueError(
                f"unknown option {name!r}: the options are {', '.join(known)}"
                + _nearest(name, known)
            )
    for name in ("lam", "step", "c"):
        value = options.get(name)
        if value is not None and not (is_number(value) and math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a positive number, got {value!r}")
    if options.get("step") is not None and options.get("c") is not None:
        raise ValueError("give step or c = step x lam, not both")
    batch = options.get("batch_size")
    if batch is not None and not (is_whole(batch) and 1 <= batch <= m):
        raise ValueError(f"batch_size must be a whole number between 1 and m = {m}, got {batch!r}")
    if options.get("norm") not in (None, "exact", "bound"):
        raise ValueError(f"norm must be 'exact' or 'bound', got {options['norm']!r}")
    gap = options.get("gap", 0.01)
    if not (is_number(gap) and 0 < gap < 1):
        raise ValueError(f"gap must lie strictly between 0 and 1, got {gap!r}")
    restarts = options.get("max_restarts")
    if restarts is not None and not (is_whole(restarts) and restarts >= 0):
        raise ValueError(f"max_restarts must be a whole number, not negative, got {restarts!r}")
    failure = options.get("failure", 0.1)
    if not (is_number(failure) and 0 < failure < 1):
        raise ValueError(f"failure must lie strictly between 0 and 1, got {failure!r}")
    return Options(schedule=schedule, **options)


def check_options(methods: tuple[str, ...], options: dict[str, Any], schedule: str) -> None:
    """Refuse options that all of the chosen methods would ignore."""
    asked = set(options) | ({"schedule"} if schedule != "continuation" else set())
    known = frozenset().union(*(METHODS[name].options for name in methods))
    for name in sorted(asked - known):
        takers = [key for key, kind in METHODS.items() if name in kind.options]
        verb = "do" if len(takers) > 1 else "does"
        raise ValueError(
            f"method {methods[0]!r} takes no {name!r}; {' and '.join(takers)} {verb}: "
            f"give method={takers[-1]!r}"
        )


def to_allowed(allow_violations: Any, m: int, target: bool) -> int:
    """How many measurements may be set aside."""
    if not (is_whole(allow_violations) and 0 <= allow_violations < m):
        raise ValueError(
            f"allow_violations must be a whole number from 0 to m - 1 = {m - 1}, "
            f"got {allow_violations!r}"
        )
    if allow_violations and not target:
        raise ValueError("allow_violations needs delta or bounds: without, nothing is violated")
    return int(allow_violations)


def to_limits(
    max_iter: Any, time_limit: Any, callback: Any, progress: bool, interrupts: Interrupts
) -> Limits:
    """Limits of a run."""
    if max_iter is not None and not (is_whole(max_iter) and max_iter >= 0):
        raise ValueError(f"max_iter must be a whole number, not negative, got {max_iter!r}")
    if time_limit is not None and not (is_number(time_limit) and time_limit >= 0):
        raise ValueError(f"time_limit must be a number of seconds, got {time_limit!r}")
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be callable, got {callback!r}")
    return Limits(max_iter, time_limit, callback, progress, interrupts)


def to_generator(rng: Any) -> np.random.Generator:
    """Generator from a seed, a generator or None."""
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"rng must be a seed or a numpy.random.Generator, got {rng!r} ({error})"
        ) from None


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


@dataclass(frozen=True)
class Start:
    """``A_1 = tau I + base - F*(c)``, and a factor of it where it has one."""

    tau: float
    base: Array | None = None
    c: Array | None = None
    factor: Array | None = None


def to_start(start: Any, schedule: str, data: Measurements, b: Array) -> Start:
    """A_1 from a word, a matrix or an earlier result; `b` are the readings of the unit rows."""
    if start is None:
        start = "tau" if schedule == "paper" else "mean"
    if isinstance(start, str):
        if start not in STARTS:
            raise ValueError(
                f"start must be one of {', '.join(STARTS)}, a matrix or an earlier result, "
                f"got {start!r}"
            )
        return Start(start_value(start, b, data.unit_rows.nonzero))
    matrix = start.matrix if isinstance(start, Result) else start
    if sp.issparse(matrix):
        matrix = matrix.toarray()
    if not isinstance(matrix, SensedMatrix):
        matrix = SensedMatrix.from_dense(checked_square("start", matrix))
    if matrix.shape[0] != data.n:
        raise ValueError(f"start is of order {matrix.shape[0]}, but U has n = {data.n} columns")
    form = on_rows_of(matrix, data).form
    if isinstance(form, MeasuredForm) and form.rows is data.unit_rows:
        return Start(form.tau, form.base, form.c)
    values, factor = np.asarray(matrix), matrix.factor
    if np.iscomplexobj(values) and not data.unit_rows.is_complex:
        # Real rows see the real part alone.
        values, factor = np.ascontiguousarray(values.real), None
    dense = data.unit_rows._cast(data.unit_rows.xp.asarray(values, device=device(b)))
    return Start(0.0, dense, factor=factor)


def start_value(start: str, b: Array, nonzero: Array) -> float:
    """The tau of ``A_1 = tau I``, from the readings of the unit rows."""
    readings = to_numpy(b)[to_numpy(nonzero) > 0]
    if start == "zero" or not readings.size:
        return 0.0
    return float(readings.mean() if start == "mean" else readings.max())
