"""Matrices of fractions: definiteness, norms and sums of rows without rounding.

Nothing in this file knows the package.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

Rows = list[list[Fraction]]


def fractions(values: Any) -> list[Fraction]:
    """Return floats as fractions, row by row."""
    return [Fraction(float(each)) for each in np.ravel(values)]


def real_form(M: Any) -> Rows:
    """Return a matrix of fractions; a Hermitian one as ``[[R, -I], [I, R]]``, of twice the order.

    It has the same eigenvalues, those of a Hermitian matrix twice.
    """
    M = np.asarray(M)
    re = [fractions(row) for row in M.real]
    if not np.iscomplexobj(M):
        return re
    im = [fractions(row) for row in M.imag]
    above = [p + [-x for x in q] for p, q in zip(re, im, strict=True)]
    return above + [q + p for p, q in zip(re, im, strict=True)]


def shifted(M: Rows, c: Any, diagonal: Any = None) -> Rows:
    """Return ``M - c diag(diagonal)``."""
    ones = [Fraction(1)] * len(M) if diagonal is None else fractions(diagonal)
    return [
        [x - Fraction(c) * ones[i] if i == j else x for j, x in enumerate(row)]
        for i, row in enumerate(M)
    ]


def is_semidefinite(M: Rows) -> bool:
    """Return whether a symmetric matrix is positive semidefinite, by elimination."""
    M = [list(row) for row in M]
    for k in range(len(M)):
        if M[k][k] < 0 or (M[k][k] == 0 and any(M[k][j] != 0 for j in range(k, len(M)))):
            return False
        for i in range(k + 1, len(M)):
            if M[k][k] and M[i][k]:
                share = M[i][k] / M[k][k]
                M[i] = [a - share * b for a, b in zip(M[i], M[k], strict=True)]
    return True


def adjoint(V: Any, y: Any, W: Any = None) -> tuple[Rows, Rows]:
    """Return ``sum_i y_i v_i v_i*``, the real and the imaginary part; y times W where given."""
    weights = fractions(y)
    if W is not None:
        columns = (fractions(column) for column in np.asarray(W).T)
        weights = [sum(t * w for t, w in zip(weights, each, strict=True)) for each in columns]
    n = np.shape(V)[1]
    triples = [(w, fractions(v.real), fractions(v.imag)) for w, v in zip(weights, V, strict=True)]
    every = range(n)
    real = [[sum(w * (p[j] * p[k] + q[j] * q[k]) for w, p, q in triples) for k in every]
            for j in every]  # fmt: skip
    imaginary = [[sum(w * (q[j] * p[k] - p[j] * q[k]) for w, p, q in triples) for k in every]
                 for j in every]  # fmt: skip
    return real, imaginary


def whole(real: Rows, imaginary: Rows) -> Rows:
    """Return the real form of a Hermitian matrix of these parts."""
    if not any(x for row in imaginary for x in row):
        return real
    above = [p + [-x for x in q] for p, q in zip(real, imaginary, strict=True)]
    return above + [q + p for p, q in zip(real, imaginary, strict=True)]


def norm(real: Rows, imaginary: Rows) -> float:
    """Return the Frobenius norm, rounded."""
    return math.sqrt(sum(x * x for part in (real, imaginary) for row in part for x in row))


def distance(M: Any, real: Rows, imaginary: Rows) -> float:
    """Return the Frobenius norm of the difference, rounded."""
    total = Fraction(0)
    for (j, k), value in np.ndenumerate(np.asarray(M)):
        total += (Fraction(float(value.real)) - real[j][k]) ** 2
        total += (Fraction(float(value.imag)) - imaginary[j][k]) ** 2
    return math.sqrt(total)


def roundings(k: int) -> Fraction:
    """Return ``k u / (1 - k u)`` [Higham 2002, 3.1]."""
    u = Fraction(1, 2**53)
    return k * u / (1 - k * u)


def is_between(value: Any, low: Any, high: Any) -> bool:
    """Return whether a number is between two others."""
    return float(low) <= float(value) <= float(high)
