"""Claims about many problems, recomputed from the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector
from quadsense.core.intervals import UNIT
from quadsense.core.matrix import SensedMatrix
from quadsense.many.batch import NEGLIGIBLE, Answers, Batch
from quadsense.many.fallback import certified, solve_alone, take
from quadsense.many.normal import Normal
from quadsense.many.readings import Chunk
from quadsense.many.results import STATUSES, ManyResults
from quadsense.proofs.definite import is_positive
from quadsense.result.values import evaluate
from quadsense.system.threads import with_one_blas_thread
from quadsense.system.watch import look
from quadsense.vocabulary import Status

AGREE = 1e-7
"""Relative difference at which a stated number counts as the recomputed one."""

DEFINITE = 16.0 * UNIT
"""Negative eigenvalue, over n and the largest, that is rounding (see `definite.is_positive`)."""

CLAIMING = (Status.MET, Status.OPTIMAL, Status.INFEASIBLE)
"""Statuses that claim something."""


@with_one_blas_thread
def verified(results: ManyResults) -> npt.NDArray[np.bool_]:
    """Return which claims hold on the data of the results."""
    batch, answers = results.asked_batch, results.answers
    k = len(results)
    claiming = np.isin(answers.status, [STATUSES.index(status) for status in CLAIMING])
    found = np.zeros(k, np.bool_)
    # Bounds that are proved from the data, whatever the answers are.
    again = Answers.empty(k, batch.features.size, batch.features.p)
    for first in range(0, k, batch.chunk_rows):
        look()
        last = min(first + batch.chunk_rows, k)
        chunk = batch.readings.chunk(first, last)
        batch.work(chunk, again)
        for index, normal in batch.groups(chunk):
            own = first + index
            found[own] = _holds(batch, chunk.taken(index), normal, answers, again, own)
    for number in np.flatnonzero(claiming & ~found):
        found[number] = _holds_alone(batch, answers, int(number))
    return found & claiming


def _holds(
    batch: Batch, chunk: Chunk, normal: Normal, answers: Answers, again: Answers, index: Any
) -> npt.NDArray[np.bool_]:
    """Return which claims hold by the compiled loops: of A by itself, on all A by their bounds."""
    features, p = batch.features, batch.features.p
    y = np.concatenate([answers.coef[index] * features.scales, answers.packed[index]], axis=1)
    b = features.readings(chunk.b)
    known = np.isfinite(y).all(axis=1)
    y = np.where(known[:, None], y, 0.0)
    x = y[:, p:]
    floor = batch.floor_of(chunk, normal)
    of_A = batch.claims(chunk, normal, b, y, np.zeros_like(x), floor)
    infeasible = answers.status[index] == STATUSES.index(Status.INFEASIBLE)
    met = answers.status[index] == STATUSES.index(Status.MET)
    cost, lower = of_A["objective"], again.objective_lower[index]
    low = np.maximum(again.lower_bound[index], of_A["lower_bound"])
    sound = known & _near(answers.max_ratio[index], of_A["max_ratio"])
    sound &= _near(answers.objective[index], cost, floor)
    sound &= answers.objective_lower[index] <= lower * (1.0 + AGREE) + floor
    sound &= ~answers.closed[index] | (cost - lower <= batch.gap * (1.0 + AGREE) * cost + floor)
    sound &= ~(answers.met[index] | met) | of_A["met"]
    sound &= np.where(infeasible, low > 1.0, True)
    sound &= answers.lower_bound[index] <= low * (1.0 + AGREE)
    sound &= batch.trace_held(x) | infeasible
    if batch.psd:
        sound &= _semidefinite(batch, x)
    return np.asarray(sound)


def _near(stated: Vector, found: Vector, room: Any = 1e-12) -> npt.NDArray[np.bool_]:
    return np.asarray(np.abs(stated - found) <= AGREE * np.abs(found) + room)


def _semidefinite(batch: Batch, x: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return which matrices are positive semidefinite up to the rounding of their eigenvalues."""
    values = np.linalg.eigvalsh(batch.features.matrices(x))
    most = np.abs(values).max(axis=1)
    return np.asarray(values[:, 0] >= -DEFINITE * batch.features.n * most)


def _holds_alone(batch: Batch, answers: Answers, number: int) -> bool:
    """Return whether `solve` proves what is claimed of a problem, whose intervals may bind."""
    status = STATUSES[answers.status[number]]
    features = batch.features
    if features.p:
        return _found_again(batch, answers, number)
    y = answers.packed[number]
    if not np.isfinite(y).all():
        return False
    if status is Status.INFEASIBLE:  # from the known answer the bound would be another one
        one = solve_alone(batch, number)
    else:
        one = certified(batch, answers, number)
    data, claim = one.certificate.data, one.fit or one.certificate.objective
    if one.status is not status or data is None or not one.certificate.verify(data):
        return False
    if claim is None:  # of a contradiction alone
        low = one.certificate.lower_bound * (1.0 + AGREE)
        return bool(answers.objective_lower[number] == 0.0 and answers.lower_bound[number] <= low)
    matrix = SensedMatrix.from_dense(features.matrices(y[None, features.p :])[0])
    if batch.psd and not is_positive(matrix):
        return False
    if status is Status.MET and not evaluate(data, matrix).met.all():
        return False
    chunk = batch.readings.chunk(number, number + 1)
    z = features.psi[: batch.readings.m] @ y - chunk.b[0]
    value = float(chunk.weights[0] @ z**2)
    room = (
        AGREE * value + claim.value * batch.gap + NEGLIGIBLE**2 * chunk.weights[0] @ chunk.b[0] ** 2
    )
    return bool(
        abs(answers.objective[number] - value) <= room
        and claim.lower - room <= value
        and answers.objective_lower[number] <= claim.value + room
        and answers.lower_bound[number] <= one.certificate.lower_bound * (1.0 + AGREE)
    )


def _found_again(batch: Batch, answers: Answers, number: int) -> bool:
    """Return whether `solve` finds the same answer of a problem with covariates, and proves it."""
    one = solve_alone(batch, number)
    again = Answers.empty(1, batch.features.size, batch.features.p)
    take(batch, again, number, one, 0)
    data = one.certificate.data
    return (
        data is not None
        and one.certificate.verify(data)
        and all(
            np.allclose(values[number], getattr(again, name)[0], rtol=AGREE, equal_nan=True)
            for name, values in vars(answers).items()
        )
    )
