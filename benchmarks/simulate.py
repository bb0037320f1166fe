"""Data of the users' tasks: what an experiment, a sketch, a rater or a radio would have read."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Seed = int


@dataclass(frozen=True)
class Tomography:
    """Counts of a state of several qubits in every Pauli basis.

    Attributes
    ----------
    U : ndarray of shape (6^q, 2^q)
        One row an outcome of a basis: its probability is ``u* rho u``.
    counts : ndarray of shape (6^q,)
    shots : int
        Of each basis.
    state : ndarray of shape (2^q, 2^q)
        The truth.
    """

    U: Array
    counts: Array
    shots: int
    state: Array

    @property
    def frequencies(self) -> Array:
        """What was read."""
        return self.counts / self.shots


PAULI = (
    np.eye(2, dtype=complex),
    np.array([[1, 1], [1, -1]], dtype=complex) / np.sqrt(2.0),
    np.array([[1, 1j], [1, -1j]], dtype=complex) / np.sqrt(2.0),
)
"""Eigenvectors of the three Pauli matrices, as rows."""


def tomography(qubits: int, rank: int, shots: int = 1000, seed: Seed = 0) -> Tomography:
    """A random state of this rank (``X X*`` of Gaussian X, trace 1), measured in every basis."""
    rng = np.random.default_rng([seed, qubits, rank])
    n = 2**qubits
    X = rng.standard_normal((n, rank)) + 1j * rng.standard_normal((n, rank))
    state = X @ X.conj().T
    state /= np.trace(state).real
    bases = []
    for names in itertools.product(PAULI, repeat=qubits):
        rows = names[0]
        for other in names[1:]:
            rows = np.kron(rows, other)
        bases.append(rows)
    U = np.concatenate(bases)
    likely = np.einsum("ij,jk,ik->i", U.conj(), state, U).real.clip(0.0).reshape(-1, n)
    counts = np.concatenate([rng.multinomial(shots, each / each.sum()) for each in likely])
    return Tomography(U, counts, shots, state)


def fidelity(one: Array, other: Array) -> float:
    """``tr sqrt(sqrt(one) other sqrt(one))`` squared, of matrices scaled to trace 1."""
    values, vectors = np.linalg.eigh(one / np.trace(one).real)
    root = (vectors * np.sqrt(values.clip(0.0))) @ vectors.conj().T
    inner = np.linalg.eigvalsh(root @ (other / np.trace(other).real) @ root)
    return float(np.sum(np.sqrt(inner.clip(0.0))) ** 2)


def sketches(
    truth: str, n: int = 64, m: int = 1500, samples: int = 10_000, seed: Seed = 0
) -> tuple[Array, Array, Array]:
    """Gaussian probes, mean squares of the same samples along each, and the covariance.

    Parameters
    ----------
    truth : {"toeplitz", "spikes"}
        ``.8^|i-j|``, or the identity plus spikes of 8, 5 and 3.
    """
    rng = np.random.default_rng(seed)
    if truth == "toeplitz":
        covariance = 0.8 ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    else:
        Q = np.linalg.qr(rng.standard_normal((n, 3)))[0]
        covariance = np.eye(n) + (Q * [8.0, 5.0, 3.0]) @ Q.T
    X = rng.standard_normal((samples, n)) @ np.linalg.cholesky(covariance).T
    U = rng.standard_normal((m, n)) / np.sqrt(n)
    return U, np.einsum("ij,jk,ik->i", U, X.T @ X / samples, U), covariance


def pairs(d: int, count: int, seed: Seed = 0, wrong: float = 0.1) -> tuple[Array, Array, Array]:
    """Differences of pairs of labelled points, and bounds on their squared distances.

    Similar ones are to be within 1, dissimilar ones beyond 2; some labels are wrong.
    """
    rng = np.random.default_rng(seed)
    kinds = 3
    centres = rng.standard_normal((kinds, d)) * 2.0
    labels = rng.integers(0, kinds, 40 * d)
    points = centres[labels] + rng.standard_normal((labels.size, d))
    points /= np.sqrt(d)
    i = rng.integers(0, labels.size, count)
    j = (i + rng.integers(1, labels.size, count)) % labels.size
    same = (labels[i] == labels[j]) ^ (rng.random(count) < wrong)
    lo, hi = np.where(same, -np.inf, 2.0), np.where(same, 1.0, np.inf)
    return points[i] - points[j], lo, hi


def energies(n: int = 6, m: int = 200, seed: Seed = 0) -> tuple[Array, Array, Array, Array]:
    """Probes, readings of a positive P, the bounds of their interval errors, and P."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, n))
    P = X @ X.T / n + 0.1 * np.eye(n)
    U = rng.standard_normal((m, n))
    exact = np.einsum("ij,jk,ik->i", U, P, U)
    width = 0.02 * np.abs(exact) + 0.01
    b = exact + width * rng.uniform(-1.0, 1.0, m)
    return U, b, width, P


@dataclass(frozen=True)
class Network:
    """Nodes in the unit square, some squared distances between them, some positions known.

    Attributes
    ----------
    U : ndarray of shape (m, nodes)
        ``e_i - e_j`` for nodes in range, then pins: ``e_a`` and ``e_a - e_b`` of the anchors.
    b : ndarray of shape (m,)
        Squared distances.
    pins : int
        How many of the last rows are pins.
    points : ndarray of shape (nodes, 2)
    anchors : ndarray of shape (k,)
    """

    U: Array
    b: Array
    pins: int
    points: Array
    anchors: Array

    def delta(self, pin: float, relative: float = 0.05) -> Array:
        """Tolerances: relative for distances, absolute for pins."""
        out = relative * self.b
        out[-self.pins :] = pin
        return np.asarray(out)

    def positions(self, factor: Array) -> Array:
        """The points of a factor, turned so that the anchors lie where they are."""
        known = self.points[self.anchors]
        left, _, right = np.linalg.svd(factor[self.anchors].T @ known)
        return np.asarray(factor @ (left @ right))


def network(nodes: int = 200, reach: float = 0.2, anchors: int = 10, seed: Seed = 0) -> Network:
    """Random nodes; squared distances within 5%; pins of the anchors without error."""
    rng = np.random.default_rng(seed)
    points = rng.random((nodes, 2))
    fixed = rng.choice(nodes, anchors, replace=False)
    near = [(i, j) for i, j in itertools.combinations(range(nodes), 2)
            if np.linalg.norm(points[i] - points[j]) <= reach]  # fmt: skip
    held = [(a, -1) for a in fixed] + list(itertools.combinations(fixed, 2))
    U = np.zeros((len(near) + len(held), nodes))
    for row, (i, j) in enumerate(near + held):
        U[row, i] = 1.0
        if j >= 0:
            U[row, j] = -1.0
    b = np.sum((U @ points) ** 2, axis=1)
    b[: len(near)] *= 1.0 + 0.05 * rng.uniform(-0.9, 0.9, len(near))
    return Network(U, b, len(held), points, fixed)
