r"""The logarithm of the cosh potential, and what it says of residuals, without overflow.

``x`` is :math:`\lambda z` throughout. It reaches :math:`\log m \cdot R/\delta`, far past the 710
where cosh overflows, so nothing here forms cosh of it: terms are divided by :math:`e^M`,
:math:`M = \max|x|` [QSZ24, Section 5; erratum 5].
"""

from __future__ import annotations

import math

from quadsense.arrays import Array, namespace


def log_potential(x: Array) -> float:
    r""":math:`\log \Phi = \log \sum_i \cosh x_i` [QSZ24, Section 5.1]."""
    xp = namespace(x)
    size = xp.abs(x)
    shift = float(xp.max(size))
    scaled = 0.5 * xp.exp(size - shift) * (1.0 + xp.exp(-2.0 * size))
    return shift + math.log(float(xp.sum(scaled)))


def residual_bound(log_potential: float, lam: float) -> float:
    r"""Largest ``max|z_i|`` that a potential allows: :math:`\cosh^{-1}(\Phi)/\lambda`.

    Notes
    -----
    One term of the sum is at most the sum [QSZ24, App. B.2].
    """
    return arccosh_exp(log_potential) / lam


def arccosh_exp(log_value: float) -> float:
    """``arccosh(exp(v))`` for v >= 0 that may be far past 710."""
    if log_value > 20.0:  # sqrt(e^2v - 1) equals e^v in float64
        return log_value + math.log(2.0)
    return math.acosh(max(1.0, math.exp(log_value)))
