"""What gradient descent and its stochastic form share: everything but the step."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from quadsense.arrays import Array, is_numpy, to_numpy
from quadsense.core import theory
from quadsense.core.matrix import SensedMatrix
from quadsense.core.potential import log_potential
from quadsense.methods.base import Problem, Trace
from quadsense.proofs.rounding import Enclosure
from quadsense.vocabulary import Claim


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

    def __init__(self) -> None:
        self.limit: int | None = None
        self.lemma = ""

    # --- K and the scaling of the rows -------------------------------------------------------

    @staticmethod
    def _gram(problem: Problem) -> Any:
        assert problem.gram is not None
        return problem.gram

    def _identity(self, problem: Problem) -> bool:
        return bool(self._gram(problem).kind == "identity")

    def _compiled(self, problem: Problem) -> bool:
        """Whether compiled loops serve: NumPy vectors and K explicit or the identity."""
        return is_numpy(problem.delta) and self._gram(problem).kind in ("identity", "explicit")

    def _kernel_gram(self, problem: Problem) -> Any:
        """K as the loops want it: the array (empty for the identity) or the operator."""
        if not self._compiled(problem):
            return problem.gram
        return np.empty((0, 0)) if self._identity(problem) else self._gram(problem).values

    @staticmethod
    def _least_delta(problem: Problem) -> float:
        return float(to_numpy(problem.delta).min())

    def _scale(self, problem: Problem) -> Array:
        """G's diagonal."""
        if self._identity(problem):
            return 0.0 * problem.delta + 1.0
        return self._least_delta(problem) / problem.delta

    def _weight(self, problem: Problem) -> Array:
        """``c / d``."""
        if self._identity(problem):
            return problem.delta
        return self._least_delta(problem) * self._scale(problem)

    # --- the schedule ------------------------------------------------------------------------

    def _batch_size(self, problem: Problem) -> int | None:
        return None

    @staticmethod
    def _base(problem: Problem) -> float:
        return theory.sharpness(problem.m)

    @staticmethod
    def _adapt(problem: Problem) -> bool:
        """Whether c may change: not where the paper or the user fixed it."""
        options = problem.options
        return options.schedule == "continuation" and options.c is None and options.step is None

    @staticmethod
    def _sharpen(problem: Problem) -> bool:
        """Whether lam may grow."""
        return problem.options.schedule == "continuation" and problem.options.lam is None

    def start(self, problem: Problem) -> DescentState:
        """State at A_1 with the schedule's constants [QSZ24, Alg. 1-4, lines 1-3]."""
        options, batch_size = problem.options, self._batch_size(problem)
        y = problem.initial_residual() / problem.delta
        ratio = float(abs(to_numpy(y)).max())
        if options.schedule == "paper":
            failure = options.failure if batch_size is not None else None
            sharpness, target, c = theory.sharpness(problem.m, failure), 1.0, theory.PAPER_C
        else:
            target = max(1.0, 0.5 * ratio)
            sharpness, c = self._base(problem) / target, 1.0
        if options.lam is not None:
            sharpness, target = options.lam * self._least_delta(problem), 1.0
        share = 1.0 if batch_size is None else batch_size / problem.m
        if options.c is not None:
            c = options.c
        if options.step is not None:
            c = options.step * (sharpness / self._least_delta(problem)) / share
        if options.schedule == "paper":
            self._promise(problem, ratio, batch_size, sharpness, c)
        return DescentState(
            iteration=0,
            y=y,
            d=0.0 * y,
            max_ratio=ratio,
            goal=1.0,
            sharpness=sharpness,
            target=target,
            c=c,
            log_potential=log_potential(sharpness * y),
        )

    def _promise(
        self, problem: Problem, ratio: float, batch_size: int | None, sharpness: float, c: float
    ) -> None:
        """Iterations after which the lemma has delivered, where its constants are kept."""
        deltas = to_numpy(problem.delta)
        spread = 1.0 if self._identity(problem) else float(deltas.max() / deltas.min())
        sampled = {} if batch_size is None else {"failure": problem.options.failure}
        promised = theory.schedule(
            m=problem.m,
            radius=ratio,
            delta=1.0,
            batch_size=batch_size,
            c=c,
            spread=spread,
            orthonormal=self._identity(problem),
            **sampled,
        )
        if sharpness < promised.lam * (1.0 - 1e-12) or c > theory.LARGEST_PROVEN_C:
            return  # overridden beyond what any lemma covers
        self.limit = math.ceil(promised.iterations * sharpness / promised.lam)
        if spread <= 1.0 + 1e-9 and self._nearly_orthogonal(problem):
            self.lemma = promised.lemma

    def _nearly_orthogonal(self, problem: Problem) -> bool:
        """Whether the paper's coherence bound ``rho <= 1/(10 m)`` holds."""
        if self._identity(problem):
            return True
        gram = self._gram(problem)
        if gram.kind != "explicit":
            return False
        K = to_numpy(gram.values)
        largest = max(
            float(row[np.arange(problem.m) != i].max(initial=0.0)) for i, row in enumerate(K)
        )
        return math.sqrt(largest) <= (1.0 + 1e-9) / (10 * problem.m)

    # --- what the loop asks ------------------------------------------------------------------

    def patience(self, problem: Problem) -> int:
        """Strides without progress that count as stalled."""
        return 200

    def checked(self, problem: Problem, state: DescentState) -> Enclosure | None:
        """Residuals that the method has just evaluated from the data itself: none."""
        return None

    def claim(self, problem: Problem, state: DescentState) -> Claim | None:
        """Met, once the maintained ratios say so."""
        return Claim("met") if state.max_ratio <= state.goal else None

    def correct(self, problem: Problem, state: Any, z: Array, goal: float) -> Any:
        """Put the recomputed residual in the place of the maintained one."""
        y = z / problem.delta
        return replace(state, y=y, goal=goal, max_ratio=float(abs(to_numpy(y)).max()))

    def matrix(self, problem: Problem, state: Any) -> SensedMatrix:
        """``A_1 - F*(c)``."""
        return problem.matrix(self._weight(problem) * state.d)

    def trace(self, problem: Problem, state: DescentState) -> Trace:
        """Ratios, log potential, and the paper's lambda and epsilon for the sharpest row."""
        lam = state.sharpness / self._least_delta(problem)
        batch_size = self._batch_size(problem)
        share = 1.0 if batch_size is None else batch_size / problem.m
        ratios = np.abs(to_numpy(state.y))
        step = share * state.c / lam if lam > 0.0 else math.inf  # where lam has underflowed
        return Trace(ratios, state.log_potential, lam, step, state.sharpness)
