"""Gradient descent on the cosh potential, of residuals and of eigenvalues [QSZ24, Alg. 1, 3].

What its stochastic form shares with it is here, too: everything but the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from quadsense.arrays import Array, Vector, is_numpy, is_tensor, namespace, to_numpy
from quadsense.core import theory
from quadsense.core.matrix import SensedMatrix
from quadsense.core.records import record
from quadsense.core.theory import log_potential
from quadsense.measurements.oracle import symmetrised
from quadsense.methods.base import (
    COLD,
    SAME,
    Problem,
    Trace,
    Warm,
    own,
    product_flops,
    stride_of,
    works_on_device,
)
from quadsense.methods.descent import (
    ClosedFormTraits,
    DescentOptions,
    GradientDescentTraits,
)
from quadsense.proofs.rounding import Enclosure
from quadsense.vocabulary import Claim

MIN_STEP = 1e-10
"""Step times sharpness below which descent is not told from the rounding of log Phi, as section 3
of docs/theory.md has it."""

STEP_GROWTH = 1.25
"""Growth of a step after one that descends: 1.1 takes more steps, 2 is about as good
(docs/theory.md, section 10)."""

MAX_SHARPENING = 1000.0
"""How far beyond the lemma's lambda a stalled descent may sharpen the potential."""

BATCH_STEP_GROWTH, MIN_BATCH_STEP, MAX_BATCH_STEP = 1.5, 1e-6, 4.0
"""The same growth for batches, and the least step and, over ``arccosh(2.2 m)``, the largest."""

PASSES_PER_CHANGE = 4
"""Passes over the data after which the step of batches is changed."""

MAX_EXPONENT = 700.0
"""Exponent that float64 holds."""

STRIDE_ENTRIES, MIN_STEP_ENTRIES = 1_000_000, 1000
"""Entries of K that a stride of compiled steps reads, about a millisecond; and how many are read in
the time that a step takes by itself."""


@dataclass(frozen=True)
class DescentState:
    """An iterate, in units of the tolerance.

    Attributes
    ----------
    iteration : int
        Steps taken.
    y, d : arrays of shape (m,)
        Residual ratios ``z / delta`` and coefficients, ``c = weight * d`` (see `Descent`).
    max_ratio : float
        ``max|y|``, as maintained: 1 or less means that the tolerance seems met.
    goal : float
        What `max_ratio` must come down to (below 1 where rounding wants room).
    sharpness, target, c : float
        L = lam delta, the ratio that this stage aims at, step times lam.
    log_potential : float
        log Phi.
    """

    iteration: int
    y: Array
    d: Array
    max_ratio: float
    goal: float
    sharpness: float
    target: float
    c: float
    log_potential: float


@dataclass(frozen=True)
class DescentProgram:
    """All that the descents read and never change.

    Attributes
    ----------
    problem : Problem
    gram : Any
        K as the loops want it: the array (empty for the identity) or the operator.
    identity, compiled : bool
        Whether K is the identity, and whether compiled loops serve: vectors in NumPy's memory and
        K explicit or the identity.
    scale, weight : arrays of shape (m,)
        G's diagonal, and ``c / d``; see `Descent`.
    least_delta : float
    y : array of shape (m,)
        Residual ratios of A_1.
    max_ratio : float
        The largest of them.
    base : float
        ``arccosh(2.2 m)``.
    sharpness, target, c : float
        Of the first step.
    adapt, sharpen : bool
        Whether c may change (not where the paper or the user fixed it), and whether lam may grow.
    batch_size : int or None
        Samples per step; None: all.
    eigenvalue : float
        Bound on the largest eigenvalue of G K G (G at most 1), or 0 for the exact norm.
    limit, lemma : int or None, str
        Iterations after which the lemma has delivered, where its constants are kept.
    """

    problem: Problem
    gram: Any
    identity: bool
    compiled: bool
    scale: Array
    weight: Array
    least_delta: float
    y: Array
    max_ratio: float
    base: float
    sharpness: float
    target: float
    c: float
    adapt: bool
    sharpen: bool
    batch_size: int | None = None
    eigenvalue: float = 0.0
    limit: int | None = None
    lemma: str = ""

    @property
    def stride(self) -> int:
        """Steps that are not compiled between two looks at the clock."""
        rows = self.problem.rows
        formed = self.gram.kind == "explicit"
        return stride_of(self.problem, float(rows.m) ** 2 if formed else 2.0 * product_flops(rows))

    @property
    def share(self) -> float:
        """Share of the measurements that a step looks at."""
        return 1.0 if self.batch_size is None else self.batch_size / self.problem.m


class Descent:
    """Descent on the cosh potential in measurement coordinates.

    Notes
    -----
    A step along sigma = sinh(L y) moves d by sigma and y by ``-G K G sigma``. With orthonormal
    rows G = I and weight = delta: every row moves in units of its own tolerance, and the lemma
    holds as if all tolerances were equal. Otherwise ``G = min(delta)/delta`` and
    ``weight = min(delta) G``: the gradient of the potential with ``lam_i = L/delta_i``, the step
    limited by the sharpest row.
    """

    name: ClassVar[str]
    short_strides_first: ClassVar[bool] = True

    def _batch_size(self, problem: Problem) -> int | None:
        return None

    def prepare(self, problem: Problem) -> DescentProgram:
        """K, the scaling of the rows, and the schedule's constants [QSZ24, Alg. 1-4, lines 1-3]."""
        gram: Any = problem.gram
        assert gram is not None
        options, batch_size = problem.options, self._batch_size(problem)
        identity = bool(gram.kind == "identity")
        compiled = gram.kind in ("identity", "explicit") and _read_by_numpy(problem)
        kernel, delta, z = gram, problem.delta, problem.initial_residual()
        if compiled:
            kernel = np.empty((0, 0)) if identity else to_numpy(gram.values)
            delta, z = to_numpy(delta), to_numpy(z)
        least = float(to_numpy(delta).min())
        scale = 0.0 * delta + 1.0 if identity else least / delta
        y = z / delta
        ratio = float(abs(to_numpy(y)).max())
        base = theory.sharpness(problem.m)
        if options.schedule == "paper":
            failure = options.failure if batch_size is not None else None
            sharpness, target, c = theory.sharpness(problem.m, failure), 1.0, theory.PAPER_C
        else:
            target = max(1.0, 0.5 * ratio)
            sharpness, c = base / target, 1.0
        if options.lam is not None:
            sharpness, target = options.lam * least, 1.0
        share = 1.0 if batch_size is None else batch_size / problem.m
        if options.c is not None:
            c = options.c
        if options.step is not None:
            c = options.step * (sharpness / least) / share
        continuing = options.schedule == "continuation"
        program = DescentProgram(
            problem=problem,
            gram=kernel,
            identity=identity,
            compiled=compiled,
            scale=scale,
            weight=delta if identity else least * scale,
            least_delta=least,
            y=y,
            max_ratio=ratio,
            base=base,
            sharpness=sharpness,
            target=target,
            c=c,
            adapt=continuing and options.c is None and options.step is None,
            sharpen=continuing and options.lam is None,
            batch_size=batch_size,
        )
        return program if continuing else _promised(program)

    def start(self, program: DescentProgram, warm: Warm = COLD) -> Any:
        """State at A_1."""
        return DescentState(
            iteration=0,
            y=program.y,
            d=0.0 * program.y,
            max_ratio=program.max_ratio,
            goal=1.0,
            sharpness=program.sharpness,
            target=program.target,
            c=program.c,
            log_potential=log_potential(program.sharpness * program.y),
        )

    def promise(self, program: DescentProgram) -> tuple[int | None, str]:
        """The iterations of the lemma, with the paper's schedule."""
        return program.limit, program.lemma

    def patience(self, program: DescentProgram) -> int:
        """Strides without progress that count as stalled."""
        return 200

    def checked(self, program: DescentProgram, state: DescentState) -> Enclosure | None:
        """Residuals that the method has just evaluated from the data itself: none."""
        return None

    def claim(self, program: DescentProgram, state: DescentState) -> Claim | None:
        """Met, once the maintained ratios say so."""
        return Claim("met") if state.max_ratio <= state.goal else None

    def correct(self, program: DescentProgram, state: Any, z: Array, goal: float) -> Any:
        """Put the recomputed residual in the place of the maintained one."""
        delta = program.problem.delta
        y = to_numpy(z) / to_numpy(delta) if program.compiled else z / delta
        return replace(state, y=y, goal=goal, max_ratio=float(abs(to_numpy(y)).max()))

    def matrix(self, program: DescentProgram, state: Any) -> SensedMatrix:
        """``A_1 - F*(c)``."""
        return program.problem.matrix(own(program.problem, program.weight * state.d))

    def first(self, problem: Problem) -> SensedMatrix:
        """A_1."""
        return problem.first()

    def dual(self, program: DescentProgram, state: Any) -> Vector | None:
        """None: descent bounds nothing from below."""
        return None

    def trace(self, program: DescentProgram, state: DescentState) -> Trace:
        """Ratios, log potential, and the paper's lambda and epsilon for the sharpest row."""
        lam = state.sharpness / program.least_delta
        step = program.share * state.c / lam if lam > 0.0 else math.inf  # where lam has underflowed
        return Trace(
            lambda: np.abs(to_numpy(state.y)), state.log_potential, lam, step, state.sharpness
        )


def _read_by_numpy(problem: Problem) -> bool:
    """Whether compiled loops serve: they read NumPy's arrays, and tensors in the same memory."""
    return is_numpy(problem.delta) or (is_tensor(problem.delta) and not works_on_device(problem))


def _promised(program: DescentProgram) -> DescentProgram:
    """The program with what the lemma promises, where its constants are kept."""
    problem, batch_size = program.problem, program.batch_size
    deltas = to_numpy(problem.delta)
    spread = 1.0 if program.identity else float(deltas.max() / deltas.min())
    promised = theory.schedule(
        m=problem.m,
        radius=program.max_ratio,
        delta=1.0,
        batch_size=batch_size,
        c=program.c,
        spread=spread,
        orthonormal=program.identity,
        **({} if batch_size is None else {"failure": problem.options.failure}),
    )
    if program.sharpness < promised.lam * SAME or program.c > theory.LARGEST_PROVEN_C:
        return program  # overridden beyond what any lemma covers
    limit = math.ceil(promised.iterations * program.sharpness / promised.lam)
    proved = SAME * spread <= 1.0 and _nearly_orthogonal(program)
    return replace(program, limit=limit, lemma=promised.lemma if proved else "")


def _nearly_orthogonal(program: DescentProgram) -> bool:
    """Whether the paper's coherence bound ``rho <= 1/(10 m)`` holds."""
    if program.identity:
        return True
    m, gram = program.problem.m, program.problem.gram
    if getattr(gram, "kind", "") != "explicit":
        return False
    K = to_numpy(gram.values)  # type: ignore[union-attr]
    largest = max(float(np.abs(row[np.arange(m) != i]).max(initial=0.0)) for i, row in enumerate(K))
    return SAME * math.sqrt(largest) <= 1.0 / (10 * m)


class GradientDescent(GradientDescentTraits, Descent):
    r""":math:`A \leftarrow A - \epsilon \nabla\Phi/\|\nabla\Phi\|_F` in measurement coordinates.

    Notes
    -----
    ``A = tau I - F*(c)`` at every iterate, so only c and the residual are carried:
    :math:`z \leftarrow z - \eta K s`, :math:`c \leftarrow c + \eta s`,
    :math:`\|\nabla\Phi\|_F = \sqrt{s^T K s}`. O(m) per step with orthonormal rows, O(m^2) with K
    formed, where the printed algorithm takes O(m n^2). In exact arithmetic the iterates are equal.

    Departs from [QSZ24] with ``schedule="continuation"``: lam doubles stage by stage, and the step
    is the largest that still descends.
    """

    def stride(self, program: DescentProgram) -> int:
        """Steps worth about a millisecond."""
        m = program.problem.m
        if not program.compiled:
            return program.stride
        return max(1, STRIDE_ENTRIES // (MIN_STEP_ENTRIES + (m if program.identity else m**2)))

    def advance(self, program: DescentProgram, state: DescentState, steps: int) -> DescentState:
        """Return the state after at most `steps` more steps."""
        y, d, sharpness, target, c, value, top, taken = _loop(program)(
            program.gram,
            program.scale,
            state.y,
            state.d,
            program.base,
            state.sharpness,
            state.target,
            state.goal,
            state.c,
            program.adapt,
            program.sharpen,
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
        )


def _loop(program: DescentProgram) -> Any:
    """The loop for this K; imported here, so that only those who descend wait for Numba."""
    if program.compiled:
        from quadsense.methods.descent.kernels import descend as compiled

        return compiled
    from quadsense.methods.descent.loops import descend

    return descend


@record(frozen=True)
class SpectralProblem(Problem):
    """Algorithm 3 as Algorithm 1 on eigenvalues.

    Attributes
    ----------
    A_1 : array of shape (n, n)
        The start.
    vectors : array of shape (n, n)
        Eigenvectors of the whitened start.
    color : callable
        ``A*^{1/2} Y A*^{1/2}``.
    """

    A_1: Array = None
    vectors: Array = None
    color: Callable[[Array], Array] = None  # type: ignore[assignment]

    def initial_residual(self) -> Array:
        """Eigenvalues of the whitened start, minus one."""
        return -self.b


class Spectral(GradientDescent):
    r"""Algorithm 3: gradient descent on the eigenvalues of ``A*^{-1/2} A A*^{-1/2} - I``.

    Notes
    -----
    Every iterate of Algorithm 3 has ``X_t`` with the same eigenvectors:
    :math:`X_{t+1} = X_t - \lambda\epsilon \sinh(X_t)/\|\sinh(X_t)\|_F`. So one
    eigendecomposition of ``A*^{-1/2} A_1 A*^{-1/2}`` serves all of them, and what is left is
    Algorithm 1 on n numbers with K = I: the eigenvalues minus one are the residuals. The printed
    algorithm decomposes anew in every iteration; in exact arithmetic the iterates are equal.
    """

    name = "spectral"

    def matrix(self, program: DescentProgram, state: DescentState) -> SensedMatrix:
        """``A_1 - A*^{1/2} Q diag(c) Q* A*^{1/2}``."""
        problem = program.problem
        assert isinstance(problem, SpectralProblem)
        Q = problem.vectors
        xp = namespace(Q)
        complex_ = xp.isdtype(Q.dtype, "complex floating")
        c = xp.astype(own(problem, program.weight * state.d), Q.dtype)
        move = (Q * c) @ (xp.conj(Q.T) if complex_ else Q.T)
        return SensedMatrix.from_dense(problem.A_1 - symmetrised(problem.color(move)))

    def first(self, problem: Problem) -> SensedMatrix:
        """The start."""
        assert isinstance(problem, SpectralProblem)
        return SensedMatrix.from_dense(problem.A_1)


class ClosedForm(ClosedFormTraits, Descent):
    r""":math:`A = \tau I - \sum_i z_i u_i u_i^*`: exact when the rows are orthonormal.

    Notes
    -----
    The paper's footnote has the like, :math:`\sum_i b_i u_i u_i^*` [QSZ24, Section 5]; this one
    is the nearest to ``tau I`` of all matrices that fit.
    """

    def prepare(self, problem: Problem) -> DescentProgram:
        """What follows from the problem."""
        if problem.gram is None or problem.gram.kind != "identity":
            raise ValueError(
                "method 'closed_form' needs orthonormal rows, and these are not: use 'gd' or 'sgd'"
            )
        return super().prepare(replace(problem, options=DescentOptions()))

    def stride(self, program: DescentProgram) -> int:
        """One step is all."""
        return 1

    def advance(self, program: DescentProgram, state: DescentState, steps: int) -> DescentState:
        """Take the whole residual away."""
        return replace(
            state,
            iteration=state.iteration + 1,
            d=state.d + state.y,
            y=0.0 * state.y,
            max_ratio=0.0,
        )
