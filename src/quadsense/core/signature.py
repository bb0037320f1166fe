"""Rank and signs of a matrix: by the form that it is held in, or by its eigenvalues."""

from __future__ import annotations

import numpy as np

from quadsense.core.forms import FactorForm
from quadsense.core.intervals import UNIT
from quadsense.core.matrix import SensedMatrix


def rank_of(matrix: SensedMatrix) -> int:
    """Rank by its form, or the number of eigenvalues that are not rounding."""
    if matrix.factor is not None:
        return int(matrix.factor.shape[1])
    values = np.abs(np.linalg.eigvalsh(np.asarray(matrix)))
    return int(np.count_nonzero(values > 16.0 * UNIT * values.size * values.max()))


def inertia_of(matrix: SensedMatrix) -> tuple[int, int]:
    """Count positive and negative eigenvalues: at most, by its form; or those above rounding."""
    if isinstance(matrix.form, FactorForm):
        return matrix.form.inertia
    values = np.linalg.eigvalsh(np.asarray(matrix))
    slip = 16.0 * UNIT * values.size * float(np.max(np.abs(values)))
    return int(np.count_nonzero(values > slip)), int(np.count_nonzero(values < -slip))


def is_positive(matrix: SensedMatrix) -> bool:
    """Whether A is positive semidefinite: by its form, or up to rounding of its eigenvalues."""
    if isinstance(matrix.form, FactorForm) and matrix.signs is None:
        return True
    values = np.linalg.eigvalsh(np.asarray(matrix))
    return bool(values[0] >= -16.0 * UNIT * values.size * max(abs(values[0]), abs(values[-1])))
