"""Expectation values: readings ``tr(P_k A)`` of Hermitian matrices or Pauli strings P_k."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from quadsense.arrays import to_numpy
from quadsense.measurements.arrays import Dense
from quadsense.measurements.probes import Probes
from quadsense.probes.kronecker import Kronecker
from quadsense.typing import MatrixLike, to_list

MIN_RELATIVE_EIGENVALUE = 1e-14
"""Eigenvalues of a matrix below this share of the largest count as 0."""

MAX_ASYMMETRY = 1e-10
"""Largest ``||P - P*||`` as a share of ``||P||``."""

_X = np.sqrt(0.5) * np.array([[1.0, 1.0], [1.0, -1.0]])
EIGENVECTORS = {
    "X": _X,
    "Y": _X * np.array([1.0, 1.0j]),
    "Z": np.eye(2),
}
"""For each Pauli matrix its eigenvectors of eigenvalue 1 and -1, one per row."""


def observables(observables: Sequence[str] | Iterable[MatrixLike]) -> Probes:
    """Return rows for readings that are expectation values ``tr(P_k A)``.

    Each P_k is a sum of rank-one terms, its eigenvectors. The rows are these, each used once per
    basis of product states for Pauli strings, and the sums come with them: do not give `mix`.

    Parameters
    ----------
    observables : sequence of str, or of arrays of shape (n, n)
        Pauli strings such as "XZI", all of one length q (n is then 2^q; the first letter belongs
        to the first factor of the Kronecker product), or real symmetric or Hermitian matrices.

    Returns
    -------
    Probes
        One reading per observable; to be given to `quadsense.solve`, `Measurements` and others in
        place of U. Its `mix` has the sums.

    Examples
    --------
    >>> import numpy as np, quadsense
    >>> U = quadsense.probes.observables(["XX", "ZZ", "YY", "ZI", "IZ"])
    >>> state = quadsense.solve(U, [1, 1, -1, 0, 0], delta=1e-6, psd=True, trace=1)
    >>> bell = np.array([1, 0, 0, 1]) / np.sqrt(2)
    >>> bool(bell @ state.A.real @ bell > 0.9999)
    True
    """
    if isinstance(observables, str):
        raise ValueError(
            f"observables must be a list, got the string {observables!r}: give [{observables!r}]"
        )
    given = to_list("observables", observables, "Pauli strings or matrices (n, n)")
    if not given:
        raise ValueError("observables is empty: there must be at least one")
    if all(isinstance(each, str) for each in given):
        return _pauli(given)
    for k, each in enumerate(given):
        if isinstance(each, str):
            raise ValueError(
                f"observables[{k}] is the string {each!r}, but others are matrices: give one kind"
            )
    return _of_matrices(given)


# --- Pauli strings ---------------------------------------------------------------------------


def _pauli(strings: list[str]) -> Probes:
    """Return the product states of as few bases as a greedy choice needs, and parities as sums."""
    q = len(strings[0])
    for k, string in enumerate(strings):
        if not string or set(string) - set("IXYZ"):
            raise ValueError(
                f"observables[{k}] is {string!r}, but a Pauli string has the letters I, X, Y and Z"
            )
        if len(string) != q:
            raise ValueError(
                f"observables[{k}] = {string!r} has {len(string)} letters, but observables[0] has "
                f"{q}: all must be of one length"
            )
    bases, basis_of = _bases(strings)
    outcomes = np.array(list(product((0, 1), repeat=q)), dtype=np.intp)
    count = len(outcomes)
    factors = []
    for j in range(q):
        vectors = np.array([EIGENVECTORS[basis[j]] for basis in bases])
        factors.append(vectors[:, outcomes[:, j]].reshape(-1, 2))
    if not any(np.iscomplexobj(each) and np.any(each.imag) for each in factors):
        factors = [each.real for each in factors]
    signs = 1.0 - 2.0 * outcomes
    parities = np.array([
        np.prod(signs[:, [letter != "I" for letter in string]], axis=1) for string in strings
    ])  # fmt: skip
    starts = count * np.array(basis_of)[:, None] + np.arange(count)
    ends = count * np.arange(len(strings) + 1)
    mix = sp.csr_array(
        (parities.ravel(), starts.ravel(), ends), shape=(len(strings), count * len(bases))
    )
    rows = Kronecker([np.ascontiguousarray(each) for each in factors])
    rows.mix = mix
    return rows


def _bases(strings: list[str]) -> tuple[list[str], list[int]]:
    """Return bases that agree with every string where it is not I, and the basis of each string.

    Strings of few I come first, so that those of many find a basis that is there already.
    """
    bases: list[list[str]] = []
    basis_of = [0] * len(strings)
    known: dict[str, int] = {}
    for k in sorted(range(len(strings)), key=lambda k: strings[k].count("I")):
        string = strings[k]
        if string not in known:
            number = next((j for j, basis in enumerate(bases) if _agree(string, basis)), len(bases))
            if number == len(bases):
                bases.append(["I"] * len(string))
            basis = bases[number]
            bases[number] = [b if a == "I" else a for a, b in zip(string, basis, strict=True)]
            known[string] = number
        basis_of[k] = known[string]
    return ["".join(basis).replace("I", "Z") for basis in bases], basis_of


def _agree(string: str, basis: list[str]) -> bool:
    """Return whether a string can be measured in that basis."""
    return all("I" in pair or pair[0] == pair[1] for pair in zip(string, basis, strict=True))


# --- matrices --------------------------------------------------------------------------------


def _of_matrices(given: list[Any]) -> Probes:
    """Return eigenvectors as rows, eigenvalues as weights of the sums."""
    vectors, weights, counts = [], [], [0]
    order = None
    for k, each in enumerate(given):
        P = _checked(k, each, order)
        order = len(P)
        values, basis = np.linalg.eigh(P)
        keep = np.abs(values) > MIN_RELATIVE_EIGENVALUE * np.abs(values).max(initial=0.0)
        vectors.append(basis[:, keep].T)
        weights.append(values[keep])
        counts.append(counts[-1] + int(keep.sum()))
    if counts[-1] == 0:
        raise ValueError("all observables are 0: they say nothing of A")
    rows = np.concatenate(vectors)
    mix = sp.csr_array(
        (np.concatenate(weights), np.arange(counts[-1]), counts), shape=(len(given), counts[-1])
    )
    probes = Dense(np.ascontiguousarray(rows))
    probes.mix = mix
    return probes


def _checked(k: int, each: Any, order: int | None) -> npt.NDArray[Any]:
    """Return a finite Hermitian matrix of the order of the others."""
    try:
        P = np.asarray(each.toarray() if sp.issparse(each) else to_numpy(each))
    except (TypeError, ValueError):
        P = np.empty(0, dtype=object)
    if P.dtype.kind not in "biufc" or P.ndim != 2 or P.shape[0] != P.shape[1] or not P.size:
        raise ValueError(
            f"observables[{k}] must be a square matrix of numbers or a Pauli string, got "
            f"{type(each).__name__}{f' of shape {P.shape}' if P.ndim else ''}"
        )
    if order is not None and len(P) != order:
        raise ValueError(
            f"observables[{k}] has order {len(P)}, but observables[0] has order {order}"
        )
    P = P.astype(np.complex128 if P.dtype.kind == "c" else np.float64)
    if not np.isfinite(P).all():
        i, j = np.argwhere(~np.isfinite(P))[0]
        raise ValueError(f"observables[{k}][{i}, {j}] is {P[i, j]}: give a finite number")
    size = float(np.linalg.norm(P))
    if float(np.linalg.norm(P - P.conj().T)) > MAX_ASYMMETRY * size:
        raise ValueError(
            f"observables[{k}] is not Hermitian: tr(P A) would not be real; give (P + P*)/2"
        )
    return np.asarray(0.5 * (P + P.conj().T))
