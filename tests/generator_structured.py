"""Random structured probes and sums over rows (`mix`), with the same rows as a dense array.

The dense rows are computed from the definitions in docs/probes.md, by NumPy alone. All of them are
exact: factors are multiples of 2^-10, and transforms have lengths whose roots of unity are 1, -1,
i and -i.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import exact
import generator_rows as rows
import numpy as np
import scipy.sparse as sp
from generator_question import pick
from linear import Linear
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from quadsense import probes

ROOTS = {Fraction(0): 1.0, Fraction(1, 4): -1j, Fraction(1, 2): -1.0, Fraction(3, 4): 1j}
"""``exp(-2 pi i t)`` where it is exact."""

MOST_CHOICES = 250
"""Sets of rows that may be left out, of which the truth tries every one."""

AXES = np.array([[1, 0], [0, 1], [1, 1], [1, -1], [1, 1j], [1, -1j]])
"""States that qubits are measured in, not normalized."""


# --- rows from their definitions -----------------------------------------------------------------


def kronecker_rows(factors: Any) -> Any:
    """``f_1i x f_2i x ...`` row by row."""
    out = [np.ones(1)] * len(factors[0])
    for f in factors:
        out = [np.kron(row, vector) for row, vector in zip(out, f, strict=True)]
    return np.array(out)


def povm_rows(tables: Any, settings: Any) -> Any:
    """``t_1 x t_2 x ...`` by settings, and within each by outcomes, from tables of vectors."""
    outcomes = [range(table.shape[1]) for table in tables]
    chosen = [(s, o) for s in settings for o in itertools.product(*outcomes)]
    factors = [np.array([table[s[j], o[j]] for s, o in chosen]) for j, table in enumerate(tables)]
    return kronecker_rows(factors)


def difference_rows(pairs: Any, n: int, offsets: Any = None) -> Any:
    """``(e_i - e_j, -o)`` row by row; e_j is 0 for j = -1."""
    out = [np.eye(n)[i] - (np.eye(n)[j] if j >= 0 else 0.0) for i, j in pairs]
    return np.array(out) if offsets is None else np.hstack([out, -np.asarray(offsets)])


def fourier_rows(masks: Any, shape: tuple[int, ...], starts: Any) -> Any:
    """Rows of ``fftn(mask * x[start : start + window])``, by positions, masks and frequencies."""
    image = np.arange(int(np.prod(shape))).reshape(shape)
    out = []
    for start, mask in itertools.product(starts, masks):
        inside = image[tuple(slice(a, a + w) for a, w in zip(start, mask.shape, strict=True))]
        for frequency in np.ndindex(mask.shape):
            row = np.zeros(image.size, dtype=complex)
            for pixel in np.ndindex(mask.shape):
                triples = zip(frequency, pixel, mask.shape, strict=True)
                turns = sum((Fraction(k * j, w) for k, j, w in triples), Fraction(0)) % 1
                root = ROOTS.get(turns, np.exp(-2j * np.pi * float(turns)))
                row[inside[pixel]] = mask[pixel] * root
            out.append(row)
    return np.array(out)


# --- sums over rows ------------------------------------------------------------------------------


def sums(U: Any, W: Any) -> tuple[Linear, ...]:
    """``F_i = sum_k W_ik u_k u_k*`` for every row of W, of the terms that are not zero."""
    kept = [np.flatnonzero(w) if w.any() else np.array([0]) for w in W]
    return tuple(Linear(U[k].T, w[k]) for w, k in zip(W, kept, strict=True))


def weighed(W: Any, values: list[Fraction]) -> list[Fraction]:
    """``W @ values``, exactly."""
    return [
        sum((Fraction(float(w[k])) * values[k] for k in np.flatnonzero(w)), Fraction(0)) for w in W
    ]


def readings(U: Any, W: Any, A: Any, is_factor: bool) -> list[Fraction]:
    """What A, or ``X X*`` of a factor, reads on these rows, summed by W where there is one."""
    values = (exact.factor_quadratic if is_factor else exact.quadratic)(U, A)
    return values if W is None else weighed(W, values)


# --- random ones ---------------------------------------------------------------------------------


def draw(
    rng: np.random.Generator, complex_: bool, allowed: int, notes: list[str], even: bool = False
) -> tuple[Any, Any, Any, list[Any], dict[str, str]]:
    """U as handed over, its rows (None for arrays), W or None, pairs of equal readings, labels.

    With `even`, rows have ordinary norms, and transforms any length: dense rows are then rounded.
    """
    kind = pick(
        rng, kronecker=0.2, masked_fft=0.15, differences=0.2, stack=0.15, operator=0.12, array=0.18
    )
    norms = "ordinary" if even else pick(rng, ordinary=0.6, uneven=0.25, extreme=0.15)
    if kind == "differences" and norms == "extreme":
        norms = "uneven"
    mixed = (kind == "array" and not even) or rng.random() < 0.4
    most = 3 if allowed else 4 if complex_ else 5
    if kind == "array":
        U, dense, storage = _array(rng, norms, complex_, most, notes)
    else:
        make = {"kronecker": _kronecker, "masked_fft": _masked_fft, "differences": _differences,
                "stack": _stack, "operator": _operator}[kind]  # fmt: skip
        n = int(rng.integers(1, most + 1))
        U, dense = make(rng, n, complex_, "even" if even else norms, notes)
        storage = kind
    meant = rows.as_read(U) if dense is None else dense
    labels = {"geometry": kind, "storage": storage, "norms": norms, "mix": ""}
    twins, W = _equal(meant), None
    if mixed or _choices(len(meant), allowed) > MOST_CHOICES:
        W, labels["mix"], twins = _mix(rng, meant, allowed, notes)
    return U, dense, W, twins, labels


def _choices(m: int, allowed: int) -> int:
    return math.comb(m, allowed) if allowed else 1


def _equal(U: Any) -> list[Any]:
    """Pairs of equal rows, three at most."""
    pairs = itertools.combinations(range(len(U)), 2)
    found = [(i, j) for i, j in pairs if np.array_equal(U[i], U[j])]
    return found[:3]


def _count(rng: np.random.Generator, n: int, complex_: bool) -> int:
    """How many rows of length n."""
    unknowns = n * n if complex_ else n * (n + 1) // 2
    return 1 + int(2.5 * unknowns * rng.random())


def _scales(rng: np.random.Generator, norms: str, count: int) -> Any:
    """Powers of two for rows."""
    reach = {"uneven": 10, "extreme": 200}.get(norms, 0)
    if norms == "extreme" and rng.random() < 0.5:
        return np.full(count, 2.0 ** int(rng.integers(-reach, reach + 1)))
    return 2.0 ** rng.integers(-reach, reach + 1, count)


def _few_bits(rng: np.random.Generator, m: int, n: int, complex_: bool) -> Any:
    """Normal entries rounded to 2^-10: products of three are exact."""
    return np.rint(1024 * rows.gaussian(rng, m, n, complex_)) / 1024


def _array(
    rng: np.random.Generator, norms: str, complex_: bool, most: int, notes: list[str]
) -> tuple[Any, Any, str]:
    """An array in any form."""
    n = int(rng.integers(1, most + 1))
    geometry = pick(rng, gaussian=0.5, whole=0.15, basis=0.15, sparse=0.1, orthonormal=0.1)
    storage = pick(
        rng, plain=0.25, fortran=0.05, strided=0.1, csr=0.15, coo=0.1, float32=0.15, integer=0.08,
        list=0.06, strict=0.06,
    )  # fmt: skip
    if storage == "integer":
        geometry, complex_, norms = "whole", False, "ordinary"
    m = _count(rng, n, complex_)
    U, _ = rows.disturb(rng, rows.draw(rng, geometry, m, n, complex_), notes)
    if storage == "float32" and norms == "extreme":
        norms = "uneven"
    return rows.store(_scales(rng, norms, len(U))[:, None] * U, storage), None, storage


def _kronecker(
    rng: np.random.Generator, n: int, complex_: bool, norms: str, notes: list[str]
) -> tuple[Any, Any]:
    """Products of one to three factors, of gaussian entries or of the axes of qubits."""
    shapes = {1: [(1,), (1, 1)], 2: [(2,), (1, 2), (2, 1)], 3: [(3,), (3, 1), (1, 3)],
              4: [(4,), (2, 2), (2, 1, 2)], 5: [(2, 3), (3, 2), (2, 2, 2)]}[n]  # fmt: skip
    widths = shapes[int(rng.integers(0, len(shapes)))]
    m = _count(rng, int(np.prod(widths)), complex_)
    axes = set(widths) == {2} and rng.random() < 0.4
    factors = []
    for width in widths:
        if axes:
            f = AXES[rng.integers(0, 6 if complex_ else 4, m)]
            f = f if complex_ else f.real.copy()
        else:
            f = _few_bits(rng, m, width, complex_ and (len(factors) == 0 or rng.random() < 0.7))
        factors.append(f)
    if rng.random() < 0.1:
        factors[int(rng.integers(0, len(factors)))][int(rng.integers(0, m))] = 0.0
        notes.append("zero row")
    factors[0] = factors[0] * _scales(rng, norms, m)[:, None]
    if len(factors) > 1 and norms == "extreme" and rng.random() < 0.5:  # factors far out of range
        far = 2.0 ** int(rng.integers(-250, 251))
        factors[0], factors[1] = factors[0] * far, factors[1] / far
    return probes.kronecker(factors), kronecker_rows(factors)


def _masked_fft(
    rng: np.random.Generator, n: int, complex_: bool, norms: str, notes: list[str]
) -> tuple[Any, Any]:
    """Transforms of the whole image or of windows, of exact lengths unless norms are "even"."""
    shapes: list[Any] = [
        ((2,), None), ((4,), None), ((2, 2), None), ((3,), (2,)), ((4,), (2,)), ((2, 2), (2, 1)),
        ((1,), None), ((3,), (1,)), ((1, 2), (1, 2)),
    ]  # fmt: skip
    if norms == "even":
        shapes += [((3,), None), ((5,), None), ((1, 3), None), ((4,), (3,)), ((3,), None)]
    shape, window = shapes[int(rng.integers(0, len(shapes)))]
    scan = window is not None
    window = window or shape
    q = int(rng.integers(1, 2 + 12 // int(np.prod(window)) // (2 if scan else 1)))
    kind = pick(rng, turns=0.4, gaussian=0.4, real=0.2)
    if kind == "turns":
        masks = rng.choice([1.0, -1.0, 1j, -1j], (q, *window)) * rng.choice([0.5, 1.75], window)
    else:
        size = int(np.prod(window))
        masks = _few_bits(rng, q, size, kind == "gaussian").reshape(q, *window)
        masks.reshape(q, -1)[:, 0] += 2.0  # no mask is zero
    masks = masks * _scales(rng, norms, q).reshape(-1, *(1 for _ in window))
    starts = np.zeros((1, len(shape)), int)
    if not scan:
        return probes.masked_fft(masks, shape), fourier_rows(masks, shape, starts)
    corners = [range(s - w + 1) for s, w in zip(shape, window, strict=True)]
    every = np.array(list(itertools.product(*corners)))
    starts = every[rng.random(len(every)) < 0.8]
    starts = starts if len(starts) else every[:1]
    return probes.masked_fft(masks, shape, starts), fourier_rows(masks, shape, starts)


def _differences(
    rng: np.random.Generator, n: int, complex_: bool, norms: str, notes: list[str]
) -> tuple[Any, Any]:
    """Pairs of nodes, single nodes, and now and then known offsets."""
    known = int(rng.integers(0, min(n, 3))) if rng.random() < 0.4 else 0
    nodes = n - known
    m = _count(rng, n, False)
    first, second = rng.integers(0, nodes, m), rng.integers(-1, nodes, m)
    if rng.random() < 0.9:  # e_i - e_i is a row of zeros
        second = np.where(first == second, -1, second)
    elif (first == second).any():
        notes.append("zero row")
    pairs = np.stack([first, second], axis=1)
    offsets = None
    if known:
        offsets = rng.standard_normal((m, known)) * (rng.random((m, 1)) < 0.8)
        offsets = offsets * _scales(rng, norms, m)[:, None]
    given = pairs.tolist() if rng.random() < 0.3 else pairs
    U = probes.differences(given, nodes, offsets)
    U.constraints = ()  # the rows alone, about any A: its last block need not be I
    return U, difference_rows(pairs, nodes, offsets)


class ByLooks:
    """What has `shape`, `matvec` and `rmatvec`, and nothing else that an operator may have."""

    def __init__(self, U: Any) -> None:
        self.shape, self._U = U.shape, U

    def matvec(self, x: Any) -> Any:
        return self._U @ x

    def rmatvec(self, y: Any) -> Any:
        return self._U.conj().T @ y


def _operator(
    rng: np.random.Generator, n: int, complex_: bool, norms: str, notes: list[str]
) -> tuple[Any, Any]:
    """Rows of an array, known by two products."""
    m = _count(rng, n, complex_)
    geometry = pick(rng, gaussian=0.7, whole=0.15, sparse=0.15)
    U, _ = rows.disturb(rng, rows.draw(rng, geometry, m, n, complex_), notes)
    if norms == "extreme":  # products leave the range otherwise
        U = U * 2.0 ** int(rng.integers(-100, 101))
    else:
        U = U * _scales(rng, norms, len(U))[:, None]
    form = pick(rng, own=0.4, linear=0.25, array=0.15, looks=0.2)
    if form == "own":
        named: dict[str, Any] = {"dtype": complex if complex_ else float}
        if rng.random() < 0.3:
            named["norms"] = np.linalg.norm(U, axis=1)
        if rng.random() < 0.2:
            named["rounding"] = 1e-13
        return probes.operator(lambda X: U.conj() @ X, lambda Y: U.T @ Y, U.shape, **named), U
    if form == "linear":
        return LinearOperator(
            U.shape, matvec=lambda x: U @ x, rmatvec=lambda y: U.conj().T @ y, dtype=U.dtype
        ), U
    return (aslinearoperator(U) if form == "array" else ByLooks(U)), U


def _stack(
    rng: np.random.Generator, n: int, complex_: bool, norms: str, notes: list[str]
) -> tuple[Any, Any]:
    """Two or three parts of one length, of any kind."""
    parts: list[Any] = []
    dense: list[Any] = []
    for _ in range(int(rng.integers(2, 4))):
        kind = pick(rng, array=0.4, differences=0.25, operator=0.2, kronecker=0.15)
        if kind == "array":
            storage = pick(rng, plain=0.4, csr=0.3, float32=0.3)
            scale = _scales(rng, "uneven" if storage == "float32" else norms, 1)
            U = rows.store(rows.gaussian(rng, int(rng.integers(1, 5)), n, complex_), storage) * (
                scale.astype(np.float32) if storage == "float32" else scale
            )
            part, known = U, rows.as_read(U)
        elif kind == "differences":
            pairs = np.stack([rng.integers(0, n, 3), rng.integers(-1, n, 3)], axis=1)
            part, known = probes.differences(pairs, n), difference_rows(pairs, n)
        elif kind == "operator":
            U = rows.gaussian(rng, int(rng.integers(1, 5)), n, complex_)
            part, known = ByLooks(U), U
        else:
            f = [_few_bits(rng, 2, n, complex_), _few_bits(rng, 2, 1, complex_)]
            part, known = probes.kronecker(f), kronecker_rows(f)
        parts.append(part)
        dense.append(known)
    return probes.stack(parts), np.concatenate(dense)


def _mix(
    rng: np.random.Generator, U: Any, allowed: int, notes: list[str]
) -> tuple[Any, str, list[Any]]:
    """W as handed over, its kind, pairs of equal rows of it."""
    k, n = U.shape
    unknowns = n * n if np.iscomplexobj(U) else n * (n + 1) // 2
    p = 1 + int(2 * unknowns * rng.random())
    if allowed:
        p = min(max(p, allowed + 1), {1: 20, 2: 11, 3: 8}[allowed])
    kind = pick(rng, sums=0.25, signed=0.25, differences=0.2, alone=0.15, full=0.15)
    W = np.zeros((p, k))
    for w in W:
        few = rng.choice(k, min(k, int(rng.integers(2, 5))), replace=False)
        if kind == "sums":
            w[few] = 1.0
        elif kind == "signed":
            w[few] = rng.standard_normal(few.size)
        elif kind == "differences":
            w[few[:2]] = [1.0, -1.0][: few[:2].size]
        elif kind == "alone":
            w[few[: 1 if rng.random() < 0.8 else 2]] = rng.choice([1.0, 1.0, 0.5, -1.0, 3.0])
        else:
            w[:] = rng.standard_normal(k)
    if rng.random() < 0.15:
        W *= 10.0 ** rng.uniform(-3, 3, (p, 1))
    if rng.random() < 0.05:
        W *= 10.0 ** rng.uniform(-40, 40)
    if rng.random() < 0.08:
        W[rng.integers(0, p)] = 0.0
        notes.append("zero row of mix")
    twins = []
    if p > 1 and rng.random() < 0.2:
        i, j = rng.choice(p, 2, replace=False)
        W[i] = W[j]
        twins.append((int(i), int(j)))
        notes.append("duplicates in mix")
    form = pick(rng, dense=0.35, csr=0.3, coo=0.1, list=0.1, float32=0.15)
    if form == "float32":
        W = W.astype(np.float32) if np.abs(W).max(initial=0.0) < 1e30 else W
    elif form in ("csr", "coo"):
        W = sp.csr_array(W) if form == "csr" else sp.coo_array(W)
    elif form == "list":
        W = W.tolist()
    return W, kind, twins
