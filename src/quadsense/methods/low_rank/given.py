"""The factor of a matrix that was given to start from."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from quadsense.arrays import to_numpy
from quadsense.core.forms import FactorForm
from quadsense.core.matrix import SensedMatrix
from quadsense.methods.low_rank.program import Matrix, Program
from quadsense.system.watch import look

# Up to this order a matrix is formed and decomposed; beyond, only products with it are taken.
_FORMED = 2000
# Eigenvalues below this share of the largest are the rounding of the others.
_ROUNDING = 1e-13
# Powers of two between which the largest entry of a factor is a start.
_LEAST, _MOST = -60, 20
# What an eigenvalue of the wrong sign is replaced by, as a share of the largest.
_SMALL = 1e-2


def leading_factor(
    problem: Program, fit: SensedMatrix, exponent: int, rank: int | None
) -> Matrix | None:
    """Return X (n, k) of the part of a matrix that its largest eigenvalues make up.

    Parameters
    ----------
    problem : Program
    fit : SensedMatrix
        In the readings' own scaling; `problem` has it over ``4**exponent``.
    exponent : int
    rank : int or None
        Most columns; None: as many as meet the tolerances, or one where none do. Where the
        problem has signs, as many as these, those of minus signs of the smallest eigenvalues.

    Returns
    -------
    ndarray or None
        None where the matrix has no positive eigenvalue, is next to nothing, or is too large to
        tell.
    """
    n = problem.F.n
    if problem.signs is not None:
        return _signed_factor(problem, fit, exponent)
    count = n if rank is None else min(rank, n)
    if isinstance(fit.form, FactorForm):
        values, vectors = _spectrum(fit.form)
        values, vectors = values[-count:], vectors[:, -count:]
    elif n <= _FORMED:
        look(10.0 * float(n) ** 3)
        values, vectors = eigh(np.asarray(fit), subset_by_index=(n - count, n - 1))
    elif rank is None or rank >= n - 1:
        return None
    else:
        found = _by_products(problem, fit, count)
        if found is None:
            return None
        values, vectors = found
    order = np.argsort(-values)
    values, vectors = values[order], vectors[:, order]
    keep = values > _ROUNDING * float(np.max(np.abs(values), initial=0.0))
    if not keep.any():
        return None
    X = in_range(vectors[:, keep] * np.sqrt(values[keep]), exponent)
    return X if rank is not None or X is None else X[:, : _enough(problem, X)]


def in_range(X: Matrix, exponent: int) -> Matrix | None:
    """Return a factor over ``2**exponent``, or None if negligible next to readings up to 1.

    One that is far larger is made smaller: squares of what it reads would overflow. At one that is
    far smaller the loss has no slope to speak of, as at zero.
    """
    size = int(np.frexp(float(np.max(np.abs(X), initial=0.0)))[1]) - exponent
    if size < _LEAST:
        return None
    power = -exponent - max(size - _MOST, 0)
    # In two parts: a power of two by itself may be out of range where the factor is not.
    scaled: Matrix = X * 2.0 ** (power // 2) * 2.0 ** (power - power // 2)
    return scaled


def _signed_factor(problem: Program, fit: SensedMatrix, exponent: int) -> Matrix | None:
    """Return X of ``X S X*`` for the outermost eigenvalues, plus signs first."""
    assert problem.signs is not None
    n, (plus, minus) = problem.F.n, problem.signs
    form = fit.form
    if isinstance(form, FactorForm) and form.factor.shape[1] >= plus + minus:
        values, vectors = _spectrum(form)
    elif n <= _FORMED:
        look(10.0 * float(n) ** 3)
        values, vectors = eigh(np.asarray(fit))
    else:
        return None
    if not values.any():
        return None
    return in_range(signed_part(values, vectors, plus, minus), exponent)


def _spectrum(form: FactorForm) -> tuple[Matrix, Matrix]:
    """Return the eigenvalues of ``X S X*`` in the span of X, in ascending order, and vectors."""
    X = to_numpy(form.factor)
    look(4.0 * float(X.shape[0]) * X.shape[1] ** 2)
    Q, R = np.linalg.qr(X)
    signs = np.ones(X.shape[1]) if form.signs is None else form.signs
    values, vectors = np.linalg.eigh((R * signs) @ R.conj().T)
    return values, Q @ vectors


def signed_part(values: Matrix, vectors: Matrix, plus: int, minus: int) -> Matrix:
    """Return X for the largest and the smallest of eigenvalues in ascending order.

    An eigenvalue of the wrong sign is replaced by a small one of the right: a column of zeros
    would stay so, the loss having no slope in it.
    """
    n = values.size
    index = np.concatenate([np.arange(n - 1, n - 1 - plus, -1), np.arange(minus)])
    signs = np.concatenate([np.ones(plus), -np.ones(minus)])
    sizes = signs * values[index]
    floor = _SMALL * (float(np.max(np.abs(values), initial=0.0)) or 1.0)
    X: Matrix = vectors[:, index] * np.sqrt(np.maximum(sizes, floor))
    return X


def _by_products(problem: Program, fit: SensedMatrix, count: int) -> tuple[Matrix, Matrix] | None:
    """Return the largest eigenvalues and their vectors, by Lanczos; None if that fails."""
    n, dtype = problem.F.n, problem.F.dtype

    def times(x: Matrix) -> Matrix:
        look()
        return np.asarray(to_numpy(fit.times(x.reshape(n, -1)))).reshape(x.shape)

    operator = LinearOperator((n, n), dtype=dtype, matvec=times)
    try:
        values, vectors = eigsh(operator, k=count, which="LA", v0=np.ones(n, dtype=dtype))
    except ArpackError:
        return None
    return values, vectors


def _enough(problem: Program, X: Matrix) -> int:
    """Return how many columns meet the tolerances; 1 where not even all do."""
    F = problem.F
    reached = F.mixed(np.cumsum(np.abs(F.raw.times(X)) ** 2, axis=1))
    ratios = np.max(np.abs(reached - problem.b[:, None]) / problem.delta[:, None], axis=0)
    meets = np.flatnonzero(ratios <= 1.0)
    return int(meets[0]) + 1 if meets.size else 1
