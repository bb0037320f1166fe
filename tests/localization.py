"""Nodes in a square, of which some distances are known: rank 2, with pins and ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True)
class Network:
    """Probes of the Gram matrix of positions, and intervals that hold those of the truth.

    Attributes
    ----------
    U : sparse (m, n)
        ``e_i - e_j`` for a range, ``e_a``, ``e_a - e_b`` for pins among anchors.
    b, delta : (m,) ndarray
    positions : (n, 2) ndarray
    anchors : (k,) ndarray of int
    pins : (m,) ndarray of bool
    """

    U: Any
    b: Any
    delta: Any
    positions: Any
    anchors: Any
    pins: Any

    def error(self, factor: Any) -> float:
        """Root mean square error of positions, after the turn that fits the anchors best."""
        X, truth = np.asarray(factor), self.positions
        left, _, right = np.linalg.svd(X[self.anchors].T @ truth[self.anchors])
        return float(np.sqrt(np.mean(np.sum((X @ left @ right - truth) ** 2, axis=1))))


def network(
    nodes: int = 200,
    reach: float = 0.2,
    anchors: int = 10,
    pin: float = 1e-6,
    relative: float = 0.05,
    seed: int = 0,
) -> Network:
    """Positions in the unit square; squared distances within `reach`, off by `relative` at most."""
    rng = np.random.default_rng(seed)
    x = rng.random((nodes, 2))
    i, j = np.triu_indices(nodes, 1)
    squared = np.sum((x[i] - x[j]) ** 2, axis=1)
    near = squared <= reach**2
    i, j, squared = i[near], j[near], squared[near]
    first, second = np.triu_indices(anchors, 1)
    pinned = np.sum((x[first] - x[second]) ** 2, axis=1)
    heads = np.concatenate([i, np.arange(anchors), first])
    tails = np.concatenate([j, np.full(anchors, -1), second])
    count = heads.size
    pairs = tails >= 0
    entries = np.concatenate([np.ones(count), -np.ones(pairs.sum())])
    rows = np.concatenate([np.arange(count), np.flatnonzero(pairs)])
    columns = np.concatenate([heads, tails[pairs]])
    U = sp.csr_array((entries, (rows, columns)), shape=(count, nodes))
    # A reading t (1 + e) with |e| <= relative has the truth t within 5% of itself to both sides.
    noisy = squared * (1.0 + relative * rng.uniform(-0.95, 0.95, squared.size))
    b = np.concatenate([noisy, np.sum(x[:anchors] ** 2, axis=1), pinned])
    delta = np.concatenate([relative * noisy, np.full(anchors + first.size, pin)])
    pins = np.arange(count) >= i.size
    return Network(U, b, delta, x, np.arange(anchors), pins)
