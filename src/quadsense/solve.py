"""`solve`: the one entry point, typed and described; `stages.path` is what it does."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

if TYPE_CHECKING:
    from quadsense.core.matrix import SensedMatrix
    from quadsense.measurements import Measurements
    from quadsense.methods.base import MethodOptions
    from quadsense.result.result import Result
    from quadsense.run.loop import Intermediate
    from quadsense.typing import (
        MatrixLike,
        MethodName,
        MissingName,
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
    sigma: Real | None = None,
    shots: RealOrVector | None = None,
    exposure: RealOrVector | None = None,
    background: RealOrVector | None = None,
    confidence: Real = 0.95,
    missing: MissingName = "raise",
    weights: RealOrVector | None = None,
    mix: MatrixLike | None = None,
    conjugate: bool = False,
    psd: bool | None = None,
    rank: Whole | tuple[Whole, Whole] | Literal["auto"] | None = None,
    trace: Real | tuple[Real, Real] | None = None,
    constraints: Sequence[tuple[MatrixLike | SensedMatrix | tuple[Any, Any], Real, Real]] = (),
    prefer: PreferName = "auto",
    prior: Real | MatrixLike | SensedMatrix | Result | None = None,
    ridge: Real | Literal["auto"] = "auto",
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
    """Find the A with ``|u_i* A u_i - b_i| <= delta_i`` for every i that `prefer` names, certified.

    By default this is least squares in units of the tolerances, with a weak pull towards the
    multiple of I that fits best. Where the columns of U differ in size by a factor of 8 or more
    they are scaled by powers of two for it (see docs/theory.md). The rule depends on the request
    alone, so that the same call returns the same A on every machine; ``result.plan["reasons"]``
    states it.

    Parameters
    ----------
    data : array or sparse array of shape (m, n), or Measurements
        The probes, row i is ``u_i`` (then `b` or `bounds` is needed), or measurements.
    b : array_like of shape (m,), optional
        Readings.
    delta : float or array_like of shape (m,), optional
        Tolerance, one for all or one per measurement; 0 asks for equality. For Gaussian noise of
        known sigma see `delta_from_sigma`. Without one, A is the least-squares fit, and the
        message gives the smallest delta that it meets; ``prefer="minimax"`` finds the smallest
        delta that any A meets, with both bounds on it.
    rtol : float, default=0.0
        Relative tolerance, added to `delta`: ``delta_i + rtol |b_i|``.
    bounds : (lo, hi), optional
        Intervals in place of `delta`; an end may be infinite. If `b` is given too, least squares
        is about `b`, otherwise about their middles.
    sigma : float, optional
        In place of `delta`: readings have Gaussian errors of this standard deviation. The
        tolerance covers all of them at once, see `delta_from_sigma`.
    shots : int or array_like of shape (m,), optional
        In place of `delta`: b holds counts, each out of `shots`. Readings are ``b / shots``,
        within the intervals of `bounds_from_counts`.
    exposure : float or array_like of shape (m,), optional
        With ``prefer="likelihood"``: b holds Poisson counts, of mean ``exposure * F(A)``.
    background : float or array_like of shape (m,), optional
        With ``prefer="likelihood"``: counts that are expected without A.
    confidence : float, default=0.95
        Probability that all readings are within the tolerances of `sigma` or `shots`.
    missing : {"raise", "drop"}, default="raise"
        What to do about NaN in b: "drop" asks nothing of these rows, whose numbers stay.
    weights : float or array_like of shape (m,), optional
        How much each reading counts in least squares, ``w_i (F(A)_i - b_i)^2``, and in `slack`.
        By default 1/half-width^2 in least squares (1 without a tolerance) and 1 in `slack`. A row
        with one end has no half-width: in least squares it bounds A, but adds nothing to the sum
        unless `b` and a weight are given for it.
    mix : array or sparse array of shape (p, m), optional
        W, real: the p readings are ``sum_k W_ik u_k* A u_k``, sums over rows of U.
    conjugate : bool, default=False
        Rows are given as ``u_i*`` (as in ``b = |U x|^2``).
    psd : bool, optional
        Seek A among the positive semidefinite matrices only.
    rank : int, (int, int) or "auto", optional
        Seek A among the positive semidefinite matrices of at most this rank; with (p, q) among
        those of at most p positive and q negative eigenvalues; or let the rank grow until delta
        is met. The fit is improved to least squares; without a tolerance the status is then
        LOCAL: stationary, with nothing proved.
    trace : float or (float, float), optional
        What the trace of A must be, or between.
    constraints : sequence of (C, lo, hi), optional
        ``lo <= <C, A> <= hi``, with C dense, sparse, (X, signs) for ``X diag(signs) X*``, or a
        SensedMatrix; ``lo == hi`` asks for equality.
    prefer : {"auto", "least_squares", "likelihood", "entropy", "nearest", "center", \
"min_trace", "minimax", "any"}
        Which A of all that fit: smallest weighted sum of squares, with the pull of `ridge`; under
        which counts b, out of `shots` or during `exposure`, are likeliest, whatever their
        intervals; least squares with the pull measured by relative entropy (`psd`); nearest to
        `prior`; the analytic center of all that fit; smallest trace; smallest worst ratio to the
        tolerance; the first that is found, which is quickest. "auto" is "entropy" with `psd` and
        fewer than 1.5 readings per unknown, "nearest" where no reading has two ends, and
        "least_squares" otherwise. See docs/how_to_choose.md.
    prior : float, matrix or Result, optional
        What A is pulled towards; a number is that multiple of I. By default the multiple of I that
        fits best (0 where `ridge` is a number). A prior alone adds a weak pull, which the readings
        outweigh; the A nearest to it of all that fit is ``prefer="nearest"``.
    ridge : "auto" or float, default="auto"
        Strength of the pull: ``ridge ||A - prior||_F^2`` is added to the sum of squares. "auto" is
        ``0.2/(3 v)``, with v the mean square of what the multiple of I leaves of the readings (of
        rows of unit norm); 0 without a tolerance, and with `psd` and 1.5 readings per unknown or
        more. 0 is plain least squares.
    slack : {"max", "sum", "squares"}, optional
        Intervals may be missed, at a price: minimise the largest of ``w_i v_i``, their sum, or
        the sum of ``w_i v_i^2``, where v_i is by how much reading i misses its interval.
    allow_violations : int, default=0
        Set at most this many measurements aside if the others can be met without them.
    method : {"auto", "closed_form", "gd", "sgd", "cg", "minimax", "psd", "low_rank", "conic", \
"least_squares", "consensus"}
        "auto" (the default) goes by what is preferred: "cg" for least squares with a pull,
        "least_squares" for least squares without, and "consensus" where its normal matrix would
        cost too much, "conic" for the others; for any fit the closed form for
        orthonormal rows, otherwise least squares by "cg", and where that does not meet delta
        "minimax", which ends in MET or INFEASIBLE; "psd" for `psd`, "low_rank" for `rank`.
    schedule : {"continuation", "paper"}, default="continuation"
        "paper" runs with the constants of the lemmas, at most as many steps as they ask for.
    start : {"mean", "tau", "zero"}, matrix or Result, optional
        Where to begin; an earlier result makes a warm start. It changes which A is returned only
        with ``prefer="any"``, where it is the A_1 from which the nearest fit is sought, and with
        `rank`: the multiple of I that fits best, the largest reading times I (the paper's, and the
        default of its schedule), 0 (readings taken for rows of unit norm), or any matrix.
    rng : int or numpy.random.Generator, optional
        Seed of `sgd`'s batches and of `low_rank`'s starts; the same seed gives the same bits.
    max_iter : int, optional
        Most iterations; by default only the lemma's number with the paper's schedule, and none
        otherwise: a run that no longer moves ends as STALLED.
    time_limit : float, optional
        Most seconds from the call on, whatever takes them; what was found until then is checked
        and returned. By default there is no limit.
    memory_limit : int or str, optional
        Most bytes, as a number or as "1 GiB", added to what is in memory already: what cannot keep
        to it is refused (MemoryError). By default what is free. It never changes which A is
        returned. With rows in files (see `Measurements.open`) it bounds all that is taken.
    callback : callable, optional
        ``callback(intermediate_result)`` after every stride: `n_iter`, `max_residual`,
        `max_ratio`, `matrix`. StopIteration ends the run.
    progress : bool, default=False
        Show a bar with the worst residual against delta.
    checkpoint : path-like, optional
        A folder in which to write down where the run is, so that it survives: the same call with
        the same folder goes on from there, bit for bit, and once the solve is over answers again
        at once. The folder of other data or of another request is refused; remove it to begin
        anew. `time_limit`, `memory_limit`, `callback` and `progress` may differ. See
        docs/how_it_works.md.
    checkpoint_every : float, default=60.0
        Seconds between two writings, at least: they take no more than 2% of the time. 0: after
        every stride, whatever it takes.
    **options
        `gd` and `sgd`: `lam`, `step` or `c` = step x lam override the schedule (for unit rows);
        `sgd`: `batch_size`, `norm` ("exact" or "bound"), `failure`; `minimax`, `psd`, `conic`,
        `least_squares`, `consensus`: `gap`, the relative distance of the two bounds at which to
        stop ("auto" always takes it; no effect where nothing is optimized); `low_rank`:
        `max_restarts`; `cg`, `psd`: `allow_tf32`, for rows on a GPU: steps may use products of
        TF32 (three digits in a fourth of the time, of a copy of U in float32), while A and all
        that is claimed of it stay float64. Without effect on a CPU.

    Returns
    -------
    Result
        Non-convergence is a status, never an exception, and A is there in every status. With
        INFEASIBLE it is the least-squares fit without the intervals (``prefer="minimax"``: the A
        of the smallest worst miss).

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
    With ``prefer="any"``, `gd`, `sgd`, `cg` and the closed form tend, as delta shrinks, to the
    fit nearest to A_1 in Frobenius norm: they stay in ``A_1 + range(F*)`` (`cg` in scaled columns,
    where columns are scaled).

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

    The default, a sum of squares with its proven bounds:

    >>> result.prefer, result.optimal
    ('least_squares', True)

    The least trace of all that fit, and how small it can be:

    >>> U = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> least = quadsense.solve(U, [1.0, 2.0, 3.0], delta=0.1, psd=True, prefer="min_trace")
    >>> least.optimal, round(least.objective, 4), round(least.objective_bounds[0], 4)
    (True, 2.8025, 2.7991)

    Without a tolerance, least squares:

    >>> fit = quadsense.solve([[1.0], [1.0], [1.0]], [1.0, 2.0, 3.1])
    >>> fit.message.split(". ")[1]
    'Worst residual 1.067: this A meets delta = 1.067'

    Intervals that contradict each other, with the smallest possible largest miss:

    >>> soft = quadsense.solve([[1.0], [1.0]], [1.0, 2.0], delta=0.1, slack="max")
    >>> soft.status, round(soft.objective, 4), round(float(soft.A[0, 0]), 4)
    (<Status.OPTIMAL: 'optimal'>, 0.4, 1.5)
    """
    arguments = locals()
    # At the first solve: with all that it needs, 30 modules.
    from quadsense.core.records import made
    from quadsense.query.query import Query
    from quadsense.stages.path import answered

    return answered(made(Query, arguments))
