"""Check a certificate of rank-one matrix sensing: format 1.0, described in CERTIFICATE.md.

    python quadsense_check.py certificate.json

It prints TRUE or FALSE with the numbers that decide, and ends with exit status 0 (true), 3 (false)
or 2 (the file is malformed). One file and the standard library alone. Every number is an integer,
an integer times a power of two, or a fraction of integers; quotients and roots are rounded to the
side that weakens the claim, nothing else is rounded. Floats occur in one place: they propose a
Cholesky factor, whose remainder is then judged by integers (`has_factor`).

A complex number p + iq is held as the real pair (p, q), a Hermitian matrix R + iM as the real
symmetric [[R, -M], [M, R]], which is positive semidefinite where the Hermitian one is.
"""

import base64
import hashlib
import json
import math
import os
import sys
from array import array
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from operator import mul, or_
from typing import Any

VERSION = "1.0"
MAX_FILE, MAX_ENTRIES, MAX_BITS, MAX_SUM = 2**28, 10**7, 2**13, 2**31
"""Bytes of a file, entries of an array, bits of a number and of a matrix: they bound memory."""
FACTOR_BITS, FEATURE_BITS, KEPT_BITS, MAX_ELIMINATED = 54, 24, 256, 80
"""Bits of a proposed factor, of features, of quotients; order up to which is eliminated."""
ZERO, ONE = Fraction(0), Fraction(1)
Rows = list[list[int]]
Matrix = tuple[Rows, int]  # and the power of two that the rows are times


class Malformed(Exception):
    """The file is not a certificate of this format."""


class Unproved(Exception):
    """The rule of the claim does not hold."""


def need(condition: Any, text: str, error: type[Exception] = Malformed) -> None:
    """Raise an error unless the condition holds."""
    if not condition:
        raise error(text)


def dyadic(whole: int, power: int) -> Fraction:
    """Return ``whole * 2**power``."""
    return Fraction(whole << power) if power >= 0 else Fraction(whole, 1 << -power)


def parts(value: Any) -> tuple[int, int]:
    """Return a dyadic number as a whole number and a power of two."""
    above, below = value.as_integer_ratio()
    return above, 1 - below.bit_length()


def up(value: Fraction) -> Fraction:
    """Return a dyadic number that is little more: it has `KEPT_BITS` bits."""
    above, below = value.as_integer_ratio()
    power = above.bit_length() - below.bit_length() - KEPT_BITS
    return dyadic(-((-above << max(-power, 0)) // (below << max(power, 0))), power)


def root(value: Fraction) -> Fraction:
    """Return the square root, rounded up."""
    whole, power = parts(up(value))
    shift = 2 * KEPT_BITS + power % 2
    return dyadic(math.isqrt(whole << shift) + 1, (power - shift) // 2) if whole else ZERO


def text(value: Fraction | None) -> str:
    """Return about the number."""
    return "none" if value is None else f"{Decimal(value.numerator) / value.denominator:.9g}"


# --- sums of outer products, and values of quadratic forms, by packed integers -------------------


def aligned(pairs: list[tuple[int, int]]) -> tuple[list[int], int]:
    """Return numbers as whole numbers times one power of two, as small as they can be."""
    least = min((power for whole, power in pairs if whole), default=0)
    wholes = [whole << (power - least) if whole else 0 for whole, power in pairs]
    used = reduce(or_, wholes, 0)
    spare = (used & -used).bit_length() - 1 if used else 0
    return ([whole >> spare for whole in wholes] if spare else wholes), least + spare


def roomy(size: int, width: int) -> int:
    """Return a width in whole bytes, if a matrix of such entries does not take too much memory."""
    need(size * size * width <= MAX_SUM, "numbers of too different sizes for a matrix this large")
    return -(-width // 8) * 8


def bits(rows: Any) -> int:
    """Return how many bits the largest number has."""
    return max((max(max(row), -min(row)).bit_length() for row in rows), default=0)


def unpack(packed: int, width: int, size: int) -> list[int]:
    """Return the `size` signed numbers of `width` bits each."""
    count, half = width // 8, 1 << (width - 1)
    offset = half * (((1 << (width * size)) - 1) // ((1 << width) - 1))
    data = (packed + offset).to_bytes(count * size, "little")
    starts = range(0, count * size, count)
    return [int.from_bytes(data[start : start + count], "little") - half for start in starts]


def gram(weights: list[int], rows: Rows, size: int) -> Rows:
    """Return ``sum_i weights_i row_i row_i^T``; a column below the diagonal is one integer."""
    width = 2 * bits(rows) + bits([[*weights, 0]]) + len(rows).bit_length() + 2
    width, sums = roomy(size, width), [0] * size
    for weight, row in zip(weights, rows, strict=True):
        packed = 0
        for j in range(size - 1, -1, -1) if weight else ():
            packed = (packed << width) + row[j]
            if row[j]:
                sums[j] += weight * row[j] * packed
    below = [unpack(each, width, size - j) for j, each in enumerate(sums)]
    return [[below[min(j, k)][abs(j - k)] for k in range(size)] for j in range(size)]


def values(A: Matrix, rows: list[tuple[list[int], int]]) -> list[Fraction]:
    """Return ``x^T A x`` of each row x; a row of A below the diagonal is one integer."""
    size, found = len(A[0]), []
    width = roomy(size, bits(A[0]) + bits(x for x, _ in rows) + size.bit_length() + 3)
    packed = [
        sum((1 + (k < j)) * A[0][j][k] << width * k for k in range(j + 1)) for j in range(size)
    ]
    for x, power in rows:
        image = unpack(sum(map(mul, x, packed)), width, size)
        found.append(dyadic(sum(map(mul, image, x)), 2 * power + A[1]))
    return found


def hermitian(R: Rows, M: Rows) -> Rows:
    """Return the real form of R + iM."""
    top = [[*r, *(-x for x in m)] for r, m in zip(R, M, strict=True)]
    return top + [[*m, *r] for r, m in zip(R, M, strict=True)]


def plus(A: Matrix, t: Fraction, B: Matrix) -> Matrix:
    """Return ``A + t B``."""
    whole, power = parts(t)
    least = min(A[1], power + B[1])
    a, b = 1 << (A[1] - least), whole << (power + B[1] - least)
    rows = zip(A[0], B[0], strict=True)
    return [[a * x + b * y for x, y in zip(one, two, strict=True)] for one, two in rows], least


# --- positive semidefinite -----------------------------------------------------------------------


def is_positive(S: Rows) -> bool:
    """Return whether a symmetric matrix is shown to be positive semidefinite."""
    if any(row[j] < 0 or (row[j] == 0 and any(row)) for j, row in enumerate(S)):
        return False
    live = [(j, row[j].bit_length() // 2) for j, row in enumerate(S) if row[j]]
    most = 2 * max((half for _, half in live), default=0)
    # A congruence by powers of two, after which the entries of the diagonal are of one size.
    scaled = [[S[j][k] << (most - a - b) for k, b in live] for j, a in live]
    return has_factor(scaled) or (len(live) <= MAX_ELIMINATED and eliminates(scaled))


def has_factor(S: Rows) -> bool:
    """Return whether S minus some ``L L^T`` is diagonally dominant; floats propose the L."""
    size, top = len(S), bits(S)
    cut, power = max(top - 2 * FACTOR_BITS, 0), 2 * FACTOR_BITS - top
    L = cholesky([[math.ldexp(x >> cut, cut - top) for x in row] for row in S], size * 2.0**-48)
    columns = [
        [0] * j + [int(math.ldexp(row[j], FACTOR_BITS)) for row in L[j:]] for j in range(len(L))
    ]
    product, left, right = gram([1] * len(L), columns, size), max(power, 0), max(-power, 0)
    rests = ([(s << left) - (p << right) for s, p in zip(*both, strict=True)]
             for both in zip(S, product, strict=True))  # fmt: skip
    return all(2 * rest[j] >= sum(map(abs, rest)) for j, rest in enumerate(rests))


def cholesky(S: list[list[float]], shift: float) -> list[list[float]]:
    """Return about the lower factor of ``S - shift I``, or of its leading part that has one."""
    L: list[list[float]] = []
    for j, row in enumerate(S):
        new: list[float] = []
        for k in range(j):
            new.append((row[k] - sum(map(mul, new, L[k]))) / L[k][k])
        pivot = row[j] - shift - sum(map(mul, new, new))
        if not pivot > 0.0:
            return []
        L.append([*new, math.sqrt(pivot)])
    return L


def eliminates(S: Rows) -> bool:
    """Return the same by elimination without fractions [Bareiss 1968], zero pivots included."""
    previous = 1
    while S:
        pivot, top = S[0][0], S[0]
        if pivot < 0 or (pivot == 0 and any(top)):
            return False
        S = [row[1:] for row in S[1:]]
        if pivot:
            S = [
                [(pivot * x - a * b) // previous for x, b in zip(row, top[1:], strict=True)]
                for row, a in zip(S, top[1:], strict=True)
            ]
            previous = pivot
    return True


# --- what a certificate is about -----------------------------------------------------------------


class Case:
    """Probes, intervals and what is minimized, exactly."""

    def __init__(self, held: dict[str, Any], folder: str) -> None:
        self.held, self.folder, self.claim = held, folder, held["claim"]
        sound = [type(held.get(name)) is int and 1 <= held[name] <= MAX_ENTRIES for name in "nm"]
        self.forms, self.aside = held.get("forms", []), held.get("set_aside", [])
        need(all(sound) and isinstance(self.forms, list), "n and m must be whole numbers")
        self.n, self.m, self.psd = held["n"], held["m"], held.get("psd", False) is True
        self.is_complex = held.get("complex", False) is True
        self.size = (1 + self.is_complex) * self.n
        self.rows = self.vectors(held.get("U"), self.m - len(self.forms), self.held)
        self.C_of_forms = [self.matrix("C", each) for each in self.forms]
        self.b, self.delta, self.lo, self.hi, self.room, self.weights = (
            self.numbers(name, held.get(name, [None] * self.m), self.m)
            for name in ("b", "delta", "lo", "hi", "room", "weights")
        )
        for i, (b, delta) in enumerate(zip(self.b, self.delta, strict=True)):
            if b is not None and delta is not None and self.lo[i] is None and self.hi[i] is None:
                self.lo[i], self.hi[i] = b - delta, b + delta
        need(all(type(i) is int and 0 <= i < self.m for i in self.aside), "set_aside: no rows")
        for i in self.aside:
            self.lo[i] = self.hi[i] = self.b[i] = self.weights[i] = None
        self.identity = [[int(j == k) for k in range(self.size)] for j in range(self.size)], 0
        self.set_objective()

    def set_objective(self) -> None:
        """Say what is minimized: ``<C, A> + alpha ||A - P||^2`` and what rows cost."""
        claim, ridge = self.claim, self.number("ridge") or ZERO
        self.C = self.identity if claim == "min_trace" else None
        self.C = self.matrix("C", self.held) if claim == "interval" else self.C
        self.alpha = ridge if claim == "least_squares" else ONE if claim == "nearest" else ZERO
        need(self.alpha >= 0 and all((w or 0) >= 0 for w in self.weights), "a negative weight")
        pairs = enumerate(zip(self.b, self.delta, strict=True))
        soft = (i for i, (b, delta) in pairs if b is not None and delta)
        self.soft = set(soft) if claim == "minimax" else set()
        need(all(self.delta[i] > 0 for i in self.soft), "delta must not be negative")
        squares = [i for i, w in enumerate(self.weights) if w]
        self.squares = {i for i in squares if claim == "least_squares" and self.b[i] is not None}

    def floats(self, name: str, spec: Any, count: int) -> list[Any]:
        """Return an array: numbers, base64, or a file with its SHA-256; None where infinite."""
        need(0 <= count <= MAX_ENTRIES, f"{name} is too large")
        if isinstance(spec, dict):
            coded, file = spec.get("base64"), spec.get("file")
            data = base64.b64decode(coded, validate=True) if coded else self.attached(file, spec)
            need(len(data) == 8 * count, f"{name} has {len(data)} bytes, not {8 * count}")
            found = array("d", data)
            if sys.byteorder == "big":
                found.byteswap()
            spec = [None if math.isinf(each) else each for each in found]
        need(isinstance(spec, list) and len(spec) == count, f"{name} must have {count} numbers")
        for x in spec:
            small = type(x) is int and x.bit_length() <= MAX_BITS
            need(x is None or small or (type(x) is float and math.isfinite(x)), f"{name}: {x!r:.9}")
        return list(spec)

    def attached(self, path: Any, spec: dict[str, Any]) -> bytes:
        """Return the content of a file next to the certificate."""
        plain = (
            isinstance(path, str) and path not in ("", ".", "..") and not set(path) & set("/\\:")
        )
        where = os.path.join(self.folder, str(path))
        need(plain and os.path.isfile(where), "no file of that name next to the certificate")
        need(os.path.getsize(where) <= MAX_FILE, f"{path} is too large")
        with open(where, "rb") as file:
            data = file.read(MAX_FILE)
        need(hashlib.sha256(data).hexdigest() == spec.get("sha256"), f"{path}: another SHA-256")
        return data

    def numbers(self, name: str, spec: Any, count: int) -> list[Any]:
        """Return an array as fractions, None where there is no number."""
        if not (isinstance(spec, dict) and "integers" in spec):
            found = self.floats(name, spec, count)
            return [None if each is None else Fraction(each) for each in found]
        wholes, power = self.floats(name, spec["integers"], count), spec.get("exponent", 0)
        need(all(type(each) is int for each in wholes), f"{name} must hold integers")
        need(type(power) is int and abs(power) <= MAX_BITS, f"{name}: no exponent")
        return [Fraction(each) * Fraction(2) ** power for each in wholes]

    def number(self, name: str) -> Fraction | None:
        """Return one number of the file, None where it is not stated."""
        found: Fraction | None = self.numbers(name, [self.held.get(name)], 1)[0]
        return found

    def vectors(self, spec: Any, count: int, held: Any) -> list[tuple[list[int], int]]:
        """Return `count` vectors of n numbers, as real ones."""
        found = self.floats("U or factor", spec, count * self.size)
        need(None not in found, "U and factors must be finite")
        sign, rows = -1 if held.get("conjugate", False) is True else 1, []
        for start in range(0, count * self.size, self.size):
            row = [parts(each) for each in found[start : start + self.size]]
            if self.is_complex:
                row = row[::2] + [(sign * whole, power) for whole, power in row[1::2]]
            rows.append(aligned(row))
        return rows

    def matrix(self, name: str, held: Any) -> Matrix:
        """Return the Hermitian matrix of that name, or ``X diag(signs) X*`` of a factor X."""
        need(isinstance(held, dict), f"{name} must be in an object")
        if name not in held:
            rank = held.get("rank")
            need(type(rank) is int and 0 <= rank <= MAX_ENTRIES, f"neither {name} nor a factor")
            signs = self.numbers("signs", held.get("signs", [1] * rank), rank)
            need(None not in signs, "signs must be finite")
            return self.summed(signs, self.vectors(held.get("factor"), rank, {}))
        found = self.floats(name, held[name], self.n * self.size)
        need(None not in found, f"{name} must be finite")
        whole, power = aligned([parts(each) for each in found])
        M = [whole[k : k + self.size] for k in range(0, len(whole), self.size)]
        if self.is_complex:
            M = hermitian([row[::2] for row in M], [row[1::2] for row in M])
        need([list(column) for column in zip(*M, strict=True)] == M, f"{name} must be Hermitian")
        return M, power

    def summed(self, weights: list[Fraction], rows: list[tuple[list[int], int]]) -> Matrix:
        """Return ``sum_i weights_i u_i u_i*``."""
        pairs = zip(map(parts, weights), rows, strict=True)
        whole, power = aligned([(w, p + 2 * q) for (w, p), (_, q) in pairs])
        S, n = gram(whole, [x for x, _ in rows], self.size), self.n
        if not self.is_complex:
            return S, power
        R = [[S[j][k] + S[n + j][n + k] for k in range(n)] for j in range(n)]
        M = [[S[n + j][k] - S[j][n + k] for k in range(n)] for j in range(n)]
        return hermitian(R, M), power

    def adjoint(self, y: list[Fraction]) -> Matrix:
        """Return ``F*(y)``."""
        T = self.summed(y[: len(self.rows)], self.rows)
        for t, C in zip(y[len(self.rows) :], self.C_of_forms, strict=True):
            T = plus(T, t, C)
        return T

    def readings(self, A: Matrix) -> list[Fraction]:
        """Return ``F(A)``."""
        return values(A, self.rows) + [self.inner(C, A) for C in self.C_of_forms]

    def inner(self, A: Matrix, B: Matrix) -> Fraction:
        """Return ``Re tr(A B)``, which the real form of a complex matrix has twice."""
        whole = sum(sum(map(mul, one, two)) for one, two in zip(A[0], B[0], strict=True))
        return dyadic(whole, A[1] + B[1] - self.is_complex)

    def prior(self) -> Matrix:
        """Return P: a matrix, or a multiple of I."""
        if isinstance(self.held.get("prior", 0), dict | list):
            return self.matrix("prior", self.held)
        return plus(([[0] * self.size] * self.size, 0), self.number("prior") or ZERO, self.identity)


# --- the rules -----------------------------------------------------------------------------------


def conjugates(case: Case, y: list[Fraction]) -> Fraction:
    """Return ``sum_i phi_i*(y_i)``, rounded up."""
    terms = []
    for i, (t, b, lo, hi, w) in enumerate(
        zip(y, case.b, case.lo, case.hi, case.weights, strict=True)
    ):
        if i in case.soft:
            t, lo, hi = t, b, b
        elif i in case.squares:  # y = s + t, where s is paid by the square, t by an end
            s = t if hi is None else min(t, 2 * w * (hi - b))
            s = s if lo is None else max(s, 2 * w * (lo - b))
            terms += [s * b, up(s * s / (4 * w))]
            t = t - s
        if t:
            end = hi if t > 0 else lo
            need(end is not None, f"y uses an end of row {i} that there is not", Unproved)
            terms.append(t * end)
    return sum(terms, ZERO)


def bound(case: Case, spec: Any, sign: int = 1, upper: Fraction | None = None) -> tuple[Any, Any]:
    """Return the lower bound that y proves on what is minimized, and y."""
    y = [each or ZERO for each in case.numbers("y", spec, case.m)]
    rows, T = conjugates(case, y), case.adjoint(y)
    if case.C is not None:
        T = plus(T, Fraction(sign), case.C)
    if "cone" in case.held:  # what A >= 0 makes superfluous
        cone = case.held["cone"]
        need(case.psd and isinstance(cone, dict) and "signs" not in cone, "cone: not allowed")
        T = plus(T, -ONE, case.matrix("", cone))
    if case.alpha:
        return case.inner(T, case.prior()) - up(case.inner(T, T) / (4 * case.alpha)) - rows, y
    if case.psd:
        shift = abs(case.number("shift") or ZERO)
        shown = is_positive(plus(T, shift, case.identity)[0])
        need(shown, "C + F*(y) is not shown to be positive semidefinite", Unproved)
        return (-shift * size_of(case, None) if shift else ZERO) - rows, y
    left = root(case.inner(T, T))
    return (-left * size_of(case, upper) if left else ZERO) - rows, y


def size_of(case: Case, upper: Fraction | None) -> Fraction:
    """Return a bound on A: its norm, shown by sigma, or `norm`, up to which the claim is made."""
    norm, sigma = case.number("norm"), case.number("sigma")
    scales: Any = case.held.get("scales")
    if sigma is None or case.psd:
        need(norm is not None, "C + F*(y) is not 0, and no norm is stated", Unproved)
        return abs(norm or ZERO)
    sound = isinstance(scales, list) and len(scales) == len(case.rows) and sigma > 0
    need(sound and all(s is None or abs(s) <= MAX_BITS for s in scales), "scales: exponents")
    used, squares = [(i, s) for i, s in enumerate(scales) if s is not None], ZERO
    need(sees_all(case, used, sigma), "sigma is not shown", Unproved)
    for i, s in used:
        b, lo, hi, most = case.b[i], case.lo[i], case.hi[i], None
        if i in case.soft and upper is not None:
            most = abs(b) + upper * case.delta[i]
        elif lo is not None and hi is not None:
            most = max(abs(lo), abs(hi))
        elif i in case.squares and upper is not None:
            most = abs(b) + root(abs(upper) / case.weights[i])
        need(most is not None, f"nothing bounds the reading of row {i}", Unproved)
        squares += (dyadic(1, s) * (most or ZERO)) ** 2
    return root(squares) / sigma


def sees_all(case: Case, used: list[tuple[int, int]], sigma: Fraction) -> bool:
    """Return whether ``||D F(A)|| >= sigma ||A||_F`` is shown, D the powers of two of the rows.

    Features are rounded down to multiples of 2^unit, which changes ``D F(A)`` by less than
    ``2^unit sqrt(number of features) ||A||_F``.
    """
    count = case.n * (case.n + 1) // 2 if case.size == case.n else case.n**2
    need(len(used) * count <= MAX_ENTRIES, "too many rows for sigma")
    rows = [(features(case, case.rows[i][0]), 2 * case.rows[i][1] + s) for i, s in used]
    unit = max((bits([h]) + power for h, power in rows), default=0) - FEATURE_BITS
    kept = [[math.floor(x * dyadic(1, power - unit)) for x in h] for h, power in rows]
    M, least = gram([1] * len(kept), kept, count), math.ceil(sigma * dyadic(1, -unit))
    for j, one in enumerate(features(case, [1] * case.n + [0] * (case.size - case.n))):
        M[j][j] -= (1 if one == 1 else 2) * (least + math.isqrt(len(used) * count) + 1) ** 2
    return is_positive(M)


def features(case: Case, x: list[int]) -> list[int]:
    """Return the row of F in the entries of A on and above the diagonal."""
    p, q, found = x[: case.n], x[case.n :] or [0] * case.n, []
    for j in range(case.n):
        found.append(p[j] * p[j] + q[j] * q[j])
        for k in range(j + 1, case.n):
            found.append(2 * (p[j] * p[k] + q[j] * q[k]))
            if case.is_complex:
                found.append(2 * (q[j] * p[k] - p[j] * q[k]))
    return found


def answer(case: Case) -> tuple[str, Fraction]:
    """Return in words what A meets, and what it costs; raise if it does not meet all."""
    A, aside, asked, worst = case.matrix("A", case.held), len(set(case.aside)), 0, ZERO
    plain = "A" not in case.held and "signs" not in case.held
    need(not case.psd or plain or is_positive(A[0]), "A is not shown to be positive", Unproved)
    need(aside <= case.held.get("allowed", aside), "more rows are set aside than allowed", Unproved)
    reads = case.readings(A)
    for i, (v, lo, hi, room) in enumerate(zip(reads, case.lo, case.hi, case.room, strict=True)):
        if i not in case.soft and (lo is not None or hi is not None):
            need(not room or (lo == hi and room > 0), "room: of equalities alone")
            inside = (lo is None or lo - (room or 0) <= v) and (hi is None or v <= hi + (room or 0))
            where = f"row {i} reads {text(v)}, outside [{text(lo)}, {text(hi)}]"
            need(inside, where, Unproved)
            asked, worst = asked + 1, max(worst, room or ZERO)
    away = plus(A, -ONE, case.prior()) if case.alpha else A
    costs = [case.alpha * case.inner(away, away), case.inner(case.C, A) if case.C else ZERO]
    costs += [case.weights[i] * (reads[i] - case.b[i]) ** 2 for i in case.squares]
    costs += [max((up(abs(reads[i] - case.b[i]) / case.delta[i]) for i in case.soft), default=ZERO)]
    exact = f", equalities to {text(worst)}" if worst else ""
    return f"A meets {asked} intervals{exact}, {aside} set aside", sum(costs, ZERO)


def check_infeasible(case: Case) -> str:
    """Check that no A is within the intervals, `allowed` rows left out."""
    proofs, allowed = case.held.get("proofs", [case.held.get("y")]), case.held.get("allowed", 0)
    need(isinstance(proofs, list) and type(allowed) is int, "proofs: a list; allowed: a number")
    need(not allowed or "sigma" not in case.held, "sigma: not where rows may be left out")
    found = [bound(case, each) for each in proofs]
    least = min((value for value, _ in found), default=ZERO)
    need(least > 0, f"y proves {text(least)}, which is not positive", Unproved)
    supports = [{i for i, t in enumerate(y[: len(case.rows)]) if t} for _, y in found]
    need(not can_be_hit(supports, allowed), "rows left out can avoid every proof", Unproved)
    return f"no matrix is within all intervals, {allowed} left out: contradiction {text(least)}"


def can_be_hit(supports: list[set[int]], allowed: int) -> bool:
    """Return whether some rows, that many at most, have a member of each set."""
    rest = ([each for each in supports if i not in each] for i in (supports or [set()])[0])
    return not supports or (allowed > 0 and any(can_be_hit(each, allowed - 1) for each in rest))


def check_bounds(case: Case) -> str:
    """Check that the optimum, or ``<C, A>`` of every fit, is between `lower` and `upper`."""
    lower, upper, words = case.number("lower"), case.number("upper"), ""
    distance, interval = case.claim == "nearest", case.claim == "interval"
    need(lower is not None or upper is not None, "neither lower nor upper is stated")
    if lower is not None:
        found, y = bound(case, case.held.get("y"), 1, None if interval else upper)
        unit = sum((abs(y[i]) * case.delta[i] for i in case.soft), ZERO) if case.soft else ONE
        below = abs(lower) * lower if distance else lower
        need(upper is None or lower <= upper, "lower is above upper", Unproved)
        trivial = case.C is None and below <= 0  # of squares, distances, ratios
        shown = trivial or (unit and below * unit <= found)
        need(shown, f"lower is not proved: {text(found)}", Unproved)
    if upper is not None and interval:
        found, _ = bound(case, case.held.get("y_upper"), -1)
        need(-upper <= found, f"upper is not proved: {text(-found)}", Unproved)
    elif upper is not None:
        words, cost = answer(case)
        above = abs(upper) * upper if distance else upper
        need(cost <= above, f"A costs {text(cost)}, more than upper", Unproved)
    return f"{case.claim}: between {text(lower)} and {text(upper)}; {words}"


CHECKS = {"met": lambda case: answer(case)[0], "infeasible": check_infeasible} | dict.fromkeys(
    ("minimax", "least_squares", "nearest", "min_trace", "interval"), check_bounds
)


def check(held: Any, folder: str = ".") -> tuple[bool, str]:
    """Return whether the claim of a certificate is true, and why; raise `Malformed`."""
    need(isinstance(held, dict), "not a JSON object")
    need(held.get("format") == "quadsense-certificate", "not a certificate")
    need(held.get("version") == VERSION, f"this checker is for version {VERSION}")
    need(isinstance(held.get("claim"), str) and held["claim"] in CHECKS, "an unknown claim")
    try:
        case = Case(held, folder)
        words = CHECKS[case.claim](case)
    except Unproved as error:
        return False, str(error)
    except (OSError, ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as error:
        raise Malformed(f"{type(error).__name__}: {error}") from None
    norm, free = case.number("norm"), case.psd or "sigma" not in held
    words += ", among positive semidefinite A" if case.psd else ""
    taken = norm is not None and free and case.claim != "met"
    return True, words + (f" of size up to {text(norm)}" if taken else "")


def main(arguments: list[str]) -> int:
    """Check the file that is named; return the exit status."""
    try:
        need(len(arguments) == 1, "usage: python quadsense_check.py certificate.json")
        need(os.path.getsize(arguments[0]) <= MAX_FILE, "the file is too large")
        with open(arguments[0], encoding="utf-8") as file:
            held = json.load(file)
        true, words = check(held, os.path.dirname(arguments[0]))
    except (Malformed, OSError, ValueError, RecursionError, MemoryError) as error:
        print(f"malformed: {str(error)[:200]}", file=sys.stderr)
        return 2
    print(f"{'TRUE' if true else 'FALSE'}: {words}")
    return 0 if true else 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
