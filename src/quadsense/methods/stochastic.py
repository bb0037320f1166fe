"""Stochastic gradient descent on the cosh potential [QSZ24, Alg. 2 and 4]."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.methods.base import Problem
from quadsense.methods.descent import Descent, DescentState
from quadsense.methods.traits.stochastic import BATCH, StochasticDescentTraits


@dataclass(frozen=True)
class StochasticState(DescentState):
    """State of SGD: beside the iterate, where the batches come from.

    Attributes
    ----------
    order : ndarray of shape (m,)
        The permutation whose head is the batch.
    generator : dict
        State of the bit generator.
    mark, age : float, int
        Log potential at the last change of c, and the steps since.
    """

    order: npt.NDArray[np.int64] = None  # type: ignore[assignment]
    generator: dict[str, Any] = None  # type: ignore[assignment]
    mark: float = math.inf
    age: int = 0


class StochasticDescent(StochasticDescentTraits, Descent):
    r"""Steps along a uniform batch's gradient, normalised by the full gradient's norm.

    Notes
    -----
    With orthonormal rows (Alg. 2) only the batch's residuals move and the norm is maintained:
    amortised O(B) a step, whatever n. In general (Alg. 4) all residuals move, O(mB), and the norm
    costs O(m^2) (``norm="exact"``) or O(m) (``norm="bound"``,
    :math:`\|s\| \sqrt{\lambda_{\max}(K)}`, never too small, so the step is never too long).
    Batches are drawn without replacement.

    Departs from [QSZ24] with ``schedule="continuation"``: lam doubles stage by stage, and c is
    halved or raised every four passes over the data as the potential rises or falls.
    """

    def _batch_size(self, problem: Problem) -> int:
        wanted = problem.options.batch_size
        return min(problem.m, BATCH) if wanted is None else wanted

    def _eigenvalue(self, problem: Problem) -> float:
        """Bound on the largest eigenvalue of G K G (G at most 1), or 0 for the exact norm."""
        wanted = problem.options.norm
        if wanted is None:
            wanted = "exact" if problem.options.schedule == "paper" else "bound"
        return float(self._gram(problem).top) if wanted == "bound" else 0.0

    def start(self, problem: Problem) -> StochasticState:
        """State at the start, the generator's included."""
        state = super().start(problem)
        known = {entry.name: getattr(state, entry.name) for entry in fields(DescentState)}
        # A generator of our own: the user's moves on, and two solves with it differ.
        own = np.random.default_rng(int(problem.seed.integers(2**63)))
        generator = dict(own.bit_generator.state)
        return StochasticState(**known, order=np.arange(problem.m), generator=generator)

    def stride(self, problem: Problem) -> int:
        """Steps worth about a millisecond, and several passes where samples are cheap."""
        batch = self._batch_size(problem)
        if self._identity(problem) and self._compiled(problem):
            return max(1, max(40_000, 8 * problem.m) // batch)
        if not self._compiled(problem):
            return 10
        work = problem.m * (batch + 4) + (problem.m**2 if self._eigenvalue(problem) == 0.0 else 0)
        return max(1, 2_000_000 // work)

    def patience(self, problem: Problem) -> int:
        """Strides without progress that count as stalled: at least 100 passes over the data."""
        passes = 100 * problem.m // (self._batch_size(problem) * self.stride(problem))
        return max(super().patience(problem), passes)

    def advance(self, problem: Problem, state: DescentState, steps: int) -> StochasticState:
        """At most so many steps on."""
        # Here, so that only those who descend wait for Numba.
        from quadsense.methods.sampling import (
            sample_general,
            sample_general_compiled,
            sample_orthonormal,
        )

        assert isinstance(state, StochasticState)
        rng = np.random.default_rng()
        rng.bit_generator.state = state.generator
        order = state.order.copy()
        schedule = (
            self._base(problem),
            state.sharpness,
            state.target,
            state.goal,
            state.c,
            self._adapt(problem),
            self._sharpen(problem),
            self._batch_size(problem),
        )
        if self._identity(problem) and self._compiled(problem):
            y, d = state.y.copy(), state.d.copy()
            sharpness, target, c, value, top, taken, mark, age = sample_orthonormal(
                rng, order, y, d, *schedule, state.mark, state.age, steps
            )
        else:
            loop = sample_general_compiled if self._compiled(problem) else sample_general
            y, d, sharpness, target, c, value, top, taken, mark, age = loop(
                self._kernel_gram(problem),
                self._scale(problem),
                rng,
                order,
                state.y,
                state.d,
                *schedule,
                self._eigenvalue(problem),
                state.mark,
                state.age,
                steps,
            )
        return replace(
            state,
            iteration=state.iteration + taken,
            y=y,
            d=d,
            sharpness=sharpness,
            target=target,
            c=c,
            log_potential=value,
            max_ratio=top,
            order=order,
            generator=dict(rng.bit_generator.state),
            mark=mark,
            age=age,
        )
