"""Kinds of probes: arrays in every form, and two that are never held, as CONTRIBUTING tells it."""

import os

import array_api_strict
import numpy as np
import scipy.sparse as sp
from helpers import gaussian_rows

from quadsense.measurements.dense import Dense
from quadsense.measurements.probes import Probes
from quadsense.measurements.sparse import Sparse
from quadsense.measurements.stack import Axes, Stack

try:
    import torch
except ImportError:  # an extra
    torch = None
else:
    torch.set_num_threads(1)  # as BLAS: the tests run several at a time
    from quadsense.measurements.tensors import Tensors

    class ByTorch(Tensors):
        """As on a GPU, wherever it is."""

        by_torch = True

    class Streamed(ByTorch):
        """As rows that are held elsewhere."""

        _streamed = True


MOST_BYTES = 2**24

DEVICE = os.environ.get("QUADSENSE_DEVICE", "cpu")
"""Where tensors live: `make test-gpu` says "cuda"."""

MISSING = DEVICE != "cpu" and not (torch is not None and torch.cuda.is_available())
"""Whether that device is not there: then everything is skipped (conftest)."""

DEVICE = "cpu" if MISSING else DEVICE


def allowed(values):
    """An array of rows, or of products with them, that is not too large."""
    if values.nbytes > MOST_BYTES:
        raise MemoryError(f"{values.nbytes / 2**20:.0f} MiB at once")
    return values


class Kronecker(Probes):
    """Products ``f_1i x f_2i x ... x f_qi`` of 2-vectors, given as (q, m, 2): n = 2^q."""

    storage = "kronecker"

    def __init__(self, factors):
        self.factors = np.asarray(factors)
        self.m, self.n = self.factors.shape[1], 2 ** len(self.factors)
        self.is_complex = np.iscomplexobj(self.factors)

    def block(self, first, last):
        rows = np.ones((last - first, 1))
        for f in self.factors[:, first:last]:
            rows = (rows[:, :, None] * f[:, None, :]).reshape(last - first, -1)
        return allowed(rows)

    def take(self, index):
        return Kronecker(self.factors[:, np.asarray(index)]).block(0, len(index))

    def times(self, X):
        parts = [self.block(*part).conj() @ X for part in self._parts(X.shape[1])]
        return allowed(np.concatenate(parts))

    def combine(self, Y):
        return sum(self.block(i, j).T @ allowed(Y)[i:j] for i, j in self._parts(Y.shape[1]))

    def _parts(self, columns):
        size = max(1, 2**18 // max(self.n, columns))
        return [(i, min(i + size, self.m)) for i in range(0, self.m, size)]


class MaskedFFT(Probes):
    """``U @ x = fft(mask * x)`` for each of some masks, (q, n): m = q n rows that nobody forms."""

    storage = "masked fft"
    is_complex = True

    def __init__(self, masks):
        self.masks = np.asarray(masks)
        self.m, self.n = self.masks.size, self.masks.shape[1]
        self.rounding = 4.0 * np.log2(2 * self.n) * np.finfo(np.float64).eps

    def times(self, X):
        masked = self.masks[:, :, None] * X.conj()[None]
        return allowed(np.fft.fft(masked, axis=1).conj().reshape(self.m, -1))

    def combine(self, Y):
        parts = allowed(Y).reshape(*self.masks.shape, -1)
        return np.sum(self.masks[:, :, None] * np.fft.fft(parts, axis=1), axis=0)


def dense(probes):
    """The rows of probes, one by one from the definition."""
    if isinstance(probes, Kronecker):
        rows = [1.0] * probes.m
        for f in probes.factors:
            rows = [np.kron(row, vector) for row, vector in zip(rows, f, strict=True)]
        return np.array(rows)
    wave = np.exp(-2j * np.pi * np.outer(np.arange(probes.n), np.arange(probes.n)) / probes.n)
    return np.concatenate([wave * mask for mask in probes.masks])


def _arrays(rng, m, n, complex_, folder):
    U = gaussian_rows(rng, m, n, complex_) * rng.uniform(0.5, 2.0, (m, 1))
    narrow = U.astype(np.complex64 if complex_ else np.float32)
    np.save(folder / "U.npy", narrow)
    yield "dense", U, U, {}
    yield "unit norm", (V := U / np.linalg.norm(U, axis=1)[:, None]), V, {}
    yield "fortran", np.asfortranarray(U), U, {}
    yield "strided", np.repeat(U, 2, axis=0)[::2], U, {}
    yield "float32", narrow, narrow.astype(U.dtype), {}
    yield "memmap", np.load(folder / "U.npy", mmap_mode="r"), narrow.astype(U.dtype), {}
    yield "sparse", sp.csr_array(U), U, {}
    yield "strict", array_api_strict.asarray(U), U, {}
    yield "stacked", *_stacked(Dense, lambda rows: Sparse(sp.csr_array(rows)), U), {}
    yield "stacked strict", *_stacked(_foreign, _foreign, U), {}
    if torch is not None:
        tensor = torch.tensor(U, device=DEVICE)
        yield "torch", tensor, U, {}
        yield "torch float32", torch.tensor(narrow, device=DEVICE), narrow.astype(U.dtype), {}
        yield "torch at work", ByTorch(tensor), U, {}
        yield "torch streamed", Streamed(torch.tensor(U), DEVICE), U, {}
    if not complex_:
        yield "integers", (W := np.rint(8 * U).astype(np.int16)), W.astype(np.float64), {}
    if complex_:
        yield "conjugated", U.conj(), U, {"conjugate": True}
        given, rows = _stacked(Dense, lambda rows: Sparse(sp.csr_array(rows)), U.conj())
        yield "stacked conjugated", given, rows.conj(), {"conjugate": True}


def _foreign(rows):
    return Dense(array_api_strict.asarray(rows))


def _stacked(first, second, U):
    """Two rows of one kind, the unit vectors, the rest of another kind; the same in an array."""
    m, n = U.shape
    head = first(U[:2])
    stack = Stack(head, Stack(Axes(n, head), second(U[2 : m - n])))
    return stack, np.concatenate([U[:2], np.eye(n), U[2 : m - n]])


ARRAYS = (
    "dense", "unit norm", "fortran", "strided", "float32", "memmap", "sparse", "strict", "stacked",
    "stacked strict",
)  # fmt: skip
TENSORS = () if torch is None else ("torch", "torch float32", "torch at work", "torch streamed")
NAMES = [
    *(
        f"{name} {word}"
        for word in ("real", "complex")
        for name in (*ARRAYS, *TENSORS, "kronecker")
    ),
    "integers real", "conjugated complex", "stacked conjugated complex",
    "masked fft", "masked fft conjugated",
]  # fmt: skip
"""Of all cases."""


def cases(folder, *, many):
    """Name, what is given as U, the same rows in an array, further arguments; n = 4."""
    for complex_ in (False, True):
        rng = np.random.default_rng(5)
        m = (40 if complex_ else 24) if many else 7
        word = "complex" if complex_ else "real"
        for name, given, U, named in _arrays(rng, m, 4, complex_, folder):
            yield f"{name} {word}", given, U, named
        factors = rng.standard_normal((2, m, 2)) + complex_ * 1j * rng.standard_normal((2, m, 2))
        factors = factors if complex_ else factors.real
        probes = Kronecker(factors)
        yield f"kronecker {word}", probes, dense(probes), {}
    masks = rng.choice([1.0, -1.0, 1j, -1j], (10 if many else 2, 4)) * rng.choice(
        [0.7, 1.7], (10 if many else 2, 4)
    )
    probes = MaskedFFT(masks)
    yield "masked fft", probes, dense(probes), {}
    yield "masked fft conjugated", probes, dense(probes).conj(), {"conjugate": True}
