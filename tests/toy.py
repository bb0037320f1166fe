"""A method in one file, as CONTRIBUTING tells it: cyclic projections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from quadsense.core.matrix import SensedMatrix
from quadsense.methods import Claim, Options, Problem, Traits
from quadsense.methods.steps import Stepped
from quadsense.methods.traits.options import option
from quadsense.methods.traits.shape import Work


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
    threads = classmethod(lambda cls, shape: "one")
    memory = classmethod(lambda cls, shape: 3 * shape.matrix_bytes)
    work = classmethod(lambda cls, shape: Work(100 * shape.product, 0.0, 100.0 * shape.m))

    def start(self, problem: Problem) -> ToyState:
        return self._at(problem, 0, problem.tau * np.eye(problem.rows.n))

    def _at(self, problem: Problem, done: int, A: Any) -> ToyState:
        z = problem.rows.forward(A) - problem.b
        return ToyState(done, A, float(np.max(np.abs(z) / problem.delta)))

    def advance(self, problem: Problem, state: ToyState, steps: int) -> ToyState:
        A = state.A.copy()
        for u, b in zip(problem.rows.rows(), problem.b, strict=True):
            A -= problem.options.relaxation * (u @ A @ u - b) * np.outer(u, u)
        return self._at(problem, state.iteration + 1, A)

    def claim(self, problem: Problem, state: ToyState) -> Claim | None:
        return Claim("met") if state.max_ratio < 0.99 else None

    def matrix(self, problem: Problem, state: ToyState) -> SensedMatrix:
        return SensedMatrix.from_dense(state.A)
