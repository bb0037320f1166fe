"""Random preferences on top of a generated problem: which A of all, and linear constraints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import exact
import numpy as np
import scipy.sparse as sp
from generator_question import pick

from quadsense.core.matrix import SensedMatrix

PREFERENCES = ("auto", "least_squares", "nearest", "center", "min_trace", "minimax", "any")


def add(case: Any, rng: np.random.Generator) -> Any:
    """The case with preferences: each of them now and then, whatever the others are."""
    options, question, labels = dict(case.options), dict(case.question), dict(case.labels)
    b = case.b
    if rng.random() < 0.7:  # most methods answer few preferences: "auto" answers all
        for name in ("method", "schedule", "lam", "norm", "batch_size", "rng"):
            options.pop(name, None)
        labels["method"] = "auto"
    if case.labels["cone"] == "rank" and rng.random() < 0.2:
        question = {k: v for k, v in question.items() if k in ("conjugate", "mix")}
        labels |= {"tolerance": "none", "bounds": "-"}
        options.pop("allow_violations", None)
        b = _readings(case) if b is None else b
    elif rng.random() < 0.2:
        b, question = _equalities(rng, case, b, question, labels)
    if "bounds" in question and rng.random() < 0.4:
        b = _readings(case) * (1.0 + 0.01 * rng.standard_normal(case.m))
        labels["b given"] = "b"
    target = any(question.get(name) is not None for name in ("delta", "rtol", "bounds"))
    options |= _rank(rng, case, labels)
    options |= _preference(rng, case, target, "rank" in options, labels)
    options |= _constraints(rng, case, labels)
    if rng.random() < 0.2:
        question["weights"] = 10.0 ** rng.uniform(-2, 2, case.m) * (rng.random(case.m) < 0.9)
        labels["weights"] = "given"
    labels.setdefault("b given", "")
    labels.setdefault("weights", "")
    wrapped = case.wrapped
    if wrapped == "later" and not target:
        wrapped = "arrays"
    return replace(case, b=b, question=question, options=options, labels=labels, wrapped=wrapped)


def _readings(case: Any) -> Any:
    """What the matrix in mind reads, rounded."""
    values = case.values(case.known, case.known_is_factor)
    return np.array([exact.number(value) for value in values])


def _equalities(
    rng: np.random.Generator, case: Any, b: Any, question: dict[str, Any], labels: dict[str, str]
) -> tuple[Any, dict[str, Any]]:
    """Some rows read exactly what the matrix in mind does."""
    equal = rng.random(case.m) < rng.choice([0.1, 0.4])
    z = _readings(case)
    labels["equalities"] = str(int(equal.sum()))
    if "bounds" in question:
        lo, hi = (np.broadcast_to(np.asarray(e, float), (case.m,)) for e in question["bounds"])
        ends = (np.where(equal, z, lo), np.where(equal, z, hi))
        return b, {**question, "bounds": ends}
    if "delta" not in question or question.get("rtol", 0.0):
        return b, question
    delta = np.broadcast_to(np.asarray(question["delta"], float), (case.m,))
    if not (delta[~equal] > 0).any():
        return b, question
    changed = {**question, "delta": np.where(equal, 0.0, delta)}
    return np.where(equal, z, np.asarray(b, float)), changed


def _rank(rng: np.random.Generator, case: Any, labels: dict[str, str]) -> dict[str, Any]:
    """Indefinite ranks, on symmetric matrices in mind and on positive ones."""
    rank, cone = case.options.get("rank"), case.labels["cone"]
    if cone == "rank" and isinstance(rank, int) and rng.random() < 0.25:
        labels["rank"] = "(p, q)"
        minus = int(rng.integers(0, 2)) if rank < case.n else 0
        found: dict[str, Any] = {"rank": (rank, minus)}
        return found | ({"psd": None} if rng.random() < 0.9 else {})
    if cone == "symmetric" and labels["method"] == "auto" and rng.random() < 0.15:
        A = case.known @ case.known.conj().T if case.known_is_factor else case.known
        size = exact.norm(A)
        signs = np.sign(np.round(np.linalg.eigvalsh(A / size) if size > 0 else np.zeros(1), 12))
        p, q = int(np.sum(signs > 0)), int(np.sum(signs < 0))
        labels["rank"], labels["cone"] = "(p, q)", "rank"
        low = rng.random() < 0.2
        few = {"max_restarts": int(rng.integers(0, 4))}
        return {"rank": (max(p - low, 0), q) if p + q > low else (1, 0), **few}
    return {}


def _preference(
    rng: np.random.Generator, case: Any, target: bool, low_rank: bool, labels: dict[str, str]
) -> dict[str, Any]:
    """`prefer` or `slack`, with what goes with it, and now and then what does not."""
    kind = pick(rng, prefer=0.6, slack=0.2, silent=0.2)
    complex_, odd = np.iscomplexobj(case.rows), rng.random() < 0.03
    if kind == "slack" and ((target and not low_rank) or odd):
        labels["preference"] = f"slack {(word := str(rng.choice(['max', 'sum', 'squares'])))}"
        return {"slack": word}
    names = PREFERENCES if target else ("auto", "least_squares", "minimax")
    if low_rank:
        names = ("auto", "least_squares", "any") if target else ("auto", "least_squares")
    if not case.positive:
        names = tuple(name for name in names if name != "min_trace")
    prefer = str(rng.choice(PREFERENCES if odd else names))
    out: dict[str, Any] = {} if kind == "silent" and prefer == "auto" else {"prefer": prefer}
    labels["preference"] = prefer
    if low_rank and not odd:
        return out
    size = exact.norm(case.known) ** (2 if case.known_is_factor else 1)
    if (prefer in ("auto", "least_squares") and rng.random() < 0.3) or odd:
        out["ridge"] = float(10.0 ** rng.uniform(-3, 2)) * (1.0 if size < 1e30 else 1e-60)
    if (prefer == "nearest" and rng.random() < 0.6) or ("ridge" in out and rng.random() < 0.5):
        A = rng.standard_normal((case.n, case.n))
        if complex_:
            A = A + 1j * rng.standard_normal((case.n, case.n))
        out["prior"] = float(size) if rng.random() < 0.2 else size * (A + A.conj().T) / 2.0
    return out


def _constraints(rng: np.random.Generator, case: Any, labels: dict[str, str]) -> dict[str, Any]:
    """`trace` and `constraints` about the matrix in mind, rarely away from it."""
    kind = pick(rng, none=0.55, trace=0.2, linear=0.15, both=0.1)
    labels["constraints"] = kind
    complex_, out = np.iscomplexobj(case.rows), {}
    A = case.known @ case.known.conj().T if case.known_is_factor else case.known
    size = exact.norm(A) or 1.0
    if kind in ("trace", "both"):
        trace = _ends(rng, float(np.trace(A).real), size)
        out["trace"] = trace[0] if trace[0] == trace[1] else trace
    listed = []
    for _ in range(int(rng.integers(1, 4)) if kind in ("linear", "both") else 0):
        form = pick(rng, dense=0.4, sparse=0.2, factor=0.2, matrix=0.2)
        X = rng.standard_normal((case.n, int(rng.integers(1, case.n + 1))))
        if complex_:
            X = X + 1j * rng.standard_normal(X.shape)
        signs = rng.choice([-1.0, 1.0], X.shape[1]) if form != "matrix" else np.ones(X.shape[1])
        C = (X * signs) @ X.conj().T
        C = (C + C.conj().T) / 2.0
        given = {"dense": C, "sparse": sp.csr_array(C), "factor": (X, signs)}.get(form)
        given = SensedMatrix.from_factor(X) if form == "matrix" else given
        ends = _ends(rng, float(np.vdot(C, A).real), size * float(np.linalg.norm(C)))
        listed.append((given, *ends))
    if listed:
        out["constraints"] = listed
    return out


def _ends(rng: np.random.Generator, value: float, size: float) -> tuple[float, float]:
    """Intervals about the value, or, one time in eight, some way off."""
    value += size * float(10.0 ** rng.uniform(-2, 1)) * (rng.random() < 0.125)
    kind = pick(rng, equality=0.4, interval=0.4, half=0.2)
    if kind == "equality":
        return value, value
    width = size * 10.0 ** rng.uniform(-4, 0, 2)
    lo, hi = value - float(width[0]), value + float(width[1])
    if kind == "half":
        return (lo, np.inf) if rng.random() < 0.5 else (-np.inf, hi)
    return lo, hi
