"""Single problems of a batch in the terms of `solve`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, to_numpy
from quadsense.core import products
from quadsense.core.matrix import SensedMatrix
from quadsense.core.records import changed
from quadsense.many.batch import Answers, Batch
from quadsense.preferences import Preference
from quadsense.result.certificate import Certificate
from quadsense.result.result import Result
from quadsense.result.values import Objective
from quadsense.solve import solve
from quadsense.vocabulary import Status

FINE_GAP = 1e-17
"""Gap to which an answer is brought before `solve` proves it: a bound that takes no account of
curvature, as its does, is worse by the root."""

DOWN = 1.0 - 1e-9
"""Factor by which a sum of squares may seem smaller by rounding."""

MIN_GAP, MAX_GAP = 1e-12, 0.5
"""Gaps that `solve` is asked for: it cannot close one of no size."""


def readings_of(batch: Batch, number: int, b: Any = None) -> dict[str, Any]:
    """Return the readings, tolerances and weights of a problem as arguments of `solve`.

    Parameters
    ----------
    batch : Batch
    number : int
    b : ndarray of shape (m,), optional
        In place of those of the batch.
    """
    readings = batch.readings

    def own(values: Any) -> Any:
        if values is None:
            return None
        row = _numbers(values[0 if values.shape[0] == 1 else number])
        return np.full(readings.m, row[0]) if row.shape != (readings.m,) else row

    given = _numbers(readings.B[number : number + 1])[0] if b is None else b
    delta = own(readings.delta)
    if readings.rtol:
        delta = (0.0 if delta is None else delta) + readings.rtol * np.abs(given)
        delta = np.where(np.isnan(delta), 0.0, delta)
    bounds = None if readings.lo is None else (own(readings.lo), own(readings.hi))
    found = {"b": given, "delta": delta, "bounds": bounds, "weights": own(readings.weights)}
    return found | {"missing": "drop" if readings.drop else "raise"}


def _numbers(values: Any) -> Vector:
    """Return numbers that were checked, in main memory."""
    return np.asarray(to_numpy(values), np.float64)


def _question(batch: Batch) -> dict[str, Any]:
    """Return what is asked of A, as arguments of `solve`."""
    gap = min(max(batch.gap, MIN_GAP), MAX_GAP)
    return {
        "psd": batch.psd, "prefer": "least_squares", "ridge": 0.0, "gap": gap,
        "conjugate": batch.conjugate,
    }  # fmt: skip


def solve_alone(batch: Batch, number: int, time_limit: float | None = None) -> Result:
    """Return what `solve` says of a problem, its covariates included.

    A covariate is a further diagonal entry of A that no probe sees but a sum over rows (`mix`); two
    of opposite signs where A is positive semidefinite, for its coefficient may be negative.
    """
    features, U = batch.features, batch.given
    given = readings_of(batch, number)
    m, n = U.shape
    more: dict[str, Any] = {"time_limit": time_limit} | _question(batch)
    if not features.p:
        trace = batch.trace
        return solve(U, given.pop("b"), trace=trace, **given, **more)
    X = features.psi[:m, : features.p]
    X = np.concatenate([X, -X], axis=1) if batch.psd else X
    extra = X.shape[1]
    wide = np.zeros((m + extra, n + extra), U.dtype)
    wide[:m, :n] = U
    wide[m:, n:] = np.eye(extra)
    if batch.trace is not None:
        lo, hi = np.broadcast_to(batch.trace, (2,))
        C = np.diag(np.repeat([1.0, 0.0], [n, extra]))
        more["constraints"] = [(C, float(lo), float(hi))]
    mix = np.concatenate([np.eye(m), X], axis=1)
    return solve(wide, given.pop("b"), mix=mix, **given, **more)


def take(
    batch: Batch, answers: Answers, number: int, result: Result, place: int | None = None
) -> None:
    """Write down what `solve` said of a problem, at its number or at another place."""
    i = number if place is None else place
    features, n, p = batch.features, batch.features.n, batch.features.p
    A = np.asarray(result.matrix)
    wanted = A[:n, :n] if features.is_complex else np.real(A[:n, :n])
    answers.packed[i] = products.pack(np.ascontiguousarray(wanted))
    if p:
        c = np.real(np.diagonal(A))[n:]
        c = c[:p] - c[p:] if batch.psd else c
        answers.coef[i] = c / features.scales
    answers.status[i] = list(Status).index(result.status)
    answers.max_ratio[i] = result.max_ratio
    sizes = np.abs(np.asarray(result.residuals))
    tolerance = result.certificate.tolerance
    if tolerance is not None:
        units = np.asarray(tolerance)[: sizes.size]
        sizes = np.divide(sizes, units, out=np.zeros_like(sizes), where=units > 0.0)
    answers.worst_row[i] = int(np.argmax(sizes))
    infeasible = result.status is Status.INFEASIBLE
    answers.lower_bound[i] = result.certificate.lower_bound if infeasible else 0.0
    claim = result.fit if result.fit is not None else result.certificate.objective
    if claim is None:
        y = np.concatenate([answers.coef[i] * features.scales, answers.packed[i]])
        chunk = batch.readings.chunk(number, number + 1)
        z = features.psi[: chunk.b.size] @ y - chunk.b[0]
        answers.objective[i] = chunk.weights[0] @ z**2
        answers.objective_lower[i], answers.closed[i] = 0.0, False
    else:
        answers.objective[i] = claim.value
        answers.objective_lower[i] = max(claim.lower, 0.0)
        answers.closed[i] = claim.closed
    answers.met[i] = result.status is Status.MET
    answers.corrected[i] = batch.psd


def certified(batch: Batch, answers: Answers, number: int) -> Result:
    """Return the ordinary result of a problem: `solve` from the answer that is known.

    `solve` takes an earlier answer whose dual vector proves it optimal as it is. With covariates
    the readings are those minus the fitted covariates.
    """
    features, m = batch.features, batch.readings.m
    chunk, given = batch.readings.chunk(number, number + 1), readings_of(batch, number)
    fine = Answers.empty(1, features.size, features.p)
    changed(batch, gap=FINE_GAP).work(changed(chunk, first=0), fine, within=False)
    if answers.closed[number] and fine.objective[0] >= answers.objective_lower[number] * DOWN:
        answers, number = fine, 0
    y = np.concatenate([answers.coef[number] * features.scales, answers.packed[number]])
    if not np.isfinite(y).all():
        return solve_alone(batch, number)
    if features.p:
        fitted = features.psi[:m, : features.p] @ y[: features.p]
        given["b"] = given["b"] - fitted
        if given["bounds"] is not None:
            given["bounds"] = tuple(end - fitted for end in given["bounds"])
    b = given.pop("b")
    known = _known(batch, chunk.weights[0], chunk.b[0], y)
    return solve(batch.given, b, trace=batch.trace, start=known, **given, **_question(batch))


def _known(batch: Batch, w: Vector, b: Vector, y: Vector) -> Result:
    """Return an answer as an earlier result: A, and the dual vector of its sum of squares."""
    features, n, p = batch.features, batch.features.n, batch.features.p
    kind = np.complex128 if features.is_complex else np.float64
    A = products.unpack(y[p:], n, kind)
    m = batch.readings.m
    dual = 2.0 * w * (features.psi[:m] @ y - b)
    if batch.trace is not None:
        G = products.unpack(dual @ features.psi[:m, p:], n, kind)
        dual = np.append(dual, -_level(G, A))
    matrix = SensedMatrix.from_dense(A)
    if batch.psd:
        values, V = np.linalg.eigh(A)
        kept = values > 0.0
        matrix = SensedMatrix.from_factor(V[:, kept] * np.sqrt(values[kept]))
    claim = Objective(
        Preference("least_squares", batch.psd), 0.0, 0.0, np.inf, batch.gap, dual, "", False
    )
    certificate = Certificate("none", np.inf, 0.0, 0.0, matrix, objective=claim)
    return Result.of({}, matrix=matrix, residuals=np.zeros(m), certificate=certificate)


def _level(G: npt.NDArray[Any], A: npt.NDArray[Any]) -> float:
    """Return the multiplier of the trace: what G is on the range of A."""
    total = float(np.trace(A).real)
    if not total > 0.0:
        return float(np.linalg.eigvalsh(G)[0])
    return float(np.vdot(A, G).real) / total
