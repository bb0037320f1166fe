"""Problems in which few rows, or rows and a constraint, were made to contradict each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Planted:
    """A problem over the positive semidefinite matrices that nothing fits.

    Attributes
    ----------
    U, b, delta : ndarray
    asked : dict
        `trace` and `constraints` of `solve`.
    members : frozenset of int
        What was made to contradict; constraints count on after the rows.
    """

    U: Any
    b: Any
    delta: Any
    asked: dict[str, Any] = field(default_factory=dict)
    members: frozenset[int] = frozenset()


def planted(seed: int) -> Planted:
    """Return the problem of that number; every second one has constraints."""
    rng = np.random.default_rng([4, seed])
    n = int(rng.integers(3, 9))
    m = int(rng.integers(n, 2 * n * (n + 1)))
    U = rng.standard_normal((m, n))
    X = rng.standard_normal((n, int(rng.integers(1, n + 1))))
    A = X @ X.T
    b = np.einsum("ij,jk,ik->i", U, A, U)
    delta = rng.uniform(0.05, 0.3) * np.maximum(np.abs(b), np.median(np.abs(b)))
    b = b + delta * rng.uniform(-0.5, 0.5, m)
    constrained = bool(seed % 2)
    kinds = ["line", "plane", "corners"] + ["trace"] * (2 * constrained)
    kind = kinds[int(rng.integers(len(kinds)))]
    asked: dict[str, Any] = {}
    if constrained:
        C = rng.standard_normal((n, n))
        C, trace = C + C.T, float(np.trace(A))
        value, width = float(np.sum(C * A)), 0.2 * float(np.linalg.norm(C) * np.linalg.norm(A))
        asked = {"trace": trace, "constraints": [(C, value - width, value + width)]}
    u, v = rng.standard_normal((2, n))
    off = rng.uniform(1.5, 4.0)
    if kind == "line":  # one vector twice, with two readings
        rows = np.stack([u, rng.uniform(0.5, 2.0) * u])
        reads = np.einsum("ij,jk,ik->i", rows, A, rows) * [1.0, off]
    elif kind == "plane":  # no triangle has such sides
        rows = np.stack([u, v, u + v])
        reads = np.einsum("ij,jk,ik->i", rows, A, rows)
        reads[:2] = reads[2] / (2.0 * off) ** 2
    elif kind == "corners":  # nor such a parallelogram
        v *= np.sqrt((u @ A @ u) / (v @ A @ v))
        rows = np.stack([u, v, u + v, u - v])
        reads = float(u @ A @ u) * np.array([1.0, 1.0, *rng.uniform(1.1, 1.5, 2)])
    else:  # more along one direction than in all
        rows = u[None, :]
        reads = np.array([off * asked["trace"] * float(u @ u)])
    own = 0.02 * np.maximum(np.abs(reads), 1e-3 * np.abs(b).max())
    count = len(rows)
    members = set(range(m, m + count)) | ({m + count} if kind == "trace" else set())
    order = rng.permutation(m + count)
    place = np.argsort(order)
    there = {int(place[i]) if i < m + count else i for i in members}
    return Planted(
        np.vstack([U, rows])[order], np.append(b, reads)[order], np.append(delta, own)[order],
        asked, frozenset(there),
    )  # fmt: skip
