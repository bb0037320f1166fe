"""An orthonormal basis of the span of rows that are longer than they are many.

Small problems are left to a singular value decomposition. That of a large one would take a third to
twice as long again and cannot be interrupted: there block after block of rows is made orthogonal
to the basis so far, what is left over extends it, and the watch is looked at between blocks.
"""

from __future__ import annotations

import numpy as np

from quadsense.core.intervals import EPS, Array
from quadsense.system.watch import BLOCK_FLOPS, look

WIDEST, NARROWEST = 128, 16
"""Rows of a block: for products that run at full speed, yet are done soon."""

CLEAR = 1e-6
"""Ratio of the eigenvalues of a block's inner products down to which they serve for a basis, at a
tenth of the time of Householder's QR: its errors are then some 1e-10, and taken away."""


def basis_of_span(rows: Array) -> Array:
    """Orthonormal basis of the span of the rows, (n, rank).

    Parameters
    ----------
    rows : ndarray, shape (m, n)
        Of norms not far from each other, or 0; m <= n.
    """
    m, n = rows.shape
    if _cost(rows) * (6.0 * m * m * n + 20.0 * m**3) > BLOCK_FLOPS:
        return basis_in_blocks(rows)
    left, values, _ = np.linalg.svd(rows.T, full_matrices=False)
    return np.asarray(left[:, values > m * EPS * values[0]])


def basis_in_blocks(rows: Array) -> Array:
    """The same, looked at between blocks; Fortran order.

    Notes
    -----
    What a block has beyond the basis is orthonormalised: by its inner products where these are well
    conditioned, else by Householder's QR and the singular values of its small factor, of which
    those that rounding may have made are dropped. A direction of a small singular value s then
    carries an error of eps/s within the basis so far: taken away once more, from vectors of norm 1,
    that is gone ("twice is enough"), and so are the errors of the inner products.
    """
    m, n = rows.shape
    size = int(np.clip(np.sqrt(BLOCK_FLOPS / (8.0 * _cost(rows) * n)), NARROWEST, WIDEST))
    largest = float(np.sqrt(np.max(np.vecdot(rows, rows).real, initial=0.0)))
    tolerance = 4.0 * (m + np.sqrt(n)) * EPS * largest
    basis = np.empty((n, m), dtype=rows.dtype, order="F")
    rank = 0
    for first in range(0, m, size):
        block = np.array(rows[first : first + size].T)
        known = [slice(begin, min(begin + size, rank)) for begin in range(0, rank, size)]
        _take_away(basis, known, block)
        found = _beyond(block, tolerance)
        _take_away(basis, known, found)
        basis[:, rank : rank + found.shape[1]] = _cleaned(found)
        rank += found.shape[1]
    return basis[:, :rank]


def _cost(rows: Array) -> float:
    """Real operations to one of the rows' own."""
    return 4.0 if np.iscomplexobj(rows) else 1.0


def _take_away(basis: Array, parts: list[slice], block: Array) -> None:
    """Make the columns of `block` orthogonal to those parts of the basis, in its place."""
    for part in parts:
        look()
        known = basis[:, part]
        block -= known @ (known.conj().T @ block)


def _beyond(block: Array, tolerance: float) -> Array:
    """Basis of the columns, orthonormal to 1e-9, without directions that rounding may have made."""
    look()
    block = block[:, np.linalg.norm(block, axis=0) > tolerance]
    squares, vectors = np.linalg.eigh(block.conj().T @ block)
    if squares.size and squares[0] > max(CLEAR * squares[-1], tolerance * tolerance):
        return np.asarray(block @ (vectors / np.sqrt(squares)))
    look()
    Q, R = np.linalg.qr(block)
    left, values, _ = np.linalg.svd(R)
    return np.asarray(Q @ left[:, values > tolerance])


def _cleaned(block: Array) -> Array:
    """Return nearly orthonormal columns made orthonormal to rounding."""
    factor = np.linalg.cholesky(block.conj().T @ block)
    return np.asarray(block @ np.linalg.inv(factor).conj().T)
