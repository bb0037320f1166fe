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
            elif name != "covariates" and np.ndim(value) == 2:
                value = value[i] if value.shape[1] > 1 or self.B.shape[1] == 1 else value[i, 0]
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


def any_case(seed: int) -> ManyCase:
    """Return a random case of whatever is accepted together, often not determined by its readings.

    Readings are those of matrices of low rank plus noise; tolerances are about as large.
    """
    rng = np.random.default_rng(seed)
    n, is_complex, k = int(rng.integers(1, 6)), bool(rng.integers(2)), int(rng.choice([1, 3]))
    size = n * n if is_complex else n * (n + 1) // 2
    m = max(1, int(size * rng.choice([0.7, 1.0, 1.3, 2.0, 4.0])))
    U = rng.standard_normal((m, n)) + 1j * is_complex * rng.standard_normal((m, n))
    U = U if is_complex else U.real
    X = rng.standard_normal((k, n, max(1, n - 1))) + 1j * is_complex
    A = X @ X.conj().swapaxes(1, 2)
    total = float(np.trace(A[0]).real)

    def width(*shape: int) -> Any:
        return rng.uniform(0.05, 0.5, shape)

    asked: dict[str, Any] = {"psd": bool(rng.random() < 0.6)}
    asked["conjugate"] = is_complex and bool(rng.random() < 0.3)
    probes = U.conj() if asked["conjugate"] else U
    B = np.einsum("ia,kab,ib->ki", probes.conj(), A, probes).real
    B += 0.1 * rng.standard_normal((k, m))
    lo, hi = B - width(k, m), B + width(k, m)
    lo[rng.random(B.shape) < 0.1], hi[rng.random(B.shape) < 0.1] = -np.inf, np.inf
    weights = rng.uniform(0.1, 3.0, (k, m)) * (rng.random((k, m)) < 0.9)
    for choices in (
        ({"delta": float(width())}, {"delta": width(m)}, {"delta": width(k, m)},
         {"delta": width(k, 1)}, {"bounds": (lo, hi)}, {"rtol": 0.1}, {}),
        ({"weights": float(width())}, {"weights": 3.0 * width(m)}, {"weights": weights}, {}, {}),
        ({"trace": total}, {"trace": (0.8 * total, 1.1 * total)}, {"trace": (-np.inf, total)},
         {}, {}, {}),
        ({"covariates": rng.standard_normal((m, 2))}, {}, {}, {}),
        ({"missing": "drop"}, {}, {}),
    ):  # fmt: skip
        asked |= choices[rng.integers(len(choices))]
    if "missing" in asked:
        B[rng.random(B.shape) < 0.15] = np.nan
    return ManyCase(U, B, asked)
