"""Rows after other rows: one array where both are of a kind, else a stack of two kinds."""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp

from quadsense.arrays import is_numpy, namespace
from quadsense.measurements.dense import Dense
from quadsense.measurements.probes import Probes
from quadsense.measurements.sparse import Sparse
from quadsense.measurements.stack import AsComplex, Stack


def joined_rows(first: Probes, second: Probes) -> Any:
    """The rows of both, as `Measurements` takes them.

    Arrays become one, by a copy: a stack of many small ones would be slow in every product.

    Raises
    ------
    ValueError
        Where they are of several lengths, namespaces or devices.
    """
    if first.n != second.n:
        raise ValueError(f"U has rows of length {second.n}, but those before have {first.n}")
    if first.xp is not second.xp or first.device != second.device:
        raise ValueError("U is of another namespace or device than the rows before: bring it there")
    if isinstance(first, Sparse) and isinstance(second, Sparse):
        return sp.csr_array(sp.vstack([first.given, second.given]))
    if isinstance(first, Dense) and isinstance(second, Dense):
        xp = namespace(first.given)
        same = is_numpy(first.given) or first.given.dtype == second.given.dtype
        if same and first.given.device == second.given.device:
            return xp.concat([first.given, second.given])
    kinds = [first, second]
    if first.is_complex != second.is_complex:
        kinds = [kind if kind.is_complex else AsComplex(kind) for kind in kinds]
    return Stack(*kinds)
