"""Stochastic gradient descent on the cosh potential [QSZ24, Alg. 2 and 4]."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.methods.base import COLD, Problem, Warm
from quadsense.methods.descent.blocks import BlockDescent, serves
from quadsense.methods.descent.program import Descent, DescentProgram, DescentState
from quadsense.methods.descent.traits import SGD_BATCH, StochasticDescentTraits


@dataclass(frozen=True)
class StochasticState(DescentState):
    """State of SGD: the iterate, and where the batches come from.

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
    amortised O(B) per step, whatever n. In general (Alg. 4) all residuals move, O(mB), and the norm
    costs O(m^2) (``norm="exact"``) or O(m) (``norm="bound"``,
    :math:`\|s\| \sqrt{\lambda_{\max}(K)}`, never too small, so the step is never too long).
    Batches are drawn without replacement.

    Departs from [QSZ24] with ``schedule="continuation"``: lam doubles stage by stage, and c is
    halved or raised every four passes over the data as the potential rises or falls. Rows that are
    held in parts, in files or on a cluster, are taken a part at a time (see `blocks`).
    """

    @classmethod
    def suited_to(cls, problem: Problem) -> type[Any]:
        """Itself, or where rows are held in parts, steps of a whole part."""
        return BlockDescent if serves(problem) else cls

    def _batch_size(self, problem: Problem) -> int:
        wanted = problem.options.batch_size
        return min(problem.m, SGD_BATCH) if wanted is None else wanted

    def prepare(self, problem: Problem) -> DescentProgram:
        """What follows from the problem, the bound on the norm of a gradient included."""
        program = super().prepare(problem)
        wanted = problem.options.norm
        if wanted is None:
            wanted = "exact" if problem.options.schedule == "paper" else "bound"
        if wanted == "exact":
            return program
        assert problem.gram is not None
        return replace(program, eigenvalue=float(problem.gram.top))

    def start(self, program: DescentProgram, warm: Warm = COLD) -> StochasticState:
        """State at the start, the generator's included."""
        state = super().start(program, warm)
        known = {entry.name: getattr(state, entry.name) for entry in fields(DescentState)}
        generator = dict(np.random.default_rng(program.problem.seed).bit_generator.state)
        order = np.arange(program.problem.m)
        return StochasticState(**known, order=order, generator=generator)

    def stride(self, program: DescentProgram) -> int:
        """Steps worth about a millisecond, and several passes where samples are cheap."""
        m, batch = program.problem.m, self._batch_size(program.problem)
        if program.identity and program.compiled:
            return max(1, max(40_000, 8 * m) // batch)
        if not program.compiled:
            return 10 if not program.on_device else max(10, program.device_stride)
        work = m * (batch + 4) + (m**2 if program.eigenvalue == 0.0 else 0)
        return max(1, 2_000_000 // work)

    def patience(self, program: DescentProgram) -> int:
        """Strides without progress that count as stalled: at least 100 passes over the data."""
        batch = self._batch_size(program.problem)
        passes = 100 * program.problem.m // (batch * self.stride(program))
        return max(super().patience(program), passes)

    def advance(self, program: DescentProgram, state: DescentState, steps: int) -> StochasticState:
        """Return the state after at most `steps` more steps."""
        assert isinstance(state, StochasticState)
        rng = np.random.default_rng()
        rng.bit_generator.state = state.generator
        order = state.order.copy()
        schedule = (
            program.base,
            state.sharpness,
            state.target,
            state.goal,
            state.c,
            program.adapt,
            program.sharpen,
            self._batch_size(program.problem),
        )
        if program.identity and program.compiled:
            from quadsense.methods.descent.sampling import sample_orthonormal

            y, d = state.y.copy(), state.d.copy()
            sharpness, target, c, value, top, taken, mark, age = sample_orthonormal(
                rng, order, y, d, *schedule, state.mark, state.age, steps
            )
        else:
            loop = _loop(program)
            y, d, sharpness, target, c, value, top, taken, mark, age = loop(
                program.gram,
                program.scale,
                rng,
                order,
                state.y,
                state.d,
                *schedule,
                program.eigenvalue,
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


def _loop(program: DescentProgram) -> Any:
    """The loop for any K; imported here, so that only those who descend wait for Numba."""
    if program.on_device:
        from quadsense.methods.descent.on_device import sample

        return sample
    from quadsense.methods.descent.sampling import sample_general, sample_general_compiled

    return sample_general_compiled if program.compiled else sample_general
