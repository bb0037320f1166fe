"""What is fitted, ``x' A x + w' x + c``, and quadratic ridge regression in closed form.

Rows and values are fitted in units in which they are about 1. The closed form is by the kernel or
by the features.

With ``phi(x)`` the entries of ``x x'`` (those off the diagonal times the root of 2) and
``x / sqrt(lp)``, the fit is ridge regression on ``phi``, whose kernel is
``(x . z)^2 + (x . z) / lp``. c is not penalised: features and values are taken about their
weighted means, and rows are scaled by the roots of their weights; ``psi_i = sqrt(s_i) (phi(x_i) -
mean)``. Whichever is smaller is formed, ``Psi Psi'`` of order m or ``Psi' Psi`` of the number of
unknowns.

**Leave-one-out**, for many penalties by one eigendecomposition. A fit that is linear in y predicts
row i, left out, with the error ``(y_i - f_i) / (1 - h_ii)``, where h is the matrix of the fit and
f what it predicts with all rows [Allen 1974]. With c, h is ``sqrt(s) sqrt(s)' / sum(s)`` and the
matrix of the ridge about the means; where ``Psi Psi'`` has eigenvalues l and eigenvectors V, the
latter is ``V diag(l / (l + alpha)) V'``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve, eigh

from quadsense.core.intervals import EPS, ZERO_SHARE
from quadsense.core.matrix import SensedMatrix
from quadsense.core.records import cached_property
from quadsense.measurements import Measurements
from quadsense.methods.traits import GapOptions
from quadsense.preferences import Preference
from quadsense.result.certificate import Certificate
from quadsense.result.facts import Determined, gather_facts
from quadsense.result.result import Result
from quadsense.result.values import evaluate, make_objective
from quadsense.system.machine import BLOCK_ELEMENTS
from quadsense.vocabulary import History, Status

Matrix = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float64]

LARGEST = 1e250
"""Penalties beyond this are as good as infinite."""


@dataclass(frozen=True)
class Coefficients:
    """A, w and c of ``x' A x + w' x + c``."""

    A: Matrix
    w: Vector
    c: float

    def predict(self, X: Matrix) -> Vector:
        """Return the value for every row of X."""
        return np.asarray(np.einsum("ij,ij->i", X @ self.A, X) + X @ self.w + self.c)

    def attributes(self) -> dict[str, Any]:
        """Return what a fitted estimator predicts from."""
        return {"matrix_": self.A, "coef_": self.w, "intercept_": self.c}

    def scaled(self, length: float, size: float) -> Coefficients:
        """Return the same where rows are `length` times and values `size` times as large."""
        per = size / length
        return Coefficients(self.A * (per / length), self.w * per, self.c * size)


@dataclass(frozen=True)
class ModelRows:
    """The rows of a fit.

    The fit minimises ``sum_i s_i (y_i - f(x_i))^2 + alpha (||A||_F^2 + lp ||w||^2)``.

    Attributes
    ----------
    X : ndarray of shape (m, n)
    y : ndarray of shape (m,)
    s : ndarray of shape (m,)
        Weights, all positive.
    linear, intercept : bool
        Whether there is a w, and a c.
    lp : float
        What a square of w costs relative to one of A; positive.
    """

    X: Matrix
    y: Vector
    s: Vector
    linear: bool
    intercept: bool
    lp: float

    @property
    def m(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def n(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.s.sum())

    @property
    def quadratic(self) -> int:
        """Number of unknowns of A."""
        return self.n * (self.n + 1) // 2

    @property
    def unknowns(self) -> int:
        """Number of unknowns that are penalised."""
        return self.quadratic + self.n * self.linear

    @property
    def mean_square(self) -> float:
        """Mean of ``||x||^2``."""
        return float(self.s @ np.einsum("ij,ij->i", self.X, self.X)) / self.total

    def objective(self, found: Coefficients, alpha: float) -> float:
        """Return what is minimized, at these coefficients."""
        off = self.y - found.predict(self.X)
        penalty = float(np.vdot(found.A, found.A)) + self.lp * float(found.w @ found.w)
        return float(self.s @ off**2) + alpha * penalty

    def merged(self) -> ModelRows:
        """Return rows that are equal in X and y as one with the sum of their weights."""
        whole = np.column_stack([self.X, self.y])
        unique, inverse = np.unique(whole, axis=0, return_inverse=True)
        if len(unique) == self.m:
            return self
        s = np.asarray(np.bincount(inverse.ravel(), weights=self.s), np.float64)
        return replace(self, X=unique[:, :-1], y=unique[:, -1], s=s)


@dataclass(frozen=True)
class Units:
    """Powers of two that rows and values were divided by: no digit changes."""

    length: float
    size: float

    def alpha(self, alpha: float) -> float:
        """Return the penalty that means the same in these units."""
        with np.errstate(over="ignore", under="ignore"):
            return min(float(np.float64(alpha) / self.length**2 / self.length**2), LARGEST)

    def penalty(self, alpha: float) -> float:
        """Return the penalty in the user's units."""
        with np.errstate(over="ignore", under="ignore"):
            return float(np.float64(alpha) * self.length**2 * self.length**2)


def in_units(rows: ModelRows) -> tuple[ModelRows, Units]:
    """Return the rows with entries and values of about 1."""
    length = _power(float(np.max(np.abs(rows.X), initial=0.0)))
    size = _power(float(np.max(np.abs(rows.y), initial=0.0)))
    scaled = replace(rows, X=rows.X / length, y=rows.y / size, lp=rows.lp * length * length)
    return scaled, Units(length, size)


def _power(value: float) -> float:
    """Return the power of two next to a number, 1 for 0."""
    return math.ldexp(1.0, math.frexp(value)[1] - 1) if value > 0.0 else 1.0


# --- the closed form -------------------------------------------------------------------------


CUT = 4.0
"""Eigenvalues below this many rounding errors of the largest, for each of their number, are 0."""


def closed_form(rows: ModelRows) -> KernelForm | FeatureForm:
    """Return the smaller of the two."""
    return KernelForm(rows) if rows.m <= rows.unknowns else FeatureForm(rows)


@dataclass(frozen=True)
class RidgeForm:
    """What both share: values about their mean, times the roots of the weights."""

    rows: ModelRows

    @cached_property
    def roots(self) -> Vector:
        """Roots of the weights."""
        return np.sqrt(self.rows.s)

    @cached_property
    def mean(self) -> float:
        """What values are taken about; 0 without c."""
        rows = self.rows
        return float(rows.s @ rows.y) / rows.total if rows.intercept else 0.0

    @cached_property
    def target(self) -> Vector:
        """``sqrt(s_i) (y_i - mean)``."""
        return np.asarray(self.roots * (self.rows.y - self.mean))

    def with_intercept(self, A: Matrix, w: Vector) -> Coefficients:
        """Return the best c for them."""
        rows = self.rows
        if not rows.intercept:
            return Coefficients(A, w, 0.0)
        off = rows.y - Coefficients(A, w, 0.0).predict(rows.X)
        return Coefficients(A, w, float(rows.s @ off) / rows.total)


class KernelForm(RidgeForm):
    """By the kernel, of order m."""

    @cached_property
    def K(self) -> Matrix:
        """``Psi Psi'``."""
        rows = self.rows
        G = rows.X @ rows.X.T
        K = G * (G + 1.0 / rows.lp) if rows.linear else G * G
        if rows.intercept:
            part = K @ rows.s / rows.total
            K = K - part - part[:, None] + float(rows.s @ part) / rows.total
        return np.asarray(self.roots[:, None] * K * self.roots)

    @cached_property
    def lifted(self) -> Matrix:
        """K where roots of the weights, which are in its kernel, have its largest eigenvalue.

        That changes no fit, as what is fitted is orthogonal to them up to rounding, which is
        then not divided by a small penalty.
        """
        rows = self.rows
        if not rows.intercept:
            return self.K
        lift = 2.0 * max(float(np.trace(self.K)), 0.0) or 1.0
        return np.asarray(self.K + (lift / rows.total) * np.outer(self.roots, self.roots))

    def solve(self, alpha: float) -> Coefficients:
        """Return the fit of this penalty; of the smallest norm where that is 0."""
        c = _solved(self.lifted, self.target, alpha) * self.roots
        return self.coefficients(c)

    def coefficients(self, c: Vector) -> Coefficients:
        """Return A, w and c of coefficients of the rows."""
        X = self.rows.X
        A = X.T @ (c[:, None] * X)
        w = X.T @ c / self.rows.lp if self.rows.linear else np.zeros(self.rows.n)
        return self.with_intercept(0.5 * (A + A.T), w)


class FeatureForm(RidgeForm):
    """By the features, as many as there are unknowns."""

    @cached_property
    def upper(self) -> tuple[np.ndarray, np.ndarray, Vector]:
        """Where the entries of A stand, and their factors."""
        i, j = np.triu_indices(self.rows.n)
        return i, j, np.where(i == j, 1.0, np.sqrt(2.0))

    @cached_property
    def centre(self) -> Vector:
        """Mean of the features; 0 without c."""
        rows = self.rows
        if not rows.intercept:
            return np.zeros(rows.unknowns)
        i, j, factor = self.upper
        mean = (rows.X.T @ (rows.s[:, None] * rows.X))[i, j] * factor
        if rows.linear:
            mean = np.concatenate([mean, rows.X.T @ rows.s / np.sqrt(rows.lp)])
        return np.asarray(mean / rows.total)

    def blocks(self) -> Iterator[tuple[slice, Matrix]]:
        """Yield Psi, some rows at a time."""
        rows, (i, j, factor) = self.rows, self.upper
        step = max(1, 2 * BLOCK_ELEMENTS // rows.unknowns)
        for begin in range(0, rows.m, step):
            part = slice(begin, min(begin + step, rows.m))
            X = rows.X[part]
            features = X[:, i] * X[:, j] * factor
            if rows.linear:
                features = np.hstack([features, X / np.sqrt(rows.lp)])
            yield part, self.roots[part, None] * (features - self.centre)

    @cached_property
    def normal(self) -> tuple[Matrix, Vector]:
        """``Psi' Psi``, and Psi' times the target."""
        p = self.rows.unknowns
        G, right = np.zeros((p, p)), np.zeros(p)
        for part, features in self.blocks():
            G += features.T @ features
            right += features.T @ self.target[part]
        return G, right

    def solve(self, alpha: float) -> Coefficients:
        """Return the fit of this penalty; of the smallest norm where that is 0."""
        G, right = self.normal
        return self.unpacked(_solved(G, right, alpha))

    def unpacked(self, theta: Vector) -> Coefficients:
        """Return A, w and c of coefficients of the features."""
        rows, (i, j, factor) = self.rows, self.upper
        A = np.zeros((rows.n, rows.n))
        A[i, j] = A[j, i] = theta[: rows.quadratic] / factor
        w = theta[rows.quadratic :] / np.sqrt(rows.lp) if rows.linear else np.zeros(rows.n)
        return self.with_intercept(A, w)


def _solved(M: Matrix, right: Vector, alpha: float) -> Vector:
    """Return ``(M + alpha I)^-1 right``, or of the smallest norm where that is singular."""
    if alpha > 0.0:
        moved = M.copy()
        moved.flat[:: len(M) + 1] += alpha
        diagonal = moved.diagonal()
        try:
            factor = cho_factor(moved, overwrite_a=True)
        except np.linalg.LinAlgError:
            pass
        else:
            least = float(np.min(np.abs(factor[0].diagonal()))) ** 2
            if least > CUT * len(M) * EPS * float(diagonal.max()):
                return np.asarray(cho_solve(factor, right))
    values, vectors = eigh(M)
    least = CUT * len(M) * EPS * max(float(values[-1]), 0.0)
    kept = values > least
    return np.asarray(vectors[:, kept] @ ((vectors[:, kept].T @ right) / (values[kept] + alpha)))


# --- leave one out -------------------------------------------------------------------------------


ALPHA_DECADES = (2.0, -7.0)
"""Penalties tried, as decades of the largest eigenvalue: from nothing but c to next to none."""

ALPHAS_PER_DECADE = 4
"""Penalties a decade."""


def default_alphas(largest: float) -> Vector:
    """Return penalties to try, the largest first, for that largest eigenvalue."""
    first, last = ALPHA_DECADES
    count = int((first - last) * ALPHAS_PER_DECADE) + 1
    return (largest if largest > 0.0 else 1.0) * np.logspace(first, last, count)


class KernelPath:
    """By the eigendecomposition of ``Psi Psi'``."""

    def __init__(self, form: KernelForm) -> None:
        self.form = form
        # With c, sqrt(s) is in the kernel of K. As the eigenvector of the largest eigenvalue it is
        # known, and 1 - h is a sum over the others, without cancellation.
        values, self.V = eigh(form.lifted)
        if form.rows.intercept:
            values, self.V = values[:-1], self.V[:, :-1]
        self.values = np.maximum(values, 0.0)
        self.turned = self.V.T @ form.target

    @property
    def largest(self) -> float:
        """Largest eigenvalue."""
        return float(self.values[-1]) if self.values.size else 0.0

    def errors(self, alphas: Vector) -> Matrix:
        """Return the errors of the rows left out, (m, k)."""
        share = alphas / (self.values[:, None] + alphas)
        free = (self.V * self.V) @ share
        off = self.V @ (share * self.turned[:, None])
        return _divided(off, free) / self.form.roots[:, None]

    def solve(self, alpha: float) -> Coefficients:
        """Return the fit of that penalty."""
        return self.form.coefficients(
            self.form.roots * (self.V @ (self.turned / (self.values + alpha)))
        )


class FeaturePath:
    """By the eigendecomposition of ``Psi' Psi``."""

    def __init__(self, form: FeatureForm) -> None:
        self.form = form
        G, right = form.normal
        values, self.Q = eigh(G)
        self.values = np.maximum(values, 0.0)
        self.turned = self.Q.T @ right

    @property
    def largest(self) -> float:
        """Largest eigenvalue."""
        return float(self.values[-1])

    def errors(self, alphas: Vector) -> Matrix:
        """Return the errors of the rows left out, (m, k)."""
        form = self.form
        rows, inverse = form.rows, 1.0 / (self.values[:, None] + alphas)
        found = np.empty((rows.m, alphas.size))
        for part, features in form.blocks():
            images = features @ self.Q
            held = (images * images) @ inverse
            if rows.intercept:
                held = held + (rows.s[part] / rows.total)[:, None]
            off = form.target[part, None] - images @ (inverse * self.turned[:, None])
            found[part] = _divided(off, 1.0 - held) / form.roots[part, None]
        return found

    def solve(self, alpha: float) -> Coefficients:
        """Return the fit of that penalty."""
        return self.form.unpacked(self.Q @ (self.turned / (self.values + alpha)))


def _divided(off: Matrix, free: Matrix) -> Matrix:
    """Return ``off / free``, infinite for a row that the others say nothing of."""
    told = free > ZERO_SHARE  # where the other rows determine a row, its error cannot be told
    return np.where(told, off / np.where(told, free, 1.0), np.inf)


def make_path(form: KernelForm | FeatureForm) -> KernelPath | FeaturePath:
    """Return the path over penalties."""
    return KernelPath(form) if isinstance(form, KernelForm) else FeaturePath(form)


def mean_errors(path: KernelPath | FeaturePath, alphas: Vector) -> Vector:
    """Return the weighted mean of the squared errors of the rows left out, for each penalty."""
    rows = path.form.rows
    errors = path.errors(alphas)
    with np.errstate(over="ignore"):
        return np.asarray((rows.s / rows.total) @ errors**2)


# --- what is certified ---------------------------------------------------------------------------


UNBOUNDED_TOLERANCE = 1e4
"""Tolerance, in units of the largest value, that is none."""

NO_ROWS = np.empty(0, np.int64)


def stated(
    X: Matrix, b: Vector, weights: Vector, A: Matrix, *, alpha: float, psd: bool,
    local: bool = False, delta: Vector | None = None, dual: Vector | None = None,
    method: str = "closed form",
) -> Result:  # fmt: skip
    """Return what ``sum s (x'Ax - b)^2 + alpha ||A||^2`` is at A, and how little it can be.

    Parameters
    ----------
    X, b, weights : rows, readings and their weights
    A : ndarray of shape (n, n)
    alpha : float
    psd : bool
        Over positive semidefinite matrices.
    local : bool
        A is of a rank: stationary, with nothing proved.
    delta : ndarray of shape (m,), optional
        Tolerances, all of them met.
    dual : ndarray of shape (m,), optional
        What proves how little it can be; by default what A leaves over, with its weights.
    method : str
        How A was found.
    """
    begin = time.perf_counter()
    target = delta is not None
    data = Measurements(X, b, weights=weights, **({} if delta is None else tolerances(b, delta)))
    if not target:
        data = data.without_tolerance()
    matrix = SensedMatrix.from_dense(A)
    values = evaluate(data, matrix)
    preference = Preference(
        "least_squares", psd=psd, target=target, ridge=float(alpha), weights=weights
    )
    if dual is None:
        dual = 2.0 * weights * (values.reads - b)
    gap = GapOptions().gap
    objective = make_objective(
        data, preference, matrix, values.reads, values.error, None if local else dual,
        fits=True, gap=gap,
    )  # fmt: skip
    closed = objective is not None and objective.closed and not local
    status = Status.LOCAL if local else Status.OPTIMAL if closed else Status.UNDECIDED
    if target and bool(values.met.all()):
        status = Status.MET
    claims = {Status.OPTIMAL: "optimal", Status.MET: "met"}
    upper = float(values.upper.max())
    certificate = Certificate(
        kind=claims.get(status, "none"),
        upper_bound=upper,
        lower_bound=0.0,
        rounding=float((values.error / data.unit_ends.unit).max()),
        matrix=matrix,
        psd=psd,
        gap=gap if status is Status.OPTIMAL else 0.0,
        tolerance=data.plain.stated_tolerance,
        lo=data.plain.lo if data.from_bounds else None,
        hi=data.plain.hi if data.from_bounds else None,
        objective=objective,
    )
    facts = gather_facts(
        data, values, certificate, status, Determined(None, data.unit_rows.unknowns, False),
        target=target, sought="least_squares", wanted="least_squares",
    )  # fmt: skip
    empty = np.empty(0)
    return Result(
        status=status,
        matrix=matrix,
        residuals=values.residuals,
        max_ratio=float(values.ratios.max()),
        violations=NO_ROWS,
        n_iter=0,
        history=History(NO_ROWS, *[empty] * (len(fields(History)) - 1)),
        timings={"proofs": time.perf_counter() - begin},
        certificate=certificate,
        plan={"method": method, "lemma": "", "reasons": ["least squares with a ridge: " + method]},
        facts=facts,
    )


def tolerances(b: Vector, delta: Vector) -> dict[str, Any]:
    """Return `delta` for `solve`: infinite ones as such that bind nothing: their rows count."""
    known = np.isfinite(delta)
    if not known.all():
        size = float(np.max(np.abs(b), initial=0.0)) + float(np.max(delta[known], initial=0.0))
        delta = np.where(known, delta, UNBOUNDED_TOLERANCE * (size or 1.0))
    return {"delta": delta}


def without_data(result: Result) -> Result:
    """Return the result with A alone: no row of the data is kept."""
    matrix = SensedMatrix.from_dense(np.array(result.A, np.float64))
    claim = replace(result.certificate, matrix=matrix, data=None)
    kept: Any = replace(result, matrix=matrix, certificate=claim)
    return kept
