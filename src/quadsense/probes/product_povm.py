"""Products of local measurements: every qubit is measured in one of a few settings."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from quadsense.arrays import as_numbers
from quadsense.measurements.probes import Probes
from quadsense.probes.observables import EIGENVECTORS
from quadsense.probes.product_rows import Factors, ProductPovm, joint_basis
from quadsense.system.machine import MAX_FORMED_BYTES
from quadsense.typing import to_list

MIN_EIGENVALUE = 1e-14
"""Eigenvalues of an effect below this share of the largest count as 0."""

MAX_SKEW = 1e-10
"""Largest ``||E - E*||``, and negative eigenvalue, as a share of ``||E||``, that is rounding."""

PAULI = "XYZ"
"""Settings of the table "pauli", in their order; each has the eigenvalues 1 and -1 as outcomes."""


def product_povm(effects: Sequence[Any], settings: Any = None, *, device: Any = None) -> Probes:
    """Rows that are tensor products of local effects: settings and outcomes of every qubit.

    Products with all rows go one factor at a time, so ten qubits need no array of rows. Where
    settings are measured with weights of their own, least squares is diagonal in a local basis
    (for Pauli settings the Pauli strings), which `quadsense.solve` uses.

    Parameters
    ----------
    effects : sequence of q tables
        What the j-th factor can be measured in: "pauli" (settings X, Y and Z, outcomes 1 and -1),
        an array (settings, outcomes, d_j) of vectors t, for effects ``t t*``, or an array
        (settings, outcomes, d_j, d_j) of positive semidefinite effects, with readout error for
        example. A row of zeros is an outcome that a setting does not have.
    settings : (k, q) array of int, or sequence of k strings of X, Y and Z, optional
        Which settings were measured, one number per factor; by default all combinations, the
        last factor changing fastest.
    device : str or torch.device, optional
        Where least squares and likelihood of states work, for instance ``"cuda"``: one on which all
        combinations of settings fit. Readings and answers stay in the memory of the host, where
        all that is proved is computed.

    Returns
    -------
    Probes
        One reading per setting and combination of outcomes, the outcome of the last factor changing
        fastest: b is a table (k, outcomes) of frequencies, `ravel`\\ ed. To be given to
        `quadsense.solve`, `Measurements` and others in place of U. Where effects have more than
        one eigenvector, sums over rows come with it (`mix`).

    Examples
    --------
    A Bell state of two qubits, each measured in X, Y and Z:

    >>> import numpy as np, quadsense
    >>> U = quadsense.probes.product_povm(["pauli", "pauli"])
    >>> (U.m, U.n)
    (36, 4)
    >>> bell = np.array([1, 0, 0, 1]) / np.sqrt(2)
    >>> b = U.forward(np.outer(bell, bell).astype(complex))
    >>> state = quadsense.solve(U, b, psd=True, trace=1)
    >>> bool(np.allclose(state.A, np.outer(bell, bell), atol=1e-4))
    True
    """
    if isinstance(effects, str):
        raise ValueError(f"effects must have one table per factor: give [{effects!r}] * q")
    given = to_list("effects", effects, "tables, one per factor")
    if not given:
        raise ValueError("effects is empty: there must be one table at least")
    tables, confusions = [], []
    for j, each in enumerate(given):
        vectors, confusion = _table(j, each)
        tables.append(vectors)
        confusions.append(confusion)
    chosen = _settings(settings, [len(table) for table in tables])
    mixed = any(each is not None for each in confusions)
    confused = [
        np.broadcast_to(np.eye(table.shape[1]), (len(table), *2 * (table.shape[1],)))
        if confusion is None
        else confusion
        for table, confusion in zip(tables, confusions, strict=True)
    ]
    found = ProductPovm(tables, chosen, confused if mixed else None, device)
    if mixed:
        found.mix = _mix(confused, found.settings)
    return found


# --- what was given --------------------------------------------------------------------------


def _table(j: int, given: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
    """Vectors (settings, outcomes, d), and for effects of higher rank what they are sums of."""
    name = f"effects[{j}]"
    if isinstance(given, str):
        if given != "pauli":
            raise ValueError(f"{name} is {given!r}: the table with a name is 'pauli'")
        return np.array([EIGENVECTORS[letter] for letter in PAULI]), None
    values = as_numbers(name, given)
    if values.dtype.kind not in "buifc" or values.ndim not in (3, 4) or not values.size:
        raise ValueError(
            f"{name} must be 'pauli', vectors of shape (settings, outcomes, d) or effects of shape "
            f"(settings, outcomes, d, d), got an array of {values.dtype} of shape {values.shape}"
        )
    if not np.isfinite(values).all():
        s, o = np.argwhere(~np.isfinite(values))[0][:2]
        raise ValueError(f"{name} contains NaN or infinity, first in setting {s}, outcome {o}")
    values = values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)
    if values.ndim == 3:
        return np.asarray(values), None
    if values.shape[2] != values.shape[3]:
        raise ValueError(f"{name}: effects must be square, got shape {values.shape}")
    return _taken_apart(name, values)


def _taken_apart(
    name: str, effects: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
    """Vectors of which the effects of each setting are sums, and these sums (S, outcomes, R).

    Effects of rank one are their vectors. Those of a setting that commute, as with readout error,
    share their eigenvectors; of others each has its own.
    """
    sizes = np.linalg.norm(effects, axis=(2, 3))
    skew = np.linalg.norm(effects - effects.conj().swapaxes(2, 3), axis=(2, 3))
    values, vectors = np.linalg.eigh(0.5 * (effects + effects.conj().swapaxes(2, 3)))
    for wrong, what in (
        (skew > MAX_SKEW * sizes, "is not Hermitian"),
        (values[..., 0] < -MAX_SKEW * sizes, "has a negative eigenvalue"),
    ):
        if wrong.any():
            s, o = np.argwhere(wrong)[0]
            raise ValueError(f"{name}: the effect of setting {s}, outcome {o} {what}")
    values = np.where(values > MIN_EIGENVALUE * values[..., -1:], values, 0.0)
    if np.all(values[..., :-1] == 0.0):
        return np.sqrt(values[..., -1:]) * vectors[..., -1], None
    shared = [joint_basis(np.asarray(setting)) for setting in effects]
    if all(basis is not None for basis in shared):
        basis = np.array(shared)  # (S, d, R): columns
        weights = np.einsum("sdr,sode,ser->sor", basis.conj(), effects, basis).real
        return np.ascontiguousarray(basis.swapaxes(1, 2)), np.maximum(weights, 0.0)
    count, outcomes, d = values.shape
    own = np.zeros((count, outcomes, outcomes, d))
    own[:, np.arange(outcomes), np.arange(outcomes)] = values
    return (
        vectors.swapaxes(2, 3).reshape(count, outcomes * d, d),
        own.reshape(count, outcomes, outcomes * d),
    )


def _settings(given: Any, counts: list[int]) -> npt.NDArray[np.int64]:
    """Settings that were measured, (k, q)."""
    if given is None:
        return np.indices(counts).reshape(len(counts), -1).T.copy()
    listed = to_list("settings", given, "strings of X, Y and Z, or whole numbers (k, q)")
    if not listed:
        raise ValueError("settings is empty: there must be one at least")
    if all(isinstance(each, str) for each in listed):
        listed = [_letters(i, each, counts) for i, each in enumerate(listed)]
    try:
        values = np.asarray(listed)
    except ValueError:  # of unequal lengths
        values = np.empty(0)
    if values.ndim != 2 or values.shape[1] != len(counts) or values.dtype.kind not in "iuf":
        raise ValueError(
            f"settings must have one row per setting and one column for each of the {len(counts)} "
            f"factors, got shape {values.shape}"
        )
    bad = (values != np.rint(values)) | (values < 0) | (values >= np.array(counts))
    if bad.any():
        i, j = np.argwhere(bad)[0]
        raise ValueError(
            f"settings[{i}, {j}] is {values[i, j]:g}, but effects[{j}] has the settings 0 to "
            f"{counts[j] - 1}"
        )
    return values.astype(np.int64)


def _letters(i: int, string: str, counts: list[int]) -> list[int]:
    """Numbers of the settings that a string of X, Y and Z names."""
    if len(string) != len(counts) or set(string) - set(PAULI):
        raise ValueError(
            f"settings[{i}] is {string!r}, but must have one of the letters X, Y and Z for each of "
            f"the {len(counts)} factors"
        )
    return [PAULI.index(letter) for letter in string]


def _mix(confusions: Factors, settings: npt.NDArray[np.int64]) -> sp.csr_array:
    """Readings as sums over rows: within each setting a Kronecker product."""
    readings = prod(each.shape[1] for each in confusions)
    rows = prod(each.shape[2] for each in confusions)
    count = len(settings)
    if 12 * count * readings * rows > MAX_FORMED_BYTES:
        raise ValueError(
            f"effects of rank two or more make {count * readings:,} sums of {rows:,} rows each, "
            "which take too much memory: give fewer settings, or effects of rank one"
        )
    blocks = np.ones((count, 1, 1))
    for j, each in enumerate(confusions):
        own = each[settings[:, j]]
        shape = (count, blocks.shape[1] * own.shape[1], blocks.shape[2] * own.shape[2])
        blocks = (blocks[:, :, None, :, None] * own[:, None, :, None, :]).reshape(shape)
    columns = rows * np.arange(count)[:, None, None] + np.arange(rows)
    columns = np.broadcast_to(columns, blocks.shape).ravel()
    starts = rows * np.arange(count * readings + 1)
    found = sp.csr_array((blocks.ravel(), columns, starts), shape=(count * readings, count * rows))
    found.eliminate_zeros()
    return found


# --- settings and outcomes -------------------------------------------------------------------
