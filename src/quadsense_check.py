"""Check a certificate of rank-one matrix sensing: format 1.0, described in CERTIFICATE.md.

    python quadsense_check.py certificate.json

It prints TRUE or FALSE and why; the exit status is 0 (true), 3 (not shown) or 2 (malformed file).
Numbers are integers times powers of two, or fractions; roots are rounded to the side that weakens
the claim, nothing else is. Floats propose a Cholesky factor, which integers judge (`is_positive`).
A complex p + iq is held as (p, q), a Hermitian R + iM as the real [[R, -M], [M, R]].
"""

import base64
import hashlib
import json
import math
import os
import struct
import sys
from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from operator import mul
from typing import Any

VERSION = "1.0"
MAX_FILE, MAX_ENTRIES, MAX_EXPONENT, MAX_SUM = 2**26, 2**22, 2**13, 2**32
"""Bytes of a file, entries of an array, an exponent, bits of a matrix: they bound memory."""
FACTOR_BITS, FEATURE_BITS, KEPT_BITS, MAX_ELIMINATED = 54, 24, 256, 80
"""Bits of a proposed factor, of features, of roots; order up to which is eliminated."""
DIFFERENT = "numbers of too different sizes for a matrix this large"
ZERO, ONE = Fraction(0), Fraction(1)
NOTHING: dict[str, Any] = {"rank": 0, "factor": []}
FLAGS = ("psd", "complex", "conjugate")
READINGS = ("b", "delta", "lo", "hi", "weights")
NUMBERS = ("ridge", "lower", "upper", "norm", "shift", "sigma")
Rows = list[list[int]]
Matrix = tuple[Rows, int]  # and the power of two that they are times, as in a vector
Vector = tuple[list[int], int]


class Malformed(Exception):
    """The file is not a certificate of this format."""


class Unproved(Exception):
    """The rule of the claim does not hold."""


def need(condition: Any, text: str, error: type[Exception] = Malformed) -> None:
    """Raise an error unless the condition holds."""
    if not condition:
        raise error(text)


def parts(value: Any) -> tuple[int, int]:
    """Return a dyadic number as a whole number and a power of two."""
    above, below = value.as_integer_ratio()
    return above, 1 - below.bit_length()


def root(value: Fraction) -> Fraction:
    """Return the square root where it is a short dyadic number, or one that is little more."""
    above, below = value.as_integer_ratio()
    unit = Fraction(2) ** ((above.bit_length() - below.bit_length()) // 2 - KEPT_BITS)
    return (math.isqrt(math.ceil(value / unit**2) - 1) + 1) * unit if value else ZERO


def text(value: Any, missing: str = "inf") -> str:
    """Return about the number."""
    return missing if value is None else f"{Decimal(value.numerator) / value.denominator:.9g}"


def bits(rows: Iterable[Any]) -> int:
    """Return how many bits the largest number has."""
    return max((max(max(row), -min(row)).bit_length() for row in rows), default=0)


def aligned(pairs: list[tuple[int, int]], vectors: int = 1) -> Vector:
    """Return numbers times powers of two as whole numbers times one of them."""
    powers = [power for whole, power in pairs if whole] or [0]
    least = min(powers)
    need(vectors * len(pairs) * (max(powers) - least) <= MAX_SUM, DIFFERENT)
    return [whole << (power - least) if whole else 0 for whole, power in pairs], least


def product(left: Iterable[Any], width: int, right: Rows) -> Iterator[list[int]]:
    """Yield the rows of a product; rows of the right matrix are packed, `width` bits a left one."""
    size = len(right[0]) if right else 0
    count = (width + bits(right) + len(right).bit_length() + 9) // 8
    need(max(len(right), size) * size * 8 * count <= MAX_SUM, DIFFERENT)
    half = 1 << (8 * count - 1)
    offset = int.from_bytes(half.to_bytes(count, "little") * size, "little")
    packed = [b"".join((x + half).to_bytes(count, "little") for x in row) for row in right]
    wholes = [int.from_bytes(row, "little") - offset for row in packed]
    for row in left:
        data = (sum(map(mul, row, wholes)) + offset).to_bytes(count * size, "little")
        starts = range(0, len(data), count)
        yield [int.from_bytes(data[k : k + count], "little") - half for k in starts]


def plus(A: Matrix, t: Fraction, B: Matrix) -> Matrix:
    """Return ``A + t B``."""
    whole, power = parts(t)
    least = min(A[1], power + B[1])
    need(len(A[0]) ** 2 * (max(A[1], power + B[1]) - least) <= MAX_SUM, DIFFERENT)
    a, b = 1 << (A[1] - least), whole << (power + B[1] - least)
    rows = zip(A[0], B[0], strict=True)
    return [[a * x + b * y for x, y in zip(one, two, strict=True)] for one, two in rows], least


def is_positive(S: Rows) -> bool:
    """Return whether a symmetric matrix is shown to be positive semidefinite."""
    if any(row[j] < 0 or (row[j] == 0 and any(row)) for j, row in enumerate(S)):
        return False
    live = [(j, row[j].bit_length() // 2) for j, row in enumerate(S) if row[j]]
    # A congruence by powers of two makes the diagonal about 4^most: at least half, at most twice.
    most = max([FACTOR_BITS, *(half for _, half in live)])
    S = [[S[j][k] << (2 * most - a - b) for k, b in live] for j, a in live]
    if bits(S) > 2 * most + 1:  # an entry that is larger than those of the diagonal
        return False
    cut = 2 * (most - FACTOR_BITS)
    L = cholesky([[math.ldexp(x >> cut, -2 * FACTOR_BITS) for x in row] for row in S])
    wholes = [[int(math.ldexp(x, FACTOR_BITS)) for x in row] for row in L]
    square = product(wholes, bits(wholes), [list(column) for column in zip(*wholes, strict=True)])
    rests = ([s - (p << cut) for s, p in zip(*both, strict=True)]
             for both in zip(S, square, strict=True))  # fmt: skip
    dominant = all(2 * rest[j] >= sum(map(abs, rest)) for j, rest in enumerate(rests))
    return dominant or (len(S) <= MAX_ELIMINATED and eliminates(S))


def cholesky(S: list[list[float]]) -> list[list[float]]:
    """Return about the factor of S less little of its diagonal, or zeros where it has none."""
    size, L = len(S), list[list[float]]()
    for j, row in enumerate(S):
        new: list[float] = []
        for k in range(j):
            new.append((row[k] - sum(map(mul, new, L[k]))) / L[k][k])
        pivot = row[j] - size * 2.0**-48 - sum(map(mul, new, new))
        if not pivot > 0.0:
            return [[0.0] * size] * size
        L.append([*new, math.sqrt(pivot), *[0.0] * (size - j - 1)])
    return L


def eliminates(S: Rows) -> bool:
    """Return the same by elimination without fractions [Bareiss 1968], zero pivots included."""
    previous = 1
    while S:
        top, S = S[0], S[1:]
        if top[0] < 0 or (top[0] == 0 and any(top)):
            return False
        S = [[(top[0] * x - row[0] * b) // previous if top[0] else x
              for x, b in zip(row[1:], top[1:], strict=True)] for row in S]  # fmt: skip
        previous = top[0] or previous
    return True


class Case:
    """Readings, their intervals and what is minimized, exactly."""

    def __init__(self, held: dict[str, Any], folder: str) -> None:
        self.held, self.folder, self.claim = held, folder, held["claim"]
        sizes: list[Any] = [held.get(name) for name in ("n", "m")]
        flags, forms = [held.get(name, False) for name in FLAGS], held.get("forms", [])
        sound = all(type(size) is int and 1 <= size <= MAX_ENTRIES for size in sizes)
        need(sound and isinstance(forms, list), "n and m must be whole numbers, forms a list")
        need(all(type(each) is bool for each in flags), f"{', '.join(FLAGS)}: true or false")
        self.n, self.m, self.psd, self.is_complex, conjugate = *sizes, *flags
        self.size, self.t, self.limit = (1 + self.is_complex) * self.n, ONE, ""
        need(self.size**2 <= MAX_ENTRIES, "n is too large")
        self.rows = self.vectors(held.get("U"), self.m - len(forms), -1 if conjugate else 1)
        self.forms = [self.matrix(each) for each in forms]
        self.b, self.delta, self.lo, self.hi, self.weights = (
            self.array(held.get(name, [None] * self.m), self.m, name) for name in READINGS
        )
        self.ridge, self.lower, self.upper, self.norm, self.shift, self.sigma = (
            self.array([held.get(name)], 1, name)[0] for name in NUMBERS
        )
        need(all((x or 0) >= 0 for x in [self.ridge, *self.weights, *self.delta]), "weights < 0")
        plain = "Hermitian" if self.is_complex else "symmetric"
        self.kind = "positive semidefinite" if self.psd else plain
        self.set_objective()

    def set_objective(self) -> None:
        """Set what is minimized."""
        squares, cone = self.claim == "least_squares", self.held.get("cone", NOTHING)
        pairs = zip(self.weights, self.b, strict=True)
        self.weights = [w if squares and b is not None else None for w, b in pairs]
        self.alpha = ONE if self.claim == "nearest" else (squares and self.ridge) or ZERO
        self.identity = [[int(j == k) for k in range(self.size)] for j in range(self.size)], 0
        self.C = self.matrix(self.held.get("C") if self.claim == "interval" else NOTHING)
        self.C = self.identity if self.claim == "min_trace" else self.C
        self.prior = self.matrix(self.held.get("prior", NOTHING))
        need(cone is NOTHING or (self.psd and set(cone) == {"rank", "factor"}), "cone: not allowed")
        self.cone = self.matrix(cone)

    def array(self, spec: Any, count: int, name: str = "y", *, exact: bool = True) -> list[Any]:
        """Return an array: fractions and None, or as it is written, where None is not allowed."""
        need(0 <= count <= MAX_ENTRIES, f"{name} is too large")
        coded, exponent = isinstance(spec, dict), 0
        if coded and "integers" in spec:
            spec, exponent = spec["integers"], spec.get("exponent", 0)
        elif coded:  # float64 numbers, infinite where there is none
            data = self.stored(spec)
            need(len(data) == 8 * count, f"{name} has {len(data)} bytes, not {8 * count}")
            spec = [None if math.isinf(x) else x for x in struct.unpack(f"<{count}d", data)]
        need(isinstance(spec, list) and len(spec) == count, f"{name} must have {count} numbers")
        most = min(MAX_EXPONENT, MAX_SUM // max(count, 1))
        need(type(exponent) is int and abs(exponent) <= most, f"{name}: no exponent, or too large")
        for x in spec:
            number = type(x) is int or (type(x) is float and math.isfinite(x))
            need(number or (exact and x is None), f"{name} must hold finite numbers")
        unit, exact = Fraction(2) ** exponent, exact or exponent != 0
        return [x if x is None else Fraction(x) * unit for x in spec] if exact else spec

    def stored(self, spec: dict[str, Any]) -> bytes:
        """Return what is given in base64, or in a file next to the certificate."""
        if "base64" in spec:
            return base64.b64decode(spec["base64"], validate=True)
        with open(os.path.join(self.folder, os.path.basename(spec["file"])), "rb") as file:
            data = file.read(MAX_FILE)
        need(hashlib.sha256(data).hexdigest() == spec.get("sha256"), "a file has another SHA-256")
        return data

    def vectors(self, spec: Any, count: int, sign: int = 1) -> list[Vector]:
        """Return `count` vectors of n numbers, as real ones; sign -1 conjugates them."""
        found, rows = self.array(spec, count * self.size, "U or a factor", exact=False), []
        for start in range(0, len(found), self.size):
            row = [parts(each) for each in found[start : start + self.size]]
            if self.is_complex:
                row = row[::2] + [(sign * whole, power) for whole, power in row[1::2]]
            rows.append(aligned(row, count))
        return rows

    def matrix(self, spec: Any) -> Matrix:
        """Return the Hermitian matrix of entries, or ``X diag(signs) X*`` of a factor X."""
        need(isinstance(spec, dict), "a matrix must be an object")
        if "entries" not in spec:
            rank = spec.get("rank")
            need(type(rank) is int and 0 <= rank <= MAX_ENTRIES, "neither entries nor a rank")
            signs = self.array(spec.get("signs", [1] * rank), rank, "signs", exact=False)
            return self.summed(signs, self.vectors(spec.get("factor"), rank))
        found = self.array(spec["entries"], self.n * self.size, "entries", exact=False)
        whole, power = aligned([parts(each) for each in found])
        M = [whole[k : k + self.size] for k in range(0, len(whole), self.size)]
        if self.is_complex:
            top = [row[::2] + [-x for x in row[1::2]] for row in M]
            M = top + [row[1::2] + row[::2] for row in M]
        need([list(column) for column in zip(*M, strict=True)] == M, "a matrix is not Hermitian")
        return M, power

    def summed(self, weights: list[Any], rows: list[Vector]) -> Matrix:
        """Return ``sum_i weights_i u_i u_i*``."""
        if self.is_complex:  # u = (p, q) and iu = (-q, p) make the real form of u u*
            turned = [([-x for x in row[self.n :]] + row[: self.n], power) for row, power in rows]
            weights, rows = weights * 2, rows + turned
        pairs = zip(map(parts, weights), rows, strict=True)
        whole, power = aligned([(w, p + 2 * q) for (w, p), (_, q) in pairs])
        used = [(w, row) for w, (row, _) in zip(whole, rows, strict=True) if w]
        used = used or [(0, [0] * self.size)]
        plain, weighted = [row for _, row in used], [[w * x for x in row] for w, row in used]
        return list(product(zip(*plain, strict=True), bits(plain), weighted)), power

    def left(self, y: list[Fraction], sign: int = 1) -> Matrix:
        """Return ``C + F*(y)``, less what A >= 0 makes superfluous."""
        T = plus(self.summed(y[: len(self.rows)], self.rows), Fraction(sign), self.C)
        for t, C in zip(y[len(self.rows) :], self.forms, strict=True):
            T = plus(T, t, C)
        return plus(T, -ONE, self.cone)

    def readings(self, A: Matrix) -> list[Fraction]:
        """Return ``F(A)``."""
        rows = [row for row, _ in self.rows]
        images = zip(product(rows, bits(rows), A[0]), rows, strict=True)
        found = (sum(map(mul, image, row)) for image, row in images)
        units = (Fraction(2) ** (2 * power + A[1]) for _, power in self.rows)
        return [*map(mul, found, units), *(self.inner(C, A) for C in self.forms)]

    def inner(self, A: Matrix, B: Matrix) -> Fraction:
        """Return ``Re tr(A B)``, which the real form of a complex matrix has twice."""
        whole = sum(sum(map(mul, one, two)) for one, two in zip(A[0], B[0], strict=True))
        return whole * Fraction(2) ** (A[1] + B[1] - self.is_complex)

    def ends(self, i: int) -> tuple[Any, Any]:
        """Return the ends of reading i, None where there is none."""
        lo, hi, b, delta = self.lo[i], self.hi[i], self.b[i], self.delta[i]
        stated = lo is not None or hi is not None or b is None or delta is None
        return (lo, hi) if stated else (b - self.t * delta, b + self.t * delta)

    def bound(self, spec: Any, sign: int = 1, level: Fraction = ZERO) -> Fraction:
        """Return the bound that y proves on what A with a cost up to `level` cost at least."""
        y = [each or ZERO for each in self.array(spec, self.m)]
        paid, T = self.conjugates(y), self.left(y, sign)
        if self.alpha:
            return self.inner(T, self.prior) - self.inner(T, T) / (4 * self.alpha) - paid
        left = abs(self.shift or ZERO) if self.psd else root(self.inner(T, T))
        shown = not self.psd or is_positive(plus(T, left, self.identity)[0])
        need(shown, "C + F*(y) is not shown to be positive semidefinite", Unproved)
        return (-left * self.size_of(level) if left else ZERO) - paid

    def conjugates(self, y: list[Fraction]) -> Fraction:
        """Return ``sum_i phi_i*(y_i)``, rounded up."""
        total = ZERO
        for i, t in enumerate(y):
            lo, hi = self.ends(i)
            if self.weights[i]:  # y = s + t, where s is paid by the square, t by an end
                b, w = self.b[i], self.weights[i]
                s = t if hi is None else min(t, 2 * w * (hi - b))
                s = s if lo is None else max(s, 2 * w * (lo - b))
                total += s * b + root((s * s / (4 * w)) ** 2)  # a quotient, rounded up
                t = t - s
            if t:
                end = hi if t > 0 else lo
                need(end is not None, f"y uses an end of reading {i} that there is not", Unproved)
                total += t * end
        return total

    def size_of(self, level: Fraction) -> Fraction:
        """Return a bound on A: one that sigma shows, or up to which the claim is made."""
        if self.sigma is None or self.psd:
            need(self.norm is not None, "C + F*(y) is not 0, and no norm is stated", Unproved)
            self.limit = f" of {'trace' if self.psd else 'norm'} up to {text(self.norm)}"
            return abs(self.norm)
        kept, total = [], ZERO
        for i, (row, power) in enumerate(self.rows):
            (lo, hi), h = self.ends(i), self.features(row)
            if lo is not None and hi is not None:
                most = max(abs(lo), abs(hi))
            elif self.weights[i]:
                most = abs(self.b[i]) + root(max(level, ZERO) / self.weights[i])
            else:
                continue
            # Rounded down by less than 1; squares on and above the diagonal count twice at most.
            kept.append([(x << FEATURE_BITS) >> bits([h]) for x in h])
            total += (most * Fraction(2) ** (FEATURE_BITS - bits([h]) - 2 * power)) ** 2
        count = len(kept) * len(kept[0]) if kept else 0
        need(self.sigma > 0 and 0 < count <= MAX_ENTRIES, "sigma: no rows, or too many")
        M = list(product(zip(*kept, strict=True), bits(kept), kept))
        for j, row in enumerate(M):
            row[j] -= 2 * (math.ceil(self.sigma) + math.isqrt(count) + 1) ** 2
        need(is_positive(M), "sigma is not shown", Unproved)
        return root(total) / self.sigma

    def features(self, x: list[int]) -> list[int]:
        """Return the row of F in the entries of A on and above the diagonal."""
        p, q, n, mixed = x[: self.n], x[self.n :] or [0] * self.n, self.n, self.is_complex
        pairs = [(j, k) for j in range(n) for k in range(j, n)]
        real = [(1 + (j < k)) * (p[j] * p[k] + q[j] * q[k]) for j, k in pairs]
        return real + [2 * (q[j] * p[k] - p[j] * q[k]) for j, k in pairs if mixed and j < k]

    def answer(self) -> tuple[Fraction, str]:
        """Return what A costs, and in words what it meets; raise if it does not meet all."""
        spec: Any = self.held.get("A")
        A = self.matrix(spec)
        shown = not self.psd or not {"entries", "signs"} & spec.keys() or is_positive(A[0])
        need(shown, "A is not shown to be positive semidefinite", Unproved)
        size = self.inner(self.identity, A) if self.psd else root(self.inner(A, A))
        need(not self.limit or size <= abs(self.norm), "A is larger than norm", Unproved)
        away = plus(A, -ONE, self.prior)
        cost = self.inner(self.C, A) + self.alpha * self.inner(away, away)
        for i, value in enumerate(self.readings(A)):
            lo, hi = self.ends(i)
            if (lo is not None and value < lo) or (hi is not None and hi < value):
                ends = f"[{text(lo, '-inf')}, {text(hi)}]"
                raise Unproved(f"reading {i} of A is {text(value)}, outside {ends}")
            cost += self.weights[i] * (value - self.b[i]) ** 2 if self.weights[i] else 0
        words = "A is positive semidefinite and" if self.psd else "A is"
        asked = sum(self.ends(i) != (None, None) for i in range(self.m))
        return cost, f"{words} within all {asked} intervals of {self.m} readings"


def check_infeasible(case: Case) -> str:
    """Check that no A is within the intervals, `allowed` rows left out."""
    proofs, allowed = case.held.get("proofs", [case.held.get("y")]), case.held.get("allowed", 0)
    need(isinstance(proofs, list) and type(allowed) is int, "proofs: a list; allowed: a number")
    need(not allowed or "sigma" not in case.held, "sigma: not where rows may be left out")
    least = min((case.bound(spec) for spec in proofs), default=ZERO)
    need(least > 0, f"y proves {text(least)}, which is not positive", Unproved)
    duals = (case.array(spec, case.m)[: len(case.rows)] for spec in proofs)
    supports = [{i for i, t in enumerate(y) if t} for y in duals]
    need(not can_be_hit(supports, allowed), "rows left out can avoid every proof", Unproved)
    which = f", whichever {allowed} rows are left out" if allowed else ""
    return f"no {case.kind} A{case.limit} is within all intervals{which} (y proves {text(least)})"


def can_be_hit(supports: list[set[int]], allowed: int) -> bool:
    """Return whether some rows, that many at most, have a member of each set."""
    rest = ([each for each in supports if i not in each] for i in (supports or [set()])[0])
    return not supports or (allowed > 0 and any(can_be_hit(each, allowed - 1) for each in rest))


def check_bounds(case: Case) -> str:
    """Check that what is minimized, or ``<C, A>`` of all A, is between `lower` and `upper`."""
    lower, upper, minimax, said = case.lower, case.upper, case.claim == "minimax", ""
    need(lower is not None or upper is not None, "neither lower nor upper is stated")
    need(None in (lower, upper) or lower <= upper, "lower is above upper", Unproved)
    if lower is not None and (lower > 0 or not minimax):
        case.t = lower if minimax else ONE
        found = case.bound(case.held.get("y"), 1, lower)
        shown = found > 0 if minimax else found >= lower
        need(shown, f"lower is not shown: y proves {text(found)}", Unproved)
    if upper is not None and case.claim == "interval":
        found = -case.bound(case.held.get("y_upper"), -1)
        need(found <= upper, f"upper is not shown: y_upper proves {text(found)}", Unproved)
    elif upper is not None:
        case.t = upper if minimax else ONE
        found, said = case.answer()
        need(found <= upper, f"A costs {text(found)}, more than upper", Unproved)
    words = f"{BOUNDED[case.claim]} of all {case.kind} A{case.limit} is between"
    return f"{words} {text(lower, '-inf')} and {text(upper)}{said and ': ' + said}"


BOUNDED = {"minimax": "the least largest error in units of delta",
           "least_squares": "the least sum of squares",
           "nearest": "the least squared distance from the prior",
           "min_trace": "the least trace", "interval": "within all intervals, <C, A>"}  # fmt: skip
CHECKS = {"met": lambda case: case.answer()[1], "infeasible": check_infeasible}
CHECKS |= dict.fromkeys(BOUNDED, check_bounds)


def check(held: Any, folder: str = ".") -> tuple[bool, str]:
    """Return whether the claim of a certificate is true, and why; raise `Malformed`."""
    try:
        need(isinstance(held, dict), "not a JSON object")
        need(held.get("format") == "quadsense-certificate", "not a certificate")
        need(held.get("version") == VERSION, f"this checker is for version {VERSION}")
        need(held.get("claim") in CHECKS, "an unknown claim")
        return True, CHECKS[held["claim"]](Case(held, folder))
    except Unproved as error:
        return False, str(error)
    except (OSError, ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as error:
        raise Malformed(f"{type(error).__name__}: {error}") from None


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
