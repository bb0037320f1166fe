"""Random small problems that ask for one matrix of all that fit, one per seed.

Every preference, slack, weight, prior and linear constraint, in all combinations taken by `solve`.
What the arguments mean is worked out in `answers_truth.py`, without the package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import generator_rows as stored
import generator_structured as structured
import numpy as np
import scipy.sparse as sp
from generator_question import pick

from quadsense.core.matrix import SensedMatrix

PREFERENCES = ("auto", "least_squares", "nearest", "center", "min_trace", "minimax", "any")
SLACKS = ("max", "sum", "squares")

STRUCTURED = 1_000_000
"""Seeds from here on have rows of every kind and type, sums over rows, conjugated rows, rows that
may be set aside, and intervals of entries off the diagonal; seeds below, none of these."""


@dataclass(frozen=True)
class Case:
    """One problem.

    Attributes
    ----------
    U : ndarray
        The rows as meant, dense.
    b : ndarray or None
    question : dict
        `delta`, `rtol`, `bounds`, `weights`, `trace`, `constraints`, `mix`, `conjugate` as they go
        to `solve`.
    preference : dict
        `psd`, `prefer`, `prior`, `ridge`, `slack`, `allow_violations` as they go to `solve`.
    matrices : list of ndarray
        The C of `constraints`, dense.
    asked : ndarray or None
        The C whose interval is asked for, and how it is written.
    size : float
        Typical entry of A: truths are computed in this unit.
    labels : dict
        One word for each dimension along which cases differ.
    given : Any
        The rows as handed over; U where None.
    """

    seed: int
    U: Any
    b: Any
    question: dict[str, Any]
    preference: dict[str, Any]
    matrices: list[Any]
    asked: tuple[Any, Any]
    size: float
    labels: dict[str, str]
    given: Any = None

    @property
    def data(self) -> Any:
        """What goes to `solve` as U."""
        return self.U if self.given is None else self.given

    @property
    def mix(self) -> Any:
        """W as an array, or None."""
        W = self.question.get("mix")
        return None if W is None else stored.as_read(W)

    @property
    def allowed(self) -> int:
        """Readings that may be set aside."""
        return int(self.preference.get("allow_violations", 0))

    @property
    def n(self) -> int:
        return int(self.U.shape[1])

    @property
    def psd(self) -> bool:
        return bool(self.preference.get("psd"))

    @property
    def has_tolerance(self) -> bool:
        return any(self.question.get(name) is not None for name in ("delta", "rtol", "bounds"))

    @property
    def arguments(self) -> dict[str, Any]:
        """All that goes to `solve` in addition to U and b."""
        return {**self.question, **self.preference}


def problem(seed: int) -> Case:
    """The case of this seed: always the same."""
    rng = np.random.default_rng([90125, seed])
    complex_ = bool(rng.random() < 0.4)
    n = int(rng.integers(1, 4 if complex_ else 6))
    unknowns = n * n if complex_ else n * (n + 1) // 2
    rows = pick(rng, few=0.35, many=0.65)
    m = int(rng.integers(1, unknowns + 1)) if rows == "few" else unknowns + int(rng.integers(0, 13))
    cone = pick(rng, symmetric=0.4, psd=0.6)
    size = float(10.0 ** rng.uniform(-2, 3)) if rng.random() < 0.3 else 1.0
    U = gaussian(rng, m, n, complex_)
    if rng.random() < 0.2:
        U *= 10.0 ** rng.uniform(-1, 1, (m, 1))
    given, more, kinds = None, {}, {}
    if seed >= STRUCTURED:
        U, given, more, kinds = _structured(rng, complex_)
        n, complex_ = U.shape[1], np.iscomplexobj(U)
    truth = _truth(rng, n, complex_, cone)
    z = np.einsum("ij,jk,ik->i", U.conj(), truth, U).real
    squares = np.sum(np.abs(U) ** 2, axis=1)
    if "mix" in more:
        z, squares = stored.as_read(more["mix"]) @ z, sizes(U, more["mix"])
    m = z.size
    if seed >= STRUCTURED:
        rows = "few" if m < (n * n if complex_ else n * (n + 1) // 2) else "many"
    task = pick(rng, prefer=0.62, slack=0.2, plain=0.18)
    often = 0.45 if rows == "many" else 0.15
    regime = pick(rng, feasible=1.0 - often, off=often) if task == "prefer" else "feasible"
    if task == "slack":
        regime = pick(rng, feasible=0.15, off=0.85)
    labels = {"field": "complex" if complex_ else "real", "cone": cone, "task": task,
              "regime": regime, "rows": rows, **kinds}  # fmt: skip
    b, question = _tolerances(rng, z, squares, task, regime, labels)
    matrices = _constraints(rng, truth, task, regime, question, labels)
    preference = _preference(rng, task, cone, truth, question, labels)
    if rng.random() < 0.3 and (
        preference.get("prefer") in ("least_squares", "auto") or task != "prefer"
    ):
        question["weights"] = rng.uniform(0.2, 3.0, m) * (rng.random(m) < 0.9)
        if preference.get("prefer") == "minimax" or not question["weights"].any():
            del question["weights"]
    labels["weights"] = str("weights" in question)
    asked = _asked(rng, n, complex_)
    if seed >= STRUCTURED:
        question |= more
        asked = _entry(rng, n, complex_) if rng.random() < 0.6 else asked
        if "delta" in question and task == "prefer" and 1 < m <= 12 and rng.random() < 0.5:
            b = _set_aside(rng, b, question, preference, regime)
            labels["violations"] = str(preference["allow_violations"])
    return Case(
        seed, U, *_scaled(size, b, question, preference), matrices, asked, size, labels, given
    )


def sizes(U: Any, W: Any) -> Any:
    """Frobenius norms of the sums over rows."""
    W = stored.as_read(W)
    return np.linalg.norm(np.einsum("ik,ka,kb->iab", W, U, U.conj()), axis=(1, 2))


def _structured(
    rng: np.random.Generator, complex_: bool
) -> tuple[Any, Any, dict[str, Any], dict[str, str]]:
    """Rows as meant, as handed over, `mix` and `conjugate`, labels: no reading is always zero."""
    while True:
        given, dense, W, _, labels = structured.draw(rng, complex_, 0, [], even=True)
        U = stored.as_read(given) if dense is None else dense
        least = np.sum(np.abs(U) ** 2, axis=1) if W is None else sizes(U, W)
        if least.min() > 1e-2 and U.shape[1] <= (4 if np.iscomplexobj(U) else 6):
            break
    more: dict[str, Any] = {} if W is None else {"mix": W}
    kinds = {"storage": labels["storage"], "mix": labels["mix"]}
    if np.iscomplexobj(U) and rng.random() < 0.4:
        more["conjugate"], U, kinds["field"] = True, U.conj(), "conjugate"
    return U, given, more, kinds


def _entry(rng: np.random.Generator, n: int, complex_: bool) -> tuple[Any, Any]:
    """An entry of A, real or imaginary part, mostly off the diagonal."""
    i, j = (int(k) for k in rng.integers(0, n, 2))
    E = np.zeros((n, n), dtype=complex if complex_ else float)
    if complex_ and i != j and rng.random() < 0.5:
        E[i, j], E[j, i] = -0.5j, 0.5j
        return E, E
    E[i, j] += 0.5
    E[j, i] += 0.5
    return (i, j), E


def _set_aside(
    rng: np.random.Generator,
    b: Any,
    question: dict[str, Any],
    preference: dict[str, Any],
    regime: str,
) -> Any:
    """Allow one or two readings to be missed, and put some far off; the readings."""
    allowed = 2 if b.size <= 6 and rng.random() < 0.3 and b.size > 2 else 1
    preference["allow_violations"] = allowed
    off = rng.choice(b.size, int(rng.integers(0, allowed + 2)), replace=False)
    width = np.broadcast_to(question["delta"], b.shape)[off]
    width = np.where(width > 0.0, width, np.median(question["delta"]))
    moved = b.copy()
    moved[off] += rng.choice([-1.0, 1.0], off.size) * width * 10.0 ** rng.uniform(1, 2, off.size)
    return moved


def gaussian(rng: np.random.Generator, rows: int, columns: int, complex_: bool) -> Any:
    """A matrix of independent normal entries of variance 1."""
    out = rng.standard_normal((rows, columns))
    if not complex_:
        return out
    return (out + 1j * rng.standard_normal((rows, columns))) / np.sqrt(2.0)


def hermitian(rng: np.random.Generator, n: int, complex_: bool) -> Any:
    """A symmetric (Hermitian) matrix of normal entries."""
    A = gaussian(rng, n, n, complex_)
    return (A + A.conj().T) / 2.0


def _truth(rng: np.random.Generator, n: int, complex_: bool, cone: str) -> Any:
    """The matrix that readings are made from."""
    if cone == "symmetric":
        return hermitian(rng, n, complex_)
    rank = n if rng.random() < 0.6 else int(rng.integers(1, n + 1))
    X = gaussian(rng, n, rank, complex_)
    return X @ X.conj().T / rank


def _tolerances(
    rng: np.random.Generator, z: Any, squares: Any, task: str, regime: str, labels: dict[str, str]
) -> tuple[Any, dict[str, Any]]:
    """Readings, and what they may be off by."""
    m = z.size
    relative = 10.0 ** rng.uniform(-2.5, -0.3)
    noise = rng.uniform(-0.8, 0.8, m)
    if regime == "off":
        noise *= 10.0 ** rng.uniform(0.5, 1.5)
    if task == "plain":
        labels["tolerance"] = "none"
        return z + noise * relative * squares, {}
    kind = pick(rng, scalar=0.25, rows=0.2, rtol=0.1, bounds=0.45)
    delta = relative * squares * rng.uniform(0.5, 2.0, m)
    if kind == "scalar":
        delta = np.full(m, relative * float(np.median(squares)))
    elif kind == "rtol":
        delta = relative * np.abs(z)
    labels["tolerance"] = kind
    if kind == "rtol":
        return z + 0.8 * noise * delta, {"rtol": relative}
    equal = np.zeros(m, bool)
    if kind in ("rows", "bounds") and rng.random() < 0.25:
        equal[: max(1, m // 5)] = True
        labels["equalities"] = "rows"
        delta, noise = np.where(equal, 0.0, delta), np.where(equal, 0.0, noise)
    b = z + noise * delta
    if kind != "bounds":
        return b, {"delta": delta if kind == "rows" else float(delta[0])}
    lo, hi = b - delta * rng.uniform(1.0, 2.0, m), b + delta * rng.uniform(1.0, 2.0, m)
    sides = pick(rng, two=0.4, lower=0.1, upper=0.1, mixed=0.4)
    which = {"two": np.zeros(m, int), "lower": np.ones(m, int), "upper": np.full(m, 2)}.get(
        sides, rng.integers(0, 4, m)
    )
    which[equal] = 0
    lo, hi = np.where(which >= 2, -np.inf, lo), np.where(which % 2 == 1, np.inf, hi)
    labels["sides"] = sides
    beside = bool(rng.random() < 0.4)
    labels["b"] = "with bounds" if beside else "none"
    return (b if beside else None), {"bounds": (lo, hi)}


def _constraints(
    rng: np.random.Generator, truth: Any, task: str, regime: str, question: dict[str, Any],
    labels: dict[str, str],
) -> list[Any]:  # fmt: skip
    """Add `trace` and `constraints` to the question; the matrices of the latter, dense."""
    n, complex_ = len(truth), np.iscomplexobj(truth)
    off = 3.0 if regime == "off" and task == "prefer" and rng.random() < 0.3 else 0.0
    kinds = pick(rng, none=0.45, trace=0.25, linear=0.15, both=0.15)
    labels["constraints"] = kinds
    if kinds in ("trace", "both"):
        question["trace"] = _ends(rng, float(np.trace(truth).real) - off, scalar=True)
    matrices, listed = [], []
    for _ in range(int(rng.integers(1, 3)) if kinds in ("linear", "both") else 0):
        form = pick(rng, dense=0.4, sparse=0.2, factor=0.2, matrix=0.2)
        C = hermitian(rng, n, complex_)
        given: Any = C
        if form == "sparse":
            C = np.where(np.abs(C) > 0.4, C, 0.0)
            given = sp.csr_array(C)
        elif form in ("factor", "matrix"):
            X = gaussian(rng, n, int(rng.integers(1, n + 1)), complex_)
            signs = np.ones(X.shape[1]) if form == "matrix" else rng.choice([-1.0, 1.0], X.shape[1])
            C = (X * signs) @ X.conj().T
            given = SensedMatrix.from_factor(X) if form == "matrix" else (X, signs)
        value = float(np.vdot(C, truth).real)
        ends = _ends(rng, value + off * float(np.linalg.norm(C)), scalar=False)
        matrices.append(C)
        listed.append((given, *ends))
    if listed:
        question["constraints"] = listed
    return matrices


def _ends(rng: np.random.Generator, value: float, scalar: bool) -> Any:
    """An equality, an interval or a half-line that holds at this value."""
    kind = pick(rng, equality=0.4, interval=0.4, half=0.2)
    if kind == "equality":
        return value if scalar else (value, value)
    below, above = rng.uniform(0.02, 0.5, 2)
    if kind == "interval":
        return (value - below, value + above)
    return (value - below, np.inf) if rng.random() < 0.5 else (-np.inf, value + above)


def _preference(
    rng: np.random.Generator, task: str, cone: str, truth: Any, question: dict[str, Any],
    labels: dict[str, str],
) -> dict[str, Any]:  # fmt: skip
    """Which A is wanted."""
    n, complex_ = len(truth), np.iscomplexobj(truth)
    preference: dict[str, Any] = {"psd": True} if cone == "psd" else {}
    if task == "slack":
        preference["slack"] = str(rng.choice(SLACKS))
        labels["preference"] = f"slack {preference['slack']}"
        return preference
    names = {"auto": 0.2, "least_squares": 0.3, "minimax": 0.15}
    if task != "plain":
        names |= {"nearest": 0.15, "center": 0.2, "any": 0.04}
        names |= {"min_trace": 0.12} if cone == "psd" else {}
    prefer = pick(rng, **names)
    if prefer != "auto" or rng.random() < 0.5:
        preference["prefer"] = prefer
    labels["preference"] = prefer
    if prefer in ("least_squares", "auto") and rng.random() < 0.4:
        preference["ridge"] = float(10.0 ** rng.uniform(-2, 1))
    if (prefer == "nearest" or "ridge" in preference) and rng.random() < 0.5:
        preference["prior"] = hermitian(rng, n, complex_)
    return preference


def _asked(rng: np.random.Generator, n: int, complex_: bool) -> tuple[Any, Any]:
    """A matrix whose interval is asked for: as written, and dense."""
    kind = pick(rng, dense=0.4, vector=0.2, entry=0.2, trace=0.2)
    if kind == "trace":
        return "trace", np.eye(n)
    if kind == "vector":
        v = gaussian(rng, 1, n, complex_)[0]
        return v, np.outer(v, v.conj())
    if kind == "entry":
        i = int(rng.integers(0, n))
        E = np.zeros((n, n))
        E[i, i] = 1.0
        return (i, i), E
    C = hermitian(rng, n, complex_)
    return C, C


def _scaled(
    size: float, b: Any, question: dict[str, Any], preference: dict[str, Any]
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The same for a matrix `size` times as large."""
    question, preference = dict(question), dict(preference)
    for name in ("delta", "trace"):
        if name in question:
            value = question[name]
            question[name] = tuple(size * e for e in value) if isinstance(value, tuple) \
                else size * value  # fmt: skip
    if "bounds" in question:
        question["bounds"] = tuple(size * end for end in question["bounds"])
    if "constraints" in question:
        question["constraints"] = [(C, size * lo, size * hi) for C, lo, hi in
                                   question["constraints"]]  # fmt: skip
    if "prior" in preference:
        preference["prior"] = size * preference["prior"]
    return (None if b is None else size * b), question, preference
