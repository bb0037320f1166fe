"""Seeded problems with a known A*."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, complex_of
from quadsense.core.matrix import SensedMatrix
from quadsense.core.records import cached_property
from quadsense.core.theory import coherence_limit
from quadsense.measurements import Measurements
from quadsense.typing import Seed, check_flag, is_number, is_whole, to_generator

__all__ = ["Dataset", "gaussian", "near_orthogonal", "orthonormal"]

CONDITION = 10.0
"""Largest over smallest nonzero eigenvalue of A*, unless another ratio is given."""


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)


@dataclass(frozen=True, repr=False)
class Dataset:
    """A problem and its answer.

    Attributes
    ----------
    U : ndarray of shape (m, n)
        Probes, one per row.
    b : ndarray of shape (m,)
        Readings ``u_i* A* u_i``, plus noise.
    factor : ndarray of shape (n, r)
        X with ``A* = X X*``.
    noise : float
        Standard deviation of the Gaussian noise in `b`.
    kind : str
        Which function of this module made it.
    """

    U: npt.NDArray[Any]
    b: Vector
    factor: npt.NDArray[Any]
    noise: float
    kind: str = ""

    def __repr__(self) -> str:
        """Kind, sizes and noise, without the arrays."""
        m, n = self.U.shape
        number = "complex" if np.iscomplexobj(self.U) else "real"
        sizes = f"m={m}, n={n}, rank={self.factor.shape[1]}"
        return f"Dataset({self.kind or 'unnamed'}, {sizes}, {number}, noise={self.noise:g})"

    @cached_property
    def A_star(self) -> npt.NDArray[Any]:
        """Dense truth, made on first use."""
        return np.asarray(SensedMatrix.from_factor(self.factor))

    @property
    def measurements(self) -> Measurements:
        """Probes and readings, without a tolerance."""
        return Measurements(self.U, self.b)


def orthonormal(
    n: int,
    m: int,
    *,
    rank: int | None = None,
    condition: float = CONDITION,
    noise: float = 0.0,
    complex: bool = False,
    seed: Seed = 0,
) -> Dataset:
    """Return orthonormal probes (m <= n): the setting of the paper's main theorem.

    Parameters
    ----------
    n, m : int
        Order of A*, number of measurements.
    rank : int, optional
        Rank of A*; n by default (positive definite).
    condition : float, default=10.0
        Largest over smallest nonzero eigenvalue of A*, which lie on a log scale below 1.
    noise : float, default=0.0
        Standard deviation of Gaussian noise added to the readings.
    complex : bool, default=False
        Complex probes and Hermitian A*.
    seed : int or numpy.random.Generator, default=0
    """
    rng = to_generator("seed", seed)
    _check_sizes(n, m, complex, most=n)
    U = _isometry(rng, m, n, complex)
    return _dataset("orthonormal", U, rank, condition, noise, complex, rng)


def near_orthogonal(
    n: int,
    m: int,
    *,
    rho: float | None = None,
    rank: int | None = None,
    condition: float = CONDITION,
    noise: float = 0.0,
    complex: bool = False,
    seed: Seed = 0,
) -> Dataset:
    """Return unit probes with ``|<u_i, u_j>| = rho`` for all i != j (m <= n).

    Parameters
    ----------
    rho : float, optional
        Coherence, below 1; ``1/(10 m)`` by default, the largest that the paper's lemmas allow.
    n, m, rank, condition, noise, complex, seed
        As in `orthonormal`.
    """
    rng = to_generator("seed", seed)
    _check_sizes(n, m, complex, most=n)
    rho = coherence_limit(m) if rho is None else rho
    if not (is_number(rho) and 0 <= rho < 1):
        raise ValueError(f"rho must lie in [0, 1), got {rho!r}")
    signs = rng.choice([-1.0, 1.0], size=m)
    gram = rho * np.outer(signs, signs)  # (1 - rho) I + rho s s^T is positive definite
    np.fill_diagonal(gram, 1.0)
    U = np.linalg.cholesky(gram) @ _isometry(rng, m, n, complex)
    return _dataset("near_orthogonal", U, rank, condition, noise, complex, rng)


def gaussian(
    n: int,
    m: int,
    *,
    rank: int | None = None,
    condition: float = CONDITION,
    noise: float = 0.0,
    complex: bool = False,
    seed: Seed = 0,
) -> Dataset:
    """Gaussian probes of mean squared norm 1, so that readings are about the mean eigenvalue.

    Parameters
    ----------
    n, m, rank, condition, noise, complex, seed
        As in `orthonormal`; m may exceed n.
    """
    rng = to_generator("seed", seed)
    _check_sizes(n, m, complex, most=None)
    U = _normal(rng, (m, n), complex) / np.sqrt(n)
    return _dataset("gaussian", U, rank, condition, noise, complex, rng)


def _check_sizes(n: int, m: int, complex: bool, most: int | None) -> None:
    check_flag("complex", complex)
    for name, value in (("n", n), ("m", m)):
        if not (is_whole(value) and value >= 1):
            raise ValueError(f"{name} must be a whole number, at least 1, got {value!r}")
    if most is not None and m > most:
        raise ValueError(f"m must be at most n = {most} for orthogonal probes, got {m}")


def _normal(rng: np.random.Generator, shape: tuple[int, int], complex: bool) -> npt.NDArray[Any]:
    """Return Gaussian entries of variance 1."""
    if not complex:
        return rng.standard_normal(shape)
    return complex_of(rng.standard_normal(shape), rng.standard_normal(shape)) / np.sqrt(2.0)


def _isometry(rng: np.random.Generator, m: int, n: int, complex: bool) -> npt.NDArray[Any]:
    """(m, n) with orthonormal rows, m <= n, uniformly distributed."""
    Q, R = np.linalg.qr(_normal(rng, (n, m), complex))
    phases = np.diagonal(R) / np.abs(np.diagonal(R))
    return np.ascontiguousarray((Q * phases).T)


def _dataset(
    kind: str,
    U: npt.NDArray[Any],
    rank: int | None,
    condition: float,
    noise: float,
    complex: bool,
    rng: np.random.Generator,
) -> Dataset:
    """Draw A* and read it."""
    n = U.shape[1]
    rank = n if rank is None else rank
    if not (is_whole(rank) and 1 <= rank <= n):
        raise ValueError(f"rank must lie between 1 and n = {n}, got {rank!r}")
    if not (is_number(condition) and 1 <= condition < np.inf):
        raise ValueError(f"condition must be at least 1, got {condition!r}")
    if not (is_number(noise) and 0 <= noise < np.inf):
        raise ValueError(f"noise must not be negative, got {noise!r}")
    values = np.geomspace(1.0, 1.0 / condition, rank)
    X = _isometry(rng, rank, n, complex).T * np.sqrt(values)
    b = np.sum(np.abs(U.conj() @ X) ** 2, axis=1)
    if noise > 0:
        b = b + noise * rng.standard_normal(b.shape[0])
    return Dataset(U, b, np.ascontiguousarray(X), noise, kind)
