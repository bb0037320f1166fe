"""`estimate_sigma`: the noise of readings from what a least-squares fit leaves of them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

import numpy as np

from quadsense.arrays import Vector, available_memory, to_numpy
from quadsense.core import products
from quadsense.core.cholesky import pseudoinverse
from quadsense.core.noise import CONFIDENCE
from quadsense.measurements import Measurements
from quadsense.measurements.sensing import Sensing
from quadsense.measurements.validate import checked_weights
from quadsense.methods.base import MAX_REFINEMENTS
from quadsense.system.machine import FLOAT64_BYTES, GIB
from quadsense.system.threads import with_one_blas_thread
from quadsense.system.watch import eigen_flops, look
from quadsense.typing import MatrixLike, Real, RealOrVector, VectorLike, is_number


@dataclass(frozen=True)
class SigmaEstimate:
    """The noise of readings.

    Attributes
    ----------
    sigma : float
        Standard deviation of the error of a reading of weight 1; of one of weight w it is
        ``sigma/sqrt(w)``.
    dof : int
        Degrees of freedom: readings less `rank`.
    rank : int
        Directions of A that the readings see, which the fit uses up.
    interval : (float, float)
        Holds the true sigma with probability `confidence`.
    confidence : float
    """

    sigma: float
    dof: int
    rank: int
    interval: tuple[float, float]
    confidence: float

    def _repr_html_(self) -> str:
        """For notebooks: the estimate and its interval."""
        return str(import_module("quadsense.view.html").sigma_html(self))


@with_one_blas_thread
def estimate_sigma(
    data: MatrixLike | Measurements,
    b: VectorLike | None = None,
    *,
    weights: RealOrVector | None = None,
    mix: MatrixLike | None = None,
    conjugate: bool = False,
    confidence: Real = CONFIDENCE,
) -> SigmaEstimate:
    """Estimate the noise of readings from the readings themselves.

    Parameters
    ----------
    data : array or sparse array of shape (m, n), or Measurements
        The probes, row i is ``u_i`` (then `b` is needed), or measurements. Their tolerance, if
        they have one, plays no part.
    b : array_like of shape (m,), optional
        Readings, with errors that are independent, Gaussian and of one size, or of sizes that
        `weights` tells.
    weights : float or array_like of shape (m,), optional
        Reading i has an error of standard deviation ``sigma/sqrt(weights_i)``; one of weight 0
        is left out. By default those of the measurements, otherwise 1.
    mix, conjugate
        As in `solve`.
    confidence : float, default=0.95
        Of the interval for sigma.

    Returns
    -------
    SigmaEstimate
        ``delta_from_sigma(found.sigma, m, dof=found.dof)`` is a tolerance that goes with it.

    Raises
    ------
    ValueError
        For bad input, and where no degrees of freedom are left: where the readings are no more
        than the directions of A that they see, some A reads exactly what was read, noise included.

    Notes
    -----
    ``sigma^2 = sum_i w_i (F(A)_i - b_i)^2/(m - rank F)`` with A the least-squares fit among the
    symmetric (Hermitian) matrices, whichever is sought later. ``dof sigma^2`` over its truth is
    chi-squared with ``dof`` degrees of freedom, which gives the interval.

    Examples
    --------
    >>> import quadsense
    >>> p = quadsense.datasets.gaussian(n=10, m=200, noise=0.1, seed=0)
    >>> found = quadsense.estimate_sigma(p.U, p.b)
    >>> found.dof, round(found.sigma, 2)
    (145, 0.1)
    """
    if not (is_number(confidence) and 0 < confidence < 1):
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}")
    if not isinstance(data, Measurements):
        data = Measurements(data, b, conjugate=conjugate, mix=mix)
    elif b is not None or conjugate or mix is not None:
        raise ValueError("b, conjugate and mix belong to Measurements: give them when making it")
    data = data.plain
    if data.readings is None:
        raise ValueError("these measurements are intervals without readings: give b")
    given = data.weights if weights is None else checked_weights(weights, data.m)
    w = np.full(data.m, 1.0 if given is None else given)
    with np.errstate(under="ignore"):
        return _estimate(data, np.sqrt(w), float(confidence))


def _estimate(data: Measurements, roots: Vector, confidence: float) -> SigmaEstimate:
    """Return the estimate, for roots of weights."""
    rows, m = data.unit_rows.on_numpy(), int(np.count_nonzero(roots))
    norms = to_numpy(data.unit_rows.norms)
    with np.errstate(divide="ignore"):
        logs = np.log(roots) + 2.0 * np.log(norms)
    # Neither the size of the rows nor that of the readings matters: both are brought to 1.
    largest = float(np.max(logs))
    scales = np.exp(logs - largest) if np.isfinite(largest) else np.zeros_like(logs)
    g = roots * to_numpy(data.readings)
    unit = float(np.max(np.abs(g))) or 1.0
    left, rank = _remainder(rows, scales, g / unit)
    dof = m - rank
    if dof <= 0:
        raise ValueError(
            f"no degrees of freedom are left to tell noise by: {m} readings see {rank} of the "
            f"{rows.unknowns} unknowns of A, so some A reads exactly what was read; give more "
            "readings, or some of them twice"
        )
    from scipy.special import gammainccinv, gammaincinv

    sigma = float(unit * np.linalg.norm(left) / np.sqrt(dof))
    tail = (1.0 - confidence) / 2.0
    least, most = gammaincinv(dof / 2.0, tail), gammainccinv(dof / 2.0, tail)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        low, high = np.sqrt(dof / 2.0 / most), np.sqrt(dof / 2.0 / least)
        interval = (float(sigma * low), float(np.nan_to_num(sigma * high, nan=0.0, posinf=np.inf)))
    return SigmaEstimate(sigma, dof, rank, interval, confidence)


def _remainder(rows: Sensing, scales: Vector, g: Vector) -> tuple[Vector, int]:
    """Return what is left of g by its fit with ``diag(scales) F``, and the rank of that."""
    live = np.flatnonzero(scales)
    if not live.size:
        return g, 0
    size = min(live.size, rows.unknowns)
    need = 3.0 * FLOAT64_BYTES * size * size
    if need > available_memory():
        raise MemoryError(f"estimating sigma takes {need / GIB:.1f} GiB for {size} unknowns")
    look(eigen_flops(size))
    if live.size < rows.unknowns:
        seen = rows.only(live)
        K = seen.gram() * np.outer(scales[live], scales[live])
        _, rank, basis = pseudoinverse(K)
        left = g.copy()
        if basis is None:
            left[live] = 0.0
            return left, rank
        for _ in range(2):  # the second time, what rounding left of it
            left[live] -= basis @ (basis.T @ left[live])
        return left, rank
    solve, rank, _ = pseudoinverse(rows.normal(scales * scales))
    left = g
    for _ in range(MAX_REFINEMENTS):
        x = solve(products.pack(to_numpy(rows.adjoint(scales * left))))
        left = left - scales * rows.forward(products.unpack(x, rows.n, rows.dtype))
    return left, rank
