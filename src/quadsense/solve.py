"""`solve`: the one entry point, typed and described; `road` is where it leads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
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
        PreferName,
        Real,
        RealOrVector,
        ScheduleName,
        Seed,
        SlackName,
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
    weights: RealOrVector | None = None,
    mix: MatrixLike | None = None,
    conjugate: bool = False,
    psd: bool | None = None,
    rank: Whole | tuple[Whole, Whole] | Literal["auto"] | None = None,
    trace: Real | tuple[Real, Real] | None = None,
    constraints: Sequence[tuple[MatrixLike | SensedMatrix | tuple[Any, Any], Real, Real]] = (),
    prefer: PreferName = "auto",
    prior: Real | MatrixLike | SensedMatrix | Result | None = None,
    ridge: Real = 0.0,
    slack: SlackName | None = None,
    allow_violations: Whole = 0,
    method: MethodName = "auto",
    schedule: ScheduleName = "continuation",
    start: StartName | MatrixLike | SensedMatrix | Result | None = None,
    rng: Seed | None = None,
    max_iter: Whole | None = None,
    time_limit: Real | None = None,
    memory_limit: Real | str | None = None,
    callback: Callable[[Intermediate], Any] | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: Real = 60.0,
    **options: Unpack[MethodOptions],
) -> Result:
    """Find the A that is wanted with ``|u_i* A u_i - b_i| <= delta_i`` for every i, certified.

    Parameters
    ----------
    data : array or sparse array of shape (m, n), or Measurements
        The probes, row i is ``u_i`` (then `b` or `bounds` is needed), or measurements.
    b : array_like of shape (m,), optional
        Readings.
    delta : float or array_like of shape (m,), optional
        Tolerance, one for all or one a measurement; 0 asks for equality. For Gaussian noise of
        known sigma see `delta_from_sigma`. Without one, the smallest worst error is sought, and
        both bounds on it.
    rtol : float, default=0.0
        Relative tolerance beside it: ``delta_i + rtol |b_i|``.
    bounds : (lo, hi), optional
        Intervals in place of `delta`; an end may be infinite. `b` beside them is what least
        squares is about; without it, their middles.
    weights : float or array_like of shape (m,), optional
        How much each reading counts in least squares (1/half-width^2 unless given; 1 without a
        tolerance) and in `slack` (1 unless given).
    mix : array or sparse array of shape (p, m), optional
        W, real: the p readings are ``sum_k W_ik u_k* A u_k``, sums over rows of U.
    conjugate : bool, default=False
        Rows are given as ``u_i*`` (as in ``b = |U x|^2``).
    psd : bool, optional
        Seek A among the positive semidefinite matrices only.
    rank : int, (int, int) or "auto", optional
        Seek A among the positive semidefinite matrices of at most this rank; with (p, q) among
        those of at most p positive and q negative eigenvalues; or let the rank grow until delta
        is met. Without a tolerance it is least squares that is sought, and the status is LOCAL:
        at rest, with nothing proved.
    trace : float or (float, float), optional
        What the trace of A must be, or between.
    constraints : sequence of (C, lo, hi), optional
        ``lo <= <C, A> <= hi``, with C dense, sparse, (X, signs) for ``X diag(signs) X*``, or a
        SensedMatrix; ``lo == hi`` asks for equality.
    prefer : {"auto", "least_squares", "nearest", "center", "min_trace", "minimax", "any"}
        Which A of all that fit: smallest weighted sum of squares; nearest to `prior`; the
        analytic centre of all that fit; smallest trace; smallest worst ratio to the tolerance;
        whichever comes first, which is quickest. "auto" is least squares where there are as many
        readings as unknowns, else the centre (with `psd`) or the nearest; `result.plan` says why.
        See docs/how_to_choose.md.
    prior : float, matrix or Result, optional
        What "nearest" and `ridge` are about; a number is that multiple of I. By default 0 for
        `ridge`, and the multiple of I that fits best for "nearest".
    ridge : float, default=0.0
        Add ``ridge ||A - prior||_F^2`` to the sum of squares.
    slack : {"max", "sum", "squares"}, optional
        Intervals may be missed, at a price: minimise the largest of ``w_i v_i``, their sum, or
        the sum of ``w_i v_i^2``, where v_i is by how much reading i misses its interval.
    allow_violations : int, default=0
        Set at most so many measurements aside if the others can be met without them.
    method : {"auto", "closed_form", "gd", "sgd", "cg", "minimax", "psd", "factored", "conic", \
"fista"}
        "auto" (the default) goes by what is preferred: "fista" for least squares, "conic" for the
        others; for any fit the closed form for orthonormal rows, else least squares by "cg",
        and where that does not meet delta "minimax", which ends in MET or INFEASIBLE; "psd" for
        `psd`, "factored" for `rank`.
    schedule : {"continuation", "paper"}, default="continuation"
        "paper" runs with the constants of the lemmas, at most as many steps as they ask for.
    start : {"mean", "tau", "zero"}, matrix or Result, optional
        Where to begin; an earlier result makes a warm start. Where any fit will do, it is also
        the A_1 from which the nearest fit is sought: the multiple of I that fits best, the
        largest reading times I (the paper's, and the default of its schedule), 0 (readings
        taken for rows of unit norm), or any matrix.
    rng : int or numpy.random.Generator, optional
        Seed of `sgd`'s batches and of `factored`'s starts; the same seed gives the same bits.
    max_iter : int, optional
        Most iterations; by default only the lemma's number with the paper's schedule, and none
        otherwise: a run that no longer moves ends as STALLED.
    time_limit : float, optional
        Most seconds from the call on, whatever takes them; what was found until then is checked
        and returned.
    memory_limit : int or str, optional
        Most bytes, as a number or as "1 GiB", beside what is in memory already: what cannot keep
        to it is refused before it begins. By default what is free. With rows in files (see
        `Measurements.open`) it bounds all that is taken.
    callback : callable, optional
        ``callback(intermediate_result)`` after every stride: `n_iter`, `max_residual`,
        `max_ratio`, `matrix`. StopIteration ends the run.
    progress : bool, default=False
        Show a bar with the worst residual against delta.
    checkpoint : path-like, optional
        A folder in which to write down where the run is, so that it survives: the same call with
        the same folder goes on from there, bit for bit, and once the solve is over answers again
        at once. The folder of other data or of another request is refused; remove it to begin
        anew. `time_limit`, `callback` and `progress` may be others. See docs/how_it_works.md.
    checkpoint_every : float, default=60.0
        Seconds between two writings, at least: they take no more than 2% of the time. 0: after
        every stride, whatever it takes.
    **options
        `gd` and `sgd`: `lam`, `step` or `c` = step x lam override the schedule (for unit rows);
        `sgd`: `batch_size`, `norm` ("exact" or "bound"), `failure`; `minimax`, `psd`, `conic`,
        `fista`: `gap`, the relative distance of the two bounds at which to stop; `factored`:
        `max_restarts`; `cg`, `psd`: `allow_tf32`, for rows on a GPU: steps may use products of
        TF32 (three digits in a fourth of the time, of a copy of U in float32), while A and all
        that is claimed of it stay float64. Without effect on a CPU.

    Returns
    -------
    Result
        Non-convergence is a status, never an exception, and A is there in every status.

    Raises
    ------
    ValueError
        For bad input, naming the argument, the row and the value; for a checkpoint that is of
        something else, naming what differs.
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
    >>> import numpy as np, quadsense
    >>> p = quadsense.datasets.orthonormal(n=50, m=30, seed=0)
    >>> result = quadsense.solve(p.U, p.b, delta=0.01)
    >>> result.status, bool(result.certificate.verify(p.U, p.b))
    (<Status.MET: 'met'>, True)

    The least trace of all that fit, and how little it can be:

    >>> U = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> least = quadsense.solve(U, [1.0, 2.0, 3.0], delta=0.1, psd=True, prefer="min_trace")
    >>> least.optimal, round(least.objective, 4), round(least.objective_bounds[0], 4)
    (True, 2.8025, 2.7991)

    Intervals that contradict each other, each to be missed by as little as can be:

    >>> soft = quadsense.solve([[1.0], [1.0]], [1.0, 2.0], delta=0.1, slack="max")
    >>> soft.status, round(soft.objective, 4), round(float(soft.A[0, 0]), 4)
    (<Status.OPTIMAL: 'optimal'>, 0.4, 1.5)
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
        memory_limit=memory_limit,
        rng=rng,
        callback=callback,
        progress=progress,
        conjugate=conjugate,
        mix=mix,
        weights=weights,
        trace=trace,
        constraints=constraints,
        prefer=prefer,
        prior=prior,
        ridge=ridge,
        slack=slack,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        options=options,
    )
