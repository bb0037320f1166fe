r"""What the paper's lemmas promise, with their constants worked out.

The one-step progress of every algorithm is
:math:`\Phi_{t+1} \le (1 - 0.9\,\lambda\epsilon/\sqrt m)\,\Phi_t + \lambda\epsilon\sqrt m`
[QSZ24, Lemmas 5.3, 6.3, C.1, D.1, E.2] (in expectation for SGD, n for m in the spectral case).
Iterated, with :math:`q = 0.9\,\lambda\epsilon/\sqrt m`,
:math:`\Phi_T \le (1-q)^T \Phi_1 + m/0.9`. So ``lam = arccosh(2.2 m)/delta`` turns
:math:`\Phi_T \le 2.2 m` into ``max|z| <= delta``, and
:math:`T \ge \log(\Phi_1/m)/q` steps get there, where
:math:`\log(\Phi_1/m) \le \lambda \max|z_1|`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, as_numbers, namespace
from quadsense.core.intervals import UNIT
from quadsense.typing import is_number, is_whole

__all__ = [
    "LARGEST_PROVEN_C",
    "PAPER_C",
    "Schedule",
    "potential_bound",
    "progress_bound",
    "schedule",
    "sharpness",
    "spectral_schedule",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)


PAPER_C = 0.01
"""The lemmas' step constant, ``step * lam <= c`` [QSZ24, Lemma 5.3]."""

FALL = 0.9
"""Share of the printed rate at which the lemmas let the potential fall [QSZ24, Lemma 5.3]."""

LARGEST_PROVEN_C = 0.169
"""Largest c that a proof of the lemma covers, nearly orthogonal rows too (docs/theory.md, 3)."""


PAPER_COHERENCE = 10.0
"""One over this and m is the largest coherence that the lemmas allow [QSZ24, Lemma D.1]."""


def coherence_limit(m: int) -> float:
    """Return the largest coherence of m rows that the lemmas allow."""
    return 1.0 / (PAPER_COHERENCE * m)


@dataclass(frozen=True)
class Schedule:
    """Constants of one run of an algorithm of the paper.

    Attributes
    ----------
    lam : float
        The potential's sharpness.
    step : float
        Length of a step of A in Frobenius norm (the paper's epsilon).
    iterations : int
        Steps after which the tolerance is met (SGD: with probability ``1 - failure``).
    lemma : str
        The lemmas that say so.
    """

    lam: float
    step: float
    iterations: int
    lemma: str

    @property
    def c(self) -> float:
        """``step * lam``."""
        return self.step * self.lam


def _check_positive(**numbers: Any) -> None:
    """Raise a ValueError that names what is no positive number."""
    for name, value in numbers.items():
        if not (is_number(value) and 0 < value < math.inf):
            raise ValueError(f"{name} must be positive and finite, got {value!r}")


def _rate(m: Any, lam: Any, step: Any) -> float:
    """Return the rate at which the lemmas let the potential fall, below 1."""
    _check_positive(m=m, lam=lam, step=step)
    rate = FALL * float(lam) * float(step) / math.sqrt(m)
    if not rate < 1.0:
        raise ValueError(f"lam * step must be below sqrt(m)/0.9, got {lam!r} * {step!r}")
    return rate


def _real(name: str, values: Any) -> npt.NDArray[np.float64]:
    """Return an argument as real numbers, none of which is NaN, or raise a ValueError."""
    found = as_numbers(name, values)
    if found.dtype.kind == "c" or np.isnan(found).any():
        raise ValueError(f"{name} must hold real numbers, none of which is NaN")
    return found.astype(np.float64)


def sharpness(m: int, failure: float | None = None) -> float:
    """``lam * delta``: arccosh(2.2 m), or arccosh(2.2 m / failure) by Markov's inequality."""
    _check_positive(m=m, **({} if failure is None else {"failure": failure}))
    return arccosh_exp(math.log(2.2 * m) - (0.0 if failure is None else math.log(failure)))


def schedule(
    *,
    m: int,
    radius: float,
    delta: float,
    batch_size: int | None = None,
    failure: float = 0.1,
    c: float = PAPER_C,
    spread: float = 1.0,
    orthonormal: bool = True,
) -> Schedule:
    """Return the sharpness, step and iteration count of the paper's gradient descents.

    Parameters
    ----------
    m : int
        Number of measurements.
    radius : float
        Largest residual at the start, ``max|z_1|``.
    delta : float
        Tolerance to reach.
    batch_size : int, optional
        Samples per step: SGD [QSZ24, Alg. 2 and 4]; None is GD [QSZ24, Alg. 1].
    failure : float, default=0.1
        SGD only: allowed probability of not having met delta after the last step.
    c : float, default=0.01
        The lemmas' step constant.
    spread : float, default=1.0
        Largest over smallest tolerance, for rows that are not orthonormal: the step must respect
        the sharpest row, the rate is that of the bluntest.
    orthonormal : bool, default=True
        Only chooses which lemma is named.

    Returns
    -------
    Schedule

    Examples
    --------
    >>> from quadsense import theory
    >>> s = theory.schedule(m=100, radius=1.0, delta=0.1)
    >>> s.iterations, s.lemma
    (67631, 'Lemma 5.3 and 5.6')
    """
    if not (is_whole(m) and m >= 1):
        raise ValueError(f"m must be a whole number, at least 1, got {m!r}")
    _check_positive(delta=delta, c=c, spread=spread)
    if not (is_number(radius) and 0 <= radius < math.inf):
        raise ValueError(f"radius must be finite and not negative, got {radius!r}")
    if batch_size is None:
        lam = sharpness(m) / delta
        share = 1.0
        lemma = "Lemma 5.3 and 5.6" if orthonormal else "Lemma D.1"
    else:
        if not (is_whole(batch_size) and 1 <= batch_size <= m):
            raise ValueError(f"batch_size must lie between 1 and m = {m}, got {batch_size!r}")
        if not (is_number(failure) and 0 < failure < 1):
            raise ValueError(f"failure must lie strictly between 0 and 1, got {failure!r}")
        lam = sharpness(m, failure) / delta
        share = batch_size / m
        lemma = "Lemma 6.3 and 6.4" if orthonormal else "Lemma E.2"
    rate = FALL * c * share / (math.sqrt(m) * spread)
    steps = lam * radius / rate
    if not math.isfinite(steps):
        raise ValueError(f"radius = {radius!r} over delta = {delta!r} asks for too many steps")
    return Schedule(lam, c * share / lam, math.ceil(steps), lemma)


def spectral_schedule(*, n: int, radius: float, accuracy: float, c: float = PAPER_C) -> Schedule:
    """Return the sharpness, step and iteration count of Algorithm 3 [QSZ24, Lemmas C.1 and C.2].

    Parameters
    ----------
    n : int
        Order of the matrix.
    radius : float
        Spectral norm of ``I - A*^{-1/2} A_1 A*^{-1/2}``.
    accuracy : float
        The delta of ``(1 - delta) A* <= A <= (1 + delta) A*``.
    c : float, default=0.01
        The lemma's step constant.
    """
    if not (is_whole(n) and n >= 1):
        raise ValueError(f"n must be a whole number, at least 1, got {n!r}")
    _check_positive(accuracy=accuracy)
    entrywise = schedule(m=n, radius=radius, delta=accuracy, c=c)
    return Schedule(entrywise.lam, entrywise.step, entrywise.iterations, "Lemma C.1 and C.2")


def progress_bound(
    log_potential: npt.ArrayLike, *, m: int, lam: float, step: float
) -> npt.NDArray[np.float64]:
    """Log of the lemma's bound on the potential one step later, from the log potential now.

    Parameters
    ----------
    log_potential : array_like
        log Phi at some iterates.
    m : int
        Number of measurements (Algorithm 3: n).
    lam, step : float
        Sharpness and step length of the run.
    """
    now = _real("log_potential", log_potential)
    rate, product = _rate(m, lam, step), lam * step
    return np.logaddexp(now + math.log1p(-rate), math.log(product * math.sqrt(m)))


def potential_bound(
    iterations: npt.ArrayLike, *, log_potential: float, m: int, lam: float, step: float
) -> npt.NDArray[np.float64]:
    """Return the log of the bound on the potential after `t` steps: ``(1-q)^t Phi_1 + m/0.9``.

    Parameters
    ----------
    iterations : array_like of int
        Numbers of steps t.
    log_potential : float
        log Phi_1, at the start.
    m : int
        Number of measurements (Algorithm 3: n).
    lam, step : float
        Sharpness and step length of the run.
    """
    steps, rate = _real("iterations", iterations), _rate(m, lam, step)
    if not (is_number(log_potential) and not math.isnan(log_potential)):
        raise ValueError(f"log_potential must be a number, got {log_potential!r}")
    return np.logaddexp(steps * math.log1p(-rate) + log_potential, math.log(m / FALL))


# --- the logarithm of the potential, without overflow --------------------------------------------


def log_potential(x: Array) -> float:
    r"""Return :math:`\log \Phi = \log \sum_i \cosh x_i`, x being lam z [QSZ24, Section 5.1].

    Terms are divided by :math:`e^M`, M = max|x|: x reaches :math:`\log m \cdot R/\delta`, far past
    the 710 where cosh overflows [QSZ24, erratum 5].
    """
    xp = namespace(x)
    size = xp.abs(x)
    shift = float(xp.max(size))
    scaled = 0.5 * xp.exp(size - shift) * (1.0 + xp.exp(-2.0 * size))
    return shift + math.log(float(xp.sum(scaled)))


def residual_bound(log_potential: float, lam: float) -> float:
    r"""Return the largest ``max|z_i|`` that a potential allows: :math:`\cosh^{-1}(\Phi)/\lambda`.

    Notes
    -----
    One term of the sum is at most the sum [QSZ24, App. B.2].
    """
    return arccosh_exp(log_potential) / lam


def arccosh_exp(log_value: float) -> float:
    """Return ``arccosh(exp(v))`` for v >= 0 that may be far past 710."""
    if log_value > -math.log(UNIT):  # sqrt(e^2v - 1) equals e^v in float64
        return log_value + math.log(2.0)
    return math.acosh(max(1.0, math.exp(log_value)))
