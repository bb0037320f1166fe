"""The Newton system of least squared misses, in coordinates where A = I."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, to_numpy
from quadsense.core import packed
from quadsense.core.cholesky import (
    add_to_diagonal,
    factor_upper,
    solve_definite,
    solve_upper,
)
from quadsense.core.intervals import UNIT
from quadsense.device import scalar, waits
from quadsense.measurements.sensing import Sensing
from quadsense.methods.least_squares.program import Rows
from quadsense.system.watch import look

Array = npt.NDArray[Any]

INEXACT = 0.2
"""Relative residual of conjugate gradients."""

GRADIENTS = 300
"""Conjugate gradients of a step at most: then the step is what they have found."""

LOOKS = 5
"""Conjugate gradients on a device between two looks at their residual."""

FEWEST, GROWTH = 10.0, 1.5
"""Conjugate gradients expected: `GROWTH` times those of the last step, at least `FEWEST`."""


def system_flops(F: Sensing, k: float) -> tuple[float, float]:
    """What a factorisation costs with k rows missed: by their inner products, or packed."""
    n, size = float(F.n), float(F.unknowns)
    weight = 4.0 if F.is_complex else 1.0
    return weight * k * k * n + k**3 / 3.0, k * size * size + size**3 / 3.0


def newton(
    F: Sensing, rows: Rows, weights: Vector, L: Array, R: Array, gradients: int
) -> tuple[Array, int]:
    """D of ``D + sum_i weights_i <p_i p_i*, D> p_i p_i* = R`` with ``p_i = L* v_i``.

    By the rows' inner products where they are few, on packed matrices where these are small, else
    by conjugate gradients, if not much more of them are to be expected than in the last step.
    How many there were, or would be as it seems, comes along.
    """
    if rows.size == 0:
        return R, gradients
    n, size = L.shape[0], F.unknowns
    few, small = system_flops(F, float(rows.size))
    expected = max(FEWEST, GROWTH * gradients)
    chosen = F.only(rows)
    product = (4.0 if F.is_complex else 1.0) * 4.0 * rows.size * n * n
    if not F.rank_one or min(few, small) > expected * product:
        return _by_gradients(chosen, weights, L, R)
    held = chosen.rows()
    held = held if waits(L) else to_numpy(held)
    P = (held * np.sqrt(np.sqrt(weights))[:, None]) @ L.conj()
    look(min(few, small))
    if few <= small:
        K = np.abs(P @ P.conj().T) ** 2
        add_to_diagonal(K, 1.0)
        right = np.sum(P.conj() @ R * P, axis=1).real
        c = solve_definite(K, right)
        return R - (P * c[:, None]).T @ P.conj(), gradients
    M = packed.normal_matrix([P[i : i + 1024] for i in range(0, len(P), 1024)], size, float)
    add_to_diagonal(M, 1.0)
    U, info = factor_upper(M)
    if info != 0:
        return _by_gradients(chosen, weights, L, R)
    return packed.unpack(solve_upper(U, packed.pack(R)), n, L.dtype), gradients


def _by_gradients(F: Sensing, weights: Vector, L: Array, R: Array) -> tuple[Array, int]:
    """The same, roughly, and in how many steps."""
    adjoint = L.conj().T
    D, left = np.zeros_like(R + 0.0 * L), R + 0.0 * L
    looks = LOOKS if waits(L) else 1
    direction, size = left, scalar(np.vdot(left, left).real)
    enough = max(INEXACT**2 * size, UNIT**2)
    for count in range(GRADIENTS):
        if count % looks == 0 and size <= enough:
            break
        look()
        image = F.forward(L @ direction @ adjoint)
        curved = direction + adjoint @ F.adjoint(weights * image) @ L
        t = size / scalar(np.vdot(direction, curved).real)
        D, left = D + t * direction, left - t * curved
        size, last = scalar(np.vdot(left, left).real), size
        direction = left + (size / last) * direction
    return D, count
