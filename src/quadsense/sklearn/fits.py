"""Fits that `quadsense.solve` finds: in a cone or of a rank, within tolerances, or both.

**Least squares with A in a cone or of a rank**: w and c are taken out. For a given A the best w and
c are linear in what A leaves over, so that the least cost over them is
``||L (y - F(A))||^2 + alpha ||A||_F^2`` with ``L'L = S^(1/2) (I - H) S^(1/2)``, H the matrix of the
ridge regression on ``(x, 1)`` that penalises w alone. That is a problem in A with readings that are
sums over rows, ``L F(A)``, which `quadsense.solve` takes as they are (`mix`): what is proved of it
is proved of all three. Where there are more rows than unknowns of A, the triangular factor of
``L F`` reduces the sums to as many.

**Within tolerances**: A, w and c are one problem in a larger matrix. Without a cone
``x' A x + w' x + c`` is the quadratic form of ``(x, k)`` in a matrix of order n + 1, whose norm
costs w with ``lp = 1/(2 k^2)``; c has in addition a diagonal entry of its own, read ``T`` times.
Where A is to be positive semidefinite, w and c must not be: each is the difference of two further
diagonal entries, both positive. The ridge then costs c a little, around its last value: solved
again from there (a proximal point), until that is nothing.

**Of a rank and within tolerances**: A, and w with c, in turn.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog
from sklearn.exceptions import ConvergenceWarning

from quadsense.core.intervals import EPS
from quadsense.methods.balance import UNNOTICED_SHARE
from quadsense.result.result import Result
from quadsense.sklearn.closed_form import (
    CUT,
    Coefficients,
    FeatureForm,
    Matrix,
    ModelRows,
    Vector,
    closed_form,
    default_alphas,
    in_units,
    make_path,
    mean_errors,
    stated,
    tolerances,
)
from quadsense.sklearn.shared import Solve, Strides, to_seed
from quadsense.solve import solve
from quadsense.vocabulary import Status

# --- least squares in a cone or of a rank --------------------------------------------------------


def design(rows: ModelRows) -> Matrix:
    """Return ``(x, 1)``, what there is of it, one row per row of X."""
    parts = [rows.X] * rows.linear + [np.ones((rows.m, 1))] * rows.intercept
    return np.hstack([np.zeros((rows.m, 0)), *parts])


def _weighted(rows: ModelRows, alpha: float) -> Matrix:
    """Return the design with weights, and the roots of its penalties below."""
    B = np.sqrt(rows.s)[:, None] * design(rows)
    penalties = np.zeros(B.shape[1])
    penalties[: rows.n * rows.linear] = np.sqrt(alpha * rows.lp)
    return np.vstack([B, np.diag(penalties)])


def with_linear(rows: ModelRows, alpha: float, A: Matrix) -> Coefficients:
    """Return A with the best w and c for it."""
    left = rows.y - Coefficients(A, np.zeros(rows.n), 0.0).predict(rows.X)
    B = _weighted(rows, alpha)
    right = np.concatenate([np.sqrt(rows.s) * left, np.zeros(B.shape[1])])
    theta = np.linalg.lstsq(B, right)[0] if B.shape[1] else np.zeros(1)
    return _parted(rows, A, theta)


def _parted(rows: ModelRows, A: Matrix, theta: Vector) -> Coefficients:
    """Return A with the w and c of coefficients of the design."""
    w = theta[: rows.n] if rows.linear else np.zeros(rows.n)
    return Coefficients(A, w, float(theta[-1]) if rows.intercept else 0.0)


def profiled(
    rows: ModelRows, alpha: float, *, rank: Any = None, run: Solve, **options: Any
) -> tuple[Coefficients, Result]:
    """Return the fit with A positive semidefinite, or of a rank, without tolerances.

    Parameters
    ----------
    rows : ModelRows
    alpha : float
    rank : as of `solve`
        None for positive semidefinite.
    run : callable
        See `shared`.
    **options
        Of `solve`, such as ``gap``.
    """
    asked: dict[str, Any] = {"psd": True, "ridge": alpha} if rank is None else {"rank": rank}
    ridge = 0.0 if rank is None else alpha  # which `solve` does not take with a rank
    if rows.linear or rows.intercept or ridge:
        U, asked["mix"], b = _without_linear(rows, alpha, ridge)
    else:
        U, b, asked["weights"] = rows.X, rows.y, rows.s

    def parted(A: Matrix) -> Coefficients:
        return with_linear(rows, alpha, A)

    result = run(U, b, parted=parted, prefer="least_squares", **asked, **options)
    return parted(np.asarray(result.A, np.float64)), result


def _without_linear(rows: ModelRows, alpha: float, ridge: float) -> tuple[Matrix, Any, Vector]:
    """Return probes, sums and readings of A whose sum of squares is the least over w and c.

    It has ``ridge ||A||_F^2`` in addition. With orthonormal columns Q that span the weighted
    design, ``L v`` is ``S^(1/2) v`` minus its projection on them. Where there are more rows than
    unknowns of A, or a ridge, the triangular factor of ``L`` times the features and the readings
    has all that is needed; a feature is read by ``e_i + e_j`` minus the readings of the two.
    """
    roots, m = np.sqrt(rows.s), rows.m
    U, sizes, _ = np.linalg.svd(_weighted(rows, alpha), full_matrices=False)
    Q = U[:, sizes > EPS * len(U) * np.max(sizes, initial=0.0)]
    slip = CUT * EPS * (m + rows.quadratic) * float(roots.max())
    if m <= rows.quadratic and not ridge:
        L = np.vstack([np.diag(roots), np.zeros((len(Q) - m, m))]) - Q @ (Q[:m].T * roots)
        L = _told(np.linalg.qr(L, mode="r"), m, slip)
        return rows.X, L, L @ rows.y
    form = FeatureForm(replace(rows, linear=False, intercept=False))

    def blocks() -> Iterator[tuple[slice, Matrix]]:
        for part, features in form.blocks():
            yield part, np.column_stack([features, form.target[part]])

    q = rows.quadratic
    inside = np.zeros((Q.shape[1], q + 1))
    for part, block in blocks():
        inside += Q[part].T @ block
    R: Any = np.vstack([-Q[m:] @ inside, np.sqrt(ridge) * np.eye(q, q + 1)])
    for part, block in blocks():
        R = np.linalg.qr(np.vstack([R, block - Q[part] @ inside]), mode="r")
    R = _told(R, q, slip)
    i, j, factor = form.upper
    apart = np.flatnonzero(i != j)
    sums, single = R[:, :q] / factor, np.flatnonzero(i == j)
    for ends in (i[apart], j[apart]):
        np.subtract.at(sums.T, single[ends], sums.T[apart])
    probes = np.eye(rows.n)[i]
    probes[apart, j[apart]] = 1.0
    return probes, sums, R[:, q]


def _told(R: Any, columns: int, slip: float) -> Matrix:
    """Return the rows of a factor that are more than rounding in these columns, or one row."""
    told = np.linalg.norm(R[:, :columns], axis=1) > slip
    told[0] = True
    return np.asarray(R[told])


# --- within tolerances ---------------------------------------------------------------------------


INTERCEPT_COST = 1e-2
"""What a square of c costs, where readings of 1 would cost 1 through A: with less, the kernel
loses digits."""

MAX_PROXIMAL_STEPS = 6
"""Times that it is asked at most: seen 2 to 3."""

MIN_RIDGE = 1e-9
"""Ridge, in units of the data, that keeps differences of positive entries from running away."""

ROUNDING_SHARE = 1e-9
"""Share of a tolerance left for the rounding of taking the three apart."""


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
        self.T = square * np.sqrt(max(1.0, size) / INTERCEPT_COST)
        self.alpha = max(alpha, MIN_RIDGE * rows.total * square * square)
        self.border = np.sqrt(0.5 / rows.lp)
        U, self.mix = self._doubled() if psd else self._bordered()
        self.U = U
        assert U.shape[1] >= n and self.mix.shape[0] == m

    def _bordered(self) -> tuple[Matrix, Any]:
        """Return ``(x, k)``, and a probe for c; without c the corner is taken out again."""
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
        """Return A, and two entries for each of w and c."""
        rows = self.rows
        m, n, B = rows.m, rows.n, design(rows)
        count = B.shape[1]
        self.sizes = np.full(count, np.sqrt(1.0 / rows.lp))
        if rows.intercept:
            self.sizes[-1] = self.T
        U = np.zeros((m + 2 * count, n + 2 * count))
        U[:m, :n] = rows.X
        U[m:, n:] = np.diag(np.sqrt(np.tile(self.sizes, 2)))
        parts = [sp.eye_array(m)] + [sp.csr_array(B), sp.csr_array(-B)] * (count > 0)
        return U, sp.csr_array(sp.hstack(parts))

    def parted(self, M: Matrix) -> Coefficients:
        """Return A, w and c of an answer."""
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
    tol: float,
    run: Solve,
) -> tuple[Coefficients, Result]:
    """Return the fit within tolerances (or of the smallest worst error), w and c free.

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
        See `shared`.
    """
    centre = float(rows.s @ rows.y) / rows.total if centre is None else centre
    for _ in range(MAX_PROXIMAL_STEPS):
        model = Together(rows, alpha, psd, centre)
        result = _asked(model, delta, prefer, tol, run)
        found = model.parted(np.asarray(result.A, np.float64))
        penalty = model.alpha * ((found.c - model.centre) / model.T) ** 2
        value = rows.objective(found, alpha)
        if prefer == "nearest":
            value = float(np.vdot(found.A, found.A)) + rows.lp * float(found.w @ found.w)
            penalty /= model.alpha
        done = not rows.intercept or prefer not in ("least_squares", "nearest")
        if done or penalty <= UNNOTICED_SHARE * tol * value or not result.success:
            break
        centre = found.c
    return found, result


def _asked(model: Together, delta: Vector | None, prefer: str, tol: float, run: Solve) -> Result:
    """Return the answer about the larger matrix: by conic, otherwise as `solve` would."""
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
        asked |= tolerances(b, delta * (1.0 - ROUNDING_SHARE))
    if prefer not in ("least_squares", "nearest"):
        return run(model.U, b, **asked)
    result = run(model.U, b, method="conic", **asked)
    if result.success and result.optimal:
        return result
    other = run(model.U, b, **asked)
    if result.success and not (other.success and other.optimal):
        return result
    return other


# --- of a rank and within tolerances -------------------------------------------------------------


MAX_ROUNDS = 5
"""Most times that each of them is sought."""

RESTARTS = 2
"""Random starts of each search for A: it begins near."""

MIN_FALL = 1e-3
"""Share by which the worst excess must fall in a round for another one."""


def ranked(
    rows: ModelRows, alpha: float, delta: Vector, rank: Any, *, run: Solve, **options: Any
) -> tuple[Coefficients, Result | None]:
    """Return a fit of that rank within tolerances, and the result where it took a search.

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
        See `shared`.
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
        asked = {"rank": order, "prefer": "any", "max_restarts": RESTARTS, **options}
        fit, result = _in_turn(rows, found, delta, partial(run, **asked))
        if result.status is Status.MET:
            return fit, result
    assert first is not None
    return first, result


def is_met(rows: ModelRows, found: Coefficients, delta: Vector) -> bool:
    """Return whether every sample is within its tolerance, with room for rounding."""
    off = np.abs(rows.y - found.predict(rows.X))
    return bool(np.all(off <= delta * (1.0 - ROUNDING_SHARE)))


def _in_turn(
    rows: ModelRows, found: Coefficients, delta: Vector, run: Solve
) -> tuple[Coefficients, Result]:
    worst, goal = np.inf, delta * (1.0 - ROUNDING_SHARE)
    for _ in range(MAX_ROUNDS):
        b = rows.y - rows.X @ found.w - found.c
        w, c = found.w, found.c

        def parted(A: Matrix, w: Vector = w, c: float = c) -> Coefficients:
            return Coefficients(A, w, c)

        result = run(rows.X, b, parted=parted, start=found.A, **tolerances(b, goal))
        found = parted(np.asarray(result.A, np.float64))
        if result.status is Status.MET or not (rows.linear or rows.intercept):
            break
        found, excess = _least_excess(rows, found, goal)
        if excess >= (1.0 - MIN_FALL) * worst:
            break
        worst = excess
    return found, result


def _least_excess(
    rows: ModelRows, found: Coefficients, delta: Vector
) -> tuple[Coefficients, float]:
    """Return w and c of the least t with ``|y - f(x)| <= delta + t`` for every row, and t."""
    bound = np.isfinite(delta)
    plain = Coefficients(found.A, np.zeros(rows.n), 0.0)
    left = (rows.y - plain.predict(rows.X))[bound]
    B = design(rows)[bound]
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
    return _parted(rows, found.A, program.x[:-1]), float(program.x[-1])


# --- one fit of the estimator -------------------------------------------------------------------

WELL = (Status.MET, Status.OPTIMAL, Status.LOCAL)
"""How a solve ends that has nothing to say."""


class InfeasibleWarning(ConvergenceWarning):
    """No fit is within the tolerances, or none was found; the best one was kept."""


class RegressionFit:
    """One fit, in units in which the rows are of about 1."""

    def __init__(
        self,
        estimator: Any,
        given: ModelRows,
        delta: Vector | None,
        strides: Strides,
    ) -> None:
        self.estimator, self.given, self.delta, self.strides = estimator, given, delta, strides
        self.rows, self.units = in_units(given)
        self.rank, self.psd = estimator.rank, bool(estimator.psd)
        prefer = estimator.prefer
        plain = prefer == "auto" or self.rank is not None
        self.prefer = "least_squares" if plain else prefer
        self.seed = to_seed(estimator.random_state)

    def run(self) -> tuple[Coefficients, Result]:
        """Return the coefficients and the result about A, in the user's units."""
        alpha = self._choose_alpha()
        tolerance = None if self.delta is None else self.delta / self.units.size
        solved: Result | None
        if self.prefer != "least_squares":
            found, solved = self._within(alpha, tolerance)
        elif self.rank is not None and tolerance is not None:
            found, solved = ranked(
                self.rows, alpha, tolerance, self.rank, run=self._run, rng=self.seed
            )
        else:
            found, solved = self._least_squares(alpha), None
            if tolerance is not None and not is_met(self.rows, found, tolerance):
                found, solved = self._within(alpha, tolerance, found)
        met = solved is None or solved.status is Status.MET
        self.estimator.met_ = None if self.delta is None else met
        if self.estimator.met_ is False and solved is not None:
            self._warn(solved)
        return self._result(found.scaled(self.units.length, self.units.size), solved)

    def _choose_alpha(self) -> float:
        """Return the penalty, in our units; `alpha_` is in the user's."""
        own, units = self.estimator, self.units
        for name in ("alphas_", "cv_errors_"):
            if hasattr(own, name):
                delattr(own, name)
        if own.alpha != "cv":
            own.alpha_ = float(own.alpha)
            return units.alpha(own.alpha_)
        path = make_path(closed_form(self.rows.merged()))
        given = own.alphas
        tried = default_alphas(path.largest)
        if given is not None:
            tried = np.array([units.alpha(float(alpha)) for alpha in given])
        errors = mean_errors(path, tried)
        best = int(np.argmin(errors))
        own.alphas_ = np.array([units.penalty(alpha) for alpha in tried])
        if given is not None:
            own.alphas_ = np.array(given, np.float64)
        own.cv_errors_ = errors * units.size**2
        own.alpha_ = float(own.alphas_[best])
        self.free = path.solve(float(tried[best]))
        return float(tried[best])

    free: Coefficients | None = None
    """The fit without anything else, where choosing the penalty gave it."""

    def _least_squares(self, alpha: float) -> Coefficients:
        """Return the fit without tolerances."""
        if self.rank is not None:
            return profiled(self.rows, alpha, rank=self.rank, run=self._run, rng=self.seed)[0]
        free = closed_form(self.rows).solve(alpha) if self.free is None else self.free
        if not self.psd or float(np.linalg.eigvalsh(free.A)[0]) >= 0.0:
            return free
        found, solved = profiled(self.rows, alpha, run=self._run, gap=self.estimator.tol)
        bounds = solved.objective_bounds
        near = bounds is not None and bounds[1] - bounds[0] <= self.estimator.tol * abs(bounds[1])
        if solved.status not in WELL and not near:
            warnings.warn(f"tol was not reached: {solved.message}", ConvergenceWarning, 5)
        return found

    @staticmethod
    def _is_kept(found: Coefficients, rows: ModelRows, delta: Vector | None) -> bool:
        """Return whether predictions are within tolerance, to the digits that they have."""
        assert delta is not None
        off = np.abs(rows.y - found.predict(rows.X))
        largest = float(np.max(np.abs(rows.y)))
        return bool(np.all(off - delta <= ROUNDING_SHARE * (delta + largest)))

    def _within(
        self, alpha: float, delta: Vector | None, found: Coefficients | None = None
    ) -> tuple[Coefficients, Result]:
        """Return the fit within tolerances, or preferred; least squares where there is none."""
        asked: dict[str, Any] = {"prefer": self.prefer} if found is None else {"centre": found.c}
        fit, solved = within(
            self.rows, alpha, delta, psd=self.psd, tol=self.estimator.tol, run=self._run, **asked
        )
        if delta is None:
            return fit, solved
        if solved.status is Status.MET:
            if self._is_kept(fit, self.rows, delta):
                return fit, solved
            # Equalities are met to the rounding of A, which tells nothing of one that is huge.
            solved = replace(solved, status=Status.UNDECIDED)
        return (self._least_squares(alpha) if found is None else found), solved

    def _run(self, U: Matrix, b: Vector, *, parted: Any, **asked: Any) -> Result:
        """Run `quadsense.solve` with the estimator's limit and callbacks."""

        def attributes(M: Matrix) -> dict[str, Any]:
            return parted(M).scaled(self.units.length, self.units.size).attributes()

        return solve(
            U, b, time_limit=self.estimator.time_limit, callback=self.strides.callback(attributes),
            **asked,
        )  # fmt: skip

    def _warn(self, solved: Result) -> None:
        none = solved.status is Status.INFEASIBLE
        said = "no fit is within delta" if none else "no fit within delta was found"
        said += f", least squares without it is kept: {solved.message}"
        warnings.warn(said, InfeasibleWarning, stacklevel=6)

    def _result(self, found: Coefficients, solved: Result | None) -> tuple[Coefficients, Result]:
        """Return what is certified of A where w and c are these, on the user's rows."""
        rows, own = self.given, self.estimator
        b = rows.y - rows.X @ found.w - found.c
        met = self.delta is not None and own.met_
        steps = 0 if solved is None else solved.n_iter
        if (met and solved is not None) or self.prefer == "minimax":
            asked: dict[str, Any] = {"prefer": self.prefer, "start": found.A}
            if self.delta is not None:
                asked |= tolerances(b, self.delta)
            if self.rank is not None:
                asked |= {"rank": self.rank, "prefer": "any", "rng": self.seed}
            elif self.psd:
                asked["psd"] = True
            if self.prefer == "least_squares" and self.rank is None:
                asked |= {"ridge": own.alpha_, "weights": rows.s, "gap": own.tol}
            if self.prefer == "nearest":
                asked["prior"] = 0.0
            result = solve(rows.X, b, time_limit=own.time_limit, **asked)
            again = replace(found, A=np.array(result.A, np.float64))
            wanted = (Status.MET,) if met else WELL
            if result.status in wanted and (not met or self._is_kept(again, rows, self.delta)):
                return again, result
        return found, replace(self._stated(found, b, met), n_iter=steps)

    def _stated(self, found: Coefficients, b: Vector, met: bool) -> Result:
        """Return what is certified of A, if need be by the dual vector of a solve."""
        rows, own = self.given, self.estimator
        asked: dict[str, Any] = {
            "alpha": own.alpha_, "psd": self.psd, "local": self.rank is not None,
            "delta": self.delta if met else None,
        }  # fmt: skip
        result = stated(rows.X, b, rows.s, found.A, **asked)
        if result.status is not Status.UNDECIDED:
            return result
        other = solve(
            rows.X, b, weights=rows.s, ridge=own.alpha_, psd=self.psd, start=found.A,
            prefer="least_squares", time_limit=own.time_limit, gap=own.tol,
        )  # fmt: skip
        return stated(rows.X, b, rows.s, found.A, dual=other.dual, **asked)
