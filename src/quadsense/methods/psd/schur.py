"""The linear systems of the interior-point method: ``(M + diag(1/E)) x = r``.

``M_ij = |<v_i, v_j>|^2`` has the rank of the unknowns at most. They are solved in the order of the
rows or in that of the unknowns, whichever takes fewer flops.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg as sl

from quadsense.core.cholesky import (
    PANEL,
    SMALL,
    divided,
    factor_upper,
    inner_upper,
    squared_moduli,
)
from quadsense.core.packed import features
from quadsense.core.products import unknowns
from quadsense.measurements.mixed import Mixed
from quadsense.measurements.sensing import Sensing
from quadsense.methods.psd.maps import Array, Real
from quadsense.methods.psd.traits import newton_entries, newton_flops
from quadsense.watch import look


def flops(F: Sensing) -> float:
    """Return about what a step costs."""
    by_rows, by_unknowns = newton_flops(max(F.m, F.raw.m), F.n, F.unknowns)
    return min(by_rows, by_unknowns) + 30.0 * float(F.n) ** 3


def entries(F: Sensing) -> int:
    """Return the size of the largest array a step makes."""
    return newton_entries(max(F.m, F.raw.m), F.n, F.unknowns)


def solver(V: Array, E: Real, F: Sensing | None = None) -> Callable[[Real], Real]:
    """Return the solver of ``(M + diag(1/E)) x = r``, ``M_ij = |<v_i, v_j>|^2``.

    Where readings are sums of rows, F says which: then ``M = W |V V*|^2 W^T``.

    Rows are scaled by sqrt(E), which keeps the system well conditioned where E tends to 0:
    ``I + C C'`` with the rows ``sqrt(E_i) v_i v_i*`` as real vectors.
    """
    scale = np.sqrt(E)
    by_rows, by_unknowns = newton_flops(max(len(V), E.size), V.shape[1], unknowns(V))
    if by_rows <= by_unknowns:
        if len(V) > SMALL:
            M = squared_moduli(V)
        else:
            M = V @ V.conj().T
            M = M.real**2 + M.imag**2 if np.iscomplexobj(M) else np.square(M, out=M)
        look()
        if isinstance(F, Mixed):
            M = np.ascontiguousarray(F.mixed(F.mixed(M).T))
        M *= scale[:, None]
        M *= scale
        look()
        inverse = _inverse(M)
    else:
        map_rows = features(V) if F is None else F.mixed(features(V))
        inverse = _inverse_by_unknowns(np.ascontiguousarray(map_rows) * scale[:, None])
    return lambda r: scale * inverse(scale * r)


def _inverse(M: Real) -> Callable[[Real], Real]:
    """Return the solver of ``(I + M) x = r``; M is overwritten."""
    M[np.diag_indices(len(M))] += 1.0
    if len(M) > SMALL:
        upper = _factor(M.T if M.flags.c_contiguous else np.asfortranarray(M))  # symmetric
        return lambda r: np.asarray(sl.cho_solve((upper, False), r, check_finite=False))
    factor = sl.cho_factor(M, lower=True, overwrite_a=True, check_finite=False)
    return lambda r: np.asarray(sl.cho_solve(factor, r, check_finite=False))


def _factor(M: Real) -> Real:
    """Return the upper factor of M, which is overwritten."""
    upper, info = factor_upper(M)
    if info != 0:
        raise sl.LinAlgError("not positive definite")
    return upper


def _whole(M: Real) -> Real:
    """Return a symmetric matrix from its upper triangle."""
    return np.asarray(np.triu(M) + np.triu(M, 1).T)


def _inverse_by_unknowns(C: Real) -> Callable[[Real], Real]:
    """Return the solver of ``(I + C C') x = r`` for a C of more rows than columns.

    ``(I + C C')^-1 = I - C (I + C' C)^-1 C'`` cancels where rows are large, as those of the active
    ends become. So it is used on the small rows alone, and the large ones, of which there are about
    as many as columns, are solved for by their own Schur complement.
    """
    sizes = np.vecdot(C, C)
    count = min(2 * C.shape[1], int(np.count_nonzero(sizes > 1.0)))
    order = np.argsort(-sizes, kind="stable")
    large, small = np.sort(order[:count]), np.sort(order[count:])
    C_large, C_small = C[large], C[small]
    apart = divided(len(C) * float(C.shape[1]) ** 2)
    inner = inner_upper(C_small) if apart else C_small.T @ C_small
    inner[np.diag_indices(len(inner))] += 1.0
    if apart:
        factor = np.tril(_factor(inner).T)
    else:
        factor = sl.cholesky(inner, lower=True, overwrite_a=True, check_finite=False)
    reduced = np.empty((len(inner), count))
    for begin in range(0, count, PANEL):
        look()
        columns = slice(begin, begin + PANEL)
        reduced[:, columns] = sl.solve_triangular(
            factor, C_large[columns].T, lower=True, check_finite=False
        )
    outer = _inverse(_whole(inner_upper(reduced)) if apart else reduced.T @ reduced)

    def through(x: Real) -> Real:
        """Return ``(I + C_small' C_small)^-1 x``."""
        return np.asarray(sl.cho_solve((factor, True), x, check_finite=False))

    def solve(r: Real) -> Real:
        x = np.empty_like(r)
        x[large] = outer(r[large] - C_large @ through(C_small.T @ r[small]))
        rest = r[small] - C_small @ (C_large.T @ x[large])
        x[small] = rest - C_small @ through(C_small.T @ rest)
        return x

    return solve
