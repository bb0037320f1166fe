"""Which A is meant: `prefer`, `slack`, `prior`, `ridge`, checked, and what "auto" makes of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from quadsense.arrays import available_memory, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.core.question import Question
from quadsense.core.records import changed
from quadsense.measurements import Measurements
from quadsense.measurements.oracle import checked_square
from quadsense.memory import is_limited
from quadsense.methods import METHODS
from quadsense.plan import Plan, Shape, fits, make_plan
from quadsense.preferences import PREFERENCES, SLACKS, Preference, make_question
from quadsense.proofs.definite import cholesky
from quadsense.result import Result
from quadsense.typing import is_number

PATIENCE, GRACE = 5.0, 1.0
"""`auto` picks nothing that is expected to take more than so many times what any fit takes, and so
many seconds."""

UNSEEN = 1e-9
"""Smallest eigenvalue, as a part of the mean one, of a map that sees every direction."""

NO_SUM = (
    "; no row counts in the sum (each has one end only, is an equality or has weight 0), so every "
    "A that fits is as good: give b and weights=, or prefer='nearest'"
)
"""Added to the reason for least squares where its sum is empty."""

WITH_PRIOR = ("auto", "least_squares", "nearest")
WITH_TOLERANCE = ("center", "nearest", "min_trace", "any")


@dataclass(frozen=True)
class Wish:
    """What was asked, checked but not yet decided."""

    prefer: str
    slack: str | None
    ridge: float
    prior: Any  # None, a number, or an (n, n) array


def to_wish(
    prefer: Any, slack: Any, prior: Any, ridge: Any, data: Measurements, *, target: bool,
    positive: bool, low_rank: bool,
) -> Wish:  # fmt: skip
    """What was asked, checked."""
    if not (isinstance(prefer, str) and prefer in (*PREFERENCES, "auto")):
        raise ValueError(f"prefer must be one of auto, {', '.join(PREFERENCES)}, got {prefer!r}")
    if not (slack is None or (isinstance(slack, str) and slack in SLACKS)):
        raise ValueError(f"slack must be one of {', '.join(SLACKS)} or None, got {slack!r}")
    if not (is_number(ridge) and 0.0 <= ridge < np.inf):
        raise ValueError(f"ridge must be a number, not negative, got {ridge!r}")
    if slack is not None:
        _refuse_with_slack(prefer, prior, ridge, target, low_rank)
    if prefer in WITH_TOLERANCE and not target:
        raise ValueError(
            f"prefer={prefer!r} needs a tolerance (delta, rtol or bounds): without one, give "
            "'least_squares' or 'minimax'"
        )
    if prefer == "min_trace" and not positive:
        raise ValueError("prefer='min_trace' needs psd=True: else the trace has no least value")
    if low_rank and prefer not in ("auto", "any", "least_squares"):
        raise ValueError(f"prefer={prefer!r} cannot go with rank: 'any' and 'least_squares' can")
    if ridge > 0.0 and prefer not in ("auto", "least_squares"):
        raise ValueError(f"ridge belongs to prefer='least_squares', not to {prefer!r}")
    if ridge > 0.0 and low_rank:
        raise ValueError("ridge cannot go with rank: give one of them")
    if prior is not None and (prefer not in WITH_PRIOR or low_rank):
        other = "rank" if low_rank else f"prefer={prefer!r}"
        raise ValueError(f"prior says what 'nearest' and ridge are about: {other} takes none")
    return Wish(prefer, slack, float(ridge), _to_prior(prior, data))


def _refuse_with_slack(prefer: str, prior: Any, ridge: Any, target: bool, low_rank: bool) -> None:
    if prefer != "auto":
        raise ValueError(f"slack replaces prefer: give slack or prefer={prefer!r}, not both")
    if not target:
        raise ValueError("slack needs delta, rtol or bounds: without, nothing is missed")
    if prior is not None or ridge:
        raise ValueError("slack takes neither prior nor ridge")
    if low_rank:
        raise ValueError("slack cannot go with rank")


def _to_prior(prior: Any, data: Measurements) -> Any:
    """None, a number, or an (n, n) NumPy array of the type of A."""
    if prior is None or is_number(prior):
        if prior is not None and not np.isfinite(prior):
            raise ValueError(f"prior must be finite, got {prior!r}")
        return None if prior is None else float(prior)
    matrix: Any = prior.matrix if isinstance(prior, Result) else prior
    if isinstance(matrix, SensedMatrix):
        matrix = np.asarray(matrix)
    if sp.issparse(matrix):
        matrix = matrix.toarray()
    values = to_numpy(checked_square("prior", matrix))
    if len(values) != data.n:
        raise ValueError(f"prior is of order {len(values)}, but U has n = {data.n} columns")
    if np.iscomplexobj(values) and not data.unit_rows.is_complex:
        values = values.real  # real rows see no more of it
    kind = np.complex128 if data.unit_rows.is_complex else np.float64
    return np.ascontiguousarray(values, dtype=kind)


def decide(
    wish: Wish, data: Measurements, shape: Shape, method: str
) -> tuple[tuple[Preference, ...], tuple[str, ...]]:
    """The preferences to try in turn, the wanted one first, and why.

    Parameters
    ----------
    wish : Wish
    data : Measurements
    shape : Shape
        Of a solve that takes any fit.
    method : str
        "auto", or the user's word.
    """
    weights = None
    if data.weights is not None:  # one for all is one for each
        weights = np.broadcast_to(to_numpy(data.weights), (data.measured,)).astype(np.float64)
    plain = Preference("any", shape.psd, shape.target, weights=weights)
    if wish.slack is not None:
        return (replace(plain, name=f"slack_{wish.slack}"),), ("slack was asked for",)
    name, why = wish.prefer, "asked for"
    if name == "auto":
        name, why = _chosen(wish, data, shape, method, plain)
    elif name == "least_squares" and shape.target and wish.ridge == 0.0:
        why += NO_SUM * (not _least_squares(data, plain).weights.any())
    names = [name]
    if name == "center":  # and the nearest where there is none, which shows on the way
        free = not shape.psd and not _sees_all(data)
        names = ["nearest"] if free else ["center", "nearest"]
        why += ", but the fits are not a bounded set: the nearest" * free
    found = []
    for each in names:
        tau, base = _prior(wish, each, data)
        found.append(changed(plain, name=each, ridge=wish.ridge, tau=tau, base=base))
    return tuple(found), (f"prefer={name!r}: {why}",)


def _answers(method: str, shape: Shape) -> bool:
    """Whether a method answers what is preferred among such matrices.

    Those that seek any fit know the smallest worst error too, but only where nothing else is asked.
    """
    kind = METHODS.traits(method)
    least = shape.prefer == "minimax" and "any" in kind.preferences
    known = shape.prefer in kind.preferences and shape.cone in kind.cones
    return known and not (least and (shape.target or shape.constrained))


def check_preference(method: str, shape: Shape, wish: Wish) -> None:
    """Refuse a method that cannot answer what is preferred, and say which can."""
    if wish.prefer == "center":  # whether or not there is one
        shape = replace(shape, prefer=wish.prefer)
    if method == "auto" or _answers(method, shape):
        return
    able = [name for name in METHODS if _answers(name, shape)]
    names = " and ".join(repr(name) for name in able)
    what = shape.prefer
    said = (
        f"slack={what.removeprefix('slack_')!r}"
        if what.startswith("slack_")
        else (f"prefer={what!r}")
    )
    raise ValueError(f"method {method!r} cannot answer {said}; {names} can: give method='auto'")


def _prior(wish: Wish, name: str, data: Measurements) -> tuple[float, Any]:
    """tau and base of the prior: 0 for ridge, the best multiple of I for nearest."""
    if wish.prior is None:
        if name != "nearest":
            return 0.0, None
        return _best_multiple(data.plain), None  # of the readings, whatever the constraints
    if isinstance(wish.prior, float):
        return wish.prior, None
    return 0.0, wish.prior


def _best_multiple(data: Measurements) -> float:
    """The multiple of I that reads, in unit rows, what was read, by least squares."""
    rows, ends = data.unit_rows, data.unit_ends
    known = to_numpy(rows.nonzero) > 0.0
    if data.from_bounds and data.readings is None:
        known, reading = known & ends.sides.any(axis=0), ends.middle()
    else:
        norms = np.where(known, to_numpy(rows.norms), 1.0)
        given = data.b if data.readings is None else data.readings
        reading = to_numpy(given) / norms / norms
    squares = np.where(known, to_numpy(rows.squares), 0.0)
    total = float(squares @ squares)
    return float(squares @ np.where(known, reading, 0.0)) / total if total > 0.0 else 0.0


def _chosen(
    wish: Wish, data: Measurements, shape: Shape, method: str, plain: Preference
) -> tuple[str, str]:
    """What "auto" prefers, and why."""
    asked = wish.ridge > 0.0 or wish.prior is not None
    able = None if method == "auto" else METHODS.traits(method).preferences
    if able is not None and "any" in able and shape.target and not asked:
        return "any", f"method {method!r} takes any fit"
    if able is not None and "nearest" not in able and (asked or "any" not in able):
        return "least_squares", f"method {method!r} seeks it"
    if not shape.target:
        if asked or data.weights is not None or shape.rank is not None:
            return "least_squares", "no tolerance, but ridge, prior, weights or rank were given"
        return "minimax", "no tolerance was given"
    if shape.rank is not None:
        return "any", "the rank is what was asked for"
    if wish.prior is not None and wish.ridge == 0.0:
        return "nearest", "a prior was given"
    question = _least_squares(data, plain)
    telling = int(np.count_nonzero(question.weights)) + int(np.count_nonzero(question.equal))
    if telling >= shape.unknowns or wish.ridge > 0.0:
        name, why = "least_squares", "the better estimate under noise"
    elif shape.psd and _is_bounded(data):
        name, why = "center", "fewer readings than unknowns: least squares does not choose"
    else:
        name, why = "nearest", "fewer readings than unknowns: least squares does not choose"
    against = _against(shape, name) if able is None and not wish.ridge else ""
    return ("any", f"{name!r} would take {against}") if against else (name, why)


def _least_squares(data: Measurements, plain: Preference) -> Question:
    """Return the question of least squares on these data."""
    question = make_question(data, replace(plain, name="least_squares"))
    assert question is not None
    return question


def _sees_all(data: Measurements) -> bool:
    """Whether the readings that ask for something see every direction of A."""
    ends = data.ends
    assert ends is not None
    F = data.unit_rows.on_numpy()
    asks = np.flatnonzero(ends.sides.any(axis=0) & (to_numpy(F.nonzero) > 0.0))
    if asks.size < F.unknowns:
        return False
    normal = F.only(asks).normal()
    normal[np.diag_indices(len(normal))] -= UNSEEN * float(np.trace(normal)) / len(normal)
    return cholesky(normal) is not None


def _is_bounded(data: Measurements) -> bool:
    """Whether positive semidefinite fits are surely of bounded trace: rows with upper ends span."""
    ends = data.ends
    assert ends is not None
    F = data.unit_rows.on_numpy()
    if F.raw.m < F.n:
        return False
    total = F.adjoint(np.isfinite(ends.above).astype(np.float64) * to_numpy(F.nonzero))
    size = float(np.trace(total).real) / len(total)
    if not size > 0.0:
        return False
    return cholesky(np.asfortranarray(total - UNSEEN * size * np.eye(len(total)))) is not None


def _against(shape: Shape, name: str) -> str:
    """What a preference is expected to take where that is too much beside any fit.

    The time of sums over rows is not predicted to a factor of five, but such a ratio can be.
    """
    shape = replace(shape, summed=False)
    easy, hard = make_plan(shape), make_plan(replace(shape, prefer=name))
    if not fits(shape, hard) and fits(shape, easy):
        limited = is_limited(available_memory())
        return "more memory than " + ("memory_limit allows" if limited else "is free")
    first = hard.times[hard.methods[0]]
    if first is None or first > PATIENCE * _least(easy) + GRACE:
        return f"more than {PATIENCE:g} times as long and a second"
    return ""


def _least(plan: Plan) -> float:
    """Predicted seconds, at the least where they are not known."""
    if plan.seconds is not None:
        return plan.seconds
    return min((each for each in plan.times.values() if each is not None), default=0.0)
