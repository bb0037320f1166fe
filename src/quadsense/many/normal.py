"""The rows as a matrix on packed unknowns, and the normal matrices of many problems.

Unknowns are the coefficients of the covariates, if there are any, and then the packed A. A fixed
trace is one more row, which every A that is sought meets exactly, whatever its weight: it makes
the sum of squares determine the trace where the readings alone do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

from quadsense.arrays import Vector
from quadsense.core import products
from quadsense.core.intervals import UNIT
from quadsense.core.records import changed
from quadsense.core.sums import gamma
from quadsense.many import kernels

Array = npt.NDArray[np.float64]

MAX_PAIRED = 70
"""Unknowns up to which normal matrices are formed by one product with all pairs of columns."""

TRACE_SLACK = 1.0 - 1e-9
"""Factor that rounds a bound on an eigenvalue down by far more than its few operations err."""


@dataclass(frozen=True)
class Features:
    """The rows, on covariates and packed A.

    Attributes
    ----------
    psi : ndarray of shape (r, q)
        Covariates first, scaled by powers of two; r is m, and one more with a fixed trace.
    scales : ndarray of shape (p,)
        What the covariates were divided by.
    n : int
    is_complex : bool
    trace : float or None
    lengths : ndarray of shape (r,)
        Norms of the rows of psi.
    """

    psi: Array
    scales: Vector
    n: int
    is_complex: bool
    trace: float | None
    lengths: Vector

    @classmethod
    def of(cls, U: Any, covariates: Array | None, trace: float | None) -> Features:
        """Return them for checked rows."""
        phi = np.ascontiguousarray(products.features(U))
        m, size = phi.shape
        if covariates is None:
            covariates = np.empty((m, 0))
        with np.errstate(divide="ignore"):
            roots = np.sqrt((covariates**2).sum(axis=0) / max((phi**2).sum() / size, 1e-300))
        exponents = np.where(roots > 0.0, np.frexp(np.where(roots > 0.0, roots, 1.0))[1], 0)
        scales = np.ldexp(1.0, exponents)
        psi = np.concatenate([covariates / scales, phi], axis=1)
        lengths = np.linalg.norm(psi, axis=1) * (1.0 + gamma(psi.shape[1] + 8))
        found = cls(psi, scales, U.shape[1], np.iscomplexobj(U), None, lengths)
        return found if trace is None else found.with_trace(trace)

    def with_trace(self, trace: float) -> Features:
        """Return the same with a row for a fixed trace, where there is none."""
        row = np.concatenate([np.zeros(self.p), self.identity])
        lengths = np.append(self.lengths, math.sqrt(self.n) * (1.0 + gamma(self.n)))
        return changed(self, psi=np.vstack([self.psi, row]), trace=trace, lengths=lengths)

    @property
    def p(self) -> int:
        """Covariates."""
        return len(self.scales)

    @property
    def size(self) -> int:
        """Unknowns of A."""
        return self.psi.shape[1] - self.p

    @property
    def identity(self) -> Vector:
        """The packed identity."""
        found = np.zeros(self.size)
        found[: self.n] = 1.0
        return found

    def matrices(self, x: Array) -> npt.NDArray[Any]:
        """Return packed matrices as matrices, (k, n, n)."""
        return unpacked(x, self.n, self.is_complex)

    def weights(self, w: Array) -> Array:
        """Return the weights with one for the row of the trace."""
        if self.trace is None:
            return w
        mass = w @ self.lengths[:-1] ** 2 / (self.size * self.n)
        return np.concatenate([w, mass[:, None]], axis=1)

    def readings(self, b: Array) -> Array:
        """Return the readings with that of the trace."""
        if self.trace is None:
            return b
        return np.concatenate([b, np.full((len(b), 1), self.trace)], axis=1)


@dataclass(frozen=True)
class Normal:
    """Normal matrices of one set of weights, or of one for each problem; g is 1 or k.

    Attributes
    ----------
    w : ndarray of shape (g, r)
    schur : ndarray of shape (g, N, N)
        On A, the covariates at their best.
    least, most : ndarray of shape (g,)
        Estimates of its extreme eigenvalues, across the identity where the trace is fixed; 0 for
        the largest where it is not known.
    sigma : ndarray of shape (g,)
        Proved to be no more than the least eigenvalue of the normal matrix of all unknowns; 0 where
        nothing is proved.
    along : ndarray of shape (g, q)
        Solution for the identity on the right, with a fixed trace.
    inverse : ndarray of shape (g, q, q)
        Inverse of the lower Cholesky factor.
    """

    w: Array
    schur: Array
    least: Vector
    most: Vector
    sigma: Vector
    along: Array
    inverse: Array

    def taken(self, index: Any) -> Normal:
        """Return those of these problems."""
        if len(self.w) == 1 or len(index) == len(self.w):
            return self
        return Normal(*(each[index] for each in vars(self).values()))

    def solved(self, right: Array) -> Array:
        """Return the solutions for right-hand sides of shape (k, q)."""
        if len(self.inverse) == 1:
            return right @ self.inverse[0].T @ self.inverse[0]
        half = np.matmul(self.inverse, right[:, :, None])
        return np.asarray(np.matmul(self.inverse.swapaxes(1, 2), half)[:, :, 0])


def shared_normal(features: Features, w: Array) -> Normal:
    """Return the normal matrix of weights of shape (1, r), by one QR decomposition."""
    psi, p = features.psi, features.p
    scaled = np.sqrt(w[0])[:, None] * psi
    q = psi.shape[1]
    nothing = _nothing(w, features)
    if int(np.count_nonzero(w)) < q:
        return nothing
    R: Any = np.linalg.qr(scaled, mode="r")
    diagonal = np.abs(R.diagonal())
    if not diagonal.min() > q * 16.0 * UNIT * diagonal.max():
        return nothing
    inverse = solve_triangular(R, np.eye(q), check_finite=False)
    # R*R is the normal matrix up to the errors of the decomposition [Higham 2002, Theorem 19.4].
    formed = gamma(8.0 * q * (len(psi) + 2.0 * q)) * float(np.linalg.norm(scaled)) ** 2
    length = float(np.linalg.norm(inverse))
    slip = gamma(q + 2) * length * float(np.linalg.norm(R))
    sigma = ((1.0 - slip) / length) ** 2 * TRACE_SLACK - 3.0 * formed if slip < 1.0 else 0.0
    lower = R[p:, p:]
    schur = np.ascontiguousarray(lower.T @ lower)
    across = schur
    if features.trace is not None:
        one = features.identity / math.sqrt(features.n)
        across = schur - np.outer(one, one @ schur)
        across = across - np.outer(across @ one, one)
    values = np.linalg.eigvalsh(across)
    least = float(values[0] if features.trace is None or len(values) == 1 else values[1])
    H = np.ascontiguousarray(inverse.T)
    e = np.concatenate([np.zeros(p), features.identity])
    along = (e @ inverse) @ H
    return Normal(
        w, schur[None], np.array([max(least, sigma)]), np.array([max(float(values[-1]), sigma)]),
        np.array([max(sigma, 0.0)]), along[None], H[None],
    )  # fmt: skip


def own_normals(features: Features, w: Array) -> Normal:
    """Return the normal matrices of weights of shape (k, r), one per problem."""
    psi, p, q = features.psi, features.p, features.psi.shape[1]
    low = np.tril_indices(q)
    if q <= MAX_PAIRED:
        entries = w @ (psi[:, low[0]] * psi[:, low[1]])
    else:
        entries = np.stack([((psi * each[:, None]).T @ psi)[low] for each in w])
    k = len(w)
    schur, inverse = np.empty((k, q - p, q - p)), np.empty((k, q, q))
    sigma = np.empty(k)
    rounding = gamma(2.0 * (len(psi) + 2.0 * q + 16.0))
    kernels.factor(entries, q, p, rounding, schur, inverse, sigma)
    e = np.concatenate([np.zeros(p), features.identity])
    half = inverse @ e
    along = np.matmul(inverse.swapaxes(1, 2), half[:, :, None])[:, :, 0]
    return Normal(w, schur, sigma, np.zeros(k), sigma, along, inverse)


def _nothing(w: Array, features: Features) -> Normal:
    """Return what stands for a normal matrix that is singular: nothing is proved by it."""
    q, size = features.psi.shape[1], features.size
    one = np.ones(1)
    return Normal(w, np.eye(size)[None], one, one, np.zeros(1), np.ones((1, q)), np.eye(q)[None])


def unpacked(x: Array, n: int, is_complex: bool) -> npt.NDArray[Any]:
    """Return packed matrices as matrices, (k, n, n)."""
    A = np.zeros((len(x), n, n), np.complex128 if is_complex else np.float64)
    above = products.upper(n)
    count = above[0].size
    values: Any = x[:, n : n + count] / products.SQRT2
    if is_complex:
        values = values + 1j * (x[:, n + count :] / products.SQRT2)
    A[:, above[0], above[1]] = values
    A[:, above[1], above[0]] = values.conj()
    A[:, np.arange(n), np.arange(n)] = x[:, :n]
    return A


def least_squares(features: Features, normal: Normal, b: Array) -> Array:
    """Return the least-squares solutions without the cone, (k, q), refined once."""
    psi, w = features.psi, normal.w
    x = normal.solved((w * b) @ psi)
    x += normal.solved((w * (b - x @ psi.T)) @ psi)
    if features.trace is None:
        return x
    p, n = features.p, features.n
    missing = features.trace - x[:, p : p + n].sum(axis=1)
    x += (missing / normal.along[:, p : p + n].sum(axis=1))[:, None] * normal.along
    return x
