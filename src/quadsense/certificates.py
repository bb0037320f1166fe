"""Certificates in a file that a checker without this package reads: CERTIFICATE.md, version 1.0.

A claim is written as `quadsense_check` will read it, every number as it is. The vector that proves
it is made better first: lifted until what must be definite is so by a margin, or moved until what
must vanish does so to many more digits than float64 has. What is stated is what the rule of the
checker finds, rounded outwards; what that rule refuses is not written.
"""

from __future__ import annotations

import base64
import json
import math
import os
import sys
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp

import quadsense_check as checker
from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.intervals import EPS
from quadsense.core.matrix import SensedMatrix
from quadsense.core.question import Question
from quadsense.files.formats import write_text
from quadsense.measurements import Measurements
from quadsense.measurements.column_scaling import framed
from quadsense.preferences import make_question
from quadsense.proofs.costs import permitted
from quadsense.result.certificate import Certificate

if TYPE_CHECKING:
    from quadsense.ranges import Interval

Fields = dict[str, Any]

SHORT = 2**10
"""Numbers up to which an array is written as a list."""

MARGINS = (2.0**-46, math.sqrt(EPS))
"""Parts of its diagonal by which a matrix is lifted until it is shown to be definite."""

MOST_SPARE = math.sqrt(EPS)
"""How far an entry of y that is 0 may be moved, in units of the largest."""

REFINEMENTS = 2
"""Rounds in which what must vanish is moved towards 0; each has about 15 digits more."""

MOST_FEATURES = 2**24
"""Numbers in the map of the rows up to which y is refined."""

MOST_SEEN = 2**8
"""Unknowns up to which it is shown that the rows see all of A, which takes a checker seconds."""

ROOM = 2.0**20
"""Norm up to which a claim is made, in units of that of A, where none is proved."""

OBJECTIVES = ("least_squares", "nearest", "min_trace", "minimax")
"""Preferences whose bounds can be written."""


class CannotCertify(ValueError):
    """Raised where a claim is not one that the format has, or its rule does not show it."""


# --- the data -----------------------------------------------------------------------------------


def _numbers(values: Any) -> Any:
    """Return an array as it is written: infinite where there is no number."""
    flat = np.ascontiguousarray(values)
    if np.iscomplexobj(flat):
        flat = flat.view(np.float64)
    flat = flat.astype("<f8").reshape(-1)
    if flat.size <= SHORT:
        return [value if math.isfinite(value) else None for value in flat.tolist()]
    return {"base64": base64.b64encode(flat.tobytes()).decode("ascii")}


def _form(matrix: Any, signs: Any, dtype: Any) -> Fields:
    """Return a linear function of A as it is written."""
    dense = np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix).astype(dtype)
    if signs is None:
        return {"C": _numbers(dense)}
    return {"rank": len(signs), "signs": _numbers(signs), "factor": _numbers(dense.T)}


def _fields(data: Measurements, psd: bool) -> Fields:
    """Return the probes and intervals of measurements, constraints included."""
    plain = data.plain
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
        "U": _numbers(rows.conj() if conjugate else rows),
    }  # fmt: skip
    if forms:
        held["forms"] = forms
    return held | _intervals(data)


def _intervals(data: Measurements, reading: Vector | None = None, free: Any = False) -> Fields:
    """Return intervals as they are written: readings and tolerances, or ends, without rounding.

    Parameters
    ----------
    data : Measurements
    reading : ndarray of shape (m,), optional
        Readings of rows whose ends were given outright; infinite where there is none.
    free : ndarray of bool, optional
        Rows that have a reading alone.
    """
    ends = data.ends
    assert ends is not None
    below, above, middle = (to_numpy(x) for x in (ends.below, ends.above, ends.reading))
    even = (below == above) & (middle != 0.0) & np.isfinite(above) & ~np.asarray(free)
    reading = np.full(data.m, np.inf) if reading is None else reading
    outright = ~even & ~np.asarray(free)
    fields = {
        "b": np.where(even, middle, reading),
        "delta": np.where(even, above, np.inf),
        "lo": np.where(outright, ends.lo, np.inf),
        "hi": np.where(outright, ends.hi, np.inf),
    }
    return {name: _numbers(values) for name, values in fields.items() if np.isfinite(values).any()}


def _matrix(matrix: SensedMatrix, psd: bool, is_complex: bool) -> Fields:
    """Return A as it is written: by a factor where it has one, or must be positive semidefinite."""
    signs = None if matrix.signs is None else to_numpy(matrix.signs)
    X = None if matrix.factor is None else to_numpy(matrix.factor)
    if X is None:
        A = to_numpy(matrix.to_dense())
        A = A / 2 + A.conj().T / 2
        if not psd:
            return {"A": _numbers(A.astype(np.complex128) if is_complex else A)}
        values, vectors = np.linalg.eigh(A)
        X = vectors * np.sqrt(np.maximum(values, 0.0))
    X = X.astype(np.complex128) if is_complex else X
    held = {"rank": X.shape[1], "factor": _numbers(X.T)}
    return held if signs is None or bool((signs > 0).all()) else held | {"signs": _numbers(signs)}


# --- vectors ------------------------------------------------------------------------------------


def _below(value: Fraction) -> float:
    """Return a float that is not above a number."""
    found = float(value)
    return found if Fraction(found) <= value else math.nextafter(found, -math.inf)


def _vector(y: list[Fraction]) -> Any:
    """Return exact numbers as they are written: floats, or integers times a power of two."""
    if all(each.denominator == 1 or Fraction(float(each)) == each for each in y):
        return _numbers(np.array([float(each) for each in y]))
    whole, power = checker.aligned([checker.parts(each) for each in y])
    return {"integers": whole, "exponent": power}


def _dense(T: checker.Matrix, n: int) -> Array:
    """Return about an exact matrix, n by n."""
    top = checker.bits(T[0])
    cut = max(top - 2 * checker.FACTOR_BITS, 0)
    S = np.array([[float(x >> cut) for x in row] for row in T[0]])
    S = np.ldexp(S, cut + T[1])
    return S if len(S) == n else S[:n, :n] + 1j * S[n:, :n]


def _features(case: checker.Case) -> Array:
    """Return about the map of rows and forms, (m, N), in coordinates that keep the norm of A."""
    n, rows = case.n, [np.ldexp(np.array(x, float), power) for x, power in case.rows]
    U = np.array(rows).reshape(len(rows), case.size)
    U = U[:, :n] + 1j * U[:, n:] if case.is_complex else U
    i, j = np.triu_indices(n)
    factor = np.where(i == j, 1.0, math.sqrt(2.0))
    parts = U[:, i] * U[:, j].conj() * factor
    if case.forms:
        C = np.array([_dense(C, n) for C in case.C_of_forms])
        parts = np.concatenate([parts, C[:, i, j] * factor])
    return np.hstack([parts.real, parts.imag[:, i != j]]) if case.is_complex else parts


def _coordinates(T: Array) -> Vector:
    """Return a Hermitian matrix in these coordinates."""
    i, j = np.triu_indices(len(T))
    parts = T[i, j] * np.where(i == j, 1.0, math.sqrt(2.0))
    return np.concatenate([parts.real, parts.imag[i != j]]) if np.iscomplexobj(T) else parts


def _left(case: checker.Case, y: list[Fraction], sign: int) -> checker.Matrix:
    """Return ``C + F*(y)``, exactly."""
    T = case.adjoint(y)
    return T if case.C is None else checker.plus(T, Fraction(sign), case.C)


def _refined(case: checker.Case, y: list[Fraction], sign: int) -> Iterator[list[Fraction]]:
    """Yield y, and vectors near it that leave less and less of ``C + F*(y)``."""
    yield y
    if len(y) * case.size**2 > MOST_FEATURES:
        return
    H = _features(case)
    masses = np.sqrt((H * H).sum(axis=1))
    heavy = np.abs(np.array([float(each) for each in y])) * masses
    spare = np.array(
        [a is not None and b is not None for a, b in zip(case.lo, case.hi, strict=True)]
    )
    spare |= np.array([i in case.squares or i in case.soft for i in range(case.m)])
    if not np.isfinite(heavy).all():
        return
    weights = np.where(masses > 0.0, heavy + spare * MOST_SPARE * heavy.max(initial=0.0), 0.0)
    scale = np.divide(weights, masses, out=np.zeros_like(masses), where=masses > 0.0)
    for _ in range(REFINEMENTS):
        T = _left(case, y, sign)
        if not any(map(any, T[0])):
            return
        size = checker.bits(T[0]) + T[1]
        left = _coordinates(_dense((T[0], T[1] - size), case.n))
        map_of_moves = (H * scale[:, None]).T
        if not (np.isfinite(map_of_moves).all() and np.isfinite(left).all()):
            return
        step = sl.lstsq(map_of_moves, -left, lapack_driver="gelsy")[0] * scale
        if not np.isfinite(step).all() or not step.any():
            return
        power = math.frexp(float(np.abs(step).max()))[1] - checker.FACTOR_BITS
        digits = np.rint(np.ldexp(step, -power)).tolist()
        y = [a + checker.dyadic(int(d), power + size) for a, d in zip(y, digits, strict=True)]
        yield y


def _directions(case: checker.Case) -> Iterator[Vector]:
    """Yield vectors that no missing end forbids and whose ``F*`` may be positive definite."""
    above = np.array([
        case.hi[i] is not None or i in case.squares or i in case.soft for i in range(case.m)
    ])  # fmt: skip
    rows = len(case.rows)
    if rows:
        squares = np.array([float(sum(v * v for v in x)) * 4.0**power for x, power in case.rows])
        each = np.divide(above[:rows], squares, out=np.zeros(rows), where=squares > 0.0)
        yield np.append(each, np.zeros(case.m - rows))
    for i in range(rows, case.m):
        values = np.linalg.eigvalsh(_dense(case.C_of_forms[i - rows], case.n))
        if above[i] and values[0] > 0.0:
            yield np.where(np.arange(case.m) == i, 1.0 / values[-1], 0.0)
    if case.m > rows:
        ends = [np.linalg.eigvalsh(_dense(C, case.n))[[0, -1]] for C in case.C_of_forms]
        positive = [least > -EPS * case.n * most for least, most in ends]
        yield np.append(above[:rows], above[rows:] & np.array(positive)).astype(np.float64)


def _lifted(case: checker.Case, y: list[Fraction], sign: int) -> Iterator[list[Fraction]]:
    """Yield y, and vectors near it for which ``C + F*(y)`` is more and more definite."""
    yield y
    T = _dense(_left(case, y, sign), case.n)
    sizes = np.maximum(np.diag(T).real, 0.0)
    below = max(-float(np.linalg.eigvalsh(T)[0]), 0.0) * (1.0 + MARGINS[-1])
    for d in _directions(case):
        D = _dense(case.adjoint([Fraction(float(v)) for v in d]), case.n)
        diagonal, least = np.diag(D).real, float(np.linalg.eigvalsh(D)[0])
        most = float(np.max(np.divide(sizes, diagonal, out=0.0 * sizes, where=diagonal > 0.0)))
        needed = below / least if least > 0.0 else 0.0
        for margin in MARGINS:
            t = Fraction(needed + case.n * margin * most)
            yield [a + t * Fraction(float(v)) for a, v in zip(y, d, strict=True)]
    least = -1.0 if case.C is None else float(np.linalg.eigvalsh(sign * _dense(case.C, case.n))[0])
    if least > 0.0:
        for margin in MARGINS:
            share = Fraction(least / (least + below) * (1.0 - case.n * margin))
            yield [each * share for each in y]


def _cone(case: checker.Case, y: list[Fraction], sign: int) -> Fields:
    """Return the part of ``F*(y)`` that a positive semidefinite A makes superfluous."""
    T, P = (_dense(each, case.n) for each in (_left(case, y, sign), case.prior()))
    values, vectors = np.linalg.eigh(T - 2.0 * float(case.alpha) * P)
    Z = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, values > 0.0]
    return {"rank": Z.shape[1], "factor": _numbers(Z.T)}


def _prove(
    held: Fields,
    question: Question,
    dual: Vector,
    sign: int = 1,
    size: float = 1.0,
    *,
    alone: bool = False,
) -> Fraction:
    """Add to the fields the vector that proves the claim, and return what it proves.

    Parameters
    ----------
    held : dict
        The fields of the claim so far.
    question : Question
        What the vector is about.
    dual : ndarray of shape (m,)
    sign : {1, -1}
        -1 for the upper end of an interval.
    size : float
        Frobenius norm of A, where one is known.
    alone : bool
        Whether rows may be left out, so that all of them together bound nothing.
    """
    case = checker.Case(held, ".")
    start = [Fraction(float(each)) for each in permitted(question, dual)]
    upper = None if held["claim"] == "interval" else case.number("upper")
    if case.alpha:
        ways: Any = [start]
        if case.psd:
            held["cone"] = _cone(case, start, sign)
    elif case.psd:
        ways = _lifted(case, start, sign)
    else:
        ways = list(_refined(case, start, sign))[::-1]
        held |= {} if alone else _sees_all(case)
    found = _first(case, ways, sign, upper)
    if found is None and not case.alpha:
        nearest = start if case.psd else ways[0]
        held |= _condition(case, nearest, sign, size)
        found = _first(case, [nearest], sign, upper)
    if found is None:
        raise CannotCertify("the rule of the claim does not show it: nothing is written")
    held["y" if sign == 1 else "y_upper"] = _vector(found[0])
    return found[1]


def _first(
    case: checker.Case, ways: Any, sign: int, upper: Fraction | None
) -> tuple[list[Fraction], Fraction] | None:
    """Return the first vector that proves something, and what."""
    for y in ways:
        try:
            value, _ = checker.bound(case, _vector(y), sign, upper)
        except checker.Unproved:
            continue
        if case.claim != "infeasible" or value > 0:
            return y, value
    return None


def _condition(case: checker.Case, y: list[Fraction], sign: int, size: float) -> Fields:
    """Return what a claim takes for granted that holds up to a norm (a trace) of A alone."""
    T = _left(case, y, sign)
    if case.psd:
        values = np.linalg.eigvalsh(_dense(T, case.n))
        shift = 2.0 * max(-values[0], 0.0) + case.n * MARGINS[0] * float(np.abs(values).max())
        left, norm = Fraction(shift), ROOM * case.n * size
    else:
        shift, left, norm = 0.0, checker.root(case.inner(T, T)), ROOM * size
    try:
        margin = -checker.conjugates(case, y)
    except checker.Unproved:
        return {}
    if case.claim == "infeasible" and left and margin > 0:
        norm = _below(min(margin / left / 2, Fraction(sys.float_info.max)))
    return {"norm": float(norm)} | ({"shift": float(shift)} if shift else {})


def _sees_all(case: checker.Case) -> Fields:
    """Return what shows that the rows see all of A, where they do and are few."""
    unknowns = case.n**2 if case.is_complex else case.n * (case.n + 1) // 2
    if unknowns > MOST_SEEN or len(case.rows) < unknowns:
        return {}
    two = [
        (case.lo[i] is not None and case.hi[i] is not None) or i in case.soft or i in case.squares
        for i in range(len(case.rows))
    ]
    H = _features(case)[: len(case.rows)]
    sizes = np.sqrt((H * H).sum(axis=1))
    used = np.array(two) & (sizes > 0.0)
    if used.sum() < unknowns:
        return {}
    scales = np.where(used, -np.frexp(np.where(used, sizes, 1.0))[1], 0)
    least = float(np.linalg.svd(np.ldexp(H, scales[:, None])[used], compute_uv=False)[-1])
    sigma = least / 2.0
    listed = [int(s) if u else None for s, u in zip(scales, used, strict=True)]
    seen = [(i, s) for i, s in enumerate(listed) if s is not None]
    shown = sigma > 0.0 and checker.sees_all(case, seen, Fraction(sigma))
    return {"sigma": sigma, "scales": listed} if shown else {}


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


def _of_fit(claim: Certificate, data: Measurements) -> Fields:
    """Return the fields of the claim that A meets every interval."""
    held = _fields(data, claim.psd) | {"claim": "met"}
    held |= _matrix(claim.matrix, claim.psd, held["complex"])
    if claim.set_aside.size:
        held |= {"set_aside": claim.set_aside.tolist(), "allowed": claim.allowed}
    return held | _rooms(claim.matrix, data)


def _rooms(matrix: SensedMatrix, data: Measurements) -> Fields:
    """Return what equalities are met within."""
    if data.ends is None or data.ends.allowance is None:
        return {}
    room = np.where(data.ends.exact, data.ends.allowance * matrix.norm(), np.inf)
    return {"room": _numbers(room)}


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
            alone = held | _fields(data.set_aside(others), claim.psd)
            _prove(alone, question, proof, size=claim.matrix.norm(), alone=True)
            proofs.append(alone["y"])
            for name, worse in (("norm", min), ("shift", max)):
                if name in alone:
                    held[name] = worse(held.get(name, alone[name]), alone[name])
        else:
            _prove(held, question, proof, size=claim.matrix.norm())
    return held | {"proofs": proofs, "allowed": claim.allowed} if several else held


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
        which = ", ".join(OBJECTIVES)
        raise CannotCertify(f"there is a certificate in a file of {which} alone, not of {name!r}")
    data = data if target else data.without_tolerance()
    data = data.set_aside(claim.set_aside) if claim.set_aside.size else data
    held = _fields(data, claim.psd) | {"claim": name}
    dual = claim.dual if stated is None else stated.dual
    if dual is None or (stated is not None and name != "min_trace" and stated.lower <= 0.0):
        dual = np.zeros(data.m)  # it proves that squares, distances and ratios are not negative
    if stated is None:
        question, dual = make_within(data, claim.psd), dual if claim.psd else -dual
    else:
        found = make_question(data, stated.preference, strict=True)
        assert found is not None
        question = found
    if name == "minimax":
        _as_ratios(held, data, question if stated is not None else None)
    else:
        _as_squares(held, data, question)
    zero = to_numpy(data.unit_rows.norms) == 0.0
    dual = np.where(zero, question.slopes_at_zero, dual)
    held |= _matrix(claim.matrix, claim.psd, held["complex"]) | _rooms(claim.matrix, data)
    return _with_bounds(held, question, dual, claim.matrix.norm())


def _as_ratios(held: Fields, data: Measurements, question: Question | None) -> None:
    """Make the readings those about which errors are counted, and tolerances their units."""
    assert data.ends is not None
    ends, hard = data.ends, data.hard
    middle = ends.middle() if question is not None else ends.reading
    soft = ~hard & ends.two_sided
    held["b"] = _numbers(np.where(soft, middle, np.inf))
    held["delta"] = _numbers(np.where(soft, ends.unit, np.inf))
    held["lo"] = _numbers(np.where(soft, np.inf, ends.lo))
    held["hi"] = _numbers(np.where(soft, np.inf, ends.hi))


def _as_squares(held: Fields, data: Measurements, question: Question) -> None:
    """Add weights, readings, the ridge and the prior of a question."""
    if question.term.squares:
        counted = question.weights > 0.0
        for name in ("b", "delta", "lo", "hi"):
            held.pop(name, None)
        free = ~np.isfinite(question.lo) & ~np.isfinite(question.hi)
        held |= _intervals(data, np.where(counted, question.reading, np.inf), free)
        held["weights"] = _numbers(np.where(counted, question.weights, np.inf))
    if question.alpha and question.term.squares:
        held["ridge"] = question.alpha
    if question.alpha:
        prior = question.prior
        held["prior"] = prior
        if not isinstance(prior, float):
            prior = np.asarray(prior) / 2 + np.asarray(prior).conj().T / 2
            held["prior"] = _numbers(prior.astype(np.complex128) if held["complex"] else prior)


def _with_bounds(held: Fields, question: Question, dual: Vector, size: float) -> Fields:
    """Return the fields with both bounds, as far as they are shown."""
    case = checker.Case(held, ".")
    distance = held["claim"] == "nearest"
    try:
        cost = checker.answer(case)[1]
        cost = checker.root(cost) if distance else cost
        held["upper"] = -_below(-cost)
    except checker.Unproved:  # A is not one of those that are compared
        for name in ("A", "factor", "rank", "signs"):
            held.pop(name, None)
    found = _prove(held, question, dual, size=size)
    y = case.numbers("y", held["y"], case.m)
    mass = sum((abs(y[i]) * case.delta[i] for i in case.soft), Fraction(0))
    if case.soft:
        found = -checker.up(-found / mass) if mass else Fraction(0)
    if case.C is None:
        found = max(found, Fraction(0))  # of a sum of squares, a distance, a ratio
    if distance:
        lower = _below(checker.root(found))
        while Fraction(lower) ** 2 > found:
            lower = math.nextafter(lower, -math.inf)
    else:
        lower = _below(found)
    held["lower"] = min(lower, held.get("upper", lower))
    return held


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
    held["C"] = _numbers(C.astype(np.complex128) if held["complex"] else C)
    for name, sign in (("lower", 1), ("upper", -1)):
        dual, fit = getattr(found, f"{name}_dual"), getattr(found, f"{name}_fit")
        if dual is not None:
            size = 1.0 if fit is None else float(np.linalg.norm(fit))
            question = make_within(data, found.psd, sign * C)
            held[name] = sign * _below(_prove(held, question, np.asarray(dual), sign, size))
    if not {"lower", "upper"} & held.keys():
        raise CannotCertify("neither end of the range is proved to be finite")
    return held


def write(path: str | os.PathLike[str], held: Fields) -> None:
    """Write a certificate, if it is true; nothing is left of a file that is not complete."""
    true, words = checker.check(held)
    if not true:
        raise CannotCertify(f"the claim does not hold by its own rule, nothing is written: {words}")
    write_text(path, json.dumps(held, indent=1, allow_nan=False))
