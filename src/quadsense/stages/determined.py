"""How far A is determined: by the rows, by the cone, or near A among the matrices of its rank."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse.linalg as sparse_linalg
from scipy.linalg.lapack import dpstrf

from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.core.products import pack, real_units, unpack
from quadsense.measurements import Measurements
from quadsense.measurements.gram import find_rank
from quadsense.measurements.sensing import Sensing
from quadsense.result.facts import Determined
from quadsense.system.watch import FLOPS, Stop, cholesky_flops, look, real_flops

MIN_SINGULAR_VALUE = 1e-7
"""Singular values of a factor, in units of the largest, below which they are none."""

MAX_JACOBIAN_ENTRIES = 4e7
"""Entries of a Jacobian up to which it is formed: 320 MB."""

MAX_FREE_EIGENVALUE = 1e-13
"""Eigenvalue of J*J, in units of the largest, that counts as 0."""

MAX_PRODUCTS = 300
"""Products with J*J that its smallest eigenvalue takes, where J is not formed."""

TERMS_PER_ROW = 16
"""Terms of inner products that a row costs in addition, where its products are structured."""

POWER_STEPS = 10
"""Products after which the largest eigenvalue is known to a few percent."""

MAX_ZERO_EIGENVALUE = 1e-2
"""Eigenvalue of A, in units of the largest, that may count as 0 where the tolerances hide it."""

MAX_HIDDEN_RATIO = 10.0
"""Eigenvalue of A, in units of n times the median tolerance of unit rows, that these hide."""

MIN_ZERO_EIGENVALUE = 1e-9
"""Eigenvalue of A, in units of the largest, that counts as 0 however small the tolerances are."""

MAX_PROJECTIONS = 100
"""Projections in turn by which a proof is sought that the cone leaves only one matrix."""

MIN_RELATIVE_SINGULAR_VALUE = 1e-9
"""Singular value, in units of the largest, of rows that see a direction."""

MIN_EIGENVALUE_OUTSIDE = 1e-3
"""Smallest eigenvalue of such a proof outside of the range of A, where about 1 is sought."""

LANCZOS_VECTORS = 30
"""Lanczos vectors that are held at once."""

MAX_RELATIVE_RESIDUAL = 0.1
"""Relative residual of that eigenvalue up to which it is told from 0."""


def seen(
    data: Measurements,
    matrix: SensedMatrix,
    set_aside: Any,
    *,
    low: bool,
    psd: bool,
    most: float,
) -> Determined:
    """Return how far the readings determine A.

    Parameters
    ----------
    data : Measurements
    matrix : SensedMatrix
        A, on the columns of `data`.
    set_aside : ndarray of int
    low : bool
        Whether A is sought among matrices of a given rank.
    psd : bool
        Whether A is sought among positive semidefinite matrices.
    most : float
        Flops that may be spent on it.
    """
    rows = data.unit_rows
    kept = _kept(data, set_aside)
    try:
        near = _near(rows, kept, matrix, most) if low else None
        found = _among_all(data, kept, most) if near is None else near
        if psd and not low and found.unseen and found.exact:
            return replace(found, by_cone=_by_cone(data, kept, matrix, most))
        return found
    except Stop:  # it can wait
        return seen(data, matrix, set_aside, low=low, psd=psd, most=0.0)


def _among_all(data: Measurements, kept: npt.NDArray[np.bool_], most: float) -> Determined:
    """Return how many directions of all matrices those rows see."""
    rows = data.unit_rows
    unknowns, count = rows.unknowns, int(np.count_nonzero(kept))
    whole = count == int(np.count_nonzero(to_numpy(rows.nonzero)))
    if whole:
        found = data.find_rank(most)
    else:
        some = rows.only(np.flatnonzero(kept))
        found = find_rank(some.narrowed(), most=most)
    if found.rank is not None:
        return Determined(unknowns - found.rank, unknowns, True)
    return _unsettled(unknowns, count, found.flops / FLOPS)


def _unsettled(unknowns: int, count: int, seconds: float) -> Determined:
    """Return what the number of readings alone says."""
    if count < unknowns:
        return Determined(unknowns - count, unknowns, False, rank_seconds=seconds)
    return Determined(None, unknowns, False, rank_seconds=seconds)


def _kept(data: Measurements, set_aside: Any) -> npt.NDArray[np.bool_]:
    """Return which rows say something: not zero, not set aside, and with an end."""
    kept = to_numpy(data.unit_rows.nonzero) > 0.0
    if data.ends is not None:
        kept &= data.ends.sides.any(axis=0)
    kept[set_aside] = False
    return kept


# --- among positive semidefinite matrices -------------------------------------------------------


def _by_cone(
    data: Measurements, kept: npt.NDArray[np.bool_], matrix: SensedMatrix, most: float
) -> bool:
    """Return whether no other positive semidefinite matrix has the readings of A.

    That is so if the rows determine the matrices on the range of A, and some sum ``F*(y)`` is 0
    there and positive definite outside: its inner product with a positive semidefinite matrix of
    the same readings is 0, so that the range of that matrix is in that of A. Eigenvalues of A that
    the tolerances hide count as 0.
    """
    rows, n, unknowns = data.unit_rows, data.n, data.unit_rows.unknowns
    index = np.flatnonzero(kept)
    flops = 8.0 * float(index.size + unknowns) * float(unknowns) ** 2
    if flops > most or not (index.size and rows.raw.kind.at_hand) or data.ends is None:
        return False
    look(flops)
    rows = rows.on_numpy().only(index)
    values, Q = np.linalg.eigh(to_numpy(matrix.form.dense()))
    hidden = MAX_HIDDEN_RATIO * n * float(np.median(data.unit_ends.unit[index]))
    part = hidden / values[-1] if values[-1] > 0.0 else math.inf
    level = min(max(part, MIN_ZERO_EIGENVALUE), MAX_ZERO_EIGENVALUE) * values[-1]
    outside = int(np.count_nonzero(values <= level))
    if not 0 < outside < n:
        return False
    G = np.asarray(rows.features(), dtype=np.float64)
    pairs = list(itertools.combinations_with_replacement(range(n), 2))
    inside = _basis(Q, [pair for pair in pairs if pair[0] >= outside])
    across = _basis(Q, [pair for pair in pairs if pair[0] < outside <= pair[1]])
    beyond = _basis(Q, [pair for pair in pairs if pair[1] < outside])
    if np.linalg.matrix_rank(G @ inside, rtol=MIN_RELATIVE_SINGULAR_VALUE) < inside.shape[1]:
        return False
    free = scipy.linalg.null_space(
        (G @ np.hstack([inside, across])).T, rcond=MIN_RELATIVE_SINGULAR_VALUE
    )
    if not free.size:
        return False
    reach = scipy.linalg.orth(beyond.T @ (G.T @ free), rcond=MIN_RELATIVE_SINGULAR_VALUE)
    W = Q[:, :outside]
    sought = np.eye(outside)
    for _ in range(MAX_PROJECTIONS):
        asked = beyond.T @ pack(W @ sought @ W.conj().T)
        found = unpack(beyond @ (reach @ (reach.T @ asked)), n, Q.dtype)
        values, vectors = np.linalg.eigh(W.conj().T @ found @ W)
        if values[0] >= MIN_EIGENVALUE_OUTSIDE:
            return True
        sought = (vectors * np.maximum(values, 1.0)) @ vectors.conj().T
    return False


def _basis(Q: Array, pairs: list[tuple[int, int]]) -> Array:
    """Return a packed orthonormal basis of the Hermitian matrices on those pairs of columns."""
    turns = real_units(Q.dtype.kind == "c")
    found = []
    for i, j in pairs:
        for turn in turns if i < j else (1.0,):
            M = turn * np.outer(Q[:, i], Q[:, j].conj())
            found.append(pack(M if i == j else (M + M.conj().T) / math.sqrt(2.0)))
    return np.stack(found, axis=1) if found else np.zeros((pack(Q @ Q.conj().T).size, 0))


# --- among matrices of a given rank ------------------------------------------------------------


class Tangent(NamedTuple):
    """The map of ``H`` to the readings of ``Q H* + H Q*``, Q with orthonormal columns.

    These are the directions in which A of that range stays of its rank, to first order. H is taken
    as a real vector: its real parts, then its imaginary ones.

    Attributes
    ----------
    rows : Sensing
    weights : ndarray of shape (m,)
        1 for readings that count, otherwise 0.
    Q : ndarray of shape (n, r)
    G : ndarray of shape (k, r)
        ``v_i* Q`` for every row of the probes.
    """

    rows: Sensing
    weights: Vector
    Q: Array
    G: Array

    @property
    def is_complex(self) -> bool:
        """Whether H is."""
        return self.rows.is_complex

    @property
    def size(self) -> int:
        """Real dimensions of H."""
        return self.Q.size * (2 if self.is_complex else 1)

    @property
    def turns(self) -> int:
        """Real dimensions of H that leave ``Q H* + H Q*`` zero."""
        r = self.Q.shape[1]
        return r * r if self.is_complex else r * (r - 1) // 2

    def basis_of_turns(self) -> Array:
        """Return an orthonormal basis of those, (size, turns): ``H = Q K``, K skew-Hermitian."""
        r, found = self.Q.shape[1], []
        for i in range(r):
            for j in range(i, r):
                K = np.zeros((r, r), dtype=self.Q.dtype)
                if i != j:
                    K[i, j], K[j, i] = 1.0, -1.0
                    found.append(self.packed(self.Q @ K / math.sqrt(2.0)))
                if self.is_complex:
                    K = np.zeros((r, r), dtype=self.Q.dtype)
                    K[i, j] = K[j, i] = 1j
                    found.append(self.packed(self.Q @ K / np.linalg.norm(K)))
        return np.stack(found, axis=1) if found else np.zeros((self.size, 0))

    def packed(self, H: Array) -> Vector:
        """Return H as a real vector."""
        flat = H.reshape(-1)
        return np.concatenate([flat.real, flat.imag]) if self.is_complex else flat.real

    def forward(self, h: Vector) -> Vector:
        """Return the readings."""
        half, shape = self.Q.size, self.Q.shape
        H = h[:half].reshape(shape)
        if self.is_complex:
            H = H + 1j * h[half:].reshape(shape)
        raw = 2.0 * np.sum((to_numpy(self.rows.raw.times(H)) * self.G.conj()).real, axis=1)
        return self.weights * to_numpy(self.rows.mixed(raw))

    def adjoint(self, y: Vector) -> Vector:
        """Return the transposed map of readings."""
        c = 2.0 * to_numpy(self.rows.unmixed(self.weights * y))
        return self.packed(to_numpy(self.rows.raw.combine(c[:, None] * self.G)))

    def formed(self) -> Array:
        """Return the map as an array."""
        V = to_numpy(self.rows.raw.times(np.eye(self.rows.n, dtype=self.Q.dtype)))
        J = 2.0 * V[:, :, None] * self.G.conj()[:, None, :]
        J = J.reshape(len(V), -1)
        J = np.concatenate([J.real, -J.imag], axis=1) if self.is_complex else J.real
        return self.weights[:, None] * to_numpy(self.rows.mixed(J))


def _near(
    rows: Sensing, kept: npt.NDArray[np.bool_], matrix: SensedMatrix, most: float
) -> Determined | None:
    """Return how many directions of the matrices of the rank of A are free at A, to first order.

    None at A = 0, where the matrices of a given rank have no tangent space.
    """
    unknowns, factor = rows.unknowns, matrix.factor
    if factor is None or not rows.raw.kind.at_hand:
        return Determined(None, unknowns, False, rank_seconds=math.inf)
    rows = rows.on_numpy()
    Q, sizes, _ = np.linalg.svd(to_numpy(factor), full_matrices=False)
    Q = np.ascontiguousarray(Q[:, sizes > MIN_SINGULAR_VALUE * float(np.max(sizes, initial=0.0))])
    if not rows.is_complex:
        Q = Q.real
    raw, r = rows.raw, Q.shape[1]
    if not r:
        return None
    tangent = Tangent(rows, kept.astype(np.float64), Q, to_numpy(raw.times(Q)))
    p, directions = tangent.size, tangent.size - tangent.turns
    entries = float(raw.m) * p
    dense = entries * p + cholesky_flops(p) if entries <= MAX_JACOBIAN_ENTRIES else math.inf
    free = MAX_PRODUCTS * _product_flops(raw, r)
    if min(dense, free) > most:
        return Determined(None, unknowns, False, directions, rank_seconds=min(dense, free) / FLOPS)
    look(min(dense, free))
    count = _kernel(tangent) if free < dense else None
    if count is None and dense > most:
        return Determined(None, unknowns, False, directions, rank_seconds=dense / FLOPS)
    exact = count is None or count == 0
    count = _formed_kernel(tangent) if count is None else count
    return Determined(count, unknowns, exact, directions)


def _product_flops(raw: Sensing, r: int) -> float:
    """Return about what a product with J*J takes, by the shape of the rows alone."""
    return 4.0 * real_flops(raw.is_complex) * float(raw.m) * (raw.length + TERMS_PER_ROW) * r


def _formed_kernel(tangent: Tangent) -> int:
    """Return the free directions by the rank of J*J, both formed."""
    J = tangent.formed()
    M = np.asfortranarray(J.T @ J)
    largest = float(np.max(M.diagonal(), initial=0.0))
    rank = (
        int(dpstrf(M, tol=MAX_FREE_EIGENVALUE * largest, lower=0, overwrite_a=1)[2])
        if largest
        else 0
    )
    return max(0, tangent.size - rank - tangent.turns)


def _kernel(tangent: Tangent) -> int | None:
    """Return 0 or at least 1 free direction by the smallest eigenvalue of J*J; None if unsettled.

    It is sought by Lanczos steps next to the directions that turn the factor.
    """
    turns, size = tangent.basis_of_turns(), tangent.size
    rng = np.random.default_rng(0)
    h = rng.standard_normal(size)
    largest = 0.0
    for _ in range(POWER_STEPS):
        h /= np.linalg.norm(h)
        h = tangent.adjoint(tangent.forward(h))
        largest = float(np.linalg.norm(h))
    if not 0.0 < largest < math.inf:
        return None
    top = 1.2 * largest

    def lifted(h: Vector) -> Vector:
        look()
        h = h.reshape(-1)
        along = turns @ (turns.T @ h)
        rest = tangent.adjoint(tangent.forward(h - along))
        return np.asarray(rest - turns @ (turns.T @ rest) + top * along)

    operator = sparse_linalg.LinearOperator((size, size), matvec=lifted, dtype=np.float64)
    try:
        values, vectors = sparse_linalg.eigsh(
            operator, k=1, which="SA", ncv=min(size, LANCZOS_VECTORS),
            maxiter=max(1, MAX_PRODUCTS // LANCZOS_VECTORS),
            tol=MAX_RELATIVE_RESIDUAL * MAX_RELATIVE_RESIDUAL, v0=rng.standard_normal(size),
        )  # fmt: skip
    except sparse_linalg.ArpackNoConvergence as error:
        if not len(error.eigenvalues):
            return None
        values, vectors = error.eigenvalues, error.eigenvectors
    least, v = float(values[0]), vectors[:, 0]
    if least <= MAX_FREE_EIGENVALUE * largest:
        return 1
    apart = float(np.linalg.norm(lifted(v) - least * v))
    return 0 if apart <= MAX_RELATIVE_RESIDUAL * least else None
