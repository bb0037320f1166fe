r"""The cosh potential, its gradient direction and Hessian weights, without overflow.

``x`` is :math:`\lambda z` throughout. It reaches :math:`\log m \cdot R/\delta`, far past the 710
where cosh overflows, so nothing here forms cosh or sinh of it: every quantity comes divided by
:math:`e^M`, :math:`M = \max|x|`, together with `M` itself [QSZ24, Section 5; erratum 5].
"""

from __future__ import annotations

import math
from typing import NamedTuple

from quadsense.arrays import Array, namespace


class ScaledPotential(NamedTuple):
    """A quantity divided by ``exp(shift)``."""

    values: Array
    shift: float


def _shift(x: Array) -> float:
    xp = namespace(x)
    return float(xp.max(xp.abs(x)))


def scaled_sinh(x: Array) -> ScaledPotential:
    r"""``sinh(x) / exp(M)``, M = max|x|: the direction of the potential's gradient.

    Parameters
    ----------
    x : array of shape (m,)
        The scaled residuals :math:`\lambda z`.

    Returns
    -------
    Scaled
        ``values`` of shape (m,) and ``shift`` = M.

    Notes
    -----
    :math:`\sinh x\, e^{-M} = \mathrm{sign}(x)\, e^{|x|-M} (1 - e^{-2|x|})/2`, with `expm1` so that
    a small x keeps all of its digits.
    """
    xp = namespace(x)
    size = xp.abs(x)
    shift = _shift(x)
    return ScaledPotential(-0.5 * xp.sign(x) * xp.exp(size - shift) * xp.expm1(-2.0 * size), shift)


def scaled_cosh(x: Array) -> ScaledPotential:
    r"""``cosh(x) / exp(M)``, M = max|x|: the weights of the potential's Hessian.

    The Hessian is :math:`\lambda^2 \sum_i \cosh(x_i)\,(u_i u_i^*) \otimes (u_i u_i^*)`
    [QSZ24, Section 5.2].
    """
    xp = namespace(x)
    size = xp.abs(x)
    shift = _shift(x)
    return ScaledPotential(0.5 * xp.exp(size - shift) * (1.0 + xp.exp(-2.0 * size)), shift)


def log_potential(x: Array) -> float:
    r""":math:`\log \Phi = \log \sum_i \cosh x_i` [QSZ24, Section 5.1]."""
    values, shift = scaled_cosh(x)
    return shift + math.log(float(namespace(x).sum(values)))


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
