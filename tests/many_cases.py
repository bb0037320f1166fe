"""Many small problems with one U, random in all that `solve_many` accepts."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class ManyCase:
    """U, B and what is asked."""

    U: Any
    B: Any
    asked: dict = field(default_factory=dict)

    def one(self, i: int) -> dict:
        """Return the same of problem i alone, as arguments of `solve`."""
        given = {}
        for name, value in self.asked.items():
            if name == "bounds":
                value = tuple(each[i] if np.ndim(each) == 2 else each for each in value)
            elif np.ndim(value) == 2:
                value = value[i]
            given[name] = value
        return given


def many_case(seed: int, k: int = 12, noise: float = 0.05) -> ManyCase:
    """Return a random case: n = 1 to 8, real or complex, determined by its readings."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9)) if seed % 4 else int(rng.integers(2, 5))
    is_complex = bool(rng.integers(2))
    size = n * n if is_complex else n * (n + 1) // 2
    m = int(np.ceil(size * rng.uniform(1.5, 3.0))) + 2
    shape = (m, n)
    U = rng.standard_normal(shape)
    if is_complex:
        U = U + 1j * rng.standard_normal(shape)
    U = U * np.exp(0.3 * rng.standard_normal(m))[:, None]
    X = rng.standard_normal((k, n, n)) * np.where(rng.random((k, 1, n)) < 0.4, 0.05, 1.0)
    if is_complex:
        X = X + 1j * rng.standard_normal((k, n, n)) * 0.5
    A = X @ X.conj().swapaxes(1, 2)
    asked: dict[str, Any] = {}
    psd = rng.random() < 0.7
    if psd:
        asked["psd"] = True
    if rng.random() < 0.3:
        A /= np.trace(A, axis1=1, axis2=2).real[:, None, None]
        asked["trace"] = 1.0
    conjugate = is_complex and rng.random() < 0.3
    probes = U.conj() if conjugate else U
    if conjugate:
        asked["conjugate"] = True
    B = np.einsum("ia,kab,ib->ki", probes.conj(), A, probes).real
    typical = np.abs(B).mean()
    B = B + noise * typical * rng.standard_normal(B.shape)
    kind = rng.integers(5)
    delta = 6.0 * noise * typical
    if kind == 0:
        asked["delta"] = delta
    elif kind == 1:
        asked["delta"] = delta * rng.uniform(1.0, 2.0, m)
    elif kind == 2:
        asked["delta"] = delta * rng.uniform(1.0, 2.0, B.shape)
    elif kind == 3:
        lo, hi = B - delta, B + delta
        lo[rng.random(B.shape) < 0.05] = -np.inf
        asked["bounds"] = (lo, hi)
    if rng.random() < 0.3:
        asked["weights"] = rng.uniform(0.5, 2.0, m if rng.random() < 0.5 else B.shape)
    if "delta" in asked and rng.random() < 0.5:  # a spoiled reading here and there
        spoiled = rng.random(k) < 0.3
        B[spoiled, rng.integers(m)] += 100.0 * delta
    if kind != 3 and rng.random() < 0.3:
        asked["missing"] = "drop"
        B[rng.random(B.shape) < 0.02] = np.nan
    return ManyCase(U, B, asked)
