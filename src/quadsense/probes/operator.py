"""The user's own products as probes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from quadsense.measurements.operator import Operator
from quadsense.measurements.probes import Probes
from quadsense.measurements.validate import checked_rounding, checked_shape, checked_vector


def operator(
    times: Callable[[Any], Any],
    combine: Callable[[Any], Any],
    shape: tuple[int, int],
    *,
    rounding: float = 0.0,
    dtype: Any = float,
    norms: Any = None,
) -> Probes:
    """Probes known by two functions; `quadsense.check_probes` tells whether they are right.

    Parameters
    ----------
    times : callable
        ``times(X)`` is ``u_i* X`` for every row, (n, k) to (m, k): ``U.conj() @ X`` of the array.
    combine : callable
        ``combine(Y)`` is ``sum_i u_i Y_i``, (m, k) to (n, k): ``U.T @ Y`` of the array.
    shape : (m, n)
        Number of rows, and their length.
    rounding : float, default=0.0
        How far the functions err at most, beyond what inner products of length n in float64 do:
        ``|times(x)_i - u_i* x| <= rounding |u_i| |x|``. What is certified counts it, and says so.
    dtype : {float, complex}, default=float
        Type of the rows.
    norms : array_like of shape (m,), optional
        Norms of the rows. Without them they are found by ``min(m, n)`` products.

    Returns
    -------
    Probes
        To be given to `quadsense.solve`, `Measurements` and others in place of U. A SciPy
        ``LinearOperator`` needs no wrapping: it is taken as the array would be.

    Examples
    --------
    Neighbouring differences, and a state of which they are to be read:

    >>> import numpy as np, quadsense
    >>> def times(X):
    ...     return X[1:] - X[:-1]
    >>> def combine(Y):
    ...     zero = np.zeros((1, Y.shape[1]))
    ...     return np.concatenate([zero, Y]) - np.concatenate([Y, zero])
    >>> U = quadsense.probes.operator(times, combine, (3, 4))
    >>> quadsense.check_probes(U).sound
    True
    >>> quadsense.solve(U, [1.0, 2.0, 3.0], delta=0.1).success
    True
    """
    for name, function in (("times", times), ("combine", combine)):
        if not callable(function):
            raise ValueError(f"{name} must be a function, got {type(function).__name__}")
    size = checked_shape(shape)
    kind = _checked_type(dtype)
    held = None
    if norms is not None:
        held = checked_vector("norms", norms, size[0])
        if (held < 0.0).any():
            row = int(np.argmax(held < 0.0))
            raise ValueError(f"norms[{row}] must not be negative, got {held[row]}")
    return Operator(times, combine, size, kind == "c", checked_rounding(rounding), held)


def _checked_type(dtype: Any) -> str:
    try:
        kind = np.dtype(dtype).kind
    except (TypeError, ValueError):
        kind = "?"
    if kind not in "fc":
        raise ValueError(f"dtype must be float or complex, got {dtype!r}")
    return kind
