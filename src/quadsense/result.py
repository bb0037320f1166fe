"""What a solve gives back: `Result`, `Status`, `History`, `Certificate`; to a file and from it."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense import files
from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.certificate import enclosure, excess, is_met
from quadsense.core.identify import SpectralCertificate, spectral_certificate
from quadsense.core.matrix import MeasuredForm, SensedMatrix
from quadsense.measurements import Measurements
from quadsense.measurements.validate import checked_rows, checked_vector
from quadsense.methods.spectral import SpectralOracle
from quadsense.proofs import best_error_bound, check_infeasible

FORMAT = "quadsense-result"
PLAIN_FIELDS = (
    "message", "max_residual", "max_ratio", "n_iter", "timings", "plan", "unique", "unseen",
)  # fmt: skip
CLAIM_FIELDS = (
    "upper_bound", "lower_bound", "rounding", "conjugate", "psd", "gap", "condition",
)  # fmt: skip
VERSION = 1


class Status(StrEnum):
    """How a solve ended."""

    MET = "met"
    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    UNDECIDED = "undecided"
    MAX_ITER = "max_iter"
    TIME_LIMIT = "time_limit"
    INTERRUPTED = "interrupted"
    STALLED = "stalled"

    @property
    def success(self) -> bool:
        """Whether the question was answered with a fit: MET or OPTIMAL."""
        return self in (Status.MET, Status.OPTIMAL)


@dataclass(frozen=True)
class History:
    """One entry a stride, the start included; every array has the same length.

    Attributes
    ----------
    iteration : ndarray of int
    seconds : ndarray
    max_residual, max_ratio : ndarray
        ``max|z_i|`` and ``max|z_i|/delta_i``, as maintained.
    log_potential : ndarray
        log Phi at the sharpness of that moment.
    lam, step : ndarray
        The paper's lambda (the sharpest row's) and epsilon, for unit rows.
    sharpness : ndarray
        ``lam * delta``: log Phi bounds the worst ratio by ``arccosh(Phi)/sharpness``.
    """

    iteration: npt.NDArray[np.int64]
    seconds: Vector
    max_residual: Vector
    max_ratio: Vector
    log_potential: Vector
    lam: Vector
    step: Vector
    sharpness: Vector

    def __len__(self) -> int:
        """Number of entries."""
        return int(self.iteration.size)


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
        upper = float((excess(found.z, delta) + slack).max())
        if upper <= 4.0 * float(slack.max()):  # exact, up to rounding
            return True
        if self.dual is None or self.dual.shape != (data.m,):
            return False
        if self.psd:
            lower = check_infeasible(data, self.dual, psd=True).lower_bound
        else:
            lower, _ = best_error_bound(data, self.dual, upper)
        return upper - lower <= 1.001 * self.gap * upper


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


@dataclass(frozen=True)
class Result:
    """The answer to `quadsense.solve`, every field at the same A.

    Attributes
    ----------
    status : Status
    message : str
        One sentence for people: what was met and what that means.
    matrix : SensedMatrix
        The answer, implicit: ``@``, `quadratic`, `trace`, `norm`, `eigsh`, `to_dense`.
    residuals : array of shape (m,)
        ``u_i* A u_i - b_i``, recomputed from the data.
    max_residual, max_ratio : float
        ``max|z_i|`` and ``max|z_i|/delta_i``.
    violations : ndarray of int
        Measurements over their tolerance.
    n_iter : int
        Iterations taken to reach this A.
    history : History
    timings : dict
        Seconds in ``prepare``, ``iterate`` and ``certify``.
    certificate : Certificate
    plan : dict
        Method, form of K and the reasons for both.
    unique : bool or None
        Whether the measurements determine A; None where that was too costly to find out.
    unseen : int or None
        Dimensions of A that no measurement sees (the message says "at least" where the rank of
        the sensing map was too costly to find); None where `unique` is.
    suspects, set_aside : ndarray of int
        Measurements that carry a contradiction; measurements left out on request.
    """

    status: Status
    message: str
    matrix: SensedMatrix
    residuals: Array
    max_residual: float
    max_ratio: float
    violations: npt.NDArray[np.int64]
    n_iter: int
    history: History
    timings: dict[str, float]
    certificate: Certificate
    plan: dict[str, Any]
    unique: bool | None
    unseen: int | None
    suspects: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    set_aside: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def success(self) -> bool:
        """Whether the tolerance was met (or the optimum proven)."""
        return self.status.success

    @cached_property
    def A(self) -> Array:
        """Dense answer, made on first use, in the namespace and on the device of U."""
        return self.matrix.to_dense()

    def __repr__(self) -> str:
        """Status and message."""
        return f"<Result {self.status}: {self.message}>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result to an ``.npz`` file that `load_result` reads; nothing is pickled.

        The file is self-contained. It holds A dense, or its coefficients and U, whichever takes
        less room.
        """
        files.check_writable(path)
        arrays: dict[str, Any] = {
            "residuals": to_numpy(self.residuals),
            "tolerance": to_numpy(self.certificate.tolerance),
            "suspects": self.suspects,
            "set_aside": self.set_aside,
            **{f"history_{name}": values for name, values in asdict(self.history).items()},
        }
        if self.certificate.dual is not None:
            arrays["dual"] = self.certificate.dual
        form = self.matrix.form
        held: dict[str, Any] = {"form": "dense"}
        if (
            isinstance(form, MeasuredForm)
            and form.base is None
            and _bytes(form.rows) < self.matrix.shape[0] ** 2 * 8
        ):
            rows: Any = form.rows
            held = {"form": "measured", "tau": form.tau, "conjugate": rows.conjugate}
            sparse = hasattr(rows.U, "nnz")
            arrays["U"] = rows.U if sparse else to_numpy(rows.U)
            arrays["norms"] = to_numpy(rows.norms)
            arrays["c"] = to_numpy(form.c)
        elif self.matrix.factor is not None:
            held = {"form": "factor"}
            arrays["X"] = to_numpy(self.matrix.factor)
        else:
            arrays["A"] = np.asarray(self.matrix)
        metadata = {
            "format": FORMAT,
            "version": VERSION,
            "matrix": held,
            "status": str(self.status),
            "kind": self.certificate.kind,
            "certificate": {name: getattr(self.certificate, name) for name in CLAIM_FIELDS},
            **{name: getattr(self, name) for name in PLAIN_FIELDS},
            "violations": self.violations.tolist(),
        }
        files.write_arrays(path, arrays, metadata)


def _bytes(rows: Any) -> int:
    """Size of the rows in a file."""
    if hasattr(rows.U, "nnz"):
        return int(rows.U.nnz) * 24
    return int(rows.m * rows.n * (16 if rows.is_complex else 8))


def load_result(path: str | os.PathLike[str]) -> Result:
    """Read a result written by `Result.save`.

    Raises
    ------
    ValueError
        If the file is missing, damaged or not a result.
    """
    arrays = files.read_arrays(path)
    meta = arrays.metadata
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise ValueError(f"{path} is not a quadsense result; it holds {arrays.listing}")
    try:
        return _read(path, arrays, meta)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{path} is a damaged quadsense result ({error!r})") from None


def _read(path: Any, arrays: files.Arrays, meta: dict[str, Any]) -> Result:
    """The result in these arrays and metadata."""
    if meta["version"] > VERSION:
        raise ValueError(
            f"{path} was written by a newer quadsense (format {meta['version']}, this one reads "
            f"up to {VERSION}): upgrade quadsense"
        )
    held = meta["matrix"]
    if held["form"] == "measured":
        rows = checked_rows(arrays["U"], held["conjugate"])
        rows.norms = arrays["norms"]
        matrix = SensedMatrix(MeasuredForm(held["tau"], arrays["c"], rows))
    elif held["form"] == "factor":
        matrix = SensedMatrix.from_factor(arrays["X"])
    else:
        matrix = SensedMatrix.from_dense(arrays["A"])
    history = History(
        **{
            name.removeprefix("history_"): values
            for name, values in arrays.items()
            if name.startswith("history_")
        }
    )
    certificate = Certificate(
        kind=meta["kind"],
        matrix=matrix,
        dual=arrays.get("dual"),
        tolerance=arrays["tolerance"],
        set_aside=arrays["set_aside"],
        **meta["certificate"],
    )
    return Result(
        status=Status(meta["status"]),
        matrix=matrix,
        residuals=arrays["residuals"],
        violations=np.array(meta["violations"], dtype=np.int64),
        history=history,
        certificate=certificate,
        suspects=arrays["suspects"],
        set_aside=arrays["set_aside"],
        **{name: meta[name] for name in PLAIN_FIELDS},
    )
