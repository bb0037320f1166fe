"""Rows of several kinds, one kind below the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from quadsense.measurements.probes import Probes
from quadsense.measurements.stack import AsComplex, Stack
from quadsense.measurements.validate import checked_rows
from quadsense.typing import to_list


def stack(parts: Iterable[Any]) -> Probes:
    """The rows of several arrays, sparse arrays, operators and kinds of probes as one.

    Parameters
    ----------
    parts : iterable of arrays of shape (m_k, n), sparse arrays, operators or probes
        Of one length n. Nothing is copied. With complex rows, real ones become complex too.

    Returns
    -------
    Probes
        All rows, those of the first part first.

    Examples
    --------
    Distances within a network, and the sum of all positions, which is to be zero:

    >>> import numpy as np, quadsense
    >>> network = quadsense.probes.differences([(0, 1), (1, 2)], n=3)
    >>> U = quadsense.probes.stack([network, np.ones((1, 3))])
    >>> quadsense.Measurements(U, [1.0, 1.0, 0.0], delta=0.1)
    Measurements(m=3, n=3, stacked, real)
    """
    kinds: list[Probes] = []
    for k, part in enumerate(to_list("parts", parts, "probes")):
        try:
            kinds.append(checked_rows(part, False).kind)
        except ValueError as error:
            raise ValueError(f"parts[{k}]: {error}") from None
        if kinds[k].n != kinds[0].n:
            raise ValueError(
                f"parts[{k}] has rows of length {kinds[k].n}, but those of parts[0] have "
                f"{kinds[0].n}"
            )
        if kinds[k].xp is not kinds[0].xp or kinds[k].device != kinds[0].device:
            raise ValueError(
                f"parts[{k}] is of another namespace or device than parts[0]: bring all to one"
            )
    if not kinds:
        raise ValueError("parts is empty: there must be one part at least")
    if any(kind.is_complex for kind in kinds):
        kinds = [kind if kind.is_complex else AsComplex(kind) for kind in kinds]
    return kinds[0] if len(kinds) == 1 else Stack(*kinds)
