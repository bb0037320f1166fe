"""`solve`: the one entry point, typed and described; `road` is where it leads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Unpack

if TYPE_CHECKING:
    from quadsense.core.matrix import SensedMatrix
    from quadsense.loop import Intermediate
    from quadsense.measurements import Measurements
    from quadsense.methods.base import MethodOptions
    from quadsense.result import Result
    from quadsense.typing import (
        MatrixLike,
        MethodName,
        Real,
        RealOrVector,
        ScheduleName,
        Seed,
        StartName,
        VectorLike,
        Whole,
    )


def solve(
    data: MatrixLike | Measurements,
    b: VectorLike | None = None,
    *,
    delta: RealOrVector | None = None,
    rtol: Real = 0.0,
    bounds: tuple[RealOrVector, RealOrVector] | None = None,
    method: MethodName = "auto",
    psd: bool | None = None,
    rank: Whole | Literal["auto"] | None = None,
    start: StartName | MatrixLike | SensedMatrix | Result | None = None,
    schedule: ScheduleName = "continuation",
    allow_violations: Whole = 0,
    max_iter: Whole | None = None,
    time_limit: Real | None = None,
    rng: Seed | None = None,
    callback: Callable[[Intermediate], Any] | None = None,
    progress: bool = False,
    conjugate: bool = False,
    mix: MatrixLike | None = None,
    **options: Unpack[MethodOptions],
) -> Result:
    """Find A with ``|u_i* A u_i - b_i| <= delta_i`` for every i, of any rank, with a certificate.

    Parameters
    ----------
    data : array or sparse array of shape (m, n), or Measurements
        The probes, row i is ``u_i`` (then `b` or `bounds` is needed), or measurements.
    b : array_like of shape (m,), optional
        Readings.
    delta : float or array_like of shape (m,), optional
        Tolerance, one for all or one a measurement. For Gaussian noise of known sigma see
        `delta_from_sigma`. Without one, the smallest worst error is sought, and both bounds on it.
    rtol : float, default=0.0
        Relative tolerance beside it: ``delta_i + rtol |b_i|``.
    bounds : (lo, hi), optional
        Intervals in place of `b` and `delta`; an end may be infinite.
    method : {"auto", "closed_form", "gd", "sgd", "cg", "minimax", "psd", "factored", "fista"}
        "auto" (the default) is the closed form for orthonormal rows; else least squares by "cg",
        and where that does not meet delta "minimax", which ends in MET or INFEASIBLE; "psd" for
        `psd`, "factored" for `rank`.
    psd : bool, optional
        Seek A among the positive semidefinite matrices only.
    rank : int or "auto", optional
        Seek A among the positive semidefinite matrices of at most this rank, or let the rank grow
        until delta is met.
    start : {"mean", "tau", "zero"}, matrix or Result, optional
        The A_1 from which the nearest fit is sought: the multiple of I that fits best, the
        largest reading times I (the paper's, and the default of its schedule), 0 (readings
        taken for rows of unit norm), or any matrix; an earlier result makes a warm start.
    schedule : {"continuation", "paper"}, default="continuation"
        "paper" runs with the constants of the lemmas, at most as many steps as they ask for.
    allow_violations : int, default=0
        Set at most so many measurements aside if the others can be met without them.
    max_iter : int, optional
        Most iterations; by default only the lemma's number with the paper's schedule, and none
        otherwise: a run that no longer moves ends as STALLED.
    time_limit : float, optional
        Most seconds, whatever takes them; what was found until then is checked and returned.
    rng : int or numpy.random.Generator, optional
        Seed of `sgd`'s batches; the same seed gives the same bits.
    callback : callable, optional
        ``callback(intermediate_result)`` after every stride: `n_iter`, `max_residual`,
        `max_ratio`, `matrix`. StopIteration ends the run.
    progress : bool, default=False
        Show a bar with the worst residual against delta.
    conjugate : bool, default=False
        Rows are given as ``u_i*`` (as in ``b = |U x|^2``).
    mix : array or sparse array of shape (p, m), optional
        W, real: the p readings are ``sum_k W_ik u_k* A u_k``, sums over rows of U.
    **options
        `gd` and `sgd`: `lam`, `step` or `c` = step x lam override the schedule (for unit rows);
        `sgd`: `batch_size`, `norm` ("exact" or "bound"), `failure`; `minimax`, `psd`, `fista`:
        `gap`, the relative distance of the two bounds at which to stop; `factored`:
        `max_restarts`.

    Returns
    -------
    Result
        Non-convergence is a status, never an exception, and A is there in every status.

    Raises
    ------
    ValueError
        For bad input, naming the argument, the row and the value.
    TypeError
        For an unknown keyword, with the nearest one that exists.
    KeyboardInterrupt
        After Ctrl-C or SIGTERM, once the stride at hand is over; its ``.result`` is the best so
        far. A second Ctrl-C acts at once.
    MemoryError
        Before anything is allocated, if the method cannot fit in memory.

    Notes
    -----
    Of all matrices that fit, `gd`, `sgd`, `cg` and the closed form tend, as delta shrinks, to the
    one nearest to A_1 in Frobenius norm: they stay in ``A_1 + range(F*)``.

    References
    ----------
    [QSZ24] Qin, Song, Zhang, "A General Algorithm for Solving Rank-one Matrix Sensing",
    AISTATS 2024.

    Examples
    --------
    >>> import quadsense
    >>> p = quadsense.datasets.orthonormal(n=50, m=30, seed=0)
    >>> result = quadsense.solve(p.U, p.b, delta=0.01)
    >>> result.status, bool(result.certificate.verify(p.U, p.b))
    (<Status.MET: 'met'>, True)
    """
    from quadsense.request import refuse_unknown
    from quadsense.road import travel  # at the first solve: with all that it needs, 30 modules

    refuse_unknown(solve, options)
    return travel(
        data,
        b,
        delta=delta,
        rtol=rtol,
        bounds=bounds,
        method=method,
        psd=psd,
        rank=rank,
        start=start,
        schedule=schedule,
        allow_violations=allow_violations,
        max_iter=max_iter,
        time_limit=time_limit,
        rng=rng,
        callback=callback,
        progress=progress,
        conjugate=conjugate,
        mix=mix,
        options=options,
    )
