"""`Query`: what is asked of a solve.

Each parameter of `solve` is declared here, once: its type, its default, its check and one line of
help. The checks of arguments, the options of the command, the checkpoint's fingerprint, the request
that a result keeps, and `to_cvxpy` follow from these declarations.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import scipy

from quadsense.arrays import is_numpy
from quadsense.core.noise import CONFIDENCE, delta_from_sigma
from quadsense.core.records import record
from quadsense.measurements import Measurements
from quadsense.methods import METHODS
from quadsense.preferences import PREFERENCES, SLACKS
from quadsense.run.loop import Limits
from quadsense.system.watch import Watch
from quadsense.typing import MissingName, ScheduleName, StartName, check_flag, is_number, is_whole

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from quadsense.core.matrix import SensedMatrix
    from quadsense.result.result import Result
    from quadsense.run.journal import Journal
    from quadsense.run.loop import Intermediate
    from quadsense.typing import (
        MatrixLike,
        MethodName,
        PreferName,
        Real,
        RealOrVector,
        Seed,
        SlackName,
        VectorLike,
        Whole,
    )

STARTS: tuple[StartName, ...] = get_args(StartName)
SCHEDULES: tuple[ScheduleName, ...] = get_args(ScheduleName)

REFERENCE = "NAME|FILE"
"""In the command: an array of the data file by its name, or another file, or FILE::NAME."""

Part = Literal["data", "answer", "limits", "run"]
"""What a parameter is about: the measurements; which A is returned, and by which steps; limits that
do not change the steps; what goes on while they are taken."""

Check = Callable[[Any, Any], None]
"""Raises a ValueError for a value that no such measurements admit; these are None where nothing is
measured."""


@dataclass(frozen=True)
class Parameter:
    """The declaration of a parameter.

    Attributes
    ----------
    part : {"data", "answer", "limits", "run"}
    help : str
        One line for the command.
    check : callable or None
        Called with a value other than the default, and the measurements.
    kind : type, tuple of str or None
        How the command reads the value: a number, a truth value, a text, or one of these words.
    metavar : str or None
        What the command's help calls the value.
    flag : str
        The option of the command; empty where it follows from the name.
    """

    part: Part
    help: str
    check: Check | None = None
    kind: Any = str
    metavar: str | None = None
    flag: str = ""


def about(part: Part, help: str, check: Check | None = None, **more: Any) -> dict[str, Parameter]:
    """Return a declaration as a field's metadata."""
    return {"parameter": Parameter(part, help, check, **more)}


# --- checks ------------------------------------------------------------------------------------


def _check_psd(psd: Any, data: Any) -> None:
    if not (psd is None or isinstance(psd, bool | np.bool)):
        raise ValueError(f"psd must be True, False or None, got {psd!r}")


def check_rank(rank: Any, n: int) -> None:
    """Refuse what is neither None, "auto", a whole number between 1 and n, nor two of them."""
    word = isinstance(rank, str) and rank == "auto"
    pair = (
        isinstance(rank, tuple | list)
        and len(rank) == 2
        and all(is_whole(count) and count >= 0 for count in rank)
        and 1 <= sum(rank) <= n
    )
    if not (rank is None or word or pair or (is_whole(rank) and 1 <= rank <= n)):
        raise ValueError(
            f"rank must be 'auto', a pair (p, q) or a whole number between 1 and n = {n}, "
            f"got {rank!r}"
        )


def _check_rank(rank: Any, data: Any) -> None:
    check_rank(rank, data.n)


def _check_prefer(prefer: Any, data: Any) -> None:
    if not (isinstance(prefer, str) and prefer in (*PREFERENCES, "auto")):
        raise ValueError(f"prefer must be one of auto, {', '.join(PREFERENCES)}, got {prefer!r}")


def _check_ridge(ridge: Any, data: Any) -> None:
    automatic = isinstance(ridge, str) and ridge == "auto"
    if not (automatic or (is_number(ridge) and 0.0 <= ridge < np.inf)):
        raise ValueError(f"ridge must be 'auto' or a number that is not negative, got {ridge!r}")


def _check_slack(slack: Any, data: Any) -> None:
    if not (slack is None or (isinstance(slack, str) and slack in SLACKS)):
        raise ValueError(f"slack must be one of {', '.join(SLACKS)} or None, got {slack!r}")


def _check_violations(allowed: Any, data: Any) -> None:
    most = data.measured - 1
    if not (is_whole(allowed) and 0 <= allowed <= most):
        raise ValueError(
            f"allow_violations must be a whole number from 0 to m - 1 = {most}, got {allowed!r}"
        )


def check_method(method: Any, data: Any = None) -> None:
    """Refuse a method that does not exist."""
    if not isinstance(method, str):
        raise ValueError(f"method must be one of auto, {', '.join(METHODS)}, got {method!r}")
    if method != "auto" and method not in METHODS:
        close = nearest_name(method, [*METHODS, "auto"])
        raise ValueError(
            f"unknown method {method!r}: the methods are auto, {', '.join(METHODS)}"
            + (f" (did you mean {close!r}?)" if close else "")
        )


SYNONYMS = {
    **dict.fromkeys(("tol", "eps", "atol", "tolerance", "epsilon", "abs_tol", "error"), "delta"),
    **dict.fromkeys(("noise", "std", "stddev", "scale"), "sigma"),
    **dict.fromkeys(("maxiter", "n_iter", "iterations"), "max_iter"),
    **dict.fromkeys(("counts", "n_shots", "N"), "shots"),
    **dict.fromkeys(("outliers", "n_outliers"), "allow_violations"),
    **dict.fromkeys(("seed", "random_state"), "rng"),
    **dict.fromkeys(("solver", "algorithm"), "method"),
    **dict.fromkeys(("x0", "init", "initial"), "start"),
    **dict.fromkeys(("nan_policy", "dropna"), "missing"),
}
"""Names that other packages have for parameters of `solve`."""


def nearest_name(name: str, known: list[str]) -> str | None:
    """Return the known name that a misspelled or a foreign one may stand for."""
    import difflib

    if SYNONYMS.get(name) in known:
        return SYNONYMS[name]
    close = difflib.get_close_matches(name, known, n=1)
    return close[0] if close else None


def _check_max_iter(max_iter: Any, data: Any) -> None:
    if not (max_iter is None or (is_whole(max_iter) and max_iter >= 0)):
        raise ValueError(f"max_iter must be a whole number, not negative, got {max_iter!r}")


def _check_time_limit(time_limit: Any, data: Any) -> None:
    if not (time_limit is None or (is_number(time_limit) and time_limit >= 0)):
        raise ValueError(f"time_limit must be a number of seconds, got {time_limit!r}")


def check_every(every: Any, data: Any = None) -> None:
    """Refuse what is no number of seconds."""
    if not (is_number(every) and every >= 0):
        raise ValueError(f"checkpoint_every must be a number of seconds, got {every!r}")


def _check_callback(callback: Any, data: Any) -> None:
    if not (callback is None or callable(callback)):
        raise ValueError(f"callback must be callable, got {callback!r}")


def _check_progress(progress: Any, data: Any) -> None:
    check_flag("progress", progress)


# --- the declarations --------------------------------------------------------------------------


@record(frozen=True, eq=False)
class Query:
    """What is asked of a solve: its arguments, as given.

    `quadsense.solve` documents them; its signature is compared with these declarations by a test.
    """

    data: MatrixLike | Measurements | None
    b: VectorLike | None = field(
        default=None, metadata=about("data", "Which array, or other file, is b.", metavar=REFERENCE)
    )
    delta: RealOrVector | None = field(
        default=None, metadata=about("data", "Largest accepted error of a reading.", kind=float)
    )
    rtol: Real = field(
        default=0.0, metadata=about("data", "Added tolerance, times |b_i|.", kind=float)
    )
    bounds: tuple[RealOrVector, RealOrVector] | None = field(
        default=None, metadata=about("data", "Intervals: numbers, or NAME|FILE.", metavar="LO HI")
    )
    sigma: Real | None = field(
        default=None,
        metadata=about("data", "Gaussian noise: delta covers all readings at once.", kind=float),
    )
    shots: RealOrVector | None = field(
        default=None,
        metadata=about(
            "data", "b is counts out of N shots: intervals of k/N.", metavar=f"N|{REFERENCE}"
        ),
    )
    exposure: RealOrVector | None = field(
        default=None,
        metadata=about(
            "answer", "likelihood: b is Poisson counts, of v times this.", metavar=f"T|{REFERENCE}"
        ),
    )
    background: RealOrVector | None = field(
        default=None,
        metadata=about(
            "answer", "likelihood: counts expected without A.", metavar=f"K|{REFERENCE}"
        ),
    )
    confidence: Real = field(
        default=CONFIDENCE,
        metadata=about("data", "--sigma, --shots: that all hold at once.", kind=float),
    )
    missing: MissingName = field(
        default="raise",
        metadata=about(
            "data", "What to do about readings that are NaN.", kind=get_args(MissingName)
        ),
    )
    weights: RealOrVector | None = field(
        default=None,
        metadata=about("data", "How much readings count in fits.", metavar=f"W|{REFERENCE}"),
    )
    mix: MatrixLike | None = field(
        default=None, metadata=about("data", "Readings are sums over rows.")
    )
    conjugate: bool = field(
        default=False, metadata=about("data", "Rows are given as u_i*.", kind=bool)
    )
    psd: bool | None = field(
        default=None,
        metadata=about(
            "answer", "Among positive semidefinite matrices only.", _check_psd, kind=bool
        ),
    )
    rank: Whole | tuple[Whole, Whole] | Literal["auto"] | None = field(
        default=None,
        metadata=about(
            "answer",
            "Among those of at most this rank; P,Q: signs; 'auto' lets it grow.",
            _check_rank,
        ),
    )
    trace: Real | tuple[Real, Real] | None = field(
        default=None,
        metadata=about("answer", "What the trace of A must be, or between.", metavar="T|LO,HI"),
    )
    constraints: Sequence[tuple[MatrixLike | SensedMatrix | tuple[Any, Any], Real, Real]] = field(
        default=(),
        metadata=about(
            "answer",
            "LO <= <C, A> <= HI, with C as NAME|FILE; may be given several times.",
            metavar="C LO HI",
            flag="--constraint",
        ),
    )
    prefer: PreferName = field(
        default="auto",
        metadata=about(
            "answer", "Which A of all that fit.", _check_prefer, kind=("auto", *PREFERENCES)
        ),
    )
    prior: Real | MatrixLike | SensedMatrix | Result | None = field(
        default=None,
        metadata=about(
            "answer",
            "What A is pulled towards, or nearest to; a number is times I.",
            metavar=f"T|{REFERENCE}",
        ),
    )
    ridge: Real | Literal["auto"] = field(
        default="auto",
        metadata=about(
            "answer",
            "least_squares: add R times ||A - prior||_F^2; 'auto': a weak pull.",
            _check_ridge,
            metavar="R",
        ),
    )
    slack: SlackName | None = field(
        default=None,
        metadata=about(
            "answer", "Minimise misses instead of meeting all.", _check_slack, kind=SLACKS
        ),
    )
    allow_violations: Whole = field(
        default=0,
        metadata=about(
            "answer", "Set at most K measurements aside.", _check_violations, kind=int, metavar="K"
        ),
    )
    method: MethodName = field(default="auto", metadata=about("answer", "", check_method))
    schedule: ScheduleName = field(
        default="continuation", metadata=about("answer", "Of steps.", kind=SCHEDULES)
    )
    start: StartName | MatrixLike | SensedMatrix | Result | None = field(
        default=None,
        metadata=about(
            "answer",
            "Multiple of I to start from, a matrix, or a result.",
            metavar=f"{'|'.join(STARTS)}|{REFERENCE}",
        ),
    )
    rng: Seed | None = field(
        default=None, metadata=about("answer", "Of all randomness.", kind=int, flag="--seed")
    )
    max_iter: Whole | None = field(
        default=None, metadata=about("answer", "Most iterations.", _check_max_iter, kind=int)
    )
    time_limit: Real | None = field(
        default=None,
        metadata=about(
            "limits", "Most seconds, from the beginning.", _check_time_limit, kind=float
        ),
    )
    memory_limit: Real | str | None = field(
        default=None,
        metadata=about(
            "limits",
            "Most memory, as '1 GiB': a larger U is read from its file as it is used.",
            metavar="BYTES",
        ),
    )
    callback: Callable[[Intermediate], Any] | None = field(
        default=None, metadata=about("run", "Called after every stride.", _check_callback)
    )
    progress: bool = field(
        default=False, metadata=about("run", "Show a bar.", _check_progress, kind=bool)
    )
    checkpoint: str | os.PathLike[str] | None = field(
        default=None,
        metadata=about(
            "run", "Write down there where the run is, and go on from there.", metavar="DIR"
        ),
    )
    checkpoint_every: Real = field(
        default=60.0,
        metadata=about(
            "run", "Seconds between two writings, at least.", check_every, kind=float, metavar="S"
        ),
    )
    options: Mapping[str, Any] = field(default_factory=dict)

    def check(self, data: Measurements | None) -> None:
        """Raise a ValueError for the first value that its own check refuses.

        Without data those are left out that go by its size.
        """
        given = vars(self)
        for name, default, check in CHECKED:
            value = given[name]
            if value is default or (type(value) is float and value == default):
                continue
            if data is not None or name not in BY_SIZE:
                check(value, data)

    def measurements(self) -> Measurements:
        """Measurements, with a tolerance if one was given, from whatever form they came in."""
        data: Any = self.data
        if not isinstance(data, Measurements):
            return Measurements(
                data, self.b, delta=self.delta, rtol=self.rtol, bounds=self.bounds,
                weights=self.weights, conjugate=self.conjugate, mix=self.mix, sigma=self.sigma,
                shots=self.shots, confidence=self.confidence, missing=self.missing,
            )  # fmt: skip
        check_flag("conjugate", self.conjugate)
        names = ("b", "bounds", "weights", "shots", "mix")
        found = [name for name in names if getattr(self, name) is not None]
        found += ["conjugate"] * bool(self.conjugate) + ["missing"] * (self.missing != "raise")
        if found:
            raise ValueError(
                "b, bounds, weights, shots, missing, conjugate and mix belong to Measurements: "
                f"give {' and '.join(found)} when making it"
            )
        delta = self.delta
        if self.sigma is not None:
            if delta is not None:
                raise ValueError("delta and sigma do not go together: give one of them")
            delta = delta_from_sigma(self.sigma, data.measured, self.confidence)
        if delta is None and self.rtol == 0.0:
            return data
        return data.with_tolerance(delta, self.rtol)

    def limits(self, watch: Watch, journal: Journal | None = None) -> Limits:
        """Limits of a run; the time limit is the watch's from now on."""
        most: Any = self.max_iter
        seconds: Any = self.time_limit
        watch.time_limit = seconds
        return Limits(most, self.callback, self.progress, watch, journal)

    def answers(self) -> dict[str, Any]:
        """Return what decides, in addition to the data, which A is returned, by name."""
        given = vars(self)
        return {**{name: given[name] for name in ANSWER}, **self.options}

    def identity(self, data: Measurements) -> dict[str, Any]:
        """Return all that decides which A is returned, U excepted, by name."""
        return given_in(data) | self.answers()

    def recorded(self, data: Measurements) -> dict[str, Any]:
        """Return what was asked, as far as it is not the default: what a result keeps.

        Parameters
        ----------
        data : Measurements
            With their tolerance as it was given, wherever that was.

        Returns
        -------
        dict
            Numbers, texts and lists of numbers by name of the argument; under "arrays" the names of
            those that are more than that, "b" among them where there are readings.
        """
        given = vars(self)
        found: dict[str, Any] = {}
        arrays = []
        own = given_in(data)
        values = {**given, **self.options, **own}
        told = [name for name in ANSWER if given[name] is not DEFAULTS[name]]
        for name in (*own, *told, *self.options, *LIMITS):
            value, default = values[name], DEFAULTS.get(name)
            if value is default or value is None or value is False:
                continue
            small = value if type(value) in (float, str) else _plain(value)
            if small is None:
                arrays.append(name)
            elif not (small is False or small == default or (small == [] and default == ())):
                found[name] = small
        found["arrays"] = arrays
        return found


PARAMETERS: dict[str, Parameter] = {
    each.name: each.metadata["parameter"] for each in fields(Query) if each.metadata
}
"""The declarations by name."""

DEFAULTS: dict[str, Any] = {each.name: each.default for each in fields(Query) if each.metadata}
"""The defaults by name."""

CHECKED = [(name, DEFAULTS[name], each.check) for name, each in PARAMETERS.items() if each.check]
"""Names, defaults and checks of the parameters that have one."""

BY_SIZE = ("rank", "allow_violations")
"""Names of those whose check goes by the size of the data."""

ANSWER = [name for name, each in PARAMETERS.items() if each.part == "answer"]
"""Names of those that decide which A is returned."""

LIMITS = [name for name, each in PARAMETERS.items() if each.part == "limits"]
"""Names of the limits that do not."""


def given_in(data: Measurements) -> dict[str, Any]:
    """Return the arguments that measurements were made with, U excepted, as they were given."""
    plain = data.plain
    given: dict[str, Any] = {"b": plain.readings}
    if plain.from_bounds:
        given["bounds"] = (plain.lo, plain.hi)
    else:
        given["delta"], given["rtol"] = plain._delta, plain._rtol
    return given | {"weights": plain.weights, "mix": plain.mix, "conjugate": plain.conjugate}


def flag_of(name: str) -> str:
    """Return the option of the command for an argument of `solve`, or for an option of a method."""
    declared = PARAMETERS.get(name)
    return (declared.flag if declared else "") or f"--{name.replace('_', '-')}"


def _plain(value: Any) -> Any:
    """A number, a text or a few numbers as a file and JSON can hold them; None for more."""
    if is_numpy(value) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list) and len(value) <= 2:
        parts = [_plain(part) for part in value]
        return parts if all(isinstance(part, int | float) for part in parts) else None
    return None


def asks_rank(result: Result) -> bool:
    """Return whether a rank was asked for, of which certified ranges take no account.

    With "auto" the certificate names none: only the request tells.
    """
    claim = result.certificate
    known = result.plan.get("request", {}).get("rank") is not None
    return known or claim.rank is not None or bool(claim.signs)


@lru_cache(maxsize=1)
def _versions() -> dict[str, str]:
    return {
        "quadsense": str(import_module("quadsense").__version__),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "system": f"{platform.system()} {platform.machine()}".strip(),
    }


def environment() -> dict[str, str]:
    """Versions and kind of machine; nothing that names it or whose it is."""
    return dict(_versions())
