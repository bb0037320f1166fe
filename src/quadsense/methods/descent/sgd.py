"""Stochastic gradient descent on the cosh potential [QSZ24, Alg. 2 and 4].

Where rows are held in parts it takes block Kaczmarz steps, one part at a time in random order. A
batch of a few rows of a file costs as much as the whole strip that it is in, and to move all
residuals costs a pass over all rows. So a batch is a part, and a step brings A to the fit of that
part that is nearest to it, by a few conjugate gradient steps on its rows while they are at hand:
``A <- A - w F_S^+(F_S(A) - b_S)`` [Needell & Tropp 2014]. On data that some A fits a few passes
serve; on others the steps are shortened pass by pass, and what they tend to is near least squares.

Departs from [QSZ24]: that step is the projection of the residual, not of ``sinh(lambda z)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.measurements.parted import Parted
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import (
    COLD,
    MIN_AMPLE_ROWS,
    SAME,
    Problem,
    Stepped,
    Trace,
    Warm,
    start_matrix,
)
from quadsense.methods.descent import SGD_BATCH, StochasticDescentTraits
from quadsense.methods.descent.gd import (
    PASSES_PER_CHANGE,
    STRIDE_ENTRIES,
    Descent,
    DescentProgram,
    DescentState,
)
from quadsense.system.watch import look
from quadsense.vocabulary import Claim, because

MAX_FEW_ENTRIES = 2**20
"""Entries of U up to which, where rows are not ample, the paper's small steps are the surer way."""

SAMPLE_ENTRIES = 25
"""Entries of K that are read in the time of a sample from orthonormal rows (measured)."""

MAX_INNER_STEPS = 6
"""Conjugate gradient steps on a part: more would fit its noise."""

MAX_RESIDUAL_LEFT = 1e-2
"""Share of a part's residual at which they end."""

MAX_NORM_LEFT = 0.98
"""Share to which the norm of the residuals must fall in a pass ..."""

LENGTH_FACTOR, MIN_LENGTH = 0.5, 2.0**-10
"""... or steps are shortened by this, until they are no steps."""


@dataclass(frozen=True)
class BlockProgram:
    """The problem, and its rows in units of their tolerances' smallest."""

    problem: Problem
    kind: Parted
    A1: npt.NDArray[Any]


@dataclass(frozen=True)
class BlockState:
    """Where the passes stand.

    Attributes
    ----------
    iteration : int
        Parts visited.
    A : (n, n) array
    max_ratio : float
        Worst residual ratio of the last whole pass, each part's before its step.
    worst : float
        The same of the pass under way.
    square, norm : float
        Sum of the squared ratios of the pass under way; its root of the last whole pass.
    order : (parts,) array
        Of this pass.
    length : float
        Of the steps, in units of the projection.
    generator : dict
        State of the bit generator.
    goal : float
        Share of the tolerances aimed at.
    """

    iteration: int
    A: npt.NDArray[Any]
    max_ratio: float
    worst: float
    order: npt.NDArray[np.int64]
    length: float
    generator: dict[str, Any]
    square: float = 0.0
    norm: float = math.inf
    goal: float = 1.0


def serves(problem: Problem) -> bool:
    """Whether rows are in parts, ample or many, and nothing was asked for that is the paper's."""
    options: Any = problem.options
    rows = problem.rows
    plain = rows.raw is rows and isinstance(rows.kind, Parted)
    plain = plain and (
        rows.m >= MIN_AMPLE_ROWS * rows.unknowns or rows.m * rows.n > MAX_FEW_ENTRIES
    )
    given = (options.lam, options.step, options.c, options.batch_size, options.norm)
    return plain and options.schedule != "paper" and all(each is None for each in given)


class BlockDescent(Stepped):
    """`sgd` where rows are held in parts."""

    name = "sgd"

    def prepare(self, problem: Problem) -> BlockProgram:
        """The rows as they are."""
        kind = problem.rows.kind
        assert isinstance(kind, Parted)
        return BlockProgram(problem, kind, start_matrix(problem))

    def start(self, program: BlockProgram, warm: Warm = COLD) -> BlockState:
        """State at A_1, whose residuals are known."""
        problem = program.problem
        rng = np.random.default_rng(problem.seed)
        order = rng.permutation(len(program.kind.begins) - 1)
        ratios = np.abs(to_numpy(problem.initial_residual())) / to_numpy(problem.delta)
        generator = dict(rng.bit_generator.state)
        return BlockState(0, program.A1, float(ratios.max()), 0.0, order, 1.0, generator)

    def advance(self, program: BlockProgram, state: BlockState, steps: int) -> BlockState:
        """Return the state after at most `steps` more parts."""
        for _ in range(steps):
            look()
            place = state.iteration % state.order.size
            following = state.order[place + 1] if place + 1 < state.order.size else None
            D, ratios = _moved(program, state.A, int(state.order[place]), following)
            state = replace(
                state,
                iteration=state.iteration + 1,
                A=state.A + state.length * D,
                worst=max(state.worst, float(ratios.max())),
                square=state.square + float(ratios @ ratios),
            )
            if place + 1 == state.order.size:
                state = _turned(state)
        return state

    def claim(self, program: BlockProgram, state: BlockState) -> Claim | None:
        """Met, once a whole pass has seen nothing beyond the tolerances; stalled, at no length."""
        if state.max_ratio <= state.goal:
            return Claim("met")
        if state.length >= MIN_LENGTH:
            return None
        passes = state.iteration // state.order.size
        return Claim("stalled", because("passes", passes=passes, ratio=state.max_ratio))

    def correct(self, program: BlockProgram, state: BlockState, z: Array, goal: float) -> Any:
        """The same iterate: it was judged before its last steps."""
        ratio = float((np.abs(to_numpy(z)) / to_numpy(program.problem.delta)).max())
        return replace(state, goal=goal, max_ratio=max(ratio, math.nextafter(goal, 2.0)))

    def matrix(self, program: BlockProgram, state: BlockState) -> SensedMatrix:
        """A."""
        return SensedMatrix.from_dense(state.A)

    def trace(self, program: BlockProgram, state: BlockState) -> Trace:
        """The length of the steps."""
        return Trace(step=state.length)


def _turned(state: BlockState) -> BlockState:
    """The state at the end of a pass: another order, and shorter steps where they gain little."""
    rng = np.random.default_rng()
    rng.bit_generator.state = state.generator
    order = rng.permutation(state.order.size)
    norm = math.sqrt(state.square)
    gained = norm <= MAX_NORM_LEFT * state.norm
    return replace(
        state,
        max_ratio=state.worst,
        worst=0.0,
        square=0.0,
        norm=norm,
        order=order,
        length=state.length if gained else LENGTH_FACTOR * state.length,
        generator=dict(rng.bit_generator.state),
    )


def _moved(
    program: BlockProgram, A: npt.NDArray[Any], part: int, following: int | None
) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64]]:
    """The step to the nearest fit of a part, and the residual ratios of that before it."""
    problem, kind = program.problem, program.kind
    here = kind.span(part)
    delta = to_numpy(problem.delta)[here]
    F = problem.rows.of_part(part, following)
    z = F.forward(A) - to_numpy(problem.b)[here]
    ratios = np.abs(z) / delta
    squares = float(delta.min()) / delta
    F = F.weighed(np.sqrt(squares)) if squares.min() < SAME else F
    return _projected(F, -squares * z), ratios


def _projected(F: Sensing, r: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The smallest D with ``F(D)`` near r, by conjugate gradients on the normal equations."""
    wanted = MAX_RESIDUAL_LEFT * float(np.linalg.norm(r))
    D = np.zeros((F.n, F.n), dtype=F.dtype)
    s = p = F.adjoint(r)
    square = float(np.vdot(s, s).real)
    for _ in range(MAX_INNER_STEPS):
        if not square > 0.0:
            break
        q = F.forward(p)
        size = float(q @ q)
        if not size > 0.0:
            break
        D = D + (square / size) * p
        r = r - (square / size) * q
        if float(np.linalg.norm(r)) <= wanted:
            break
        s = F.adjoint(r)
        before, square = square, float(np.vdot(s, s).real)
        p = s + (square / before) * p
    return D


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
    held in parts, in files or on a cluster, are taken a part at a time (see `BlockDescent`).
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
            return max(1, max(STRIDE_ENTRIES // SAMPLE_ENTRIES, 2 * PASSES_PER_CHANGE * m) // batch)
        if not program.compiled:
            return program.stride
        work = m * batch + (m**2 if program.eigenvalue == 0.0 else 0)
        return max(1, STRIDE_ENTRIES // work)

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
            from quadsense.methods.descent.kernels import sample_orthonormal

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
    if program.compiled:
        from quadsense.methods.descent.kernels import sample_general

        return sample_general
    from quadsense.methods.descent.loops import sample

    return sample
