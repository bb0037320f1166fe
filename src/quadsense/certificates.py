"""Certificates in a file that a checker without this package reads: CERTIFICATE.md, version 1.0.

A claim is written as `quadsense_check` will read it, every number as it is. The vector that proves
it is made better first: lifted until what must be definite is so by a margin, or moved until what
must vanish does so to many more digits than float64 has. What is stated is what the rule of the
checker finds in exact arithmetic, rounded outwards; what that rule refuses is not written.
"""

from __future__ import annotations

import base64
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.linalg as sl
import scipy.sparse as sp

import quadsense_check as checker
from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.intervals import EPS, Intervals
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

CORRECTIONS = 2
"""Solves by normal equations for one right-hand side."""

MAX_REST = 1e-10
"""Part of a right-hand side that they may leave."""

MOST_FEATURES = 2**24
"""Numbers in the map of the rows up to which y is refined."""

MOST_SEEN = 2**8
"""Unknowns up to which it is shown that the rows see all of A, which takes a checker seconds."""

SEEN_SHARE = 0.45
"""Share of the least singular value that is stated: the checker loses some to its rounding."""

ROOM = 2.0**20
"""Norm up to which a claim is made, in units of that of A, where none is proved."""

OBJECTIVES = ("least_squares", "nearest", "min_trace", "minimax")
"""Preferences whose bounds can be written."""


class CannotCertify(ValueError):
    """Raised where a claim is not one that the format has, or its rule does not show it."""


class Draft(checker.Case):
    """A certificate that is being written, as the checker holds it; it keeps the last F*(y)."""

    def __init__(self, held: Fields) -> None:
        super().__init__(held, ".")
        self.last: tuple[Any, checker.Matrix] | None = None

    def left(self, y: list[Fraction], sign: int = 1) -> checker.Matrix:
        """Return ``C + F*(y)``, less what A >= 0 makes superfluous."""
        if self.last is None or self.last[0] != (y, sign):
            self.last = (y, sign), super().left(y, sign)
        return self.last[1]

    def any_left(self, y: list[Fraction], sign: int) -> bool:
        """Return whether that is not 0."""
        return any(map(any, self.left(y, sign)[0]))

    def add(self, **fields: Any) -> None:
        """Add fields to the certificate."""
        self.held |= fields
        for name in fields.keys() & set(checker.NUMBERS):
            setattr(self, name, Fraction(fields[name]))
        if "cone" in fields:
            self.cone, self.last = self.matrix(fields["cone"]), None


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
        return {"entries": _numbers(dense)}
    return {"rank": len(signs), "signs": _numbers(signs), "factor": _numbers(dense.T)}


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
        "U": _numbers(rows.conj() if conjugate else rows),
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
    return {name: _numbers(values) for name, values in fields.items() if np.isfinite(values).any()}


def _matrix(matrix: SensedMatrix, psd: bool, is_complex: bool) -> Fields:
    """Return A as it is written: by a factor where it has one, or must be positive semidefinite."""
    signs = None if matrix.signs is None else to_numpy(matrix.signs)
    X = None if matrix.factor is None else to_numpy(matrix.factor)
    if X is None:
        A = to_numpy(matrix.to_dense())
        if not psd:
            return _hermitian(A, is_complex)
        values, vectors = np.linalg.eigh(A / 2 + A.conj().T / 2)
        X = vectors * np.sqrt(np.maximum(values, 0.0))
    X = X.astype(np.complex128) if is_complex else X
    held = {"rank": X.shape[1], "factor": _numbers(X.T)}
    return held if signs is None or bool((signs > 0).all()) else held | {"signs": _numbers(signs)}


def _hermitian(A: Any, is_complex: bool) -> Fields:
    """Return the Hermitian part of a matrix as it is written."""
    A = np.asarray(A) / 2 + np.asarray(A).conj().T / 2
    return {"entries": _numbers(A.astype(np.complex128) if is_complex else A)}


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


def _features(case: Draft) -> Array:
    """Return about the map of rows and forms, (m, N), in coordinates that keep the norm of A."""
    n, rows = case.n, [np.ldexp(np.array(x, float), power) for x, power in case.rows]
    U = np.array(rows).reshape(len(rows), case.size)
    U = U[:, :n] + 1j * U[:, n:] if case.is_complex else U
    i, j = np.triu_indices(n)
    factor = np.where(i == j, 1.0, math.sqrt(2.0))
    parts = U[:, i] * U[:, j].conj() * factor
    if case.forms:
        C = np.array([_dense(C, n) for C in case.forms])
        parts = np.concatenate([parts, C[:, i, j] * factor])
    return np.hstack([parts.real, parts.imag[:, i != j]]) if case.is_complex else parts


def _coordinates(T: Array) -> Vector:
    """Return a Hermitian matrix in these coordinates."""
    i, j = np.triu_indices(len(T))
    parts = T[i, j] * np.where(i == j, 1.0, math.sqrt(2.0))
    return np.concatenate([parts.real, parts.imag[i != j]]) if np.iscomplexobj(T) else parts


def _sides(case: Draft) -> npt.NDArray[np.bool_]:
    """Return which readings y may pay at a lower and at an upper end, or by a square, (m, 2)."""
    ends = [[end is not None for end in case.ends(i)] for i in range(case.m)]
    return np.array(ends) | np.array([bool(w) for w in case.weights])[:, None]


def _least_norm(H: Array) -> Callable[[Vector], Vector]:
    """Return a solver of ``H^T x = v`` by the shortest x, or the nearest where there is none.

    H^T H is factored once, which serves every v; where that is too inaccurate, by H itself.
    """
    try:
        factor = sl.cho_factor(H.T @ H)
    except sl.LinAlgError:
        factor = None

    def solve(v: Vector) -> Vector:
        x, rest = np.zeros(len(H)), v
        for _ in range(CORRECTIONS if factor is not None else 0):
            x += H @ sl.cho_solve(factor, rest)
            rest = v - H.T @ x
        if np.linalg.norm(rest) <= MAX_REST * np.linalg.norm(v):
            return x
        return np.asarray(sl.lstsq(H.T, v, lapack_driver="gelsy")[0])

    return solve


def _refined(case: Draft, y: list[Fraction], sign: int) -> Iterator[list[Fraction]]:
    """Yield y, and vectors near it that leave less and less of ``C + F*(y)``."""
    yield y
    if len(y) * case.size**2 > MOST_FEATURES:
        return
    H = _features(case)
    masses = np.sqrt((H * H).sum(axis=1))
    heavy = np.abs(np.array([float(each) for each in y])) * masses
    spare = _sides(case).all(axis=1)
    if not np.isfinite(heavy).all():
        return
    weights = np.where(masses > 0.0, heavy + spare * MOST_SPARE * heavy.max(initial=0.0), 0.0)
    scale = np.divide(weights, masses, out=np.zeros_like(masses), where=masses > 0.0)
    H *= scale[:, None]
    if not np.isfinite(H).all():
        return
    solve = _least_norm(H)
    for _ in range(REFINEMENTS):
        T = case.left(y, sign)
        if not case.any_left(y, sign):
            return
        size = checker.bits(T[0]) + T[1]
        left = _coordinates(_dense((T[0], T[1] - size), case.n))
        step = solve(-left) * scale if np.isfinite(left).all() else left
        if not np.isfinite(step).all() or not step.any():
            return
        power = math.frexp(float(np.abs(step).max()))[1] - checker.FACTOR_BITS
        digits = np.rint(np.ldexp(step, -power)).tolist()
        unit = Fraction(2) ** (power + size)
        y = [a + int(d) * unit for a, d in zip(y, digits, strict=True)]
        yield y


def _directions(case: Draft) -> Iterator[Vector]:
    """Yield vectors that no missing end forbids and whose ``F*`` may be positive definite."""
    above = _sides(case)[:, 1]
    rows = len(case.rows)
    if rows:
        squares = np.array([float(sum(v * v for v in x)) * 4.0**power for x, power in case.rows])
        each = np.divide(above[:rows], squares, out=np.zeros(rows), where=squares > 0.0)
        yield np.append(each, np.zeros(case.m - rows))
    for i in range(rows, case.m):
        values = np.linalg.eigvalsh(_dense(case.forms[i - rows], case.n))
        if above[i] and values[0] > 0.0:
            yield np.where(np.arange(case.m) == i, 1.0 / values[-1], 0.0)
    if case.m > rows:
        ends = [np.linalg.eigvalsh(_dense(C, case.n))[[0, -1]] for C in case.forms]
        positive = [least > -EPS * case.n * most for least, most in ends]
        yield np.append(above[:rows], above[rows:] & np.array(positive)).astype(np.float64)


def _lifted(case: Draft, y: list[Fraction], sign: int) -> Iterator[list[Fraction]]:
    """Yield y, and vectors near it for which ``C + F*(y)`` is more and more definite."""
    yield y
    T = _dense(case.left(y, sign), case.n)
    sizes = np.maximum(np.diag(T).real, 0.0)
    below = max(-float(np.linalg.eigvalsh(T)[0]), 0.0) * (1.0 + MARGINS[-1])
    for d in _directions(case):
        D = _dense(case.left([Fraction(float(v)) for v in d], 0), case.n)
        diagonal, least = np.diag(D).real, float(np.linalg.eigvalsh(D)[0])
        most = float(np.max(np.divide(sizes, diagonal, out=0.0 * sizes, where=diagonal > 0.0)))
        needed = below / least if least > 0.0 else 0.0
        for margin in MARGINS:
            t = Fraction(needed + case.n * margin * most)
            yield [a + t * Fraction(float(v)) for a, v in zip(y, d, strict=True)]
    least = float(np.linalg.eigvalsh(sign * _dense(case.C, case.n))[0])
    if least > 0.0:
        for margin in MARGINS:
            share = Fraction(least / (least + below) * (1.0 - case.n * margin))
            yield [each * share for each in y]


def _cone(case: Draft, y: list[Fraction], sign: int) -> Fields:
    """Return the part of ``F*(y)`` that a positive semidefinite A makes superfluous."""
    T, P = (_dense(each, case.n) for each in (case.left(y, sign), case.prior))
    values, vectors = np.linalg.eigh(T - 2.0 * float(case.alpha) * P)
    Z = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, values > 0.0]
    return {"rank": Z.shape[1], "factor": _numbers(Z.T)}


def _prove(
    case: Draft, question: Question, dual: Vector, sign: int = 1, size: float = 1.0,
    level: Fraction = checker.ZERO, *, alone: bool = False,
) -> Fraction:  # fmt: skip
    """Add to a certificate the vector that proves its claim, and return what it proves.

    Parameters
    ----------
    case : Case
        The claim so far.
    question : Question
        What the vector is about.
    dual : ndarray of shape (m,)
    sign : {1, -1}
        -1 for the upper end of an interval.
    size : float
        Frobenius norm of A, where one is known.
    level : Fraction
        What those A cost at most that the bound must hold for.
    alone : bool
        Whether rows may be left out, so that all of them together bound nothing.
    """
    start = [Fraction(float(each)) for each in permitted(question, dual)]
    if case.alpha:
        ways: Any = [start]
        if case.psd:
            case.add(cone=_cone(case, start, sign))
    elif case.psd:
        ways = _lifted(case, start, sign)
    else:
        ways = list(_refined(case, start, sign))[::-1]
        case.add(**({} if alone else _seen(case)))
    found = None
    if case.psd or case.alpha or case.sigma is not None or not case.any_left(ways[0], sign):
        found = _first(case, ways, sign, level)
    if found is None and not case.alpha:
        nearest = start if case.psd else ways[0]
        case.held.pop("sigma", None)
        case.sigma = None
        case.add(**_condition(case, nearest, sign, size))
        found = _first(case, [nearest], sign, level)
    if found is None:
        raise CannotCertify("the rule of the claim does not show it: nothing is written")
    case.held["y" if sign == 1 else "y_upper"] = found[0]
    return found[1]


def _first(case: Draft, ways: Any, sign: int, level: Fraction) -> tuple[Any, Fraction] | None:
    """Return the first vector that proves something, as it is written, and what it proves."""
    for y in ways:
        written = _vector(y)
        try:
            value = case.bound(written, sign, level)
        except checker.Unproved:
            continue
        if case.claim != "infeasible" or value > 0:
            return written, value
    return None


def _condition(case: Draft, y: list[Fraction], sign: int, size: float) -> Fields:
    """Return what a claim takes for granted that holds up to a norm (a trace) of A alone."""
    T = case.left(y, sign)
    if case.psd:
        values = np.linalg.eigvalsh(_dense(T, case.n))
        shift = 2.0 * max(-values[0], 0.0) + case.n * MARGINS[0] * float(np.abs(values).max())
        left, norm = Fraction(shift), ROOM * case.n * size
    else:
        shift, left, norm = 0.0, checker.root(case.inner(T, T)), ROOM * size
    try:
        margin = -case.conjugates(y)
    except checker.Unproved:
        return {}
    if case.claim == "infeasible" and left and margin > 0:
        norm = _below(min(margin / left / 2, Fraction(sys.float_info.max)))
    return {"norm": float(norm)} | ({"shift": float(shift)} if shift else {})


def _seen(case: Draft) -> Fields:
    """Return what shows that the rows see all of A, where they do and are few."""
    two = np.all(_sides(case)[: len(case.rows)], axis=1).tolist()
    used = [row for (row, _), bounded in zip(case.rows, two, strict=True) if bounded]
    unknowns = case.n**2 if case.is_complex else case.n * (case.n + 1) // 2
    if unknowns > MOST_SEEN or len(used) < unknowns:
        return {}
    bits, kept = checker.FEATURE_BITS, []
    for features in map(case.features, used):
        size = checker.bits([features])
        kept.append([(h << bits) >> size for h in features])
    least = float(np.linalg.svd(np.array(kept, dtype=np.float64), compute_uv=False)[-1])
    sigma = SEEN_SHARE * least / math.sqrt(2.0) - math.sqrt(len(kept) * unknowns)
    return {"sigma": math.floor(sigma)} if sigma >= 1.0 else {}


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
            _prove(alone, question, proof, size=claim.matrix.norm(), alone=True)
            proofs.append(alone.held["y"])
            for name, worse in (("norm", min), ("shift", max)):
                if name in alone.held:
                    held[name] = worse(held.get(name, alone.held[name]), alone.held[name])
        else:
            _prove(Draft(held), question, proof, size=claim.matrix.norm())
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
        which = ", ".join(OBJECTIVES)
        raise CannotCertify(f"there is a certificate in a file of {which} alone, not of {name!r}")
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
    held["b"] = _numbers(np.where(soft, ends.middle() if centered else ends.reading, np.inf))
    held["delta"] = _numbers(np.where(soft, ends.unit, np.inf))
    held["lo"] = _numbers(np.where(soft, np.inf, ends.lo))
    held["hi"] = _numbers(np.where(soft, np.inf, ends.hi))


def _as_squares(held: Fields, ends: Intervals, question: Question) -> None:
    """Add weights, readings, the ridge and the prior of a question."""
    if question.term.squares:
        counted = question.weights > 0.0
        for name in ("b", "delta", "lo", "hi"):
            held.pop(name, None)
        free = ~np.isfinite(question.lo) & ~np.isfinite(question.hi)
        held |= _intervals(ends, np.where(counted, question.reading, np.inf), free)
        held["weights"] = _numbers(np.where(counted, question.weights, np.inf))
        if question.alpha:
            held["ridge"] = question.alpha
    prior = question.prior
    if question.alpha and not (isinstance(prior, float) and prior == 0.0):
        P = prior * np.eye(held["n"]) if isinstance(prior, float) else prior
        held["prior"] = _hermitian(P, held["complex"])


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
        held["upper"] = -_below(-cost)
        if minimax:
            case.t = Fraction(held["upper"])
            case.answer()
        level = Fraction(held["upper"])
    except checker.Unproved:  # A is not one of those that are compared
        for name in ("A", "upper"):
            held.pop(name, None)
    if minimax:
        case.t = Fraction(max(stated, 0.0))
    found = _prove(case, question, dual, size=size, level=level)
    lower = _least_ratio(case, found) if minimax else _below(found)
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
        t = math.nextafter(_below(case.t + found / mass), -math.inf)
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
    held["C"] = _hermitian(C, held["complex"])
    case = Draft(held)
    for name, sign in (("lower", 1), ("upper", -1)):
        dual, fit = getattr(found, f"{name}_dual"), getattr(found, f"{name}_fit")
        if dual is not None:
            size = 1.0 if fit is None else float(np.linalg.norm(fit))
            question = make_within(data, found.psd, sign * C)
            held[name] = sign * _below(_prove(case, question, np.asarray(dual), sign, size))
    if not {"lower", "upper"} & held.keys():
        raise CannotCertify("neither end of the range is proved to be finite")
    if held.get("lower", -math.inf) > held.get("upper", math.inf):
        raise CannotCertify("the range is empty: nothing fits")
    return held


def write(path: str | os.PathLike[str], held: Fields) -> None:
    """Write the fields of a certificate, which the checker has accepted."""
    write_text(path, json.dumps(held, indent=1, allow_nan=False))
