"""Random small problems over everything that `quadsense.solve` accepts, one per seed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import exact
import generator_preferences
import generator_rows as rows
import generator_structured as structured
import numpy as np
import scipy.sparse as sp
from generator_question import ask, pick
from linear import Linear

import quadsense
from quadsense.core.matrix import SensedMatrix

DESCENTS = ("gd", "sgd")

PREFERRED = 20_000
"""Seeds below ask for any fit, as they always did."""

STRUCTURED = 1_000_000
"""Seeds from here on have structured probes, sums over rows (`mix`) or both; seeds below, neither.
Odd ones ask for any fit, even ones for more."""

COLUMNS = 2_000_000
"""Seeds from here on have columns of different sizes, of more rows; every fourth may have sums over
rows. Odd ones ask for any fit, even ones for more."""


@dataclass(frozen=True)
class Case:
    """One problem: what is handed to `solve`, and what was in mind when it was made.

    Attributes
    ----------
    U, b, question, options : what is handed over
        Rows as stored; readings or None; `delta`, `rtol`, `bounds`, `conjugate`; all the rest.
    start : Any
        A word, a matrix, None, or the tuple ("earlier", kind) for a result made before.
    wrapped : str
        "arrays", "Measurements" (tolerance and all) or "later" (the tolerance goes to solve).
    known : ndarray or None
        Factor X or matrix A from which the readings were made; whether it fits is for the exact
        arithmetic to say.
    known_is_factor : bool
    labels : dict
        One word for each dimension along which cases differ.
    notes : tuple of str
    dense : ndarray or None
        The rows of structured probes, from their definition; None where U is an array.
    """

    seed: int
    U: Any
    b: Any
    question: dict[str, Any]
    options: dict[str, Any]
    start: Any
    wrapped: str
    known: Any
    known_is_factor: bool
    labels: dict[str, str]
    notes: tuple[str, ...] = field(default=())
    dense: Any = None

    @cached_property
    def rows(self) -> Any:
        """The rows ``u_k`` as meant, float64 or complex128."""
        U = rows.as_read(self.U) if self.dense is None else self.dense
        return U.conj() if self.question.get("conjugate") and np.iscomplexobj(U) else U

    @cached_property
    def mix(self) -> Any:
        """W as a dense float64 array, or None."""
        W = self.question.get("mix")
        return None if W is None else rows.as_read(W)

    @cached_property
    def sums(self) -> tuple[Linear, ...]:
        """With W: ``F_i = sum_k W_ik u_k u_k*`` of every reading."""
        return () if self.mix is None else structured.sums(self.rows, self.mix)

    def values(self, A: Any, is_factor: bool) -> list[Fraction]:
        """What A, or ``X X*`` of a factor, reads, exactly."""
        return structured.readings(self.rows, self.mix, A, is_factor)

    @cached_property
    def squares(self) -> list[Fraction]:
        """``||u_i||^2``, or ``sum_k |W_ik| ||u_k||^2``: what rounding is in proportion to."""
        found = exact.squared_norms(self.rows)
        return found if self.mix is None else structured.weighed(abs(self.mix), found)

    @cached_property
    def live(self) -> list[bool]:
        """Which readings depend on A."""
        if self.mix is not None:
            return [bool(np.any(F.dense != 0)) for F in self.sums]
        return [bool(np.any(u != 0)) for u in self.rows]

    @property
    def m(self) -> int:
        """Number of readings."""
        return int((self.rows if self.mix is None else self.mix).shape[0])

    @property
    def n(self) -> int:
        return int(self.rows.shape[1])

    @property
    def unknowns(self) -> int:
        return self.n**2 if np.iscomplexobj(self.rows) else self.n * (self.n + 1) // 2

    @property
    def has_target(self) -> bool:
        q = self.question
        return q.get("delta") is not None or q.get("rtol", 0.0) > 0 or q.get("bounds") is not None

    @property
    def cone(self) -> str:
        """What A is sought among: "symmetric", "psd" or "rank"."""
        if self.options.get("rank") is not None:
            return "rank"
        positive = self.options.get("psd") or self.options.get("method") == "psd"
        return "psd" if positive else "symmetric"

    @property
    def positive(self) -> bool:
        """Whether only positive semidefinite matrices are sought: with rank (p, 0) too."""
        rank = self.options.get("rank")
        return self.cone != "symmetric" and not (isinstance(rank, tuple) and rank[1] > 0)

    @cached_property
    def linear(self) -> list[tuple[Linear, Any, Any]]:
        """Trace and constraints: ``<C, A>`` and its ends, None where infinite."""
        listed: list[Any] = []
        trace = self.options.get("trace")
        if trace is not None:
            ends = trace if isinstance(trace, tuple) else (trace, trace)
            listed.append((Linear(np.eye(self.n)), *ends))
        for C, lo, hi in self.options.get("constraints", ()):
            listed.append((_linear(C), lo, hi))
        return [(C, *exact.fractions([lo, hi])) for C, lo, hi in listed]

    @property
    def allowed(self) -> int:
        """Measurements that may be set aside."""
        return int(self.options.get("allow_violations", 0))

    @cached_property
    def readings(self) -> list[Fraction]:
        """``b`` exactly."""
        return [Fraction(float(value)) for value in np.asarray(self.b, dtype=float)]

    @cached_property
    def intervals(self) -> tuple[list[Fraction | None], list[Fraction | None]]:
        """Exact ends as given, None where infinite; equal to the reading without a tolerance."""
        bounds = self.question.get("bounds")
        if bounds is not None:
            lo, hi = (np.broadcast_to(np.asarray(end, dtype=float), (self.m,)) for end in bounds)
            return exact.fractions(lo), exact.fractions(hi)
        if not self.has_target:
            return list(self.readings), list(self.readings)
        delta = self.question.get("delta")
        flat = np.broadcast_to(np.asarray(0.0 if delta is None else delta, float), (self.m,))
        rtol = Fraction(float(self.question.get("rtol", 0.0)))
        width = [
            Fraction(float(d)) + rtol * abs(b) for d, b in zip(flat, self.readings, strict=True)
        ]
        pairs = list(zip(self.readings, width, strict=True))
        return [b - w for b, w in pairs], [b + w for b, w in pairs]

    def data(self) -> tuple[Any, Any, dict[str, Any]]:
        """First argument, readings and the question, as they go to `solve`."""
        if self.wrapped == "arrays":
            return self.U, self.b, dict(self.question)
        if self.wrapped == "Measurements":
            return quadsense.Measurements(self.U, self.b, **self.question), None, {}
        later = {k: v for k, v in self.question.items() if k in ("delta", "rtol")}
        now = {k: v for k, v in self.question.items() if k not in later}
        return quadsense.Measurements(self.U, self.b, **now), None, later


def _linear(C: Any) -> Linear:
    """A constraint's matrix as it was given."""
    if isinstance(C, tuple):
        return Linear(*C)
    if isinstance(C, SensedMatrix):
        return Linear(C.factor, np.ones(C.factor.shape[1]))
    return Linear(rows.as_read(C))


def problem(seed: int) -> Case:
    """The case of this seed, always the same; from `PREFERRED` on it asks for one A of all."""
    if seed < PREFERRED or (seed >= STRUCTURED and seed % 2):
        return _problem(seed)
    return generator_preferences.add(_problem(seed), np.random.default_rng([20251, seed]))


def _problem(seed: int) -> Case:
    rng = np.random.default_rng([20250, seed])
    notes: list[str] = []
    complex_ = rng.random() < 0.4
    cone = pick(rng, symmetric=0.5, psd=0.27, rank=0.23)
    allowed = int(rng.integers(1, 4)) if rng.random() < 0.12 else 0
    sizes = None
    if seed < STRUCTURED or (seed >= COLUMNS and seed % 4):
        more = 16 if seed >= COLUMNS and not allowed else 0
        U, twins, labels = _rows(rng, complex_, allowed, notes, more)
        dense = W = None
    else:
        U, dense, W, twins, labels = structured.draw(rng, complex_, allowed, notes)
    if seed >= COLUMNS and dense is None:
        U, sizes = _with_columns(rng, U, labels)
    meant = rows.as_read(U) if dense is None else dense
    n = meant.shape[1]
    conjugate = bool(rng.random() < (0.35 if complex_ else 0.05))
    if conjugate:
        meant = meant.conj()
    size = 10.0 ** rng.uniform(-60, 60) if rng.random() < 0.15 else 10.0 ** rng.uniform(-2, 2)
    known, is_factor, r = _truth(rng, n, np.iscomplexobj(meant), cone, size)
    if sizes is not None:
        known = known / sizes[:, None] if is_factor else known / np.outer(sizes, sizes)
    mix = None if W is None else rows.as_read(W)
    z = structured.readings(meant, mix, known, is_factor)
    squares = exact.squared_norms(meant)
    squares = squares if mix is None else structured.weighed(abs(mix), squares)
    m = len(z)
    z, squares = (np.array([exact.number(v) for v in values]) for values in (z, squares))
    b, question, asked = ask(rng, z, squares, size, cone, allowed, twins, notes)
    if W is not None:
        question["mix"] = W
    if conjugate:
        question["conjugate"] = True
    options: dict[str, Any] = {}
    if cone == "psd":
        options["psd"] = True
    elif cone == "rank":
        options["rank"] = "auto" if rng.random() < 0.25 else r
        if rng.random() < 0.2:
            options["psd"] = True
    elif rng.random() < 0.1:
        options["psd"] = False if rng.random() < 0.5 else None
    easy = labels["norms"] == "ordinary" and not asked["delta"] and asked["regime"] == "feasible"
    if cone == "rank" and not (easy and generous(m, n, np.iscomplexobj(meant), r)):
        few = int(rng.integers(0, 6))  # the default of 200 takes seconds, and that at every rank
        options["max_restarts"] = few // 3 if options["rank"] == "auto" else few
    if allowed:
        options["allow_violations"] = min(allowed, max(m - 1, 0))
    one_sided = asked["bounds"] in ("lower", "upper", "mixed", "free")
    options |= _method(rng, labels, cone, asked["tolerance"] != "none", one_sided)
    options |= _limits(rng, options)
    start = _start(rng, meant, known, is_factor, size, notes)
    labels |= asked | {
        "field": "conjugate" if conjugate else "complex" if complex_ else "real",
        "cone": cone,
        "method": options.get("method", "auto"),
        "violations": str(allowed),
        "start": "matrix" if not isinstance(start, str | tuple) and start is not None
        else str(start),
    }  # fmt: skip
    wrapped = pick(rng, arrays=0.7, Measurements=0.2, later=0.1)
    return Case(
        seed, U, b, question, options, start, wrapped, known, is_factor, labels, tuple(notes),
        dense,
    )  # fmt: skip


def generous(m: int, n: int, complex_: bool, r: int) -> bool:
    """Whether there are enough readings that a fit of rank r should be found."""
    return m >= 4 * n * r * (2 if complex_ else 1)


def _with_columns(rng: np.random.Generator, U: Any, labels: dict[str, str]) -> tuple[Any, Any]:
    """U with its columns times powers of two, or numbers near them, and these numbers."""
    n = np.shape(U)[1]
    most = {"slight": 2, "ordinary": 8, "extreme": 40}
    kind = pick(rng, slight=0.15, ordinary=0.7, extreme=0.15)
    if labels["storage"] in ("integer", "list", "strict") or (
        labels["storage"] == "float32" and kind == "extreme"
    ):
        kind = "slight" if labels["storage"] == "float32" else "none"
    labels["columns"] = kind
    if kind == "none":
        return U, None
    exponents = rng.integers(-most[kind], most[kind] + 1, n)
    sizes = np.ldexp(1.0, exponents) * (rng.choice([1.0, 1.25, 1.5]) if n else 1.0)
    if sp.issparse(U):
        scaled = type(U)(U @ sp.diags_array(sizes))
        return scaled.asformat(U.format), sizes
    return (U * sizes).astype(U.dtype), sizes


def _rows(
    rng: np.random.Generator, complex_: bool, allowed: int, notes: list[str], more: int = 0
) -> tuple[Any, list[Any], dict[str, str]]:
    """U as stored, of that many more rows, pairs of twin rows, labels."""
    most = 5 if complex_ else 8
    n = int(rng.choice(np.arange(1, 9), p=[0.1, 0.2, 0.25, 0.15, 0.12, 0.08, 0.05, 0.05]))
    n = min(n, most)
    if allowed:
        n = min(n, 3)
    unknowns = n * n if complex_ else n * (n + 1) // 2
    m = 1 + int(3 * unknowns * rng.random() ** 1.1)
    if allowed:  # few enough choices to try them all
        m = min(max(m, allowed + 1), {1: 20, 2: 11, 3: 8}[allowed])
    m += more
    geometry = pick(
        rng, gaussian=0.55, whole=0.1, basis=0.08, sparse=0.08, orthonormal=0.08, subspace=0.06,
        coherent=0.05,
    )  # fmt: skip
    storage = pick(
        rng, plain=0.5, fortran=0.08, strided=0.08, csr=0.1, coo=0.05, float32=0.08, integer=0.06,
        list=0.05, strict=0.04,
    )  # fmt: skip
    if storage == "integer":
        geometry, complex_ = "whole", False
    norms = pick(rng, ordinary=0.6, uneven=0.25, extreme=0.15)
    U, twins = rows.disturb(rng, rows.draw(rng, geometry, m, n, complex_), notes)
    if storage != "integer":
        scale = rows.factors(rng, norms, len(U), storage)
        for i, j in twins:
            scale[i] = scale[j]
        U = scale[:, None] * U
    else:
        norms = "ordinary"
    return rows.store(U, storage), twins, {"geometry": geometry, "storage": storage, "norms": norms}


def _truth(
    rng: np.random.Generator, n: int, complex_: bool, cone: str, size: float
) -> tuple[Any, bool, int]:
    """The matrix in mind: X of A = X X*, or A; whether it is X; the rank that is asked for."""
    r = int(rng.integers(1, n + 1)) if rng.random() < 0.3 else min(n, 1 + int(rng.random() < 0.4))
    if cone != "symmetric" or rng.random() < 0.3:
        held = int(rng.integers(1, n + 1)) if cone == "psd" else r
        return math.sqrt(size) * rows.gaussian(rng, n, held, complex_), True, r
    A = rows.gaussian(rng, n, n, complex_)
    return size * (A + A.conj().T), False, r


def _method(
    rng: np.random.Generator, labels: dict[str, str], cone: str, target: bool, one_sided: bool
) -> dict[str, Any]:
    """A method that can do what is asked, its options; "auto" mostly; rarely one that cannot."""
    legal = ["minimax", "psd"]
    if cone == "rank":
        legal = ["low_rank"]
    elif cone == "psd":
        legal = ["psd"]
    elif target and not one_sided:
        legal += ["gd", "gd", "sgd", "sgd", "cg"]
        if labels["geometry"] == "orthonormal":
            legal += ["closed_form", "closed_form"]
    if rng.random() < 0.01:
        legal = ["gd", "minimax", "low_rank", "closed_form", "cg"]
    if rng.random() < 0.5:
        return {"gap": 10.0 ** rng.uniform(-13, -2)} if not target and rng.random() < 0.5 else {}
    method = str(rng.choice(legal))
    options: dict[str, Any] = {"method": method}
    if method == "minimax" and rng.random() < 0.3:
        options["gap"] = 10.0 ** rng.uniform(-13, -2)
    if method in DESCENTS:
        if rng.random() < 0.2:
            options["schedule"] = "paper"
        elif rng.random() < 0.15:
            options["lam"] = 10.0 ** rng.uniform(0, 2)
        if method == "sgd":
            options["rng"] = int(rng.integers(0, 1000))
            if rng.random() < 0.3:
                options["norm"] = str(rng.choice(["exact", "bound"]))
            if rng.random() < 0.3:
                options["batch_size"] = 1
    return options


def _limits(rng: np.random.Generator, options: dict[str, Any]) -> dict[str, Any]:
    """Limits: always for the descents, now and then for the others."""
    if options.get("method") in DESCENTS:
        return {"max_iter": int(rng.choice([50, 3000])), "time_limit": 0.5}
    if rng.random() < 0.06:
        return {"max_iter": int(rng.integers(0, 4))}
    if rng.random() < 0.01:
        return {"callback": stop}
    return {"time_limit": 0.0} if rng.random() < 0.01 else {}


def stop(*_: Any, **__: Any) -> None:
    """End the run from a callback."""
    raise StopIteration


def _start(
    rng: np.random.Generator, U: Any, known: Any, is_factor: bool, size: float, notes: list[str]
) -> Any:
    """A start of any kind."""
    kind = pick(rng, none=0.6, word=0.12, known=0.08, random=0.07, negative=0.04, earlier=0.09)
    n = U.shape[1]
    if kind == "none":
        return None
    if kind == "word":
        return str(rng.choice(["mean", "tau", "zero"]))
    if kind == "earlier":
        return ("earlier", str(rng.choice(["same", "other rows"])))
    notes.append(f"start: {kind}")
    if kind == "known":
        A = known @ known.conj().T if is_factor else known
        return (A + A.conj().T) / 2.0
    if kind == "negative":
        return -size * np.eye(n)
    A = rows.gaussian(rng, n, n, np.iscomplexobj(U))
    return size * (A + A.conj().T)
