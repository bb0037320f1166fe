"""A, w and c together within tolerances, as one question about a larger matrix.

Without a cone ``x' A x + w' x + c`` is the quadratic form of ``(x, k)`` in a matrix of order n + 1,
whose norm costs w with ``lp = 1/(2 k^2)``; c has in addition a diagonal entry of its own, read
``T`` times. Where A is to be positive semidefinite, w and c must not be: each is the difference of
two further diagonal entries, both positive. The ridge then costs c a little, about its last value:
asked again from there (a proximal point), until that is nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from quadsense.result.result import Result
from quadsense.sklearn.model import Coefficients, Matrix, ModelRows, Vector
from quadsense.sklearn.runs import Solve, plainly

FREE = 1e-2
"""What a square of c costs, where readings of 1 would cost 1 through A: with less, the kernel
loses digits."""

AGAIN = 6
"""Times that it is asked at most: seen 2 to 3."""

BOUNDED = 1e-9
"""Ridge, in units of the data, that keeps differences of positive entries from running away."""

INSIDE = 1e-9
"""Share of a tolerance left for the rounding of taking the three apart."""


ENDLESS = 1e4
"""Tolerance, in units of the largest value, that is none."""


class Together:
    """Probes and sums of the larger question, and A, w and c of its answer.

    Parameters
    ----------
    rows : ModelRows
    alpha : float
    psd : bool
        Whether A is to be positive semidefinite.
    centre : float
        What the penalty of c is about.
    """

    def __init__(self, rows: ModelRows, alpha: float, psd: bool, centre: float = 0.0) -> None:
        self.rows, self.psd, self.centre = rows, psd, centre if rows.intercept else 0.0
        m, n = rows.m, rows.n
        square = max(rows.mean_square, 1e-8)
        size = alpha / (rows.total * square * square)
        self.T = square * np.sqrt(max(1.0, size) / FREE)
        self.alpha = max(alpha, BOUNDED * rows.total * square * square)
        self.border = np.sqrt(0.5 / rows.lp)
        U, self.mix = self._doubled() if psd else self._bordered()
        self.U = U
        assert U.shape[1] >= n and self.mix.shape[0] == m

    def _bordered(self) -> tuple[Matrix, Any]:
        """``(x, k)``, and a probe for c; without c the corner is taken out again."""
        rows = self.rows
        m, n = rows.m, rows.n
        order = n + rows.linear + rows.intercept
        corner = rows.linear and not rows.intercept
        U = np.zeros((m + (rows.intercept or corner), order))
        U[:m, :n] = rows.X
        if rows.linear:
            U[:m, n] = self.border
        once = []
        if rows.intercept:
            U[m, -1], once = 1.0, [np.full((m, 1), self.T)]
        elif corner:
            U[m, n], once = self.border, [np.full((m, 1), -1.0)]
        return U, sp.csr_array(sp.hstack([sp.eye_array(m), *map(sp.csr_array, once)]))

    def _doubled(self) -> tuple[Matrix, Any]:
        """A, and two entries for each of w and c."""
        rows = self.rows
        m, n, B = rows.m, rows.n, self._design()
        count = B.shape[1]
        self.sizes = np.full(count, np.sqrt(1.0 / rows.lp))
        if rows.intercept:
            self.sizes[-1] = self.T
        U = np.zeros((m + 2 * count, n + 2 * count))
        U[:m, :n] = rows.X
        U[m:, n:] = np.diag(np.sqrt(np.tile(self.sizes, 2)))
        parts = [sp.eye_array(m)] + [sp.csr_array(B), sp.csr_array(-B)] * (count > 0)
        return U, sp.csr_array(sp.hstack(parts))

    def _design(self) -> Matrix:
        X = self.rows.X
        parts = [X] * self.rows.linear + [np.ones((len(X), 1))] * self.rows.intercept
        return np.hstack([np.zeros((len(X), 0)), *parts])

    def parted(self, M: Matrix) -> Coefficients:
        """A, w and c of an answer."""
        rows, n = self.rows, self.rows.n
        A = M[:n, :n].copy()
        w, c = np.zeros(n), self.centre
        if self.psd:
            both = M.diagonal()[n:]
            theta = self.sizes * (both[: both.size // 2] - both[both.size // 2 :])
            if rows.linear:
                w = theta[:n].copy()
            return Coefficients(A, w, c + float(theta[-1]) if rows.intercept else 0.0)
        if rows.linear:
            w = 2.0 * self.border * M[:n, n]
        if rows.intercept:
            c += self.T * float(M[-1, -1])
            c += self.border**2 * float(M[n, n]) if rows.linear else 0.0
        return Coefficients(A, w, c)


def within(
    rows: ModelRows,
    alpha: float,
    delta: Vector | None,
    *,
    psd: bool = False,
    prefer: str = "least_squares",
    centre: float | None = None,
    tol: float = 1e-6,
    run: Solve = plainly,
) -> tuple[Coefficients, Result]:
    """The fit within tolerances (or of the smallest worst error), w and c free.

    Parameters
    ----------
    rows : ModelRows
    alpha : float
    delta : ndarray of shape (m,) or None
        Tolerances; infinite where there is none.
    psd : bool
    prefer : str
        Of `solve`.
    centre : float, optional
        About what c will be; by default the mean of y.
    tol : float
        How far the objective may be from its least value, as a part of it.
    run : callable
        See `runs`.
    """
    centre = float(rows.s @ rows.y) / rows.total if centre is None else centre
    for _ in range(AGAIN):
        model = Together(rows, alpha, psd, centre)
        result = _asked(model, delta, prefer, tol, run)
        found = model.parted(np.asarray(result.A, np.float64))
        penalty = model.alpha * ((found.c - model.centre) / model.T) ** 2
        value = rows.objective(found, alpha)
        if prefer == "nearest":
            value = float(np.vdot(found.A, found.A)) + rows.lp * float(found.w @ found.w)
            penalty /= model.alpha
        done = not rows.intercept or prefer not in ("least_squares", "nearest")
        if done or penalty <= 0.1 * tol * value or not result.success:
            break
        centre = found.c
    return found, result


def _asked(model: Together, delta: Vector | None, prefer: str, tol: float, run: Solve) -> Result:
    """The answer about the larger matrix: by the interior-point kernel, else as `solve` would."""
    rows = model.rows
    b = rows.y - model.centre
    asked: dict[str, Any] = {"prefer": prefer, "parted": model.parted}
    if prefer == "least_squares":
        asked |= {"ridge": model.alpha, "weights": rows.s, "gap": 0.5 * tol}
    if prefer == "nearest":
        asked |= {"prior": 0.0, "gap": 0.5 * tol}
    if model.psd:
        asked["psd"] = True
    if model.U.shape[0] > rows.m:
        asked["mix"] = model.mix
    if delta is not None:
        asked |= tolerances(b, delta * (1.0 - INSIDE))
    if prefer not in ("least_squares", "nearest"):
        return run(model.U, b, **asked)
    result = run(model.U, b, method="conic", **asked)
    if result.success and result.optimal:
        return result
    other = run(model.U, b, **asked)
    if result.success and not (other.success and other.optimal):
        return result
    return other


def tolerances(b: Vector, delta: Vector) -> dict[str, Any]:
    """`delta` for `solve`: infinite ones as such that bind nothing, so that their rows count."""
    known = np.isfinite(delta)
    if not known.all():
        size = float(np.max(np.abs(b), initial=0.0)) + float(np.max(delta[known], initial=0.0))
        delta = np.where(known, delta, ENDLESS * (size or 1.0))
    return {"delta": delta}
