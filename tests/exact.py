"""Arithmetic without rounding: floats are dyadic rationals, so everything here is an integer.

An array of floats is held as integers and one common power of two. Complex arrays are held as two
such arrays. Nothing in this file knows the package.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

MODULUS = 2**31 - 1  # products of two residues fit int64


def integers(*parts: Any) -> tuple[list[Any], int]:
    """Float arrays as arrays of Python integers times one power of two, and its exponent."""
    arrays = [np.asarray(part, dtype=np.float64) for part in parts]
    if not all(np.isfinite(array).all() for array in arrays):
        raise ValueError("only finite numbers are fractions")
    mantissas, exponents = zip(*(np.frexp(array) for array in arrays), strict=True)
    whole = [np.ldexp(mantissa, 53).astype(np.int64) for mantissa in mantissas]
    used = [exponent[values != 0] for exponent, values in zip(exponents, whole, strict=True)]
    flat = np.concatenate([part.ravel() for part in used]) if used else np.empty(0, int)
    low = int(flat.min()) if flat.size else 0
    out = []
    for values, exponent in zip(whole, exponents, strict=True):
        held = np.empty(values.shape, dtype=object)
        for index in np.ndindex(values.shape):
            value = int(values[index])
            held[index] = value << (int(exponent[index]) - low) if value else 0
        out.append(held)
    return out, low - 53


def power(value: int, exponent: int) -> Fraction:
    """``value * 2**exponent``, exactly."""
    if exponent >= 0:
        return Fraction(value << exponent)
    return Fraction(value, 1 << -exponent)


def numbers(values: Any, exponent: int) -> Any:
    """``values * 2**exponent`` of an array of integers as the nearest floats."""
    found = [number(power(int(value), exponent)) for value in values.ravel()]
    return np.array(found).reshape(values.shape)


def quadratic(U: Any, A: Any) -> list[Fraction]:
    """The real part of ``u_i* A u_i`` for each row, exactly."""
    U, A = np.asarray(U), np.asarray(A)
    complex_ = np.iscomplexobj(U) or np.iscomplexobj(A)
    (R, M), level = integers(A.real, A.imag) if complex_ else integers(A, 0.0)
    values = []
    for u in U:
        (p, q), own = integers(u.real, u.imag) if complex_ else integers(u, 0.0)
        value = p @ (R @ p - M @ q) + q @ (R @ q + M @ p) if complex_ else p @ (R @ p)
        values.append(power(int(value), 2 * own + level))
    return values


def factor_quadratic(U: Any, X: Any) -> list[Fraction]:
    """``u_i* X X* u_i`` for each row, exactly."""
    U, X = np.asarray(U), np.asarray(X)
    complex_ = np.iscomplexobj(U) or np.iscomplexobj(X)
    if X.shape[1] == 0:
        return [Fraction(0)] * len(U)
    (R, M), level = integers(X.real, X.imag) if complex_ else integers(X, 0.0)
    values = []
    for u in U:
        (p, q), own = integers(u.real, u.imag) if complex_ else integers(u, 0.0)
        if complex_:
            real, imaginary = R.T @ p + M.T @ q, R.T @ q - M.T @ p
            value = real @ real + imaginary @ imaginary
        else:
            real = R.T @ p
            value = real @ real
        values.append(power(int(value), 2 * (own + level)))
    return values


def squared_norms(U: Any) -> list[Fraction]:
    """``||u_i||^2``, exactly."""
    return factor_quadratic(U, np.eye(np.asarray(U).shape[1]))


def fractions(values: Any) -> list[Fraction | None]:
    """Floats as fractions, None where infinite."""
    return [Fraction(float(v)) if math.isfinite(v) else None for v in np.ravel(values)]


def number(value: Fraction) -> float:
    """The nearest float, infinite or zero beyond the range."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def norm(A: Any) -> float:
    """Frobenius norm, without overflow on the way."""
    sizes = np.abs(A).ravel()
    largest = float(np.max(sizes, initial=0.0))
    if not 0.0 < largest < math.inf:
        return largest
    exponent = math.frexp(largest)[1]  # no division: it would overflow for subnormal numbers
    return math.ldexp(float(np.linalg.norm(np.ldexp(sizes, -exponent))), exponent)


def rank_of_map(U: Any, further: Any = ()) -> int:
    """Rank of ``A -> (u_i* A u_i)_i`` modulo a prime: never above the rank over the rationals.

    A rank of m therefore proves that the rows of the map are independent, whatever the rounding:
    then a symmetric matrix fits any readings at all. `further` are rows of features to be added.
    """
    U = np.asarray(U)
    rows = list(further)
    for u in U:
        (p, q), _ = integers(u.real, u.imag) if np.iscomplexobj(u) else integers(u, 0.0 * u)
        rows.append(features(residues(p), residues(q), np.iscomplexobj(U)))
    return _rank(np.array(rows))


def residues(values: Any) -> Any:
    """Integers modulo the prime."""
    flat = [int(value) % MODULUS for value in np.ravel(values)]
    return np.array(flat, dtype=np.int64).reshape(np.shape(values))


def features(p: Any, q: Any, complex_: bool) -> Any:
    """``u u*`` for ``u = p + i q`` as a row on the unknowns, modulo the prime."""
    real = (np.outer(p, p) % MODULUS + np.outer(q, q) % MODULUS) % MODULUS
    imaginary = (np.outer(q, p) % MODULUS - np.outer(p, q) % MODULUS) % MODULUS
    return upper(real, imaginary, complex_)


def upper(real: Any, imaginary: Any, complex_: bool) -> Any:
    """Upper triangle of a Hermitian matrix, then that of its imaginary part where complex."""
    row = real[np.triu_indices(len(real))]
    if complex_:
        row = np.append(row, imaginary[np.triu_indices(len(real), 1)])
    return row


def _rank(G: Any) -> int:
    rank = 0
    for column in range(G.shape[1]):
        found = np.flatnonzero(G[rank:, column])
        if not found.size:
            continue
        pivot = rank + int(found[0])
        G[[rank, pivot]] = G[[pivot, rank]]
        inverse = pow(int(G[rank, column]), -1, MODULUS)
        G[rank] = G[rank] * inverse % MODULUS
        below = G[rank + 1 :, column].copy()
        G[rank + 1 :] = (G[rank + 1 :] - below[:, None] * G[rank] % MODULUS) % MODULUS
        rank += 1
        if rank == G.shape[0]:
            break
    return rank
