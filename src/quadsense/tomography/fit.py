"""`fit_state`: from counts to a density matrix with error bars."""

from __future__ import annotations

from typing import Any

import numpy as np

from quadsense.arrays import Vector
from quadsense.probes.observables import observables
from quadsense.probes.product_povm import ProductPovm, product_povm
from quadsense.solve import solve
from quadsense.tomography.bases import order_of, probes_of, read_bases, read_readout, read_target
from quadsense.tomography.counts import Expectations, read_counts
from quadsense.tomography.estimate import FITS, StateEstimate
from quadsense.tomography.region import PAULIS, pooled
from quadsense.typing import is_number

GAP = 1e-6
"""Distance of the deviance from its proved bound, relative to it; least squares come closer."""

MAX_LIKELIHOOD_ORDER = 256
"""Order of density matrices up to which the likelihood is the default: a minute for 8 qubits."""

JEFFREYS = 0.5
"""Counts that are added to those of every outcome where their variance is asked for."""

CORNERS = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) / np.linalg.norm([1, 1, 1])
"""Of a tetrahedron."""

TETRAHEDRON = 0.5 * np.array([
    [[np.sqrt(1.0 + z), (x + 1j * y) / np.sqrt(1.0 + z)] for x, y, z in CORNERS]
])  # fmt: skip
"""Vectors of one setting, whose effects are a quarter of I and of the Pauli matrix of a corner."""


def fit_state(
    counts: Any,
    *,
    bases: Any = "pauli",
    shots: Any = None,
    readout: Any = None,
    target: Any = None,
    confidence: float = 0.95,
    prefer: str = "auto",
    bit_order: str = "same",
    device: Any = None,
) -> StateEstimate:
    """Estimate the state of qubits, or of another system, from counts of measurements.

    Parameters
    ----------
    counts : dict, list of dict, array, table
        A dictionary of settings, each with a dictionary of outcomes (or samples, one row per shot):
        ``{"XZ": {"00": 480, "11": 520}, ...}``; outcomes not named were not counted. A list of such
        dictionaries of outcomes, or an array (settings, outcomes), with the settings in `bases`, or
        all of them in the order of `itertools.product`. A data frame with the columns setting,
        outcome, count. Or expectation values of Pauli strings: ``{"XX": .98, "ZI": .02}``.
    bases : "pauli", list of str, dict or array, default="pauli"
        X, Y and Z of qubits, outcome 0 being the eigenvalue 1; the Pauli settings of the rows of an
        array; vectors (outcomes, d) or effects (outcomes, d, d) of each local setting by its
        letter; or vectors (settings, outcomes, n) or effects (settings, outcomes, n, n) of the
        whole system.
    shots : int, list or dict, optional
        Of each setting, where relative frequencies or expectation values are given.
    readout : array of shape (q, 2, 2) or (2, 2), optional
        Probabilities of what is read, ``readout[j][observed, true]``: columns sum to 1.
    target : array of shape (n,) or (n, n), optional
        A state that is named before the counts are seen: its fidelity has a narrower interval.
    confidence : float, default=0.95
        With which all intervals hold at once.
    prefer : {"auto", "likelihood", "least_squares", "weighted"}, default="auto"
        Which estimate: maximum likelihood, least squares with each setting weighted by its shots,
        or with each outcome weighted by the inverse variance of its frequency, half a count added
        to all. The last takes outcomes that never came for nearly impossible: it is the best of
        the three for pure states, and the worst for mixed ones. "auto" is the first for counts of
        up to 8 qubits (order 256), the second for more and for expectation values.
    bit_order : {"same", "reversed"}, default="same"
        Whether the first digit of an outcome belongs to the first letter of the setting, or the
        last, as in Qiskit's results where settings are written from qubit 0 on.
    device : str or torch.device, optional
        Where the steps of the estimate run, for instance ``"cuda"``.

    Returns
    -------
    StateEstimate

    Notes
    -----
    Where all Pauli settings have the same shots and no readout error is given, least squares depend
    on the counts by the means of Pauli strings alone: `result` is then that of the tetrahedral
    measurement with the same means and the same estimate, 4^q readings in place of 6^q.

    Process tomography and classical shadows are no part of this.

    Examples
    --------
    A Bell state, measured in three settings:

    >>> import numpy as np, quadsense
    >>> counts = {
    ...     "XX": {"00": 495, "11": 505},
    ...     "YY": {"01": 493, "10": 507},
    ...     "ZZ": {"00": 511, "11": 489},
    ... }
    >>> bell = np.array([1, 0, 0, 1]) / np.sqrt(2)
    >>> state = quadsense.tomography.fit_state(counts, target=bell)
    >>> fidelity = state.fidelity()
    >>> fidelity.lower > 0.97, fidelity.value > 0.99, fidelity.upper <= 1.0
    (True, True, True)
    """
    if not (is_number(confidence) and 0.0 < confidence < 1.0):
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}")
    if not (isinstance(prefer, str) and prefer in ("auto", *FITS)):
        raise ValueError(f"prefer must be one of auto, {', '.join(FITS)}, got {prefer!r}")
    known = read_bases(bases)
    given = read_counts(counts, known, shots, bit_order)
    expectations = isinstance(given, Expectations)
    q = len(given.strings[0]) if isinstance(given, Expectations) else given.settings.shape[1]
    if expectations and readout is not None:
        raise ValueError("readout goes with counts, not with expectation values")
    errors = read_readout(readout, q, known.effects.shape[1])
    named = None if target is None else read_target(target, order_of(known, q))
    if prefer == "auto":
        small = order_of(known, q) <= MAX_LIKELIHOOD_ORDER
        prefer = "likelihood" if small and not expectations else "least_squares"
    if expectations and prefer in ("likelihood", "weighted"):
        raise ValueError(f"prefer={prefer!r} goes with counts, not with expectation values")
    fit = "likelihood" if prefer == "likelihood" else "least_squares"
    asked: dict[str, Any] = {"psd": True, "trace": 1.0, "prefer": fit}
    if prefer == "likelihood":
        asked["gap"] = GAP
    if isinstance(given, Expectations):
        strings: Any = observables(given.strings)
        result = solve(strings, given.means, weights=given.shots, **asked)
    else:
        rows = probes_of(known, given.settings, errors, device)
        table, shots = given.table / given.shots[:, None], given.shots
        even = known.is_pauli and errors is None and rows.grid.is_even and np.ptp(shots) == 0.0
        if prefer == "least_squares" and even:
            sums, totals = pooled(rows.grid, given.table)
            rows, table, shots = tetrahedral(sums / totals, totals[0], device)
        weights = np.repeat(shots, table.shape[1])
        if prefer == "weighted":
            weights, asked["gap"] = _precisions(given.table), GAP
        result = solve(rows, table.ravel(), weights=weights, **asked)
    return StateEstimate(
        result, given, known, errors, prefer=prefer, confidence=float(confidence),
        target=named,
    )  # fmt: skip


def _precisions(table: Vector) -> Vector:
    """Return inverse variances of frequencies, given the counts and Jeffreys' prior."""
    counts = table + JEFFREYS
    totals = counts.sum(axis=1, keepdims=True)
    means = counts / totals
    return np.asarray((totals + 1.0) / (means - means * means)).ravel()


def tetrahedral(means: Vector, shots: float, device: Any = None) -> tuple[Any, Vector, Vector]:
    """Return rows, readings and their weight, for least squares as of all Pauli settings.

    Where these were measured equally often the sum of squares is, up to a constant, that of the
    means of Pauli strings, and the tetrahedral measurement of each qubit weighs these alike, with
    4^q rows instead of 6^q.

    Parameters
    ----------
    means : ndarray, shape (4^q,)
        Of all strings of I, X, Y and Z in the order of `itertools.product`, that of I first.
    shots : float
        Of all settings together.
    device : str or torch.device, optional
        See `product_povm`.
    """
    q = round(np.log2(len(means))) // 2
    rows = product_povm([TETRAHEDRON] * q, device=device)
    assert isinstance(rows, ProductPovm)
    reads = np.array([[np.vdot(t, P @ t).real for P in PAULIS] for t in TETRAHEDRON[0]])
    found = rows.grid.expanded(means[:, None], [reads[None] / 2.0] * q)
    return rows, found.T, np.array([shots * 2.0**q])
