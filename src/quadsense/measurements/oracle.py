"""`SpectralOracle`: what Algorithm 3 of the paper may ask of A*."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from quadsense.arrays import (
    Array,
    as_numbers,
    is_array,
    is_numpy,
    namespace,
)
from quadsense.core.matrix import EIGENVALUE_ERROR
from quadsense.measurements.validate import MAX_SKEW, widened


class SpectralOracle:
    """``A*^{-1/2} Y A*^{-1/2}`` and ``A*^{1/2} Y A*^{1/2}`` for any symmetric Y.

    Algorithm 3 needs both directions: the printed update applies the former where the lemma needs
    the latter (erratum 2).

    Parameters
    ----------
    A_star : array of shape (n, n), optional
        Positive definite; both directions are then made from its eigendecomposition.
    whiten, color : callable, optional
        The two directions, in place of `A_star`: (n, n) to (n, n).
    condition : float, optional
        With callables: condition number of A*, by which their rounding errors grow.

    Examples
    --------
    >>> import numpy as np
    >>> from quadsense import SpectralOracle
    >>> oracle = SpectralOracle(np.diag([1.0, 4.0]))
    >>> oracle.whiten(np.diag([1.0, 4.0]))
    array([[1., 0.],
           [0., 1.]])
    """

    def __init__(
        self,
        A_star: Array | None = None,
        *,
        whiten: Callable[[Array], Array] | None = None,
        color: Callable[[Array], Array] | None = None,
        condition: float = 1.0,
    ) -> None:
        self.condition = condition
        self.n: int | None = None
        if A_star is None:
            if whiten is None or color is None:
                raise ValueError("give A_star, or both whiten and color: the oracle's directions")
            self.whiten, self.color = whiten, color
            return
        if whiten is not None or color is not None:
            raise ValueError("give either A_star or the callables whiten and color, not both")
        A = checked_square("A_star", A_star)
        xp = namespace(A)
        values, vectors = xp.linalg.eigh(A)
        smallest = float(values[0])
        if not smallest > 0:
            raise ValueError(
                f"A_star must be positive definite; its smallest eigenvalue is {smallest:.3g}"
            )
        self.condition = float(values[-1]) / smallest
        self.n = int(A.shape[0])
        transposed = vectors.T if xp.isdtype(A.dtype, "real floating") else xp.conj(vectors.T)
        roots = xp.astype(xp.sqrt(values), A.dtype)
        root = (vectors * roots) @ transposed
        inverse = (vectors / roots) @ transposed
        self.whiten = lambda Y: inverse @ Y @ inverse
        self.color = lambda Y: root @ Y @ root

    def __repr__(self) -> str:
        """Order of A*, where it was given, and condition number."""
        order = "" if self.n is None else f"n={self.n}, "
        return f"SpectralOracle({order}condition={self.condition:.3g})"

    def eigenvalues(self, A: Array) -> Array:
        """Return eigenvalues of ``A*^{-1/2} A A*^{-1/2}``."""
        whitened = symmetrised(self.whiten(A))
        return namespace(whitened).linalg.eigvalsh(whitened)

    def rounding(self, shifted: Array) -> float:
        """Return a bound on rounding in eigenvalues minus 1: ``16 n u`` times condition and size.

        Forming the roots, two products and the eigenvalues each err by a modest multiple of
        ``n u``; the inverse root lets them grow by the condition number of A*.
        """
        size = 1.0 + float(namespace(shifted).max(namespace(shifted).abs(shifted)))
        return EIGENVALUE_ERROR * int(shifted.shape[0]) * self.condition * size


def symmetrised(A: Array) -> Array:
    """Return ``(A + A*)/2``: takes away what rounding left."""
    xp = namespace(A)
    other = xp.conj(A.T) if xp.isdtype(A.dtype, "complex floating") else A.T
    return 0.5 * (A + other)


def checked_square(name: str, A: Any) -> Array:
    """Return `A` as a finite Hermitian array of float64 or complex128, or raise ValueError."""
    values = as_numbers(name, A)
    A = A if is_array(A) and not is_numpy(A) else values
    if A.ndim != 2 or A.shape[0] != A.shape[1] or A.shape[0] == 0:
        raise ValueError(f"{name} must be a square matrix, got shape {tuple(A.shape)}")
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if bad.size:
        raise ValueError(f"{name} contains NaN or infinity, first in row {bad[0]}")
    skew = np.abs(values - values.conj().T).max()
    if skew > MAX_SKEW * np.abs(values).max():
        raise ValueError(f"{name} must be symmetric (Hermitian); it differs from its transpose")
    return widened(A)
