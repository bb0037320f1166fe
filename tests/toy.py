"""A method in one file, as docs/extending.md tells it: cyclic projections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from quadsense.core.matrix import SensedMatrix
from quadsense.methods import COLD, Claim, Options, Problem, Traits, Warm
from quadsense.methods.base import Stepped
from quadsense.methods.traits import Work, option


@dataclass(frozen=True)
class ToyOptions(Options):
    relaxation: float = option(1.0, "share of the way to each measurement's plane")

    def check(self, m: int) -> None:
        if not 0 < self.relaxation < 2:
            raise ValueError(f"relaxation must lie between 0 and 2, got {self.relaxation!r}")


@dataclass(frozen=True)
class ToyState:
    iteration: int
    A: Any
    max_ratio: float


class Toy(Traits, Stepped):
    name, summary = "toy", "projections on one measurement after the other"
    cones, needs = frozenset({"symmetric"}), frozenset({"rows"})
    one_sided = without_tolerance = random = False
    options = ToyOptions
    coordinates = classmethod(lambda cls, shape: "matrix")
    memory = classmethod(lambda cls, shape: 3 * shape.matrix_bytes)
    work = classmethod(lambda cls, shape: Work(100 * shape.product, 0.0, 100.0 * shape.m))
    prepare = staticmethod(lambda problem: problem)

    def start(self, program: Problem, warm: Warm = COLD) -> ToyState:
        return self._at(program, 0, program.tau * np.eye(program.rows.n))

    def _at(self, program: Problem, done: int, A: Any) -> ToyState:
        ratios = np.abs(program.rows.forward(A) - program.b) / program.delta
        return ToyState(done, A, float(np.max(ratios)))

    def advance(self, program: Problem, state: ToyState, steps: int) -> ToyState:
        A = state.A.copy()
        for u, b in zip(program.rows.rows(), program.b, strict=True):
            A -= program.options.relaxation * (u @ A @ u - b) * np.outer(u, u)
        return self._at(program, state.iteration + 1, A)

    def claim(self, program: Problem, state: ToyState) -> Claim | None:
        return Claim("met") if state.max_ratio < 0.99 else None

    def matrix(self, program: Problem, state: ToyState) -> SensedMatrix:
        return SensedMatrix.from_dense(state.A)
