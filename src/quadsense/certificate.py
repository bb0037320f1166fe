"""`Certificate`: a claim that anyone can check against the data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.certificate import UNIT, enclosure, excess, is_met
from quadsense.core.forms import MeasuredForm
from quadsense.core.identify import SpectralCertificate, spectral_certificate
from quadsense.core.matrix import SensedMatrix
from quadsense.measurements import Measurements
from quadsense.measurements.validate import checked_vector
from quadsense.methods.spectral import SpectralOracle
from quadsense.proofs import best_error_bound, check_infeasible


def within_gap(data: Measurements, upper: float, lower: float, gap: float) -> bool:
    """Whether two bounds on the worst error are within the gap, or the fit is exact anyway."""
    scale = float(np.max(np.abs(to_numpy(data.b)) / to_numpy(data.tolerance)))
    return upper <= 1e-8 * scale or upper - lower <= 1.001 * gap * upper


@dataclass(frozen=True)
class Certificate:
    """A claim that anyone can check against the data.

    Attributes
    ----------
    kind : {"met", "optimal", "infeasible", "spectral", "none"}
        What is claimed: every measurement is within its tolerance; no matrix has a smaller worst
        error, up to `gap`; no matrix is within tolerance;
        ``(1 - accuracy) A* <= A <= (1 + accuracy) A*``; or nothing.
    upper_bound : float
        ``max|z_i|/delta_i`` recomputed from the data, rounding bound included.
    lower_bound : float
        Proven lower bound on the best achievable ``max|z_i|/delta_i``.
    rounding : float
        Largest rounding bound, as a part of the tolerance.
    matrix : SensedMatrix
        The A that the claim is about.
    dual : ndarray of shape (m,) or None
        With "infeasible": y with ``F*(y) = 0`` and ``|y.b| > sum |y_i| delta_i``.
    tolerance : ndarray of shape (m,)
        The tolerances of the solve.
    conjugate : bool
        Whether the solve took the rows as ``u_i*``.
    psd : bool
        Whether the claim is about positive semidefinite matrices only.
    gap : float
        With "optimal": the claimed relative distance of the two bounds.
    set_aside : ndarray of int
        Measurements that the claim leaves out.
    condition : str
        With "infeasible" and "optimal": what the lower bound takes for granted, if anything.
    data : Measurements or None
        The measurements of the solve; None for a result read from a file.
    """

    kind: str
    upper_bound: float
    lower_bound: float
    rounding: float
    matrix: SensedMatrix
    dual: Vector | None = None
    tolerance: Array = field(default=None, repr=False)
    conjugate: bool = False
    psd: bool = False
    gap: float = 0.0
    set_aside: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    condition: str = ""
    data: Measurements | None = field(default=None, repr=False, compare=False)

    def verify(self, U: Any, b: Any = None, *, delta: Any = None, **options: Any) -> bool:
        """Recompute the claim from the data alone.

        Parameters
        ----------
        U : array, sparse array, Measurements or SpectralOracle
            The probes (then `b` is needed), or the measurements with their tolerance; for a
            result of `solve_spectral`, the oracle.
        b : array_like of shape (m,), optional
            Readings.
        delta : float or array_like of shape (m,), optional
            Tolerance; that of the solve by default.
        **options
            `rtol`, `bounds`, `conjugate` of `Measurements`.

        Returns
        -------
        bool
            Whether the claim holds on these data; False for kind "none".
        """
        if isinstance(U, SpectralOracle):
            return self._is_spectral(U)
        data = self._data(U, b, delta, options)
        if data.n != self.matrix.shape[0]:
            raise ValueError(
                f"the result is of order {self.matrix.shape[0]}, but the data have n = {data.n}"
            )
        if self.set_aside.size:
            data = data.set_aside(self.set_aside)
        if self.kind == "infeasible":
            if self.dual is None or self.dual.shape != (data.m,):
                return False
            return check_infeasible(data, self.dual, self.psd).proved
        if self.kind not in ("met", "optimal"):
            return False
        scaled = data.scaled()
        matrix = on_rows_of(self.matrix, data)
        found = enclosure(matrix, data.unit_rows, scaled.b)
        if self.psd and not is_positive(matrix):
            return False
        if self.kind == "met":
            return is_met(found, scaled.delta, data.sides)
        return self._is_optimal(data, found, scaled.delta)

    def spectral(
        self,
        noise: Any = 0.0,
        *,
        confidence: float | None = None,
        data: Measurements | None = None,
    ) -> SpectralCertificate:
        """How near A is to the true A*, from the data alone, without an oracle.

        Parameters
        ----------
        noise : float or array_like of shape (m,), default=0.0
            Bound on the error of each reading, ``|b_i - u_i* A* u_i|``.
        confidence : float, optional
            In (0, 1): the far tighter bound for errors of random sign, by simulation.
        data : Measurements, optional
            Those of the solve by default; needed for a result read from a file.

        Returns
        -------
        SpectralCertificate
            `delta` of ``(1 - delta) A* <= A <= (1 + delta) A*`` where the measurements determine
            A*, else `unseen`, the number of dimensions that they do not see; `message` says it.

        Notes
        -----
        The paper leaves this open. Its coherence bound forces m <= n, where A* is never
        determined: this certificate lives outside its assumptions.
        """
        data = self.data if data is None else data
        if data is None:
            raise ValueError("this certificate was read from a file: give data=Measurements(U, b)")
        if confidence is not None and not 0 < confidence < 1:
            raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}")
        levels = checked_vector("noise", noise, data.m, scalar=True)
        if np.any(levels < 0):
            raise ValueError(f"noise must not be negative, got {levels.min()}")
        norms = to_numpy(data.unit_rows.norms)
        live = np.flatnonzero(norms > 0)
        squares = norms[live] ** 2
        return spectral_certificate(
            data.unit_rows.as_numpy()[live],
            to_numpy(data.b)[live] / squares,
            np.asarray(self.matrix),
            levels[live] / squares,
            confidence=confidence,
        )

    def _is_spectral(self, oracle: SpectralOracle) -> bool:
        """Whether ``(1 - accuracy) A* <= A <= (1 + accuracy) A*``, with the oracle's A*."""
        found = oracle.eigenvalues(self.matrix.to_dense()) - 1.0
        worst = float(np.abs(to_numpy(found)).max()) + oracle.rounding(found)
        return self.kind == "spectral" and worst <= float(np.min(self.tolerance))

    def _data(self, U: Any, b: Any, delta: Any, options: dict[str, Any]) -> Measurements:
        """The measurements to check against, with a tolerance."""
        if isinstance(U, Measurements):
            data = U if delta is None else U.with_tolerance(delta)
            return data if data.tolerance is not None else data.with_tolerance(self.tolerance)
        given = "bounds" in options or options.get("rtol")
        tolerance = self.tolerance if delta is None and not given else delta
        options.setdefault("conjugate", self.conjugate)
        return Measurements(U, b, delta=tolerance, **options)

    def _is_optimal(self, data: Measurements, found: Any, delta: Any) -> bool:
        """Whether the recomputed upper and lower bound are within the gap."""
        slack = to_numpy(found.error) / to_numpy(delta)
        upper, lower = float((ratios_of(data, found.z) + slack).max()), 0.0
        if self.dual is not None and self.dual.shape == (data.m,):
            lower, _ = best_error_bound(data, self.dual, upper, self.psd)
        return within_gap(data, upper, lower, self.gap)


def ratios_of(data: Measurements, unit_z: Array) -> Vector:
    """``|z_i|/delta_i`` from the residuals of the unit rows; a row of zeros reads 0 whatever A."""
    ratios = excess(unit_z, data.scaled().delta, data.sides)
    dead = to_numpy(data.unit_rows.nonzero) == 0
    if dead.any():
        ratios = np.where(dead, excess(-data.b, data.tolerance, data.sides), ratios)
    return ratios


def is_positive(matrix: SensedMatrix) -> bool:
    """Whether A is positive semidefinite: by its form, or up to rounding of its eigenvalues."""
    if matrix.factor is not None:
        return True
    values = np.linalg.eigvalsh(np.asarray(matrix))
    return bool(values[0] >= -16.0 * UNIT * values.size * max(abs(values[0]), abs(values[-1])))


def on_rows_of(matrix: SensedMatrix, data: Measurements) -> SensedMatrix:
    """The same matrix held on the rows of `data`, where those are its own rows."""
    form = matrix.form
    rows = data.unit_rows
    if not isinstance(form, MeasuredForm) or form.rows is rows:
        return matrix
    own: Any = form.rows
    same = (
        type(own) is type(rows)
        and own.U.shape == rows.U.shape
        and own.conjugate == rows.conjugate
        and (
            (own.U != rows.U).nnz == 0
            if hasattr(own.U, "nnz")
            else bool(np.array_equal(to_numpy(own.U), to_numpy(rows.U)))
        )
        and bool(np.array_equal(to_numpy(own.norms), to_numpy(rows.norms)))
    )
    return SensedMatrix(replace(form, rows=rows)) if same else matrix
