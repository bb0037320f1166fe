"""`solve_spectral`: Algorithm 3 of the paper, with an oracle of A*."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from quadsense.arrays import device, namespace, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.measurements.arrays import Dense
from quadsense.measurements.gram import IdentityGram
from quadsense.measurements.oracle import SpectralOracle, checked_square, symmetrised
from quadsense.measurements.sensing import Sensing
from quadsense.methods import METHODS
from quadsense.methods.base import MethodOptions
from quadsense.methods.descent.gd import GradientDescent, Spectral, SpectralProblem
from quadsense.proofs.rounding import Enclosure, is_met
from quadsense.query.query import Query
from quadsense.query.request import (
    check_options,
    given_options,
    refuse_unknown,
)
from quadsense.result.certificate import Certificate
from quadsense.result.facts import Determined, Row, RunFacts
from quadsense.result.result import Result
from quadsense.run.loop import Intermediate, run
from quadsense.system.threads import with_one_blas_thread
from quadsense.system.watch import Interrupted, Watch
from quadsense.typing import MatrixLike, Real, ScheduleName, Whole, is_number
from quadsense.vocabulary import Status, to_history, to_reason


@with_one_blas_thread
def solve_spectral(
    oracle: SpectralOracle,
    A1: MatrixLike,
    *,
    accuracy: Real = 0.1,
    schedule: ScheduleName = "continuation",
    max_iter: Whole | None = None,
    time_limit: Real | None = None,
    callback: Callable[[Intermediate], Any] | None = None,
    progress: bool = False,
    **options: Unpack[MethodOptions],
) -> Result:
    """Find A with ``(1 - accuracy) A* <= A <= (1 + accuracy) A*`` [QSZ24, Algorithm 3].

    Parameters
    ----------
    oracle : SpectralOracle
        Both directions of ``A*^{-1/2} . A*^{-1/2}``.
    A1 : array of shape (n, n)
        The start, symmetric or Hermitian.
    accuracy : float, default=0.1
        The delta of the spectral guarantee, below 1.
    schedule, max_iter, time_limit, callback, progress, **options
        As in `solve` (`lam`, `step`, `c`).

    Returns
    -------
    Result
        `max_residual` is ``||I - A*^{-1/2} A A*^{-1/2}||``; `residuals` are its eigenvalues.

    Examples
    --------
    >>> import numpy as np, quadsense
    >>> A_star = np.diag([1.0, 2.0, 4.0])
    >>> result = quadsense.solve_spectral(quadsense.SpectralOracle(A_star), np.eye(3))
    >>> result.status, bool(result.max_residual <= 0.1)
    (<Status.MET: 'met'>, True)
    """
    watch = Watch()
    interrupts = watch.interrupts
    query = Query(
        None, schedule=schedule, max_iter=max_iter, time_limit=time_limit, callback=callback,
        progress=progress, options=options,
    )  # fmt: skip
    named = ("oracle", "A1", "accuracy", "schedule", "max_iter", "time_limit", "callback")
    refuse_unknown("solve_spectral", (*named, "progress"), options)
    if not isinstance(oracle, SpectralOracle):
        raise ValueError(f"oracle must be a quadsense.SpectralOracle, got {type(oracle).__name__}")
    if not (is_number(accuracy) and 0 < accuracy < 1):
        raise ValueError(f"accuracy must lie strictly between 0 and 1, got {accuracy!r}")
    accuracy = float(accuracy)
    A_1 = checked_square("A1", A1)
    if oracle.n not in (None, A_1.shape[0]):
        raise ValueError(f"A1 is of order {A_1.shape[0]}, but A_star of order {oracle.n}")
    xp = namespace(A_1)
    n = int(A_1.shape[0])
    query.check(None)
    given = given_options(query, n)
    check_options((GradientDescent.name,), given, GradientDescent.name)
    limits = query.limits(watch)
    values, vectors = xp.linalg.eigh(symmetrised(oracle.whiten(A_1)))
    problem = SpectralProblem(
        rows=Sensing(Dense(xp.eye(n, dtype=xp.float64, device=device(A_1)))),
        gram=IdentityGram(n),
        b=1.0 - values,
        delta=0.0 * values + accuracy,
        tau=0.0,
        options=METHODS.options(GradientDescent.name, given),
        A_1=A_1,
        vectors=vectors,
        color=oracle.color,
    )

    def certify(matrix: SensedMatrix) -> Enclosure:
        found = oracle.eigenvalues(matrix.to_dense()) - 1.0
        return Enclosure(found, 0.0 * found + oracle.rounding(found))

    with interrupts:
        outcome = run(Spectral(), problem, certify, to_numpy(problem.delta), limits)
    z, error = (to_numpy(part) for part in outcome.found)
    worst, rounding = float(np.abs(z).max()), float(error.max())
    met = outcome.status is Status.MET and is_met(outcome.found, problem.ends)
    matrix = outcome.matrix
    kind, upper = "spectral" if met else "none", (worst + rounding) / accuracy
    row = Row(int(np.abs(z).argmax()), worst, tolerance=accuracy)
    violations = np.flatnonzero(np.abs(z) > accuracy)
    unknowns = problem.rows.unknowns if not np.iscomplexobj(to_numpy(A_1)) else n * n
    facts = RunFacts(
        asked="accuracy",
        determined=Determined(0, unknowns, True),
        worst=row,
        nearest=row,
        reason=None if met else to_reason(outcome.reason),
    )
    result = Result(
        status=outcome.status,
        matrix=matrix,
        residuals=outcome.found.z,
        max_ratio=worst / accuracy,
        violations=violations,
        n_iter=outcome.n_iter,
        history=to_history(outcome.entries),
        timings=watch.timings(),
        certificate=Certificate(
            kind=kind,
            upper_bound=upper,
            lower_bound=0.0,
            rounding=rounding / accuracy,
            matrix=matrix,
            tolerance=to_numpy(problem.delta),
        ),
        plan={
            "method": "spectral",
            "gram": "identity",
            "threads": {},
            "reasons": ["one eigendecomposition serves every iteration"],
            "lemma": outcome.lemma and "Lemma C.1 and C.2",
        },
        facts=facts,
    )
    if interrupts.pressed:
        raise Interrupted(result)
    return result
