"""What the user asked for, checked before any work is done."""

from __future__ import annotations

import difflib
import math
from typing import Any

import numpy as np

from quadsense.arrays import Array, to_numpy
from quadsense.loop import Limits
from quadsense.measurements import Measurements
from quadsense.measurements.validate import is_number, is_whole
from quadsense.methods import METHODS, Method, Options
from quadsense.methods.base import option_names

STARTS = ("mean", "tau", "zero")
SCHEDULES = ("continuation", "paper")


def to_measurements(
    data: Any, b: Any, delta: Any, rtol: float, bounds: Any, conjugate: bool
) -> Measurements:
    """Measurements with a tolerance, from whatever form they came in."""
    if isinstance(data, Measurements):
        if b is not None or bounds is not None or conjugate:
            raise ValueError(
                "b, bounds and conjugate belong to Measurements: give them when making it"
            )
        measured = data
        if delta is not None or rtol != 0.0:
            measured = data.with_tolerance(delta, rtol)
    else:
        measured = Measurements(data, b, delta=delta, rtol=rtol, bounds=bounds, conjugate=conjugate)
    if measured.tolerance is None:
        spread = float(np.std(to_numpy(measured.b)))
        raise ValueError(
            "delta is missing: give the largest error that you accept in a reading, for example "
            f"1% of the readings' spread, delta={0.01 * spread:.2g}; for Gaussian noise of known "
            f"sigma use delta=quadsense.delta_from_sigma(sigma, m={measured.m})"
        )
    return measured


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
    failure = options.get("failure", 0.1)
    if not (is_number(failure) and 0 < failure < 1):
        raise ValueError(f"failure must lie strictly between 0 and 1, got {failure!r}")
    return Options(schedule=schedule, **options)


def check_options(solver: Method, options: dict[str, Any], schedule: str) -> None:
    """Refuse options that the chosen method would ignore."""
    asked = set(options) | ({"schedule"} if schedule != "continuation" else set())
    for name in sorted(asked - solver.options):
        takers = [key for key, kind in METHODS.items() if name in kind.options]
        raise ValueError(
            f"method {solver.name!r} takes no {name!r}; {' and '.join(takers)} do: "
            f"give method={takers[-1]!r}"
        )


def to_limits(max_iter: Any, time_limit: Any, callback: Any, progress: bool) -> Limits:
    """Limits of a run."""
    if max_iter is not None and not (is_whole(max_iter) and max_iter >= 0):
        raise ValueError(f"max_iter must be a whole number, not negative, got {max_iter!r}")
    if time_limit is not None and not (is_number(time_limit) and time_limit >= 0):
        raise ValueError(f"time_limit must be a number of seconds, got {time_limit!r}")
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be callable, got {callback!r}")
    return Limits(max_iter, time_limit, callback, progress)


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


def start_value(start: str, b: Array, nonzero: Array) -> float:
    """The tau of ``A_1 = tau I``, from the readings of the unit rows."""
    readings = to_numpy(b)[to_numpy(nonzero) > 0]
    if start == "zero" or not readings.size:
        return 0.0
    return float(readings.mean() if start == "mean" else readings.max())
