"""Linear constraints ``lo <= <C, A> <= hi`` in exact arithmetic; nothing here knows the package."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import exact
import numpy as np


@dataclass(frozen=True)
class Linear:
    """``<C, A>`` with C held as it was given.

    Attributes
    ----------
    held : ndarray
        C itself of shape (n, n), or X of ``C = X diag(signs) X*``.
    signs : ndarray or None
        Real numbers of any size; None where C itself is held.
    """

    held: Any
    signs: Any = None

    @cached_property
    def dense(self) -> Any:
        """C, of a factor computed exactly and rounded once."""
        if self.signs is None:
            return self.held
        X = self.held
        (R, M), level = exact.integers(np.real(X), np.imag(X) + 0.0)
        (w,), other = exact.integers(self.signs)
        real = (R * w) @ R.T + (M * w) @ M.T
        imaginary = (M * w) @ R.T - (R * w) @ M.T
        C = exact.numbers(real, 2 * level + other)
        return C + 1j * exact.numbers(imaginary, 2 * level + other) if np.iscomplexobj(X) else C

    @property
    def positive(self) -> bool:
        """Whether C is positive semidefinite by its form; not looked for where C itself is held."""
        return self.signs is not None and bool(np.all(self.signs >= 0))

    def same_as(self, other: Linear) -> bool:
        """Whether both are held as the same numbers."""
        signs = (other.signs is None) if self.signs is None else (
            other.signs is not None and np.array_equal(self.signs, other.signs))  # fmt: skip
        return bool(signs and np.array_equal(self.held, other.held))

    def value(self, A: Any, is_factor: bool) -> Fraction:
        """Of A, or of ``X X*`` where A is a factor, exactly."""
        if self.signs is None:
            if is_factor:
                return sum(exact.quadratic(A.T, self.held), Fraction(0))
            return inner(self.held, A)
        columns = self.held.T
        values = (exact.factor_quadratic if is_factor else exact.quadratic)(columns, A)
        pairs = zip(self.signs, values, strict=True)
        return sum((Fraction(float(sign)) * value for sign, value in pairs), Fraction(0))

    def features(self, complex_: bool) -> Any:
        """What `exact.rank_of_rows` takes, modulo its prime."""
        if self.signs is None:
            C = self.held
            (R, M), _ = exact.integers(C.real, C.imag) if np.iscomplexobj(C) else exact.integers(
                C, 0.0 * C
            )  # fmt: skip
            return exact.upper(exact.residues(R), exact.residues(M), complex_)
        X = self.held
        (R, M), _ = exact.integers(X.real, X.imag if np.iscomplexobj(X) else 0.0 * X)
        (w,), _ = exact.integers(self.signs)
        rows = [
            int(sign)
            * exact.features(exact.residues(R[:, k]), exact.residues(M[:, k]), complex_)
            % exact.MODULUS
            for k, sign in enumerate(exact.residues(w))
        ]
        return sum(rows) % exact.MODULUS


def inner(C: Any, A: Any) -> Fraction:
    """The real part of ``tr(C* A)``, exactly."""
    (R, M), level = exact.integers(np.real(C), np.imag(C) + 0.0)
    (P, Q), other = exact.integers(np.real(A), np.imag(A) + 0.0)
    return exact.power(int(np.sum(R * P + M * Q)), level + other)
