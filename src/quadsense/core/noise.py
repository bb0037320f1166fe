"""Tolerances from what is known of the noise: Gaussian errors, counts, averages of squares.

Each covers all m readings at once. Errors that are known to be independent share the doubt out by
Sidak's rule, ``1 - confidence^(1/m)`` each. Counts and averages usually are not (outcomes of one
setting exclude each other, sketches share their samples): they get ``(1 - confidence)/m`` each
(Bonferroni), which holds whatever depends on what, and at 95% is no more than 2.6% smaller.
"""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

import numpy as np

from quadsense.arrays import Vector, as_numbers
from quadsense.typing import Real, RealOrVector, Whole, is_number, is_whole

# `scipy.special` is imported where it is needed: it takes a tenth of `import quadsense`.

CountMethod: TypeAlias = Literal["clopper-pearson", "wilson"]
"""The intervals of `bounds_from_counts`."""

CONFIDENCE = 0.95
"""That intervals from noise hold at once, unless another confidence is given."""

MAX_HALVINGS = 60
"""Of an interval no longer than itself: the last bit but some."""

MIN_QUANTILE = 1e-300
"""Quantiles below this are out of float64's range, whichever number stands for them."""


def delta_from_sigma(
    sigma: Real, m: Whole, confidence: Real = CONFIDENCE, *, dof: Real | None = None
) -> float:
    """Return the tolerance that covers all m Gaussian errors at once.

    Parameters
    ----------
    sigma : float
        Standard deviation of one reading's error. Where it differs from reading to reading, as
        with errors in proportion to what is read, give 1.0 and multiply the answer.
    m : int
        Number of measurements.
    confidence : float, default=0.95
        Probability that no error exceeds the answer.
    dof : float, optional
        Degrees of freedom of sigma where it is an estimate (see `estimate_sigma`).

    Returns
    -------
    float
        delta with ``P(max|e_i| <= delta) = confidence`` for independent errors; with `dof` at
        least that.

    Notes
    -----
    With an estimate the errors over it follow Student's distribution, and m of them, which share
    the estimate, are within their quantile together at least as often as independent ones would be
    [Sidak 1967]. That holds for errors other than those that the estimate came from; of these,
    which it knows already, it holds the more.

    Examples
    --------
    >>> import quadsense
    >>> round(quadsense.delta_from_sigma(1.0, m=1), 2)
    1.96
    >>> round(quadsense.delta_from_sigma(1.0, m=1, dof=5), 2)
    2.57
    """
    if not (is_number(sigma) and math.isfinite(sigma) and sigma > 0):
        raise ValueError(f"sigma must be a positive number, got {sigma!r}")
    _check_count("m", m)
    _check_confidence(confidence)
    from scipy.special import betainccinv, betaincinv, ndtri

    # 1 - confidence^(1/m), without cancellation
    tail = -math.expm1(math.log(confidence) / int(m))
    if dof is None:
        return float(-float(sigma) * float(ndtri(tail / 2.0)))
    if not (is_number(dof) and math.isfinite(dof) and dof > 0):
        raise ValueError(f"dof must be a positive number, got {dof!r}")
    half = float(dof) / 2.0
    with np.errstate(under="ignore"):
        # T^2/(dof + T^2) has a beta distribution; it and what it lacks to 1, each to full precision
        share, rest = betainccinv(0.5, half, tail), betaincinv(half, 0.5, tail)
    if rest < MIN_QUANTILE:
        raise ValueError(f"{dof!r} degrees of freedom bound no error with confidence {confidence}")
    return float(sigma * math.sqrt(dof * share / rest))


def bounds_from_counts(
    k: RealOrVector,
    shots: RealOrVector,
    confidence: Real = CONFIDENCE,
    method: CountMethod = "clopper-pearson",
) -> tuple[Vector, Vector]:
    """Return intervals that hold all probabilities at once, from counts of outcomes.

    Parameters
    ----------
    k : int or array_like
        How often each outcome came: whole numbers from 0 to `shots`.
    shots : int or array_like
        Out of how many, one for all or one each.
    confidence : float, default=0.95
        Probability that every interval holds its truth, at least, whatever depends on what.
    method : {"clopper-pearson", "wilson"}
        "clopper-pearson" keeps the confidence always. "wilson" keeps it on average: narrower, but
        where hardly anything was counted it may fall short.

    Returns
    -------
    lo, hi : ndarray
        Of the shape of `k` and `shots` together (numbers for a single count): ``bounds=(lo, hi)``.
        ``lo = 0`` where nothing was counted, ``hi = 1`` where everything was.

    Notes
    -----
    Give ``b=k/shots`` together with the bounds: their middle is biased towards 1/2. The expectation
    of an observable with values 1 and -1 is ``2p - 1``, so its bounds are ``(2*lo - 1, 2*hi - 1)``.

    With ``a = (1 - confidence)/m``, Clopper and Pearson's ends are the p for which k or more, or k
    or fewer, have probability ``a/2``: quantiles of beta distributions. Wilson's solve
    ``|k/shots - p| = z sqrt(p (1 - p)/shots)``, z the normal quantile of ``1 - a/2``.

    Examples
    --------
    >>> import quadsense
    >>> lo, hi = quadsense.bounds_from_counts([0, 480, 1000], shots=1000)
    >>> lo.round(3).tolist(), hi.round(3).tolist()
    ([0.0, 0.442, 0.995], [0.005, 0.518, 1.0])
    """
    counts = _numbers("k", k, whole=True, least=0)
    total = _numbers("shots", shots, whole=True, least=1)
    _check_confidence(confidence)
    if not (isinstance(method, str) and method in ("clopper-pearson", "wilson")):
        raise ValueError(f"method must be 'clopper-pearson' or 'wilson', got {method!r}")
    counts, total = _together("k", counts, "shots", total)
    bad = np.argwhere(counts > total)
    if len(bad):
        at = tuple(bad[0])
        raise ValueError(
            f"k must not exceed shots, but {_entry('k', at)} is {counts[at]:.0f} "
            f"of {total[at]:.0f} shots"
        )
    tail = (1.0 - float(confidence)) / counts.size / 2.0
    with np.errstate(under="ignore"):
        ends = (_wilson if method == "wilson" else _clopper_pearson)(counts, total, tail)
    lo = np.where(counts == 0.0, 0.0, ends[0])
    hi = np.where(counts == total, 1.0, ends[1])
    return lo[()], hi[()]


def _clopper_pearson(k: Vector, shots: Vector, tail: float) -> tuple[Vector, Vector]:
    from scipy.special import betainccinv, betaincinv

    # Where an end is known the beta distribution has none: any other stands in.
    lo = betaincinv(np.maximum(k, 1.0), shots - k + 1.0, tail)
    hi = betainccinv(k + 1.0, np.maximum(shots - k, 1.0), tail)
    return lo, hi


def _wilson(k: Vector, shots: Vector, tail: float) -> tuple[Vector, Vector]:
    from scipy.special import ndtri

    z = float(-ndtri(tail))
    middle = k + z * z / 2.0
    reach = z * np.sqrt(k / shots * (shots - k) + z * z / 4.0)
    scale = shots + z * z
    # The ends multiply to k^2/(shots scale): so the lower one without cancellation.
    return k * (k / shots) / (middle + reach), np.minimum((middle + reach) / scale, 1.0)


def bounds_from_averages(
    b: RealOrVector, dof: RealOrVector, confidence: Real = CONFIDENCE
) -> tuple[Vector, Vector]:
    """Return intervals that hold all truths at once, from averages of squared Gaussians.

    Such are the sketches ``b_i = mean |u_i* x_k|^2`` of a covariance by its samples ``x_k``: each
    is its truth ``u_i* A u_i`` times a chi-squared number over its degrees of freedom.

    Parameters
    ----------
    b : float or array_like
        The averages, not negative.
    dof : float or array_like
        How many independent real squares each is the average of, one for all or one each: the
        number of samples for real data, twice that for complex (circular) ones.
    confidence : float, default=0.95
        Probability that every interval holds its truth, at least; the averages may share samples.

    Returns
    -------
    lo, hi : ndarray
        Of the shape of `b` and `dof` together: ``bounds=(lo, hi)``, best together with `b`.

    Notes
    -----
    ``[dof b/q(1 - a/2), dof b/q(a/2)]`` with q the quantiles of chi-squared and
    ``a = (1 - confidence)/m``.

    Examples
    --------
    >>> import quadsense
    >>> lo, hi = quadsense.bounds_from_averages([1.0, 2.0], dof=1000)
    >>> lo.round(3).tolist(), hi.round(3).tolist()
    ([0.907, 1.813], [1.108, 2.216])
    """
    values = _numbers("b", b, least=0)
    freedom = _positive("dof", dof)
    _check_confidence(confidence)
    values, freedom = _together("b", values, "dof", freedom)
    from scipy.special import gammainccinv, gammaincinv

    tail, half = (1.0 - float(confidence)) / values.size / 2.0, freedom / 2.0
    with np.errstate(under="ignore"):
        least, most = gammaincinv(half, tail), gammainccinv(half, tail)
    bad = np.argwhere(least < MIN_QUANTILE)
    if len(bad):
        at = tuple(bad[0])
        raise ValueError(
            f"{_entry('dof', at)} = {freedom[at]:g} is too few: the average bounds its truth "
            "from below only"
        )
    with np.errstate(over="ignore", under="ignore"):
        return (values * (half / most))[()], (values * (half / least))[()]


def bounds_from_ranges(r: RealOrVector, error: RealOrVector) -> tuple[Vector, Vector]:
    """Return intervals of squared distances from distances and the largest error of each.

    For `probes.differences`, whose rows read ``|x_i - x_j|^2``: squaring an interval moves its
    middle, so that ``b=r**2`` with one tolerance would be wrong for short or long distances.

    Parameters
    ----------
    r : float or array_like
        Measured distances, not negative.
    error : float or array_like
        Largest error of a distance, in the same unit, one for all or one for each.

    Returns
    -------
    lo, hi : ndarray
        ``max(r - error, 0)^2`` and ``(r + error)^2``, of the shape of `r` and `error` together:
        ``bounds=(lo, hi)`` together with ``b=r**2``.

    Notes
    -----
    For Gaussian errors of standard deviation sigma in m distances,
    ``error=delta_from_sigma(sigma, m)`` covers all of them with 95% confidence.

    Examples
    --------
    >>> import quadsense
    >>> lo, hi = quadsense.bounds_from_ranges([0.5, 10.0], error=1.0)
    >>> lo.tolist(), hi.tolist()
    ([0.0, 81.0], [2.25, 121.0])
    """
    values = _numbers("r", r, least=0)
    errors = _numbers("error", error, least=0)
    values, errors = _together("r", values, "error", errors)
    with np.errstate(over="ignore", under="ignore"):
        lo, hi = np.maximum(values - errors, 0.0) ** 2, (values + errors) ** 2
    bad = np.argwhere(~np.isfinite(hi))
    if len(bad):
        at = tuple(bad[0])
        raise ValueError(
            f"{_entry('r', at)} = {values[at]:g} is too large: its square is beyond float64"
        )
    return lo[()], hi[()]


def rtol_from_dof(dof: Real, m: Whole, confidence: Real = CONFIDENCE) -> float:
    """Return a relative tolerance that covers m averages of squared Gaussians at once.

    The errors of `bounds_from_averages` in one number, for ``rtol=``; its intervals, which reach
    further up than down, are narrower.

    Parameters
    ----------
    dof : float
        How many independent real squares each reading is the average of.
    m : int
        Number of measurements.
    confidence : float, default=0.95
        Probability that every truth lies within ``b_i (1 - rtol)`` and ``b_i (1 + rtol)``, at
        least; the averages may share samples.

    Returns
    -------
    float
        The least with ``P(|truth_i - b_i| > rtol b_i) = (1 - confidence)/m`` for one reading.

    Examples
    --------
    >>> import quadsense
    >>> round(quadsense.rtol_from_dof(10_000, m=1500), 4)
    0.0594
    """
    freedom = float(_positive("dof", dof)) if is_number(dof) else math.nan
    if math.isnan(freedom):
        raise ValueError(f"dof must be a positive number, got {dof!r}")
    _check_count("m", m)
    _check_confidence(confidence)
    from scipy.special import gammainc, gammaincc, gammaincinv

    half, doubt = freedom / 2.0, (1.0 - float(confidence)) / int(m)

    def missed(rtol: float) -> float:
        """Return the probability that one truth is further than that from its reading."""
        above = gammaincc(half, half / (1.0 - rtol)) if rtol < 1.0 else 0.0
        return float(gammainc(half, half / (1.0 + rtol)) + above)

    with np.errstate(under="ignore"):
        # Between all of the doubt above the reading and half of it.
        most = float(gammaincinv(half, doubt / 2.0))
        if most < MIN_QUANTILE:
            raise ValueError(
                f"dof = {freedom:g} is too few: an average bounds its truth from below only"
            )
        low, high = max(half / float(gammaincinv(half, doubt)) - 1.0, 0.0), half / most - 1.0
        for _ in range(MAX_HALVINGS):
            middle = low + (high - low) / 2.0
            low, high = (middle, high) if missed(middle) > doubt else (low, middle)
    return high


# --- arguments ---------------------------------------------------------------------------------


def _check_confidence(confidence: Any) -> None:
    if not (is_number(confidence) and 0 < confidence < 1):
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}")


def _check_count(name: str, value: Any) -> None:
    if not (is_whole(value) and value >= 1):
        raise ValueError(f"{name} must be a whole number, at least 1, got {value!r}")


def _entry(name: str, at: tuple[Any, ...]) -> str:
    """Return ``name[3]``, or the name alone of a single number."""
    return f"{name}[{', '.join(str(int(i)) for i in at)}]" if at else name


def _positive(name: str, values: Any) -> Vector:
    return _numbers(name, values, least=0, strictly=True)


def _numbers(
    name: str, values: Any, *, least: int, whole: bool = False, strictly: bool = False
) -> Vector:
    """Return `values` as a float64 array of finite real numbers from `least`, or a ValueError."""
    array = as_numbers(name, values, kind="real numbers")
    if array.dtype.kind not in "uif":
        raise ValueError(f"{name} must hold real numbers, got {array.dtype.name}")
    if not array.size:
        raise ValueError(f"{name} is empty")
    array = array.astype(np.float64)
    kind = "whole numbers" if whole else "finite numbers"
    kind += f", {'above' if strictly else 'at least'} {least}"
    with np.errstate(invalid="ignore"):
        good = np.isfinite(array) & ((array > least) if strictly else (array >= least))
        if whole:
            good &= array == np.floor(array)
    bad = np.argwhere(~good)
    if len(bad):
        at = tuple(bad[0])
        raise ValueError(f"{name} must hold {kind}, but {_entry(name, at)} is {array[at]:g}")
    return array


def _together(name: str, values: Vector, other: str, others: Vector) -> tuple[Vector, Vector]:
    try:
        both = np.broadcast_arrays(values, others)
    except ValueError:
        raise ValueError(
            f"{name} has shape {values.shape} and {other} {others.shape}: give {other} once for "
            f"all, or once for each of {name}"
        ) from None
    return both[0], both[1]
