"""Random readings and tolerances: what is asked of the matrix, feasible or not."""

from __future__ import annotations

from typing import Any

import numpy as np


def pick(rng: np.random.Generator, **weights: float) -> str:
    """One of the names, by weight."""
    names = list(weights)
    total = np.array(list(weights.values()))
    return names[int(rng.choice(len(names), p=total / total.sum()))]


def ask(
    rng: np.random.Generator, z: Any, squares: Any, size: float, cone: str, allowed: int,
    twins: list[Any], notes: list[str],
) -> tuple[Any, dict[str, Any], dict[str, str]]:  # fmt: skip
    """Readings or None, the question's keywords, labels.

    Parameters
    ----------
    z, squares : ndarray of shape (m,)
        What the matrix in mind reads, and the squared norms of the rows.
    """
    m = len(z)
    regime = pick(
        rng, feasible=0.34, snug=0.06, edge=0.1, off=0.2, twins=0.1, random=0.12, zeros=0.04,
        negative=0.04,
    )  # fmt: skip
    kinds = {"scalar": 0.25, "rows": 0.2, "rtol": 0.08, "both": 0.05, "bounds": 0.27, "none": 0.15}
    if cone == "rank":
        kinds = {"scalar": 0.4, "rows": 0.25, "rtol": 0.1, "both": 0.05, "bounds": 0.2}
    if allowed:
        kinds.pop("none", None)
    kind = pick(rng, **kinds)
    tiny = rng.random() < 0.2
    relative = 10.0 ** (rng.uniform(-15, 0) if tiny else rng.uniform(-3, -0.3))
    if regime == "random":
        z = size * squares * rng.standard_normal(m)
    elif regime == "negative":
        z = -np.abs(z)
    elif regime == "zeros":
        z = 0.0 * z
    # A tolerance of each row, in its own units.
    typical = float(np.median(np.abs(z[squares > 0]))) if (squares > 0).any() else 0.0
    typical = typical or size * (float(np.median(squares)) or 1.0)
    own = np.where(squares > 0, size * squares, typical)
    delta = np.full(m, relative * typical)
    if kind == "rows" or kind == "bounds":
        delta = relative * own * 10.0 ** rng.uniform(-3 if kind == "rows" else 0, 3, m)
    elif kind in ("rtol", "both"):
        delta = relative * np.abs(z) + (relative * typical if kind == "both" else 0.0)
    noise = _noise(rng, m, regime, allowed, twins, notes)
    b = z + noise * delta if kind != "none" else z + noise * relative * own
    if (squares == 0).any() and rng.random() < 0.6:  # a row of zeros reads zero, or else not
        b = np.where((squares == 0) & (kind != "rtol"), 0.0, b)
    labels = {"regime": regime, "tolerance": kind, "bounds": "-", "delta": "tiny" if tiny else ""}
    if kind == "none":
        return _hand_over(rng, b), {}, labels
    if kind == "bounds":
        labels["bounds"], bounds = _bounds(rng, b, delta, two=cone == "rank" and rng.random() < 0.9)
        return None, {"bounds": bounds}, labels
    b_given = _hand_over(rng, b)
    if kind == "rtol":
        return b_given, {"rtol": relative}, labels
    if kind == "both":
        return b_given, {"rtol": relative, "delta": relative * typical}, labels
    delta_given = float(delta[0]) if kind == "scalar" else _hand_over(rng, delta)
    return b_given, {"delta": delta_given}, labels


def _noise(
    rng: np.random.Generator, m: int, regime: str, allowed: int, twins: list[Any], notes: list[str]
) -> Any:
    """How far off the readings are, in tolerances."""
    noise = rng.uniform(-0.9, 0.9, m)
    if regime == "snug":
        noise = 0.999 * rng.choice([-1.0, 1.0], m)
    elif regime == "edge":
        noise = rng.choice([-1.0, 1.0, 0.0], m)
    elif regime == "off":
        hit = rng.random(m) < rng.choice([0.3, 1.0])
        noise = np.where(hit, rng.choice([-1.0, 1.0], m) * 10.0 ** rng.uniform(0, 2, m), noise)
    elif regime == "twins":
        for i, _ in twins:
            noise[i] = rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(0, 3)
    if allowed:
        wrong = rng.choice(m, min(m, allowed + int(rng.integers(-1, 2))), replace=False)
        noise[wrong] = rng.choice([-1.0, 1.0], wrong.size) * 10.0 ** rng.uniform(0.5, 3, wrong.size)
        notes.append(f"{wrong.size} rows off")
    return noise


def _hand_over(rng: np.random.Generator, b: Any) -> Any:
    """Readings as an array, a list or a view."""
    form = pick(rng, array=0.8, list=0.1, strided=0.1)
    if form == "strided":
        return np.repeat(b, 2)[::2]
    return b.tolist() if form == "list" else b


def _bounds(rng: np.random.Generator, b: Any, delta: Any, two: bool) -> tuple[str, tuple[Any, Any]]:
    """Which ends there are, and they."""
    lo, hi = b - delta, b + delta
    same = ~(lo < hi)
    lo, hi = np.where(same, lo - np.abs(lo) - 1e-300, lo), np.where(same, hi + np.abs(hi), hi)
    kind = pick(rng, two=0.35, lower=0.15, upper=0.15, mixed=0.2, free=0.15)
    kind = "two" if two else kind
    one = rng.random() < 0.5  # a single number may stand for all
    if kind == "lower":
        hi = np.inf if one else np.full_like(hi, np.inf)
    elif kind == "upper":
        lo = -np.inf if one else np.full_like(lo, -np.inf)
    elif kind in ("mixed", "free"):
        which = rng.integers(0, 4 if kind == "free" else 3, b.size)
        lo = np.where((which == 1) | (which == 3), -np.inf, lo)
        hi = np.where((which == 2) | (which == 3), np.inf, hi)
    return kind, (lo, hi)
