"""The claim about the preference: what A costs, and proven bounds on what it has to cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.core.question import Question
from quadsense.measurements import Measurements
from quadsense.preferences import TERMS, Preference, make_question
from quadsense.proofs.definite import cholesky
from quadsense.proofs.objective import objective_bound
from quadsense.proofs.value import objective_value
from quadsense.system.watch import Stop, look
from quadsense.vocabulary import Check

NOTHING = 1e-8
"""Error of a reading, as a part of it, that counts as none."""

LEAST = 1e-290
"""Values below this are none."""

AGREE = 1e-7
"""Relative difference at which a stated value counts as the recomputed one."""


@dataclass(frozen=True)
class Objective:
    """What A costs by the preference, as the user reads it, and bounds on the best value.

    Attributes
    ----------
    preference : Preference
    value : float
        Of A.
    lower, upper : float
        The best value over all that fit lies between them; the one of them that A itself gives is
        infinite where A does not fit.
    gap : float
        Distance of the bounds, relative, at which the preference counts as certified.
    dual : ndarray of shape (m,) or None
        The vector behind the other bound, for the user's rows, constraints last.
    condition : str
        What that bound takes for granted; empty where nothing.
    closed : bool
        Whether the bounds are within the gap, or as near as rounding lets them be.
    """

    preference: Preference
    value: float
    lower: float
    upper: float
    gap: float
    dual: Vector | None
    condition: str
    closed: bool


def make_objective(
    data: Measurements,
    preference: Preference,
    matrix: SensedMatrix,
    reads: Vector,
    error: Vector,
    dual: Vector | None,
    *,
    fits: bool,
    gap: float,
    conditional: bool = False,
) -> Objective | None:
    """What A costs, with bounds proved from the data; None where nothing is, or can be, said.

    Parameters
    ----------
    data : Measurements
        Without the rows set aside.
    preference : Preference
    matrix : SensedMatrix
    reads, error : ndarray of shape (m,)
        What the matrix reads, and a bound on its rounding.
    dual : ndarray of shape (m,) or None
        For the user's rows.
    fits : bool
        Whether A is one of those that the preference is over: it meets what must be met.
    gap : float
    conditional : bool, default=False
        Whether to assume a bound on A without trying to prove one.

    Notes
    -----
    Where a time limit is reached during the proof of the bound, the value is returned with the
    bound that needs no proof, and without the dual vector.
    """
    look()
    question = make_question(data, preference, strict=True)
    if question is None:
        return None
    value, slip = objective_value(question, matrix, reads, error)
    if not math.isfinite(value):
        return None  # beyond float64, or at the edge of a logarithm
    above = value + slip if fits else math.inf
    below, condition = -math.inf, ""
    if dual is not None and not np.isfinite(dual).all():
        dual = None  # beyond float64's range in units of the user's rows
    size = matrix.norm()
    nothing: float | None = None
    squares = not question.log_det and not np.any(question.C) and question.rows != "center"
    if fits and squares and not question.alpha:
        nothing = _nothing(data, question, matrix, size)
    if dual is not None and not (nothing is not None and above <= nothing):  # else 0 is enough
        try:
            bound = objective_bound(
                data, question, dual, size=size, upper=above, conditional=conditional, gap=gap
            )
            below, condition = bound.value, bound.condition
        except Stop:
            dual = None
    if squares and below <= 0.0:
        below, condition = 0.0, ""  # all its terms are squares or distances
    below = min(below, value if fits else above)
    closed = math.isfinite(above) and above - below <= max(gap * abs(above), LEAST)
    if not closed and math.isfinite(above):
        nothing = _nothing(data, question, matrix, size) if nothing is None else nothing
        closed = above - below <= nothing
    said = preference.reported
    ends = (said(above), said(below))
    return Objective(preference, said(value), min(ends), max(ends), gap, dual, condition, closed)


def is_admitted(
    preference: Preference, met: npt.NDArray[np.bool_], set_aside: Any, measured: int
) -> bool:
    """Whether A is one of those that the preference is over.

    Under slack, and where there is no tolerance, only constraints, the last rows, must be met.
    """
    asked = np.ones(met.size, bool)
    asked[set_aside] = False
    if preference.slack or not preference.target:
        asked[:measured] = False
    return bool(met[asked].all())


def _nothing(data: Measurements, question: Question, matrix: SensedMatrix, norm: float) -> float:
    """Return the value at which an objective is 0 up to rounding, for A of that norm.

    Errors of `NOTHING` times the readings, or times A, count as none: in squares its square.
    """
    rows, weights = question.rows, question.weights
    if rows == "center" or question.log_det:
        return NOTHING * (1.0 + question.m)
    linear = bool(np.any(question.C))
    if linear or rows not in ("squares", "within"):
        ends = np.stack([question.lo, question.hi])
        largest = np.where(np.isfinite(ends), np.abs(ends), 0.0).max(axis=0)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        size = 0.0
        if rows == "squares":
            size = NOTHING**2 * float(weights @ question.reading**2)
        elif rows == "slack_squares":
            size = NOTHING**2 * float(np.sum(weights * largest**2))
        elif rows == "slack_sum":
            size = NOTHING * float(np.sum(weights * largest))
        elif rows == "slack_max":
            size = NOTHING * float(np.max(weights * largest, initial=0.0))
        if question.alpha:
            prior = question.prior
            far = float(np.linalg.norm(prior))
            if isinstance(prior, float):
                far *= math.sqrt(matrix.shape[0])
            size += question.alpha * (NOTHING * (norm + far)) ** 2
        if linear:
            # A may be far smaller than what the data are about: the readings of a multiple of I.
            norm = max(norm, math.sqrt(matrix.shape[0]) * _about(data, question))
            size += NOTHING * float(np.linalg.norm(question.C)) * norm
    return size if math.isfinite(size) else 0.0


def _about(data: Measurements, question: Question) -> float:
    """Return the size of the readings that force something on A, for rows of unit norm.

    Other ends may be as far away as one likes, and say nothing of it; they count where all are so.
    """
    ends, squares = data.ends, to_numpy(data.unit_rows.norms) ** 2
    assert ends is not None
    forcing = (question.lo > 0.0, question.hi < 0.0)
    sizes = [np.abs(ends.reading) + np.abs(each) for each in (ends.below, ends.above)]
    size = np.where(forcing[0], sizes[0], np.where(forcing[1], sizes[1], 0.0))
    known = (size > 0.0) & (squares > 0.0)
    if known.any():
        return float(np.mean(size[known] / squares[known]))
    least = np.minimum(np.abs(question.lo), np.abs(question.hi))
    known = np.isfinite(least) & (squares > 0.0)
    return float(np.min(least[known] / squares[known])) if known.any() else 0.0


def is_sound(stated: Objective, m: int, measured: int, n: int) -> bool:
    """Whether what a file states of a preference can be one, of m rows and order n."""
    asked, dual = stated.preference, stated.dual
    numbers = (asked.ridge, asked.tau, stated.gap)
    vectors = ((asked.weights, (measured,)), (dual, (m,)), (asked.base, (n, n)))
    return (
        type(asked.name) is str
        and asked.name in TERMS
        and all(type(number) is float and math.isfinite(number) for number in numbers)
        and asked.ridge >= 0.0
        and stated.gap >= 0.0
        and all(
            array is None or (array.shape == shape and bool(np.isfinite(array).all()))
            for array, shape in vectors
        )
        and (asked.weights is None or bool(np.all(asked.weights >= 0.0)))
        and (asked.name != "center" or not asked.ridge)
        and (asked.name != "entropy" or _has_entropy(asked))
    )


def _has_entropy(asked: Preference) -> bool:
    """Whether what is stated of an entropy can be one: a strength, a cone and a definite prior."""
    prior = asked.prior
    if isinstance(prior, float):
        return asked.psd and asked.ridge > 0.0 and (asked.fixed or prior > 0.0)
    return asked.psd and asked.ridge > 0.0 and cholesky(prior) is not None


def check_objective(
    data: Measurements,
    stated: Objective,
    matrix: SensedMatrix,
    reads: Vector,
    error: Vector,
    fits: bool,
) -> Iterator[Check]:
    """Recompute all that is stated of the preference, from the data alone."""
    again = make_objective(
        data, stated.preference, matrix, reads, error, stated.dual, fits=fits, gap=stated.gap,
        conditional=bool(stated.condition),
    )  # fmt: skip
    if again is None:
        yield Check("objective", False, "nothing was preferred")
        return
    name = stated.preference.name
    numbers = (stated.value, stated.lower, stated.upper)
    sound = not any(math.isnan(number) for number in numbers)
    # Another evaluation rounds otherwise, within its own bound.
    edge = again.lower if stated.preference.upwards else again.upper
    rounding = abs(edge - again.value) if math.isfinite(edge) else 0.0
    room = AGREE * max(abs(again.value), abs(stated.value)) + rounding
    text = f"{name}: claimed {stated.value:.8g}, found {again.value:.8g}"
    near = abs(stated.value - again.value) <= room + NOTHING * 1e-3 * abs(again.upper)
    same = stated.value == again.value or near
    yield Check("objective", sound and same, text)
    slack = AGREE * max(abs(again.value), abs(again.lower), 1e-300) if sound else 0.0
    low = stated.lower <= again.lower + slack or stated.lower == again.lower
    high = stated.upper >= again.upper - slack - rounding or stated.upper == again.upper
    text = (
        f"claimed {stated.lower:.8g} to {stated.upper:.8g}, proved {again.lower:.8g} to "
        f"{again.upper:.8g}"
    )
    assumed = not again.condition or stated.condition == again.condition
    yield Check("bounds on the objective", sound and low and high and assumed, text)
    # What the bounds say, not more: a claim of less is no lie.
    yield Check("the preference is certified", again.closed or not stated.closed)
