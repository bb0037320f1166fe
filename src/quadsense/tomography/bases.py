"""Bases in which qubits, or other small systems, are measured; readout errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import as_numbers
from quadsense.probes.observables import EIGENVECTORS
from quadsense.probes.product_povm import PAULI, product_povm
from quadsense.typing import to_list

LETTERS = PAULI
"""Letters of the Pauli settings."""

MAX_UNNORMALIZED = 1e-6
"""Rounding of probabilities and of sums of effects that are typed in."""

MAX_LISTED = 2**20
"""Settings that an array is taken to have one row for each of."""


_VECTORS = np.array([EIGENVECTORS[letter] for letter in LETTERS])
PAULI_EFFECTS: npt.NDArray[np.complex128] = _VECTORS[..., :, None] * _VECTORS[..., None, :].conj()
"""Projectors of X, Y and Z, (settings, outcomes, 2, 2)."""


@dataclass(frozen=True)
class Bases:
    """What each factor can be measured in.

    Attributes
    ----------
    letters : list of str or int
        Names of the local settings, in the order of the table; numbers for whole-system effects.
    effects : ndarray, shape (settings, outcomes, d, d)
        Of each factor.
    chosen : list or None
        The settings of the rows of an array, in their order; None for all combinations.
    whole : bool
        Whether the effects are of the whole system, which has one factor then.
    is_pauli : bool
        Whether these are X, Y and Z of qubits.
    """

    letters: list[Any]
    effects: npt.NDArray[np.complex128]
    chosen: list[Any] | None = None
    whole: bool = False
    is_pauli: bool = False

    def setting(self, name: Any) -> list[int]:
        """Return the numbers of a setting's letters."""
        if self.whole:
            if name not in self.letters:
                raise ValueError(
                    f"setting {name!r} is unknown: settings are numbered 0 to "
                    f"{len(self.letters) - 1}, as in bases"
                )
            return [self.letters.index(name)]
        parts = list(name) if isinstance(name, str) else to_list("setting", name, "names")
        if not parts:
            raise ValueError("a setting is empty: it must have one letter per qubit")
        for part in parts:
            if part not in self.letters:
                known = ", ".join(map(str, self.letters))
                raise ValueError(f"setting {name!r} has the letter {part!r}: letters are {known}")
        return [self.letters.index(part) for part in parts]

    def outcomes(self, q: int) -> tuple[int, ...]:
        """Return how many outcomes each factor has."""
        return (self.effects.shape[1],) * q

    def factors(self, outcomes: int) -> int:
        """Return how many factors have that number of outcomes together."""
        per = self.effects.shape[1]
        q = 1 if self.whole else round(np.log(outcomes) / np.log(per)) if per > 1 else 0
        if q < 1 or per**q != outcomes:
            raise ValueError(
                f"counts has {outcomes} columns, but outcomes of whole factors are {per}, "
                f"{per**2}, {per**3}, ... in number" if not self.whole else
                f"counts has {outcomes} columns, but bases has {per} outcomes per setting"
            )  # fmt: skip
        return q

    def listed(self, count: int, q: int | None = None) -> list[Any]:
        """Return the names of the settings of `count` rows of an array, or dictionaries."""
        if self.chosen is not None or self.whole:
            names = self.letters if self.chosen is None else self.chosen
            if len(names) != count:
                raise ValueError(f"counts has {count} settings, but bases names {len(names)}")
            return list(names)
        per = len(self.letters)
        if q is None:
            q = max(1, round(np.log(count) / np.log(per))) if per > 1 else 1
        if per**q != count:
            raise ValueError(
                f"counts has {count} settings, but {q} factors have {per**q}: name those that "
                "were measured, as in bases=['XX', 'ZZ']"
            )
        return ["".join(each) for each in product(map(str, self.letters), repeat=q)]


def read_bases(given: Any) -> Bases:
    """Return bases from any of their forms; see `fit_state`."""
    if isinstance(given, str):
        if given != "pauli":
            raise ValueError(f"bases must be 'pauli', names, vectors or effects, got {given!r}")
        return Bases(list(LETTERS), PAULI_EFFECTS, is_pauli=True)
    if isinstance(given, Mapping):
        if not given:
            raise ValueError("bases is empty: give a name and vectors or effects per setting")
        tables = [_effects(f"bases[{name!r}]", value) for name, value in given.items()]
        for name, table in zip(given, tables, strict=True):
            if table.shape != tables[0].shape:
                raise ValueError(
                    f"bases[{name!r}] has outcomes and dimensions {table.shape[:2]}, but others "
                    f"have {tables[0].shape[:2]}: all must have the same"
                )
        return Bases(list(given), np.stack(tables))
    if isinstance(given, list | tuple) and given and all(isinstance(g, str) for g in given):
        return Bases(list(LETTERS), PAULI_EFFECTS, list(given), is_pauli=True)
    values = as_numbers("bases", given)
    if values.ndim not in (3, 4):
        raise ValueError(
            "bases must be 'pauli', a list of Pauli settings, a dictionary of local vectors or "
            "effects, or an array (settings, outcomes, n) of vectors or (settings, outcomes, n, n) "
            f"of effects, got shape {values.shape}"
        )
    tables = [_effects(f"bases[{i}]", each) for i, each in enumerate(values)]
    return Bases(list(range(len(tables))), np.stack(tables), whole=True)


def _effects(name: str, given: Any) -> npt.NDArray[np.complex128]:
    """Return effects (outcomes, d, d) that sum to the identity, from these or from vectors."""
    values = as_numbers(name, given)
    if values.dtype.kind not in "buifc" or values.ndim not in (2, 3) or not values.size:
        raise ValueError(
            f"{name} must hold vectors (outcomes, d) or effects (outcomes, d, d), got an array of "
            f"{values.dtype} of shape {values.shape}"
        )
    if not np.isfinite(values).all():
        raise ValueError(f"{name} contains NaN or infinity")
    values = values.astype(np.complex128)
    effects = values[:, :, None] * values[:, None, :].conj() if values.ndim == 2 else values
    if effects.shape[1] != effects.shape[2]:
        raise ValueError(f"{name}: effects must be square, got shape {values.shape}")
    off = np.linalg.norm(effects.sum(axis=0) - np.eye(effects.shape[1]))
    if off > MAX_UNNORMALIZED * effects.shape[1]:
        raise ValueError(
            f"{name}: the effects of a setting must sum to the identity, and are {off:.2g} off"
        )
    return effects


def read_readout(given: Any, q: int, outcomes: int) -> npt.NDArray[np.float64] | None:
    """Return one stochastic matrix per factor, [observed, true], (q, outcomes, outcomes)."""
    if given is None:
        return None
    values = as_numbers("readout", given)
    if values.dtype.kind in "buif" and values.shape == (outcomes, outcomes):
        values = np.broadcast_to(values, (q, outcomes, outcomes))
    if values.dtype.kind not in "buif" or values.shape != (q, outcomes, outcomes):
        raise ValueError(
            f"readout must be one {outcomes} x {outcomes} matrix per qubit, shape "
            f"{(q, outcomes, outcomes)}, or one for all, got shape {values.shape}"
        )
    values = values.astype(np.float64)
    for j, matrix in enumerate(values):
        if not np.all((matrix >= 0.0) & (matrix <= 1.0)):
            raise ValueError(f"readout[{j}] has entries outside [0, 1]: give probabilities")
        if np.abs(matrix.sum(axis=0) - 1.0).max() > MAX_UNNORMALIZED:
            turned = np.abs(matrix.sum(axis=1) - 1.0).max() <= MAX_UNNORMALIZED
            raise ValueError(
                f"readout[{j}] is not stochastic: each column, of one true outcome, must sum to 1"
                + ("; its rows do: transpose it" if turned else "")
            )
    return np.ascontiguousarray(values)


def probes_of(
    bases: Bases,
    settings: npt.NDArray[np.int64],
    readout: npt.NDArray[np.float64] | None = None,
    device: Any = None,
) -> Any:
    """Return the rows of counts: one per setting and outcome."""
    q = settings.shape[1]
    tables: list[Any] = []
    for j in range(q):
        effects = bases.effects
        if readout is not None and not np.array_equal(readout[j], np.eye(len(readout[j]))):
            effects = np.einsum("po,soab->spab", readout[j], effects)
        elif bases.is_pauli:
            tables.append("pauli")
            continue
        tables.append(effects)
    return product_povm(tables, settings, device=device)


def order_of(bases: Bases, q: int) -> int:
    """Return the order of the density matrices."""
    return prod((bases.effects.shape[2],) * q)


def read_target(given: Any, n: int, name: str = "target") -> npt.NDArray[np.complex128]:
    """Return a density matrix from it or from a state vector."""
    values = as_numbers(name, given)
    if values.dtype.kind not in "buifc" or values.shape not in ((n,), (n, n)):
        raise ValueError(
            f"{name} must be a state vector ({n},) or a density matrix ({n}, {n}), got shape "
            f"{values.shape}"
        )
    if not np.isfinite(values).all():
        raise ValueError(f"{name} contains NaN or infinity")
    values = values.astype(np.complex128)
    size = float(np.linalg.norm(values)) if values.ndim == 1 else float(np.trace(values).real)
    if abs(size - 1.0) > MAX_UNNORMALIZED:
        what = "norm" if values.ndim == 1 else "trace"
        raise ValueError(f"{name} is not normalized: its {what} is {size:.6g}, not 1")
    if values.ndim == 1:
        values = values / size
        return np.asarray(np.outer(values, values.conj()), np.complex128)
    if np.abs(values - values.conj().T).max() > MAX_UNNORMALIZED:
        raise ValueError(f"{name} is not Hermitian")
    values = 0.5 * (values + values.conj().T) / size
    least = float(np.linalg.eigvalsh(values)[0])
    if least < -MAX_UNNORMALIZED:
        raise ValueError(f"{name} has the negative eigenvalue {least:.2g}: it is no state")
    return values


def pauli_matrix(string: str, q: int) -> npt.NDArray[np.complex128]:
    """Return the matrix of a Pauli string."""
    if len(string) != q or set(string) - set("I" + LETTERS):
        raise ValueError(
            f"{string!r} is no Pauli string of {q} qubits: give {q} of the letters I, X, Y and Z"
        )
    found: npt.NDArray[Any] = np.ones((1, 1), np.complex128)
    for letter in string:
        vectors = EIGENVECTORS.get(letter)
        own = np.eye(2) if vectors is None else vectors.T @ np.diag([1.0, -1.0]) @ vectors.conj()
        found = np.kron(found, own)
    return found
