"""What the user asked for, checked before any work is done."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from quadsense.measurements import Measurements
from quadsense.methods import METHODS, Traits
from quadsense.query.query import Query, nearest_name

if TYPE_CHECKING:
    pass


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
            METHODS.options(name, given).check(m)
    return given


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
