"""Which A is meant: `prefer`, `slack`, `prior`, `ridge`, checked, and what "auto" makes of them."""

from __future__ import annotations

import math
from contextlib import nullcontext, suppress
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from quadsense.arrays import Vector, as_numbers, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.core.question import Question
from quadsense.core.records import changed
from quadsense.measurements import Measurements
from quadsense.measurements.arrays import columns_differ
from quadsense.measurements.column_scaling import Columns, columns_of, dense_in
from quadsense.measurements.oracle import checked_square
from quadsense.methods import METHODS
from quadsense.methods.low_rank import is_lean
from quadsense.methods.traits import MAX_WIDE, Shape
from quadsense.preferences import (
    MatrixTerm,
    Preference,
    kind_named,
    make_question,
    names_that,
)
from quadsense.proofs.definite import cholesky
from quadsense.query.query import Query
from quadsense.result.result import Result
from quadsense.system.watch import Stop, Watch
from quadsense.typing import is_number

BETA = 0.35
"""Strength of the pull of ``ridge="auto"``; docs/theory.md says how it was chosen."""

UNIFORM_VARIANCE = 1.0 / 3.0
"""Of an error that is anywhere within a tolerance of 1."""

VANISHING = 1e-5
"""Deviation of readings, in units of their root mean square, for which the entropy counts where
there is no tolerance: it only settles ties. With a smaller one the bound would lack digits."""

MAX_VANISHING_RIDGE = 1e250
"""Largest strength of the entropy without a tolerance, and its inverse the least: others leave
weights no room in float64's range."""

DETERMINED = 1.5
"""Readings per unknown from which positive semidefinite least squares needs no pull."""

MAX_ENTROPY_ROWS = 20_000
"""Readings up to which the entropy is used: its Newton steps need an m x m matrix."""

MIN_RELATIVE_EIGENVALUE = 1e-9
"""Smallest eigenvalue, as a part of the mean one, of a map that sees every direction."""

EMPTY_SUM = (
    "; no row counts in the sum (each has one end only, is an equality or has weight 0), so every "
    "A that fits is as good: give b and weights=, or prefer='nearest'"
)
"""Added to the reason for least squares where its sum is empty."""

PAPER_METHODS = ("gd", "sgd", "closed_form")
"""Methods of the paper, whose steps are those that it prints."""

TIES_GO_TO = "there is no tolerance; ties go to the A nearest to {}"
"""Why least squares, where nothing else is asked."""


def checked(
    query: Query, data: Measurements, *, target: bool, positive: bool, low_rank: bool
) -> Query:
    """Return the query with what it prefers checked against the rest, in one form each.

    `prior` becomes None, a number or an (n, n) array; `ridge` None for "auto", or a number.
    """
    prefer, slack, prior, ridge = query.prefer, query.slack, query.prior, query.ridge
    strength, kind = None if isinstance(ridge, str) else float(ridge), kind_named(prefer)
    if slack is not None:
        _refuse_with_slack(prefer, prior, strength, target, low_rank)
    if kind.needs_tolerance and not target:
        raise ValueError(
            f"prefer={prefer!r} needs a tolerance (delta, rtol or bounds): without one, give "
            "'least_squares' or 'minimax'"
        )
    if target and not kind.takes_tolerance:
        instead = "make the measurements with relative frequencies as b, and weights=shots"
        instead = instead if kind.counts else "leave out delta, rtol and bounds"
        raise ValueError(f"prefer={prefer!r} takes no tolerance: {instead}")
    if kind.counts:
        _check_counts(query, data)
    if kind.needs_cone and (not positive or low_rank):
        raise ValueError(f"prefer={prefer!r} needs psd=True")
    if low_rank and not kind.takes_rank:
        able = " and ".join(map(repr, sorted(names_that(lambda each: each.takes_rank))))
        raise ValueError(f"prefer={prefer!r} cannot go with rank: {able} can")
    if strength and not kind.takes_ridge:
        able = " and ".join(map(repr, names_that(lambda each: each.takes_ridge)))
        raise ValueError(f"ridge belongs to prefer={able}, not to {prefer!r}")
    if strength and low_rank:
        raise ValueError("ridge cannot go with rank: give one of them")
    if prior is not None and (not kind.takes_prior or low_rank):
        other = "rank" if low_rank else f"prefer={prefer!r}"
        raise ValueError(f"prior says what 'nearest' and ridge are about: {other} takes none")
    # Strings of NumPy's type count as strings, which a file holds.
    named = None if slack is None else str(slack)
    prior = None if prior is None else _to_prior(prior, data)
    found = changed(query, prefer=str(prefer), slack=named, ridge=strength, prior=prior)
    if kind.matrix is MatrixTerm.ENTROPY and not _is_definite(found.prior):
        raise ValueError(
            f"prefer={prefer!r} needs a prior that is positive definite: give another, or "
            "prefer='least_squares'"
        )
    return found


def counts_of(query: Query) -> Query:
    """Return the query with counts, if readings are, as relative frequencies and weights.

    Shots or exposures are the weights of the readings; `background` is in units of these.
    """
    prefer = query.prefer
    if not (isinstance(prefer, str) and kind_named(prefer).counts):
        for name in ("exposure", "background"):
            if getattr(query, name) is not None:
                able = " and ".join(map(repr, names_that(lambda kind: kind.counts)))
                raise ValueError(f"{name} belongs to prefer={able}, not to {prefer!r}")
        return query
    if isinstance(query.data, Measurements):
        if query.exposure is not None or query.background is not None:
            raise ValueError("exposure and background go with U and b, not with Measurements")
        return query
    tolerances = (query.delta, query.bounds, query.sigma)
    if any(each is not None for each in tolerances) or not _is_zero(query.rtol):
        raise ValueError(
            f"prefer={prefer!r} goes by counts alone: give shots= or exposure=, and no delta, "
            "rtol, bounds or sigma"
        )
    given = {"shots": query.shots, "exposure": query.exposure, "weights": query.weights}
    known = [name for name, value in given.items() if value is not None]
    if len(known) != 1 or query.b is None:
        raise ValueError(
            f"prefer={prefer!r} needs counts as b, and either shots= (out of how many) or "
            f"exposure= (how long), got {' and '.join(known) or 'neither'}"
        )
    (name,) = known
    total, counts = as_numbers(name, given[name]), as_numbers("b", query.b)
    if total.dtype.kind not in "buif" or not np.all((total > 0.0) & (total < np.inf)):
        raise ValueError(f"{name} must be positive: leave out rows that were not measured")
    total = total.astype(np.float64)
    if counts.dtype.kind not in "buif" or counts.ndim == 0 or total.shape not in ((), counts.shape):
        raise ValueError(
            f"b has shape {counts.shape} and {name} {total.shape}: give one number per row, or one "
            f"{name} for all"
        )
    counts = counts.astype(np.float64)
    if np.any(counts < 0.0):
        i = int(np.argmax(counts.ravel() < 0.0))
        raise ValueError(f"b[{i}] is {counts.flat[i]:g}, but a count is not negative")
    if name == "weights":
        return query
    if name == "shots" and np.any(counts > total):
        i = int(np.argmax((counts > total).ravel()))
        raise ValueError(f"b[{i}] counts {counts.flat[i]:g}, which is more than shots")
    weights = np.broadcast_to(total, counts.shape).ravel()
    return changed(query, b=counts / total, shots=None, weights=weights)


def _is_zero(rtol: Any) -> bool:
    return is_number(rtol) and rtol == 0.0


def frame_for(query: Query, data: Measurements) -> Columns | None:
    """Return the exponents by which columns of U are scaled for this query, None for none.

    They are not scaled where the user names a norm of A, by ``prefer="nearest"``, ``"min_trace"``
    or a number for `ridge`, nor for the methods of the paper. Everywhere else what is asked for
    is the same for scaled columns, or is defined for them.
    """
    named = kind_named(query.prefer).by_norm or query.ridge is not None
    if named or query.method in PAPER_METHODS or query.schedule == "paper":
        return None
    return columns_of(data) if columns_differ(data.plain.unit_rows.kind) else None


def in_frame(query: Query, columns: Columns) -> Query:
    """Return the query, its prior that of the scaled unknown."""
    prior: Any = query.prior
    if prior is None:
        return query
    if isinstance(prior, float):
        prior = prior * np.eye(len(columns))
    return changed(query, prior=dense_in(prior, columns))


def _check_counts(query: Query, data: Measurements) -> None:
    """Refuse measurements that are no counts, and what nothing bounds."""
    prefer = query.prefer
    if data.weights is None:
        raise ValueError(
            f"prefer={prefer!r} needs to know out of how many: give shots= or exposure=, or "
            "measurements with weights=shots"
        )
    if query.exposure is None and data.fixed_trace is None:
        raise ValueError(
            f"prefer={prefer!r} of counts out of shots needs trace=: the larger A, the likelier"
        )


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
    """A number, or an (n, n) NumPy array of the type of A."""
    if is_number(prior):
        if not np.isfinite(prior):
            raise ValueError(f"prior must be finite, got {prior!r}")
        return float(prior)
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
    query: Query, data: Measurements, shape: Shape, watch: Watch | None = None
) -> tuple[tuple[Preference, ...], tuple[str, ...]]:
    """The preferences to try in turn, the wanted one first, and why.

    Parameters
    ----------
    query : Query
        As `checked` returns it.
    data : Measurements
    shape : Shape
        Of a solve that takes any fit.
    watch : Watch, optional
        Whose limits bound the search for an analytic center.
    """
    if query.prefer == "any":
        return (Preference("any", shape.psd, shape.target),), ("prefer='any': asked for",)
    weights = None if data.weights is None else _weights_of(data)
    plain = Preference("any", shape.psd, shape.target, weights=weights)
    if query.slack is not None:
        return (changed(plain, name=f"slack_{query.slack}"),), ("slack was asked for",)
    name: str = query.prefer
    why = "asked for"
    telling = _telling(data, plain, shape) if shape.psd else None
    if name == "auto":
        name, why = _chosen(query, data, shape, telling)
    elif kind_named(name).takes_ridge and shape.target and query.ridge == 0.0:
        why += EMPTY_SUM * (not _least_squares(data, plain).weights.any())
    kind, names = kind_named(name), [name]
    ties = kind.matrix is MatrixTerm.ENTROPY and query.prefer == "auto" and not shape.target
    if ties:
        names.append(kind.otherwise)  # constraints may leave A no determinant
    if kind.matrix is MatrixTerm.LOG_DET:  # and another where there is none, as shows on the way
        free = not shape.psd and not _sees_all(data, watch)
        names = [kind.otherwise] if free else [name, kind.otherwise]
        why += f", but the fits are not a bounded set: the {kind.otherwise}" * free
    found: tuple[Preference, ...] = ()
    if kind.counts:
        plain = changed(
            plain, poisson=query.exposure is not None, background=_background(query, plain.weights)
        )
    for each in names:
        found += (_with_pull(changed(plain, name=each), query, data, shape, telling),)
    if ties and not 1.0 / MAX_VANISHING_RIDGE < found[0].ridge < MAX_VANISHING_RIDGE:
        found = found[1:]  # all readings are 0, or their squares about leave float64's range
        name, why = kind.otherwise, TIES_GO_TO.format("a multiple of I")
    return found, (f"prefer={name!r}: {why}",)


def _background(query: Query, weights: Vector | None) -> Vector | None:
    """Return what is counted without A, in units of readings."""
    if query.background is None:
        return None
    assert weights is not None
    given = as_numbers("background", query.background)
    fits = given.dtype.kind in "buif" and given.size in (1, weights.size)
    if not fits or not np.all((given >= 0.0) & (given < np.inf)):
        raise ValueError(
            "background must be counts that are not negative, one per row or one for all"
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.broadcast_to(given.astype(np.float64).ravel(), weights.shape) / weights
    return np.where(weights > 0.0, found, 0.0)


def _answers(method: str, shape: Shape) -> bool:
    """Whether a method answers what is preferred among such matrices.

    What is built into a method it seeks only where nothing else is asked.
    """
    kind = METHODS.traits(method)
    known = shape.prefer in kind.preferences and shape.cone in kind.cones
    return known and not (shape.prefer in kind.built_in and (shape.target or shape.constrained))


def check_preference(shape: Shape, query: Query) -> None:
    """Refuse a method that cannot answer what is preferred, and say which can."""
    method = query.method
    if kind_named(query.prefer).matrix is MatrixTerm.LOG_DET:  # whether or not there is one
        shape = changed(shape, prefer=query.prefer)
    if method == "auto" or _answers(method, shape):
        return
    able = [name for name in METHODS if _answers(name, shape)]
    names = " and ".join(repr(name) for name in able)
    said = kind_named(shape.prefer).said
    raise ValueError(f"method {method!r} cannot answer {said}; {names} can: give method='auto'")


def _with_pull(
    preference: Preference, query: Query, data: Measurements, shape: Shape, telling: float | None
) -> Preference:
    """The preference with its prior and with the strength of the pull towards it."""
    matrix = preference.kind.matrix
    if matrix is MatrixTerm.DISTANCE:
        tau, base = _given(query) or (_best_multiple(data.plain), None)
        return changed(preference, tau=tau, base=base)
    if matrix not in (MatrixTerm.RIDGE, MatrixTerm.ENTROPY) or shape.rank is not None:
        return preference
    if matrix is MatrixTerm.RIDGE and query.ridge:
        tau, base = _given(query) or (0.0, None)
        return changed(preference, ridge=query.ridge, tau=tau, base=base)
    pull = _pull(data, preference, shape)
    tau, base = _given(query) or (pull.tau, None)
    if matrix is MatrixTerm.RIDGE:
        few = telling is None or telling < 1.0  # so that a cone and readings do not suffice
        pulls = query.ridge is None and shape.target and few
        ridge = pull.kappa * BETA / pull.v if pulls and pull.v > 0.0 else 0.0  # else ties: tau I
        return changed(preference, ridge=ridge, tau=tau, base=base)
    fixed = data.fixed_trace is not None
    ridge = 2.0 * pull.kappa * BETA if shape.target else _vanishing(data, preference)
    return changed(preference, ridge=ridge, tau=tau, base=base, fixed=fixed)


def _vanishing(data: Measurements, preference: Preference) -> float:
    """Strength of the entropy without a tolerance."""
    question = _least_squares(data, preference)
    with np.errstate(over="ignore", under="ignore"):
        costs = (np.sqrt(question.weights) * question.reading) ** 2
        counted = max(1, int(np.count_nonzero(question.weights)))
        return 2.0 * VANISHING**2 * float(np.sum(costs)) / counted


def least_squares_of(query: Query, data: Measurements, shape: Shape) -> Preference:
    """Return least squares with the pull that was asked for, whatever else was preferred."""
    plain = Preference("least_squares", shape.psd, shape.target, weights=_weights_of(data))
    return _with_pull(plain, query, data, shape, _telling(data, plain, shape))


def _weights_of(data: Measurements) -> Vector | None:
    """Return one weight per reading, as given; None where none were."""
    if data.weights is None:
        return None
    return np.broadcast_to(to_numpy(data.weights), (data.measured,)).astype(np.float64)


def _given(query: Query) -> tuple[float, Any] | None:
    """tau and base of the prior that was given."""
    if query.prior is None:
        return None
    return (query.prior, None) if isinstance(query.prior, float) else (0.0, query.prior)


def _telling(data: Measurements, preference: Preference, shape: Shape) -> float | None:
    """Readings that say what something is, per `DETERMINED` times the unknowns.

    None without a cone, where it is of no account.
    """
    if not shape.psd:
        return None
    question = _least_squares(data, preference)
    count = int(np.count_nonzero(question.weights)) + int(np.count_nonzero(question.equal))
    return count / (DETERMINED * shape.unknowns)


class Pull(NamedTuple):
    """The multiple of I that fits best, the variance of its residuals, and the unit of the weights.

    ``kappa`` is the mean of ``w_i s_i^2``, with s_i the deviation of a uniform error within the
    tolerance: one third unless weights were given.
    """

    tau: float
    v: float
    kappa: float


def _pull(data: Measurements, preference: Preference, shape: Shape) -> Pull:
    """What the pull of ``ridge="auto"`` is made of, on the rows of unit norm."""
    plain = changed(preference, name="least_squares")
    own = data.plain
    question = make_question(own, plain, unit=True)
    assert question is not None
    rows, ends = own.unit_rows, own.unit_ends
    known = question.weights > 0.0
    whole = bool(known.all())
    if not (whole or known.any()):
        multiple = _best_multiple(own)
        return Pull(1.0 if shape.psd and multiple <= 0.0 else multiple, 1.0, UNIFORM_VARIANCE)
    w, b, squares = question.weights, question.reading, to_numpy(rows.squares)
    if not whole:
        w, b, squares = w[known], b[known], squares[known]
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        kappa = UNIFORM_VARIANCE
        if preference.weights is not None and shape.target:
            two = np.asarray(ends.sides.all(axis=0))[known]
            if two.any():
                kappa *= float(np.mean((w * ends.unit[known] ** 2)[two]))
        unit = float(np.abs(b).max()) or 1.0  # squares of b stay within float64's range
        b = b / unit
        deviations = 1.0 / np.sqrt(w)
        typical = _median(deviations)
        w = (typical / np.maximum(deviations, typical)) ** 2
        if not 0.0 < typical < math.inf:
            w[np.isnan(w)] = 1.0
        mass, total = float(w.sum()), float(w @ squares**2)
        tau = float(w @ (squares * b)) / total if total > 0.0 else 0.0
        size = math.sqrt(float(w @ b**2) / mass)
        if shape.psd:
            multiple = data.fixed_multiple or 0.0
            if multiple > 0.0:
                tau = multiple / unit
            elif not tau > 0.0:
                tau = 1e-3 * size or 1.0
        v = max(float(w @ (b - tau * squares) ** 2) / mass, (1e-8 * size) ** 2) or 1.0
        return Pull(tau * unit, v * unit * unit, kappa)


def _median(values: Vector) -> float:
    """`numpy.median` in a fifth of its calls."""
    ordered, half = np.sort(values), values.size // 2
    if values.size % 2:
        return float(ordered[half])
    return 0.5 * (float(ordered[half - 1]) + float(ordered[half]))


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
    query: Query, data: Measurements, shape: Shape, telling: float | None
) -> tuple[str, str]:
    """What "auto" prefers, and why."""
    method = query.method
    asked = bool(query.ridge) or query.prior is not None
    able = None if method == "auto" else METHODS.traits(method).preferences
    if able is not None and "any" in able and shape.target and not asked:
        return "any", f"method {method!r} takes any fit"
    if able is not None and "nearest" not in able and (asked or "any" not in able):
        return "least_squares", f"method {method!r} seeks it"
    if able is not None and not shape.target and "least_squares" not in able:
        return "minimax", f"method {method!r} seeks it"
    if shape.rank is None and shape.target and not _has_two_sided(data):
        return "nearest", "bounds on one side only: nearest to the multiple of I that fits best"
    towards = "a multiple of I" if query.prior is None else "prior"
    if query.ridge is not None:
        return "least_squares", f"with ridge = {query.ridge:g}" if query.ridge else "without a pull"
    name, why = by_shape(shape, telling, towards)
    if name == "entropy" and not _is_definite(query.prior):
        tie = TIES_GO_TO.format("prior") if not shape.target else "with a weak pull towards prior"
        return "least_squares", f"{tie}, which is not positive definite"
    return name, why


def by_shape(
    shape: Shape, telling: float | None = None, towards: str = "a multiple of I"
) -> tuple[str, str]:
    """Return what "auto" prefers where no ridge was given, and why.

    Parameters
    ----------
    shape : Shape
    telling : float, optional
        See `_telling`; by default as if each of the m readings had two ends.
    towards : str
        What the pull leads to, in words.
    """
    if shape.rank is not None:
        if shape.target and is_lean(shape):
            return "any", "images of a factor are too large to be held: the first fit"
        return "least_squares", "the fit of that rank with the least sum of squares"
    if telling is None:
        telling = shape.m / (DETERMINED * shape.unknowns)
    wide, long = shape.is_wide, shape.m > MAX_ENTROPY_ROWS
    few = shape.psd and telling < 1.0
    if not shape.target:
        if few and not wide and not long:
            return "entropy", f"{TIES_GO_TO.format(towards)}, by relative entropy"
        return "least_squares", TIES_GO_TO.format(towards)
    if not shape.psd:
        return "least_squares", f"with a weak pull towards {towards}"
    if not few:
        return "least_squares", f"without a pull, for m >= {DETERMINED:g} N"
    if wide:
        return "any", f"for n > m and n > {MAX_WIDE}, where A is sought in the span of the rows"
    if long:
        return "least_squares", f"with a weak pull towards {towards}, for m > {MAX_ENTROPY_ROWS}"
    return "entropy", f"least squares with a weak pull, by relative entropy, towards {towards}"


def _is_definite(prior: Any) -> bool:
    """Return whether the pull of the entropy can lead to this prior; None is a multiple of I."""
    if prior is None or isinstance(prior, float):
        return prior is None or prior > 0.0
    return cholesky(prior) is not None


def _has_two_sided(data: Measurements) -> bool:
    """Whether some reading has two ends, or is an equality."""
    assert data.ends is not None
    return bool(data.ends.two_sided[: data.measured].any())


def _least_squares(data: Measurements, plain: Preference) -> Question:
    """Return the question of least squares on these data."""
    question = make_question(data, changed(plain, name="least_squares"), strict=True)
    assert question is not None
    return question


def _sees_all(data: Measurements, watch: Watch | None) -> bool:
    """Whether the readings that ask for something see every direction of A.

    True where a limit is reached before that is known: the run ends there as well.
    """
    ends = data.ends
    assert ends is not None
    F = data.unit_rows.on_numpy()
    asks = np.flatnonzero(ends.sides.any(axis=0) & (to_numpy(F.nonzero) > 0.0))
    if asks.size < F.unknowns:
        return False
    with suppress(Stop), nullcontext() if watch is None else watch.heeded():
        normal = F.only(asks).normal()
        normal[np.diag_indices(len(normal))] -= (
            MIN_RELATIVE_EIGENVALUE * float(np.trace(normal)) / len(normal)
        )
        return cholesky(normal) is not None
    return True
