"""Kinds of probes: arrays in every form, and those of `quadsense.probes`."""

import os
from dataclasses import replace

import array_api_strict
import generator_structured
import numpy as np
import scipy.sparse as sp
from generator_structured import ByLooks, difference_rows, kronecker_rows, povm_rows
from helpers import gaussian_rows
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from quadsense import files, probes
from quadsense.measurements.arrays import Dense, Sparse
from quadsense.measurements.parted import OnDisk
from quadsense.measurements.stack import Axes, Stack
from quadsense.probes.observables import EIGENVECTORS

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


try:
    import dask.array as dask
except ImportError:  # an extra
    dask = None

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


def fourier_rows(probes):
    """The rows of masked transforms, one by one from the definition."""
    return generator_structured.fourier_rows(probes.masks, probes.shape, probes.starts)


def _factors(m, complex_):
    """Of a seed whose products are far from parallel, so that no descent is slow."""
    rng = np.random.default_rng(119 if complex_ else 171)
    return gaussian_rows(rng, 4 * m, 1, complex_).reshape(2, m, 2)


def _difference_cases(rng, m):
    """Every pair of four nodes, more than once where there are many rows, and single ones."""
    every = [(i, j) for i in range(4) for j in range(i)] + [(i, -1) for i in range(4)]
    chosen = rng.permutation(np.arange(m) % len(every))
    pairs = np.array(every)[chosen]
    yield "differences", probes.differences(pairs, 4), difference_rows(pairs, 4)
    pairs = np.array([(0, 1), (1, 0), (0, -1), (1, -1)])[np.arange(m) % 4]
    offsets = rng.standard_normal((m, 2))
    alone = probes.differences(pairs, 2, offsets)
    alone.constraints = ()  # the rows by themselves: no A of the tests has the identity block
    yield "offsets", alone, difference_rows(pairs, 2, offsets)


def _products(rng, many, complex_):
    """Two qubits in some settings of a table, one of them twice where there are many.

    Outcomes of a setting are orthogonal, as those of the others are: their columns are alike.
    """
    if complex_:
        tables = [
            np.array([*EIGENVECTORS.values()]) @ np.linalg.qr(gaussian_rows(rng, 2, 2, True))[0]
            for _ in range(2)
        ]
    else:
        angles = np.pi * (np.arange(3)[:, None] / 6.0 + np.array([0.0, 0.5])) + 0.26
        tables = [np.stack([np.cos(angles), np.sin(angles)], axis=2)] * 2
    tables = [table * rng.uniform(0.8, 1.2, (3, 2, 1)) for table in tables]
    settings = [*np.ndindex(3, 3), (1, 2)] if many else [(0, 1), (2, 1)]
    yield "product POVM", probes.product_povm(tables, settings), povm_rows(tables, settings)
    if complex_:
        letters = ["XY", "ZZ", "XX", "YX", "ZY", "YZ"] if many else ["ZX", "YX"]
        chosen = np.array([["XYZ".index(letter) for letter in each] for each in letters])
        own = [np.array([*EIGENVECTORS.values()])] * 2
        yield "Pauli POVM", probes.product_povm(["pauli"] * 2, letters), povm_rows(own, chosen)


def _operators(rng, m, complex_):
    """The same rows as functions, as SciPy's operators, and by their looks."""
    U = gaussian_rows(rng, m, 4, complex_) * rng.uniform(0.5, 2.0, (m, 1))
    dtype = complex if complex_ else float
    own = probes.operator(lambda X: U.conj() @ X, lambda Y: U.T @ Y, U.shape, dtype=dtype)
    yield "operator", own, U
    yield "array as operator", aslinearoperator(U), U
    named = {"matvec": lambda x: U @ x, "rmatvec": lambda y: U.conj().T @ y, "dtype": U.dtype}
    yield "linear operator", LinearOperator(U.shape, **named), U
    yield "operator by its looks", ByLooks(U), U
    pairs = [(0, 1), (2, 3)]
    parts = [U[:2], sp.csr_array(U[2:3]), probes.differences(pairs, 4), ByLooks(U[3 : m - 2])]
    rows = np.concatenate([U[:3], difference_rows(pairs, 4), U[3 : m - 2]])
    yield "stack of all", probes.stack(parts), rows


def strips(path, rows):
    """The array in an .npy file, that many rows at a time."""
    shape, dtype = np.load(path, mmap_mode="r").shape, np.load(path, mmap_mode="r").dtype
    whole, *_ = files.strips_of(path, path.stem, shape, dtype)
    begins = range(0, shape[0], rows)
    return files.Strips([replace(whole, first=i, last=min(i + rows, shape[0])) for i in begins])


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
    np.save(held := folder / f"held{int(complex_)}.npy", narrow)
    yield "on disk", OnDisk(strips(held, 5)), narrow.astype(U.dtype), {}
    if dask is not None:  # on the cluster of the client that is there (see `workers`)
        yield "dask", dask.from_array(U, chunks=(-(-m // 3), 2)), U, {}
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
    "dense", "unit norm", "fortran", "strided", "float32", "memmap", "on disk", "sparse", "strict",
    "stacked", "stacked strict",
)  # fmt: skip
OPERATORS = (
    "kronecker", "kronecker strict", "product POVM", "operator", "array as operator",
    "linear operator", "operator by its looks", "stack of all",
)  # fmt: skip
CLUSTER = () if dask is None else ("dask",)
TENSORS = () if torch is None else ("torch", "torch float32", "torch at work", "torch streamed")
NAMES = [
    *(
        f"{name} {word}"
        for word in ("real", "complex")
        for name in (*ARRAYS, *CLUSTER, *TENSORS, *OPERATORS)
    ),
    "differences", "offsets", "kronecker conjugated", "linear operator conjugated",
    "stack of all conjugated", "product POVM conjugated", "Pauli POVM complex",
    "Pauli POVM conjugated",
    "integers real", "conjugated complex", "stacked conjugated complex",
    "masked fft", "masked fft conjugated", "masked fft 2-d", "masked fft offsets conjugated",
    *(f"masked fft {name}" for name in TENSORS[:1]),
    *(f"masked fft offsets {name} conjugated" for name in TENSORS[2:3]),
]  # fmt: skip
"""Of all cases."""

SAME = ("kronecker strict", "array as operator", "operator by its looks", "operator")
"""What differs from another case in its products alone: no method sees the difference."""

if not os.environ.get("QUADSENSE_CLUSTER"):
    SAME += (
        "dask",
    )  # minutes: `make test-cluster`; tests/measurements/test_cluster.py has some of each

SEEN = [name for name in NAMES if not name.startswith(SAME)]
"""Of the other cases."""


def cases(folder, *, many):
    """Name, what is given as U, the same rows in an array, further arguments; n = 4."""
    for complex_ in (False, True):
        rng = np.random.default_rng(5)
        m = (40 if complex_ else 24) if many else 7
        word = "complex" if complex_ else "real"
        for name, given, U, named in _arrays(rng, m, 4, complex_, folder):
            yield f"{name} {word}", given, U, named
        factors = _factors(m, complex_)
        yield f"kronecker {word}", probes.kronecker(factors), kronecker_rows(factors), {}
        strict = probes.kronecker([array_api_strict.asarray(f) for f in factors])
        yield f"kronecker strict {word}", strict, kronecker_rows(factors), {}
        for name, given, U in _products(np.random.default_rng(2), many, complex_):
            yield f"{name} {word}", given, U, {}
            if complex_:
                yield f"{name} conjugated", given, U.conj(), {"conjugate": True}
        for name, given, U in _operators(rng, m, complex_):
            yield f"{name} {word}", given, U, {}
            if complex_ and name in ("linear operator", "stack of all"):
                yield f"{name} conjugated", given, U.conj(), {"conjugate": True}
    for name, given, U in _difference_cases(rng, 24 if many else 7):
        yield name, given, U, {}
    turned = kronecker_rows(factors).conj()
    yield "kronecker conjugated", probes.kronecker(factors), turned, {"conjugate": True}
    for name, given in _fourier(rng, many):
        yield name, given, fourier_rows(given), {}
        yield f"{name} conjugated", given, fourier_rows(given).conj(), {"conjugate": True}
        for word in TENSORS[:1] + TENSORS[2:3]:
            held = probes.masked_fft(
                torch.tensor(given.masks, device=DEVICE), given.shape, given.starts
            )
            held.by_torch = word == "torch at work"
            yield f"{name} {word}", held, fourier_rows(given), {}
            yield f"{name} {word} conjugated", held, fourier_rows(given).conj(), {"conjugate": True}


def _fourier(rng, many):
    """Masks of a line, of a square, and windows that are moved along a line."""

    def drawn(*shape):
        return rng.choice([1.0, -1.0, 1j, -1j], shape) * rng.choice([0.7, 1.7], shape)

    yield "masked fft", probes.masked_fft(drawn(10 if many else 2, 4), 4)
    yield "masked fft 2-d", probes.masked_fft(drawn(10 if many else 2, 2, 2), (2, 2))
    yield "masked fft offsets", probes.masked_fft(drawn(10 if many else 1, 3), 4, [0, 1])
