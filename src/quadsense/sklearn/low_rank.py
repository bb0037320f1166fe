"""A of low rank within tolerances: A, and w with c, in turn."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linprog

from quadsense.result.result import Result
from quadsense.sklearn.joint import INSIDE, tolerances
from quadsense.sklearn.model import Coefficients, Matrix, ModelRows, Vector
from quadsense.sklearn.profile import Linear, profiled
from quadsense.sklearn.runs import Solve, plainly
from quadsense.vocabulary import Status

ROUNDS = 5
"""Most times that each of them is sought."""

RESTARTS = 2
"""Random starts of each search for A: it begins near."""

FALLS = 1e-3
"""Share by which the worst excess must fall in a round for another one."""


def ranked(
    rows: ModelRows, alpha: float, delta: Vector, rank: Any, *, run: Solve = plainly, **options: Any
) -> tuple[Coefficients, Result | None]:
    """A fit of that rank within tolerances, and the result where it took a search.

    The fit of least squares where it is within; else, from that without a penalty, A with w and c
    held, then those of the smallest worst excess over the tolerances with A held, in turn. Nothing
    is proved where that ends without a fit. "auto" tries one rank after the other.

    Parameters
    ----------
    rows : ModelRows
    alpha : float
    delta : ndarray of shape (m,)
    rank : as of `solve`
    run : callable
        See `runs`.
    **options
        Of `solve`.
    """
    for order in range(1, rows.n + 1) if rank == "auto" else (rank,):
        first: Coefficients | None = None
        for penalty in (alpha, 0.0):
            found, _ = profiled(rows, penalty, rank=order, run=run, **options)
            first = found if first is None else first
            if is_met(rows, found, delta):
                return found, None
        fit, result = _in_turn(rows, found, delta, order, run, options)
        if result.status is Status.MET:
            return fit, result
    assert first is not None
    return first, result


def is_met(rows: ModelRows, found: Coefficients, delta: Vector) -> bool:
    """Whether every sample is within its tolerance, with room for rounding."""
    off = np.abs(rows.y - found.predict(rows.X))
    return bool(np.all(off <= delta * (1.0 - INSIDE)))


def _in_turn(
    rows: ModelRows,
    found: Coefficients,
    delta: Vector,
    rank: Any,
    run: Solve,
    options: dict[str, Any],
) -> tuple[Coefficients, Result]:
    linear = Linear(rows, 0.0)
    worst, goal = np.inf, delta * (1.0 - INSIDE)
    for _ in range(ROUNDS):
        b = rows.y - rows.X @ found.w - found.c
        w, c = found.w, found.c

        def parted(A: Matrix, w: Vector = w, c: float = c) -> Coefficients:
            return Coefficients(A, w, c)

        result = run(
            rows.X, b, parted=parted, rank=rank, prefer="any", start=found.A,
            max_restarts=RESTARTS, **tolerances(b, goal), **options,
        )  # fmt: skip
        found = parted(np.asarray(result.A, np.float64))
        if result.status is Status.MET or not (rows.linear or rows.intercept):
            break
        found, excess = _least_excess(rows, linear, found, goal)
        if excess >= (1.0 - FALLS) * worst:
            break
        worst = excess
    return found, result


def _least_excess(
    rows: ModelRows, linear: Linear, found: Coefficients, delta: Vector
) -> tuple[Coefficients, float]:
    """w and c of the least t with ``|y - f(x)| <= delta + t`` for every row, and t."""
    bound = np.isfinite(delta)
    plain = Coefficients(found.A, np.zeros(rows.n), 0.0)
    left = (rows.y - plain.predict(rows.X))[bound]
    B = linear.design(rows.X)[bound]
    count = B.shape[1]
    one = np.ones((len(B), 1))
    program = linprog(
        np.eye(count + 1)[-1],
        A_ub=np.block([[B, -one], [-B, -one]]),
        b_ub=np.concatenate([left + delta[bound], delta[bound] - left]),
        bounds=[(None, None)] * count + [(0.0, None)],
        method="highs",
    )
    if program.x is None:
        return found, np.inf
    theta = program.x[:-1]
    w = theta[: rows.n] if rows.linear else np.zeros(rows.n)
    c = float(theta[-1]) if rows.intercept else 0.0
    return Coefficients(found.A, w, c), float(program.x[-1])
