"""What is asked of A, ``<C, A>``, from any of the forms in which it may be given."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from quadsense.arrays import Array, as_numbers
from quadsense.core.matrix import SensedMatrix
from quadsense.measurements import Measurements
from quadsense.typing import is_whole

LARGEST = 1e70
"""Entries of C, and their inverses, of which squares and products stay within float64."""

SKEW = 1e-8
"""Largest part of C by which it may differ from its conjugate transpose, as rounding does."""


def asked_for(C: Any, data: Measurements) -> Array:
    """C as a Hermitian matrix, from any of its forms, or a ValueError.

    Parameters
    ----------
    C : array of shape (n, n) or (n,), (i, j) or "trace"
        See `quadsense.interval`.
    data : Measurements
        Of that n; real or complex.
    """
    n, is_complex = data.n, data.unit_rows.is_complex
    dtype = np.complex128 if is_complex else np.float64
    if isinstance(C, str):
        if C != "trace":
            raise ValueError(f'C must be a matrix, a vector, a pair (i, j) or "trace", got {C!r}')
        return np.eye(n, dtype=dtype)
    if isinstance(C, tuple):
        if len(C) != 2 or not all(is_whole(k) and -n <= k < n for k in C):
            raise ValueError(f"C must be a pair (i, j) of indices below n = {n}, got {C!r}")
        E = np.zeros((n, n), dtype=dtype)
        E[C] += 0.5
        E[C[::-1]] += 0.5
        return E
    if sp.issparse(C):
        C = C.toarray()
    M = as_numbers("C", C.to_dense() if isinstance(C, SensedMatrix) else C)
    M = M.astype(np.complex128 if np.iscomplexobj(M) else np.float64)
    if M.shape not in ((n, n), (n,)):
        raise ValueError(f"C has shape {M.shape}, but must have shape ({n}, {n}) or ({n},)")
    if not np.isfinite(M).all():
        raise ValueError("C must be finite")
    largest = float(np.max(np.abs(M), initial=0.0))
    if largest > LARGEST or 0.0 < largest < 1.0 / LARGEST:
        raise ValueError(f"C has entries up to {largest:.3g}, out of range: rescale it")
    if M.ndim == 1:
        M = np.outer(M, M.conj())
    if np.max(np.abs(M - M.conj().T)) > SKEW * np.max(np.abs(M)):
        raise ValueError(f"C must be {'Hermitian' if np.iscomplexobj(M) else 'symmetric'}")
    M = 0.5 * (M + M.conj().T)
    return M.astype(dtype) if is_complex else np.ascontiguousarray(M.real)
