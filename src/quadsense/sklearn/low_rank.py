"""A of low rank within tolerances: A, and w with c, in turn."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linprog

from quadsense.result import Result
from quadsense.sklearn.joint import INSIDE, tolerances
from quadsense.sklearn.model import Coefficients, Matrix, Rows, Vector
from quadsense.sklearn.profile import Linear
from quadsense.sklearn.runs import Solve, plainly
from quadsense.vocabulary import Status

ROUNDS = 12
"""Most times that each of them is sought."""

FALLS = 1e-3
"""Share by which the worst excess must fall in a round for another one."""


def ranked(
    rows: Rows, found: Coefficients, delta: Vector, rank: Any, *, run: Solve = plainly,
    **options: Any,
) -> tuple[Coefficients, Result]:  # fmt: skip
    """A fit of that rank within tolerances, from one without them; the last where none is found.

    A is sought with w and c held, then those of the smallest worst excess over the tolerances with
    A held. Nothing is proved where that ends without a fit.

    Parameters
    ----------
    rows : Rows
    found : Coefficients
        Where to begin.
    delta : ndarray of shape (m,)
    rank : as of `solve`
    run : callable
        See `runs`.
    **options
        Of `solve`.
    """
    linear = Linear(rows, 0.0)
    worst, goal = np.inf, delta * (1.0 - INSIDE)
    for _ in range(ROUNDS):
        b = rows.y - rows.X @ found.w - found.c
        w, c = found.w, found.c

        def parted(A: Matrix, w: Vector = w, c: float = c) -> Coefficients:
            return Coefficients(A, w, c)

        result = run(rows.X, b, parted=parted, rank=rank, **tolerances(b, goal), **options)
        found = parted(np.asarray(result.A, np.float64))
        if result.status is Status.MET or not (rows.linear or rows.intercept):
            break
        found, excess = _least_excess(rows, linear, found, goal)
        if excess >= (1.0 - FALLS) * worst:
            break
        worst = excess
    return found, result


def _least_excess(
    rows: Rows, linear: Linear, found: Coefficients, delta: Vector
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
