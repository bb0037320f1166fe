"""Random questions of least squares, small enough to be answered by others too."""

import cvxpy as cp
import numpy as np


def normal(rng, *shape, is_complex):
    draw = rng.standard_normal(shape)
    return draw + 1j * rng.standard_normal(shape) if is_complex else draw


def forward(U, A):
    return np.einsum("ij,jk,ik->i", U.conj(), A, U).real


def hermitian(rng, n, is_complex):
    M = normal(rng, n, n, is_complex=is_complex)
    return 0.5 * (M + M.conj().T)


def random_case(seed):
    """Arguments of `solve`: rows, readings and everything that may be asked of them."""
    rng = np.random.default_rng([2024, seed])
    is_complex, psd = bool(rng.integers(2)), bool(rng.integers(3))
    n = int(rng.integers(2, 6))
    unknowns = n * n if is_complex else n * (n + 1) // 2
    m = int(rng.integers(unknowns, 4 * unknowns + 4))
    U = normal(rng, m, n, is_complex=is_complex)
    if rng.integers(2):
        U *= 10 ** rng.uniform(-1, 1, (m, 1))
    X = normal(rng, n, int(rng.integers(1, n + 1)), is_complex=is_complex)
    A = X @ X.conj().T
    if not psd:
        A = A - rng.uniform(0.0, 3.0) * np.eye(n)
    v, sizes = forward(U, A), np.sum(np.abs(U) ** 2, axis=1)
    noise = float(rng.choice([0.02, 0.1, 0.5]))
    b = v + noise * sizes * rng.standard_normal(m)
    ends = rng.choice(["none", "wide", "binding", "lower", "upper"])
    spread = 6.0 if ends == "wide" else rng.uniform(0.5, 1.5)
    half = np.maximum(1.1 * np.abs(b - v), spread * noise * sizes)
    lo, hi = b - half, b + half
    if ends in ("lower", "upper"):
        gone = np.arange(m) if rng.integers(2) else np.flatnonzero(rng.integers(2, size=m))
        (hi if ends == "lower" else lo)[gone] = np.inf if ends == "lower" else -np.inf
    weights = 1.0 / half**2
    if rng.integers(2):
        weights *= 10 ** rng.uniform(-1, 1, m)
    if rng.integers(3) == 0:
        weights[rng.integers(3, size=m) == 0] = 0.0
    case = {"data": U, "b": b, "psd": psd, "weights": weights}
    if ends != "none":
        case["bounds"] = lo, hi
    if rng.integers(2):
        case["trace"] = float(np.trace(A).real)
    if ends in ("none", "wide") and rng.integers(2):
        case["ridge"] = float(rng.choice([1e-3, 0.1])) * float(np.mean(weights * sizes**2))
        case["prior"] = [0.0, 0.3, hermitian(rng, n, is_complex)][rng.integers(3)]
    C = hermitian(rng, n, is_complex)
    at = float(np.vdot(C, A).real)
    room = float(rng.uniform(0.05, 0.5))
    kinds = [(), ((C, at, at),), ((C, at - room, at + room),), ((C, -np.inf, at + room),)]
    case["constraints"] = kinds[rng.integers(4)]
    return case


def reference(case):
    """The same by CVXPY: how it ended, and the least cost."""
    U, b, w = case["data"], case["b"], case["weights"]
    n = U.shape[1]
    is_complex = np.iscomplexobj(U)
    A = cp.Variable((n, n), hermitian=True) if is_complex else cp.Variable((n, n), symmetric=True)

    def inner(rows):
        values = rows @ cp.vec(A, order="C")
        return cp.real(values) if is_complex else values

    v = inner(np.stack([np.outer(u.conj(), u).ravel() for u in U]))
    cost = cp.sum_squares(cp.multiply(np.sqrt(w), v - b))
    if "ridge" in case:
        P = case["prior"]
        away = A - (P * np.eye(n) if np.ndim(P) == 0 else P)
        parts = [cp.real(away), cp.imag(away)] if is_complex else [away]
        cost += case["ridge"] * sum(cp.sum_squares(part) for part in parts)
    asked = [A >> 0] if case["psd"] else []
    lo, hi = case.get("bounds", (np.full(len(b), -np.inf), np.full(len(b), np.inf)))
    for sign, end in ((1, lo), (-1, hi)):
        here = np.flatnonzero(np.isfinite(end))
        if here.size:
            asked.append(sign * v[here] >= sign * end[here])
    if "trace" in case:
        asked.append((cp.real(cp.trace(A)) if is_complex else cp.trace(A)) == case["trace"])
    for C, low, high in case["constraints"]:
        value = inner(C.conj().reshape(1, -1))
        if low == high:
            asked.append(value == low)
            continue
        if low > -np.inf:
            asked.append(value >= low)
        asked.append(value <= high)
    problem = cp.Problem(cp.Minimize(cost), asked)
    with np.errstate(all="ignore"):
        problem.solve(solver="CLARABEL")
    return problem.status, float(problem.value)
