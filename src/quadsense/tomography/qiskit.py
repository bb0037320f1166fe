"""A fitter for the state tomography of qiskit-experiments. Nothing of Qiskit is imported."""

from __future__ import annotations

from functools import reduce
from itertools import product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.tomography.bases import LETTERS, MAX_UNNORMALIZED, PAULI_EFFECTS
from quadsense.tomography.estimate import StateEstimate
from quadsense.tomography.fit import fit_state

Effects = npt.NDArray[np.complex128]
"""Effects of one qubit, (settings, outcomes, 2, 2)."""


class QiskitFitter:
    """A callable for qiskit-experiments: ``TomographyAnalysis.set_options(fitter=...)``.

    `qiskit_fitter` is one; make another where the estimates of several fits are to be kept.

    Attributes
    ----------
    estimate : StateEstimate or None
        What the last fit found: intervals, consistency, certificate.

    Notes
    -----
    ``StateTomography(circuit).analysis.set_options(fitter=quadsense.tomography.qiskit_fitter)``;
    `fit_state`'s `prefer`, `confidence` and `target` are `fitter_options`. Measurement bases with
    readout errors serve as they are.
    """

    def __init__(self) -> None:
        self.estimate: StateEstimate | None = None

    def __call__(
        self,
        outcome_data: npt.ArrayLike,
        shot_data: npt.ArrayLike,
        measurement_data: npt.ArrayLike,
        preparation_data: npt.ArrayLike | None = None,
        *,
        measurement_basis: Any = None,
        measurement_qubits: Any = None,
        prefer: str = "auto",
        confidence: float = 0.95,
        target: Any = None,
        **others: Any,
    ) -> tuple[list[npt.NDArray[np.complex128]], dict[str, Any]]:
        """Fit a state.

        Parameters
        ----------
        outcome_data : array of shape (1, settings, outcomes)
            Counts; the first qubit's outcome changes fastest.
        shot_data : array of shape (settings,)
            Not used: counts say it.
        measurement_data : array of int, shape (settings, qubits)
            Settings of the qubits.
        preparation_data : array, optional
            Of process tomography: refused unless it is empty.
        measurement_basis : MeasurementBasis
            Of qiskit-experiments; local ones.
        measurement_qubits : sequence of int, optional
        prefer, confidence, target
            As in `fit_state`.
        **others
            Options of qiskit-experiments. Conditional fits and preparations are refused; `psd` and
            `trace` other than 1 too.

        Returns
        -------
        fits : list of one ndarray
            The density matrix; qubit 0 is the last factor, as in Qiskit.
        metadata : dict
        """
        _refuse(others, preparation_data)
        if measurement_basis is None:
            raise ValueError("qiskit_fitter needs a measurement_basis")
        counts, indices = np.asarray(outcome_data), np.asarray(measurement_data)
        if counts.ndim != 3 or len(counts) != 1:
            raise ValueError(
                f"outcome_data has shape {counts.shape}, but must be (1, settings, outcomes): "
                "conditional fits are no part of qiskit_fitter"
            )
        q = indices.shape[1]
        qubits = tuple(range(q)) if measurement_qubits is None else tuple(measurement_qubits)
        tables = [
            _effects(measurement_basis, indices[:, j], qubit) for j, qubit in enumerate(qubits)
        ]
        asked = {"prefer": prefer, "confidence": confidence, "target": target}
        found = [_as_pauli(table) for table in tables]
        table = counts[0]
        if all(each is not None for each in found):
            letters = [each[0] for each in found if each is not None][::-1]
            readout = np.array([each[1] for each in found if each is not None])[::-1]
            settings = [
                "".join(own[i] for own, i in zip(letters, row[::-1], strict=True))
                for row in indices
            ]
            ideal = bool(np.abs(readout - np.eye(2)).max() <= MAX_UNNORMALIZED)
            given: dict[str, Any] = {"bases": settings, "readout": None if ideal else readout}
        else:
            given = {"bases": _whole(tables, indices), "readout": None}
        state = self.estimate = fit_state(table, **given, **asked)
        result = state.result
        metadata = {
            "fitter": "quadsense.tomography.qiskit_fitter", "prefer": state.prefer,
            "status": str(result.status), "deviance": state.deviance, "trace_constraint": 1,
            "psd_constraint": True,
        }  # fmt: skip
        return [state.rho], metadata


qiskit_fitter = QiskitFitter()
"""The callable for ``analysis.set_options(fitter=quadsense.tomography.qiskit_fitter)``."""


def _refuse(others: dict[str, Any], preparation_data: Any) -> None:
    """Raise a ValueError for what is no state tomography, named."""
    for name in ("conditional_measurement_indices", "conditional_preparation_indices"):
        if others.get(name) is not None and len(others[name]):
            raise ValueError(f"{name}: conditional fits are no part of qiskit_fitter")
    prepared = preparation_data is not None and np.size(preparation_data)
    if prepared or others.get("preparation_basis") is not None:
        raise ValueError(
            "preparation_basis: process tomography is no part of qiskit_fitter, states are"
        )
    if others.get("psd") not in (None, True):
        raise ValueError("psd: qiskit_fitter returns states, which are positive semidefinite")
    if others.get("trace") not in (None, 1, 1.0):
        raise ValueError(f"trace: qiskit_fitter returns states of trace 1, not {others['trace']!r}")


def _effects(basis: Any, indices: npt.NDArray[Any], qubit: int) -> Effects:
    """Return the effects of one qubit."""
    outcomes = prod(basis.outcome_shape((qubit,)))
    return np.array([
        [np.asarray(basis.matrix((i,), o, (qubit,))) for o in range(outcomes)]
        for i in range(int(indices.max()) + 1)
    ])  # fmt: skip


def _as_pauli(effects: Effects) -> tuple[str, npt.NDArray[np.float64]] | None:
    """Return the letters of a qubit's settings and its readout matrix; None for other bases."""
    if effects.shape[1:] != (2, 2, 2):
        return None
    letters, readouts = "", []
    for setting in effects:
        for letter, ideal in zip(LETTERS, PAULI_EFFECTS, strict=True):
            M = np.einsum("oab,tba->ot", setting, ideal).real
            if np.abs(np.einsum("ot,tab->oab", M, ideal) - setting).max() <= MAX_UNNORMALIZED:
                letters += letter
                readouts.append(M)
                break
    same = all(np.abs(M - readouts[0]).max() <= MAX_UNNORMALIZED for M in readouts)
    return (letters, readouts[0]) if len(letters) == len(effects) and same else None


def _whole(tables: list[Effects], indices: npt.NDArray[Any]) -> Effects:
    """Return the effects of all qubits, (settings, outcomes, n, n), qubit 0 the last factor."""
    return np.array([
        [
            reduce(np.kron, parts)
            for parts in product(
                *(table[i] for table, i in zip(tables[::-1], row[::-1], strict=True))
            )
        ]
        for row in indices
    ])  # fmt: skip
