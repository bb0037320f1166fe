"""Vectors that prove claims in exact arithmetic: the checker's own, made better first.

A vector is lifted until what must be positive semidefinite is so by a margin, or moved until what
must vanish does so to many more digits than float64 has. The checker judges each (CERTIFICATE.md).
"""

from __future__ import annotations

import base64
import math
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg as sl

import quadsense_check as checker
from quadsense.arrays import Array, Vector
from quadsense.core.intervals import EPS
from quadsense.core.question import Question
from quadsense.proofs.costs import permitted

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


def numbers(values: Any) -> Any:
    """Return an array as it is written: infinite where there is no number."""
    flat = np.ascontiguousarray(values)
    if np.iscomplexobj(flat):
        flat = flat.view(np.float64)
    flat = flat.astype("<f8").reshape(-1)
    if flat.size <= SHORT:
        return [value if math.isfinite(value) else None for value in flat.tolist()]
    return {"base64": base64.b64encode(flat.tobytes()).decode("ascii")}


def below(value: Fraction) -> float:
    """Return a float that is not above a number."""
    found = float(value)
    return found if Fraction(found) <= value else math.nextafter(found, -math.inf)


def _vector(y: list[Fraction]) -> Any:
    """Return exact numbers as they are written: floats, or integers times a power of two."""
    if all(each.denominator == 1 or Fraction(float(each)) == each for each in y):
        return numbers(np.array([float(each) for each in y]))
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
    return {"rank": Z.shape[1], "factor": numbers(Z.T)}


def prove(
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
        norm = below(min(margin / left / 2, Fraction(sys.float_info.max)))
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
