"""Random measurement vectors of every kind that `quadsense.solve` accepts."""

from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import scipy.sparse as sp


def gaussian(rng: np.random.Generator, m: int, n: int, complex_: bool) -> Any:
    U = rng.standard_normal((m, n))
    return U + 1j * rng.standard_normal((m, n)) if complex_ else U


def draw(rng: np.random.Generator, geometry: str, m: int, n: int, complex_: bool) -> Any:
    """m rows of length n of ordinary norms."""
    if geometry == "whole":
        U = rng.integers(-3, 4, (m, n)).astype(float)
        return U + 1j * rng.integers(-3, 4, (m, n)) if complex_ else U
    if geometry == "basis":  # e_j, e_j + e_k, e_j + i e_k: exact dependences
        U = np.zeros((m, n), dtype=complex if complex_ else float)
        for row in U:
            j, k = rng.integers(0, n, 2)
            row[j] = 1.0
            if j != k:
                row[k] = rng.choice([0.0, 1.0, -1.0])
                if complex_ and rng.random() < 0.5:
                    row[k] *= 1j
        return U
    U = gaussian(rng, m, n, complex_)
    if geometry == "sparse":
        U = U * (rng.random((m, n)) < 0.5)
    elif geometry == "orthonormal":
        Q, _ = np.linalg.qr(gaussian(rng, n, n, complex_))
        U = Q[: min(m, n)]
    elif geometry == "subspace":
        r = int(rng.integers(1, n + 1))
        U = gaussian(rng, m, r, complex_) @ gaussian(rng, r, n, complex_)
    elif geometry == "coherent":
        U = gaussian(rng, 1, n, complex_) + 10.0 ** rng.uniform(-3, -0.5) * U
    return U


def disturb(rng: np.random.Generator, U: Any, notes: list[str]) -> tuple[Any, list[Any]]:
    """Now and then zero rows, equal rows, and rows equal up to a last bit.

    Returns
    -------
    U : ndarray
    twins : list of (int, int)
        Pairs (i, j), row i now being (almost) row j.
    """
    U, m, twins = U.copy(), len(U), []
    if rng.random() < 0.12:
        U[rng.integers(0, m)] = 0.0
        notes.append("zero row")
    if m > 1 and rng.random() < 0.25:
        for _ in range(int(rng.integers(1, 3))):
            i, j = rng.choice(m, 2, replace=False)
            U[i] = U[j]
            twins.append((int(i), int(j)))
        if rng.random() < 0.4:
            i, j = twins[-1]
            k = int(rng.integers(0, U.shape[1]))
            value = U[i, k]
            moved = np.nextafter(value.real, np.inf)
            U[i, k] = moved + 1j * value.imag if np.iscomplexobj(U) else moved
            notes.append("near-duplicates")
        else:
            notes.append("duplicates")
    return U, twins


def factors(rng: np.random.Generator, kind: str, m: int, storage: str) -> Any:
    """What the rows are multiplied by."""
    if kind == "ordinary":
        return np.ones(m)
    if kind == "uneven":
        return 10.0 ** rng.uniform(-3, 3, m)
    reach = 15 if storage == "float32" else 80
    if rng.random() < 0.3:  # all alike
        return np.full(m, 10.0 ** rng.uniform(-reach, reach))
    return 10.0 ** rng.uniform(-reach, reach, m)


def store(U: Any, storage: str) -> Any:
    """U as it is handed over."""
    if storage == "fortran":
        return np.asfortranarray(U)
    if storage == "strided":
        wide = np.zeros((2 * U.shape[0], 3 * U.shape[1]), dtype=U.dtype)
        wide[::2, ::3] = U
        return wide[::2, ::3]
    if storage == "csr":
        return sp.csr_array(U)
    if storage == "coo":
        return sp.coo_matrix(U)
    if storage == "float32":
        return U.astype(np.complex64 if np.iscomplexobj(U) else np.float32)
    if storage == "integer":
        return np.rint(2.0 * U).astype(np.int64)
    if storage == "list":
        return U.tolist()
    if storage == "strict":
        return array_api_strict.asarray(U)
    return U


def plain(values: Any) -> Any:
    """A NumPy array of an array of any namespace."""
    if isinstance(values, np.ndarray | list) or not hasattr(values, "__dlpack__"):
        return np.asarray(values)
    return np.from_dlpack(values)


def as_read(U: Any) -> Any:
    """The rows as float64 or complex128, of what was handed over."""
    dense = U.toarray() if sp.issparse(U) else plain(U)
    return dense.astype(np.complex128 if np.iscomplexobj(dense) else np.float64)
