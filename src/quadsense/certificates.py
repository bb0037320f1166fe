"""Certificates in a file that a checker without this package reads: CERTIFICATE.md, version 1.0.

A claim is written as `quadsense_check` will read it, every number as it is. The vector that proves
it is made better first: lifted until what must be definite is so by a margin, or moved until what
must vanish does so to many more digits than float64 has. What is stated is what the rule of the
checker finds in exact arithmetic, rounded outwards; what that rule refuses is not written.
"""

from __future__ import annotations

import json
import math
import os
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

import quadsense_check as checker
from quadsense.arrays import Vector, to_numpy
from quadsense.core.intervals import Intervals
from quadsense.core.matrix import SensedMatrix
from quadsense.core.question import Question
from quadsense.files.formats import write_text
from quadsense.measurements import Measurements
from quadsense.measurements.column_scaling import framed
from quadsense.preferences import make_question
from quadsense.proofs.exact import CannotCertify, Draft, Fields, below, numbers, prove
from quadsense.result.certificate import Certificate

if TYPE_CHECKING:
    from quadsense.ranges import Interval

OBJECTIVES = ("least_squares", "nearest", "min_trace", "minimax")
"""Preferences whose bounds can be written."""

LOGARITHMIC = ("entropy", "center", "likelihood")
"""Preferences whose bounds version 1.0 of the format does not have."""


# --- the data -----------------------------------------------------------------------------------


def _form(matrix: Any, signs: Any, dtype: Any) -> Fields:
    """Return a linear function of A as it is written."""
    dense = np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix).astype(dtype)
    if signs is None:
        return {"entries": numbers(dense)}
    return {"rank": len(signs), "signs": numbers(signs), "factor": numbers(dense.T)}


def _fields(data: Measurements, psd: bool, size: float | None = None) -> Fields:
    """Return the probes and intervals of measurements, constraints included.

    Parameters
    ----------
    data : Measurements
    psd : bool
    size : float, optional
        Frobenius norm of A, for which equalities are widened to what they count as met within.
    """
    plain, ends = data.plain, data.ends
    assert ends is not None
    is_complex = bool(data.unit_rows.is_complex)
    dtype = np.complex128 if is_complex else np.float64
    rows = to_numpy(plain.rows()).astype(dtype)
    forms = [_form(each.matrix, each.signs, dtype) for each in data.constraints]
    if plain.mix is not None:
        mix = plain.mix.toarray() if sp.issparse(plain.mix) else np.asarray(plain.mix)
        forms = [_form(rows.T[:, w != 0.0], w[w != 0.0], dtype) for w in mix] + forms
        rows = rows[:0]
    conjugate = bool(plain.unit_rows.conjugate and is_complex and plain.mix is None)
    held: Fields = {
        "format": "quadsense-certificate", "version": checker.VERSION, "n": data.n, "m": data.m,
        "complex": is_complex, "conjugate": conjugate, "psd": psd,
        "U": numbers(rows.conj() if conjugate else rows),
    }  # fmt: skip
    if forms:
        held["forms"] = forms
    return held | _intervals(ends if size is None else ends.allowing(size))


def _intervals(ends: Intervals, reading: Vector | None = None, free: Any = False) -> Fields:
    """Return intervals as they are written: readings and tolerances, or ends, without rounding.

    Parameters
    ----------
    ends : Intervals
    reading : ndarray of shape (m,), optional
        Readings of rows whose ends were given outright; infinite where there is none.
    free : ndarray of bool, optional
        Rows that have a reading alone.
    """
    below, above, middle = (to_numpy(x) for x in (ends.below, ends.above, ends.reading))
    even = (below == above) & (middle != 0.0) & np.isfinite(above) & ~np.asarray(free)
    reading = np.full(len(middle), np.inf) if reading is None else reading
    outright = ~even & ~np.asarray(free)
    fields = {
        "b": np.where(even, middle, reading),
        "delta": np.where(even, above, np.inf),
        "lo": np.where(outright, ends.lo, np.inf),
        "hi": np.where(outright, ends.hi, np.inf),
    }
    return {name: numbers(values) for name, values in fields.items() if np.isfinite(values).any()}


def _matrix(matrix: SensedMatrix, psd: bool, is_complex: bool) -> Fields:
    """Return A as it is written: by a factor where it has one, or must be positive semidefinite."""
    signs = None if matrix.signs is None else to_numpy(matrix.signs)
    X = None if matrix.factor is None else to_numpy(matrix.factor)
    if X is None:
        A = to_numpy(matrix.to_dense())
        if not psd:
            return hermitian(A, is_complex)
        values, vectors = np.linalg.eigh(A / 2 + A.conj().T / 2)
        X = vectors * np.sqrt(np.maximum(values, 0.0))
    X = X.astype(np.complex128) if is_complex else X
    held = {"rank": X.shape[1], "factor": numbers(X.T)}
    return held if signs is None or bool((signs > 0).all()) else held | {"signs": numbers(signs)}


def hermitian(A: Any, is_complex: bool) -> Fields:
    """Return the Hermitian part of a matrix as it is written."""
    A = np.asarray(A) / 2 + np.asarray(A).conj().T / 2
    return {"entries": numbers(A.astype(np.complex128) if is_complex else A)}


# --- claims -------------------------------------------------------------------------------------


def fields_of(claim: Certificate, data: Measurements | None, objective: bool) -> Fields:
    """Return the fields of the certificate of a result.

    Parameters
    ----------
    claim : Certificate
    data : Measurements or None
        Those of the solve where the claim does not come with them.
    objective : bool
        Whether the bounds on the objective are the claim, rather than that A meets all.
    """
    given = claim.data if data is None else data
    if given is None:
        raise ValueError("this certificate was read from a file: give data=Measurements(U, b)")
    with np.errstate(all="ignore"):
        return _of_claim(claim.inside, claim.own_data(given, None, {}), objective)


def _of_claim(claim: Certificate, own: Measurements, objective: bool) -> Fields:
    """Return the fields of a claim about these measurements."""
    if objective or claim.kind == "optimal" or (claim.kind == "none" and claim.objective):
        return _of_objective(claim, own)
    if claim.kind not in ("met", "infeasible"):
        raise CannotCertify(f"a claim of kind {claim.kind!r} has no certificate in a file")
    return (_of_fit if claim.kind == "met" else _of_proofs)(claim, own)


def _checked(case: Draft) -> Fields:
    """Return the fields of a claim that the checker accepts; raise for another."""
    try:
        checker.CHECKS[case.claim](case)
    except checker.Unproved as error:
        raise CannotCertify(
            f"the claim does not hold by its own rule, nothing is written: {error}"
        ) from None
    return case.held


def _of_fit(claim: Certificate, data: Measurements) -> Fields:
    """Return the fields of the claim that A meets every interval."""
    data = data.set_aside(claim.set_aside) if claim.set_aside.size else data
    held = _fields(data, claim.psd, claim.matrix.norm()) | {"claim": "met"}
    held["A"] = _matrix(claim.matrix, claim.psd, held["complex"])
    return _checked(Draft(held))


def _of_proofs(claim: Certificate, data: Measurements) -> Fields:
    """Return the fields of the claim that nothing fits."""
    assert claim.dual is not None
    data = data.only_hard() if claim.hard else data
    held = _fields(data, claim.psd) | {"claim": "infeasible"}
    question = make_within(data, claim.psd)
    several = claim.dual.ndim == 2 or claim.allowed > 0
    if several and data.mix is not None:
        raise CannotCertify("sums over rows that may be left out have no certificate in a file")
    proofs = []
    for dual in np.atleast_2d(claim.dual):
        proof = dual if claim.psd else -dual
        zeros = data.contradictions()
        if zeros.size and np.any(dual[zeros] != 0.0):
            row = zeros[dual[zeros] != 0.0][:1]
            proof = np.zeros(data.m)
            proof[row] = np.where(question.hi[row] < 0.0, 1.0, -1.0)
        if several:  # each must be a proof by its own rows
            others = np.flatnonzero(proof[: data.measured] == 0.0)
            alone = Draft(held | _fields(data.set_aside(others), claim.psd))
            prove(alone, question, proof, size=claim.matrix.norm(), alone=True)
            proofs.append(alone.held["y"])
            for name, worse in (("norm", min), ("shift", max)):
                if name in alone.held:
                    held[name] = worse(held.get(name, alone.held[name]), alone.held[name])
        else:
            prove(Draft(held), question, proof, size=claim.matrix.norm())
    if not several:
        return held
    return _checked(Draft(held | {"proofs": proofs, "allowed": claim.allowed}))


def make_within(data: Measurements, psd: bool, C: Any = 0.0) -> Question:
    """Return the question of the least ``<C, A>`` within the intervals."""
    ends, nothing = data.ends, np.zeros(data.m)
    assert ends is not None
    return Question("within", ends.lo, ends.hi, nothing, nothing, nothing > 0.0, C, psd=psd)


def _of_objective(claim: Certificate, data: Measurements) -> Fields:
    """Return the fields of bounds on the optimum."""
    stated = claim.objective
    name = "minimax" if claim.kind == "optimal" else "nothing"
    name = name if stated is None else stated.preference.name
    target = stated is not None and stated.preference.target
    if name not in OBJECTIVES:
        refused = f"bounds on what prefer={name!r} minimizes have no certificate in a file"
        if name in LOGARITHMIC:
            refused += f": they have logarithms, which version {checker.VERSION} does not"
        raise CannotCertify(refused)
    data = data if target else data.without_tolerance()
    data = data.set_aside(claim.set_aside) if claim.set_aside.size else data
    size = claim.matrix.norm()
    held = _fields(data, claim.psd, size) | {"claim": name}
    dual = claim.dual if stated is None else stated.dual
    if dual is None or (stated is not None and name != "min_trace" and stated.lower <= 0.0):
        dual = np.zeros(data.m)  # it proves that squares, distances and ratios are not negative
    if stated is None:
        question, dual = make_within(data, claim.psd), dual if claim.psd else -dual
    else:
        found = make_question(data, stated.preference, strict=True)
        assert found is not None
        question = found
    assert data.ends is not None
    ends = data.ends.allowing(size)
    if name == "minimax":
        _as_ratios(held, ends, data.hard, centered=stated is not None)
    else:
        _as_squares(held, ends, question)
    zero = to_numpy(data.unit_rows.norms) == 0.0
    dual = np.where(zero, question.slopes_at_zero, dual)
    held["A"] = _matrix(claim.matrix, claim.psd, held["complex"])
    lower = claim.lower_bound if stated is None else stated.lower
    return _with_bounds(Draft(held), question, dual, size, lower)


def _as_ratios(held: Fields, ends: Intervals, hard: Any, centered: bool) -> None:
    """Make the readings those about which errors are counted, and tolerances their units."""
    soft = ~hard & ends.two_sided
    held["b"] = numbers(np.where(soft, ends.middle() if centered else ends.reading, np.inf))
    held["delta"] = numbers(np.where(soft, ends.unit, np.inf))
    held["lo"] = numbers(np.where(soft, np.inf, ends.lo))
    held["hi"] = numbers(np.where(soft, np.inf, ends.hi))


def _as_squares(held: Fields, ends: Intervals, question: Question) -> None:
    """Add weights, readings, the ridge and the prior of a question."""
    if question.term.squares:
        counted = question.weights > 0.0
        for name in ("b", "delta", "lo", "hi"):
            held.pop(name, None)
        free = ~np.isfinite(question.lo) & ~np.isfinite(question.hi)
        held |= _intervals(ends, np.where(counted, question.reading, np.inf), free)
        held["weights"] = numbers(np.where(counted, question.weights, np.inf))
        if question.alpha:
            held["ridge"] = question.alpha
    prior = question.prior
    if question.alpha and not (isinstance(prior, float) and prior == 0.0):
        P = prior * np.eye(held["n"]) if isinstance(prior, float) else prior
        held["prior"] = hermitian(P, held["complex"])


def _with_bounds(
    case: Draft, question: Question, dual: Vector, size: float, stated: float
) -> Fields:
    """Return the fields with both bounds, as far as they are shown.

    Parameters
    ----------
    case : Case
        The claim so far.
    question : Question
    dual : ndarray of shape (m,)
    size : float
        Frobenius norm of A.
    stated : float
        The lower bound of the result.
    """
    held, minimax, level = case.held, case.claim == "minimax", Fraction(max(stated, 0.0))
    try:
        cost = _largest_ratio(case) if minimax else case.answer()[0]
        held["upper"] = -below(-cost)
        if minimax:
            case.t = Fraction(held["upper"])
            case.answer()
        level = Fraction(held["upper"])
    except checker.Unproved:  # A is not one of those that are compared
        for name in ("A", "upper"):
            held.pop(name, None)
    if minimax:
        case.t = Fraction(max(stated, 0.0))
    found = prove(case, question, dual, size=size, level=level)
    lower = _least_ratio(case, found) if minimax else below(found)
    if lower < 0.0 and case.claim != "min_trace":  # y = 0 proves that nothing is below 0
        lower, held["y"] = 0.0, [0] * case.m
        held.pop("cone", None)
    held["lower"] = min(lower, held.get("upper", lower))
    return held


def _largest_ratio(case: Draft) -> Fraction:
    """Return the largest error of A in units of delta."""
    reads = zip(case.readings(case.matrix(case.held["A"])), case.b, case.delta, strict=True)
    return max((abs(v - b) / d for v, b, d in reads if b is not None and d), default=checker.ZERO)


def _least_ratio(case: Draft, found: Fraction) -> float:
    """Return a ratio within which y shows that there is no A: near that at which it proves 0.

    Parameters
    ----------
    case : Case
    found : Fraction
        What y proves at the present ratio.
    """
    y, t = case.array(case.held["y"], case.m), float(case.t)
    mass = sum((abs(v or 0) * (d or 0) for v, d in zip(y, case.delta, strict=True)), checker.ZERO)
    if found <= 0 and mass:
        t = math.nextafter(below(case.t + found / mass), -math.inf)
        case.t = Fraction(max(t, 0.0))
        found = case.bound(case.held["y"], level=case.t)
    return t if found > 0 else 0.0


def fields_of_range(found: Interval, data: Measurements) -> Fields:
    """Return the fields of the certificate of a range of ``<C, A>``.

    Parameters
    ----------
    found : Interval
    data : Measurements
        With tolerances, and with the constraints that the range is over.
    """
    if found.columns is not None:
        data, found = framed(data, found.columns), found.stretched(-found.columns)
    data = data.set_aside(found.set_aside) if found.set_aside.size else data
    held = _fields(data, found.psd) | {"claim": "interval"}
    C = np.asarray(found.C)
    held["C"] = hermitian(C, held["complex"])
    case = Draft(held)
    for name, sign in (("lower", 1), ("upper", -1)):
        dual, fit = getattr(found, f"{name}_dual"), getattr(found, f"{name}_fit")
        if dual is not None:
            size = 1.0 if fit is None else float(np.linalg.norm(fit))
            question = make_within(data, found.psd, sign * C)
            held[name] = sign * below(prove(case, question, np.asarray(dual), sign, size))
    if not {"lower", "upper"} & held.keys():
        raise CannotCertify("neither end of the range is proved to be finite")
    if held.get("lower", -math.inf) > held.get("upper", math.inf):
        raise CannotCertify("the range is empty: nothing fits")
    return held


def write(path: str | os.PathLike[str], held: Fields) -> None:
    """Write the fields of a certificate, which the checker has accepted."""
    write_text(path, json.dumps(held, indent=1, allow_nan=False))
