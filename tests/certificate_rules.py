"""The rules of CERTIFICATE.md a second time, by fractions and without a thought for speed.

Nothing here is taken from `quadsense_check.py`: complex numbers are pairs of fractions, nothing is
packed, definiteness is an exact elimination, and a root is never taken where squares can be
compared.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import struct
from fractions import Fraction
from typing import Any

Number = tuple[Fraction, Fraction]
ZERO = Fraction(0)
TINY = Fraction(1, 2**4000)  # what must be positive: of numbers of this size


class Refused(Exception):
    """A field is missing or has another form."""


def plus(a: Number, b: Number) -> Number:
    return a[0] + b[0], a[1] + b[1]


def times(a: Number, b: Number) -> Number:
    if not (a[1] or b[1]):
        return a[0] * b[0], ZERO
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def conj(a: Number) -> Number:
    return a[0], -a[1]


def numbers(spec: Any, count: int) -> list[Fraction | None]:
    """An array of the file."""
    if isinstance(spec, dict) and "integers" in spec:
        unit = Fraction(2) ** spec["exponent"]
        spec = [None if k is None else Fraction(k) * unit for k in spec["integers"]]
    elif isinstance(spec, dict):
        data = base64.b64decode(spec["base64"])
        spec = [x if math.isfinite(x) else None for x in struct.unpack(f"<{len(data) // 8}d", data)]
        if any(x is not None and math.isnan(x) for x in spec):
            raise Refused("not a number")
    if len(spec) != count:
        raise Refused("length")
    return [None if x is None else Fraction(x) for x in spec]


class Claim:
    """A certificate, as fractions."""

    def __init__(self, held: dict[str, Any]) -> None:
        self.held, self.n, self.m = held, held["n"], held["m"]
        self.complex, self.psd = held.get("complex") is True, held.get("psd") is True
        forms = held.get("forms", [])
        self.live = self.m - len(forms)
        self.u = self.vectors(held["U"], self.live)
        if held.get("conjugate") is True:
            self.u = [[conj(x) for x in u] for u in self.u]
        self.forms = [self.hermitian(form) for form in forms]
        none = [None] * self.m
        self.b, self.delta, self.lo, self.hi, self.weights = (
            numbers(held.get(name, none), self.m) for name in ("b", "delta", "lo", "hi", "weights")
        )
        if any(each is not None and each < 0 for each in self.weights + self.delta):
            raise Refused("negative")
        self.limited = False  # whether a bound on A is taken for granted
        self.set_ends(Fraction(1))

    def set_ends(self, t: Fraction) -> None:
        """Intervals, with deltas multiplied by t."""
        self.ends = []
        for lo, hi, b, d in zip(self.lo, self.hi, self.b, self.delta, strict=True):
            given = (lo, hi) != (None, None) or b is None or d is None
            self.ends.append([lo, hi] if given else [b - t * d, b + t * d])

    def vectors(self, spec: Any, count: int) -> list[list[Number]]:
        """Vectors of n complex numbers."""
        step = 2 if self.complex else 1
        flat = numbers(spec, count * self.n * step)
        if None in flat:
            raise Refused("a missing number")
        flat = (
            [(x, ZERO) for x in flat]
            if step == 1
            else list(zip(flat[::2], flat[1::2], strict=True))
        )
        return [flat[k * self.n : (k + 1) * self.n] for k in range(count)]

    def hermitian(self, held: dict[str, Any]) -> list[list[Number]]:
        """A matrix, or that of a factor."""
        if "entries" in held:
            M = self.vectors(held["entries"], self.n)
            pairs = itertools.product(range(self.n), repeat=2)
            if any(M[j][k] != conj(M[k][j]) for j, k in pairs):
                raise Refused("not Hermitian")
            return M
        signs = numbers(held.get("signs", [1] * held["rank"]), held["rank"])
        return self.sum_of(signs, self.vectors(held["factor"], held["rank"]))

    def sum_of(self, weights: list[Any], vectors: list[list[Number]]) -> list[list[Number]]:
        """``sum_i weights_i u_i u_i*``."""
        M = [[(ZERO, ZERO)] * self.n for _ in range(self.n)]
        for w, u in zip(weights, vectors, strict=True):
            for j, k in itertools.product(range(self.n), repeat=2) if w else ():
                M[j][k] = plus(M[j][k], times((w, ZERO), times(u[j], conj(u[k]))))
        return M

    def inner(self, A: Any, B: Any) -> Fraction:
        """``Re tr(A B)`` of Hermitian matrices."""
        pairs = itertools.product(range(self.n), repeat=2)
        return sum((times(A[j][k], B[k][j])[0] for j, k in pairs), ZERO)

    def read(self, A: Any, i: int) -> Fraction:
        """Reading i of A."""
        if i >= self.live:
            return self.inner(self.forms[i - self.live], A)
        u, pairs = self.u[i], itertools.product(range(self.n), repeat=2)
        return sum((times(conj(u[j]), times(A[j][k], u[k]))[0] for j, k in pairs), ZERO)

    def added(self, A: Any, t: Fraction, B: Any) -> Any:
        """``A + t B``."""
        return [
            [plus(a, times((t, ZERO), b)) for a, b in zip(one, two, strict=True)]
            for one, two in zip(A, B, strict=True)
        ]

    def identity(self, t: Any = 1) -> Any:
        return [[(Fraction(t * (j == k)), ZERO) for k in range(self.n)] for j in range(self.n)]

    def number(self, name: str) -> Fraction | None:
        found = self.held.get(name)
        return None if found is None else Fraction(found)

    def prior(self) -> Any:
        given = "prior" in self.held
        return self.hermitian(self.held["prior"]) if given else self.identity(0)

    # --- rules --------------------------------------------------------------------------------

    def meets(self) -> list[Fraction] | None:
        """What A reads where it is in the cone and meets every end; else None."""
        A = self.hermitian(self.held["A"])
        if self.psd and not is_positive(A):
            return None
        if self.limited:  # the lower bound is over A up to that size
            norm = abs(self.number("norm"))
            trace = self.inner(self.identity(), A)
            if (trace if self.psd else self.inner(A, A)) > (norm if self.psd else norm * norm):
                return None
        reads = [self.read(A, i) for i in range(self.m)]
        for value, (lo, hi) in zip(reads, self.ends, strict=True):
            if (lo is not None and value < lo) or (hi is not None and value > hi):
                return None
        return reads

    def size_squared(self, squares: Any, level: Fraction) -> Fraction | None:
        """Square of a bound on A."""
        sigma = self.number("sigma")
        if sigma is None or self.psd:
            norm, self.limited = self.number("norm"), True
            return None if norm is None else norm * norm
        total, rows, basis = ZERO, [], self.basis()
        for i in range(self.live):
            lo, hi = self.ends[i]
            if lo is not None and hi is not None:
                most = max(abs(lo), abs(hi))
            elif i in squares:
                most = abs(self.b[i]) + root_above(max(level, ZERO) / self.weights[i])
            else:
                continue
            scale, row = Fraction(1), [self.read(E, i) for E in basis]
            largest = max(map(abs, row))
            while largest and not 2**23 <= largest * scale < 2**24:
                scale *= 2 if largest * scale < 2**23 else Fraction(1, 2)
            scale = scale if largest else Fraction(2) ** 24
            rows.append([scale * each for each in row])
            total += (scale * most) ** 2
        return total / sigma**2 if rows and self.sees(rows, basis, sigma) else None

    def basis(self) -> list[Any]:
        """The matrices of one entry and its mirror image."""
        found = []
        for j in range(self.n):
            for k in range(j, self.n):
                for unit in [(Fraction(1), ZERO), (ZERO, Fraction(1))][
                    : 1 + (self.complex and k > j)
                ]:
                    E = self.identity(0)
                    E[j][k], E[k][j] = unit, conj(unit)
                    found.append(E)
        return found

    def sees(self, rows: list[list[Fraction]], basis: list[Any], sigma: Fraction) -> bool:
        """Whether ``||D F(A)|| >= sigma ||A||``: by its matrix in the entries of A."""
        M = [[sum((h[a] * h[b] for h in rows), ZERO) for b in range(len(basis))]
             for a in range(len(basis))]  # fmt: skip
        for a, E in enumerate(basis):
            M[a][a] -= sigma * sigma * self.inner(E, E)
        return sigma > 0 and is_positive([[(x, ZERO) for x in row] for row in M])

    def proves(
        self, spec: Any, least: Fraction, C: Any = None, *, alpha: Fraction = ZERO,
        squares: Any = (),
    ) -> bool:  # fmt: skip
        """Whether y shows that the objective is at least that."""
        y = [each or ZERO for each in numbers(spec, self.m)]
        cost = ZERO
        for i, t in enumerate(y):
            lo, hi = self.ends[i]
            if i in squares:
                w, b = self.weights[i], self.b[i]
                low = t if lo is None else max(t, 2 * w * (lo - b))
                s = low if hi is None else min(low, 2 * w * (hi - b))
                cost += s * b + s * s / (4 * w)
                t -= s
            if t and (hi if t > 0 else lo) is None:
                return False
            cost += t * (hi if t > 0 else lo) if t else 0
        T = self.sum_of(y[: self.live], self.u)
        for t, F in zip(y[self.live :], self.forms, strict=True):
            T = self.added(T, t, F)
        T = T if C is None else self.added(T, Fraction(1), C)
        if "cone" in self.held:
            if not self.psd or set(self.held["cone"]) != {"rank", "factor"}:
                raise Refused("cone")
            T = self.added(T, Fraction(-1), self.hermitian(self.held["cone"]))
        left = self.inner(T, T)
        if alpha:
            return self.inner(T, self.prior()) - left / (4 * alpha) - cost >= least
        spare = -cost - least
        if self.psd:
            shift = abs(self.number("shift") or ZERO)
            if not is_positive(self.added(T, shift, self.identity())):
                return False
            size = self.size_squared((), ZERO) if shift else ZERO
            return size is not None and spare >= 0 and shift**2 * size <= spare**2
        if not left:
            return spare >= 0
        size = self.size_squared(squares, least)
        return size is not None and spare >= 0 and left * size <= spare * spare

    def is_true(self) -> bool:
        """Whether the rule of the claim holds."""
        held, claim = self.held, self.held["claim"]
        if claim == "met":
            return self.meets() is not None
        if claim == "infeasible":
            return self.is_contradiction()
        lower, upper = self.number("lower"), self.number("upper")
        if lower is None and upper is None:
            raise Refused("no bounds")
        if claim == "interval":
            C = self.hermitian(held["C"])
            below = lower is None or self.proves(held["y"], lower, C)
            return below and (upper is None or self.proves(held["y_upper"], -upper, self.added(
                self.identity(0), Fraction(-1), C)))  # fmt: skip
        squares = {i for i in range(self.m) if self.weights[i] and self.b[i] is not None}
        squares = squares if claim == "least_squares" else set()
        alpha = {"nearest": Fraction(1), "least_squares": self.number("ridge") or ZERO}.get(
            claim, ZERO
        )
        if alpha < 0:
            raise Refused("negative")
        C = self.identity() if claim == "min_trace" else None
        if lower is not None:
            if upper is not None and lower > upper:
                return False
            kinds = {"alpha": alpha, "squares": squares}
            if claim == "minimax":  # no A has errors up to `lower`
                self.set_ends(lower)
                shown = lower <= 0 or self.proves(held["y"], TINY)
            else:
                shown = self.proves(held["y"], lower, C, **kinds)
            if not shown:
                return False
        if claim == "minimax" and upper is not None:
            self.set_ends(upper)
            return upper >= 0 and self.meets() is not None
        return upper is None or self.costs(C, alpha, squares) <= upper

    def costs(self, C: Any, alpha: Fraction, squares: Any) -> Any:
        """What A costs; infinite where it is not admitted."""
        reads = self.meets()
        if reads is None:
            return math.inf
        A = self.hermitian(self.held["A"])
        away = self.added(A, Fraction(-1), self.prior()) if alpha else A
        found = alpha * self.inner(away, away) + (self.inner(C, A) if C else 0)
        return found + sum(self.weights[i] * (reads[i] - self.b[i]) ** 2 for i in squares)

    def is_contradiction(self) -> bool:
        """Whether every vector is a proof, and no `allowed` rows include one of each."""
        allowed = self.held.get("allowed", 0)
        proofs = self.held.get("proofs", [self.held.get("y")])
        if allowed and "sigma" in self.held:
            raise Refused("sigma")
        if not proofs or not all(self.proves(each, TINY) for each in proofs):
            return False
        vectors = [numbers(each, self.m) for each in proofs]
        for rows in itertools.combinations(range(self.live), min(allowed, self.live)):
            if all(any(y[i] for i in rows) for y in vectors):
                return False
        return True


def is_positive(M: list[list[Number]]) -> bool:
    """Whether a Hermitian matrix is positive semidefinite, by exact elimination."""
    M = [list(row) for row in M]
    while M:
        pivot = M[0][0][0]
        if pivot < 0 or (pivot == 0 and any(x != (0, 0) for x in M[0])):
            return False
        top, rest = M[0], M[1:]
        M = [
            [
                plus(x, times((-1 / pivot, ZERO), times(row[0], b))) if pivot else x
                for x, b in zip(row[1:], top[1:], strict=True)
            ]
            for row in rest
        ]
    return True


def root_above(value: Fraction) -> Fraction:
    """A number of which the square is above that, by little."""
    unit = 2**600
    return Fraction(math.isqrt(value.numerator * unit * unit // value.denominator) + 1, unit)


def is_true(text: str) -> bool:
    """Whether the certificate in a text is true."""
    return Claim(json.loads(text)).is_true()
