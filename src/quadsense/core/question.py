"""The question: which A is wanted of those that fit, as one convex problem on the readings.

With ``v = F(A)`` it is to minimise

    <C, A> + alpha ||A - P||_F^2 - log det A (where `log_det`) + sum_i phi_i(v_i)

over symmetric (Hermitian) A, or over ``A >= 0``. The terms ``phi_i`` say what a reading may be and
what it costs; `RowTerm` lists them. Every preference, slack and interval is such a question, and
one vector y bounds every one of them from below: as ``phi_i(v) >= y v - phi_i*(y)``,

    objective >= -sum_i phi_i*(y_i) + inf_A ( <C + F*(y), A> + alpha ||A - P||_F^2 - log det A ).

The interior-point kernel and the proofs both go by this file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector
from quadsense.core.intervals import Array
from quadsense.core.records import record

RowTerm: TypeAlias = Literal[
    "within", "squares", "likelihood", "center", "slack_max", "slack_sum", "slack_squares"
]
"""What a reading v costs, with its distance d from ``[lo, hi]`` and its weight w:

- "within": nothing inside the interval, infinite outside (as for all the others but slack);
- "squares": ``w (v - reading)^2``;
- "likelihood": ``slope (v - reading) - w log((v - lo)/(reading - lo))``, without an upper end: what
  the deviance of w/2 counts has in it, where ``slope/2`` is the exposure, or 0 for shares of shots;
- "center": ``-log(v - lo) - log(hi - v)``, an infinite end adding nothing;
- "slack_max": all rows together ``max_i w_i d_i``;
- "slack_sum": ``w d``;
- "slack_squares": ``w d^2``.
"""


@record(frozen=True)
class Question:
    """A convex problem on m readings.

    Attributes
    ----------
    rows : RowTerm
    lo, hi : ndarray of shape (m,)
        Intervals of the intervals, infinite where there is none; equal for an equality.
    weights : ndarray of shape (m,)
        Not negative; not used by "within" and "center". In "squares" a row of weight 0 has its
        interval only; under slack one of weight 0 asks for nothing.
    reading : ndarray of shape (m,)
        Of "squares", 0 where the weight is 0; of "likelihood", lo where the weight is 0.
    hard : ndarray of bool, shape (m,)
        Rows that must lie within their intervals whatever `rows` says, and cost nothing there:
        constraints, and equalities. (In "center" a hard row that is no equality counts as the
        others do.)
    C : ndarray of shape (n, n), or a number for a multiple of I
    alpha : float
        Not negative.
    prior : ndarray of shape (n, n), or a number for a multiple of I
        P; without meaning where alpha is 0.
    psd : bool
        Whether A is sought among the positive semidefinite matrices.
    log_det : bool
        Whether ``-log det A`` is added; then psd.
    slope : ndarray of shape (m,), or 0.0
        Of "likelihood", not negative; 0 for hard rows.
    """

    rows: RowTerm
    lo: Vector
    hi: Vector
    weights: Vector
    reading: Vector
    hard: npt.NDArray[np.bool_]
    C: Array | float = 0.0
    alpha: float = 0.0
    prior: Array | float = 0.0
    psd: bool = False
    log_det: bool = False
    slope: Vector | float = 0.0

    @property
    def m(self) -> int:
        """Number of readings."""
        return int(self.lo.size)

    @property
    def linear(self) -> bool:
        """Whether C is not 0."""
        return self.C != 0.0 if isinstance(self.C, float) else bool(np.any(self.C))

    @property
    def equal(self) -> npt.NDArray[np.bool_]:
        """Which rows are equalities."""
        return np.asarray(self.lo == self.hi)

    @property
    def soft(self) -> npt.NDArray[np.bool_]:
        """Which rows may leave their intervals, at a price."""
        return np.zeros(self.m, bool) if not self.rows.startswith("slack") else ~self.hard

    def scaled(self, factors: Vector) -> Question:
        """The same question on readings that are `factors` times these: rows of another norm.

        The objective keeps its value except for "center", which gains ``-sum log`` of the factor at
        every end. Powers of two change no digit.
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            per = factors if self.rows in ("slack_max", "slack_sum") else factors * factors
            per = np.ones_like(factors) if self.rows == "likelihood" else per
            return replace(
                self,
                lo=self.lo * factors,
                hi=self.hi * factors,
                reading=self.reading * factors,
                weights=self.weights / per,
                slope=self.slope / factors,
            )

    def misses(self, v: Vector) -> Vector:
        """Return distances of readings from their intervals; 0 inside."""
        return np.asarray(np.maximum(np.maximum(v - self.hi, self.lo - v), 0.0))

    def row_cost(self, v: Vector) -> float:
        """Return ``sum_i phi_i(v_i)`` for readings within what they must be within, unchecked."""
        if self.rows == "squares":
            free = ~self.hard
            return float((self.weights[free] * (v - self.reading)[free] ** 2).sum())
        if self.rows == "likelihood":
            free = ~self.hard
            lo, reading, w = self.lo[free], self.reading[free], self.weights[free]
            linear = np.sum((self.slope * (v - self.reading))[~self.hard])
            with np.errstate(divide="ignore", invalid="ignore"):
                logs = w * np.log((v[free] - lo) / (reading - lo))
            logs = np.where(np.isnan(logs), -np.inf, logs)
            return float(linear - logs.sum(where=w > 0.0))
        if self.rows == "center":
            free = ~self.equal
            with np.errstate(divide="ignore", invalid="ignore"):
                logs = np.log(np.concatenate([(v - self.lo)[free], (self.hi - v)[free]]))
            return -float(logs.sum(where=logs < np.inf))
        if self.rows == "within":
            return 0.0
        costs = np.where(self.hard, 0.0, self.weights * self.misses(v))
        if self.rows == "slack_max":
            return float(costs.max(initial=0.0))
        if self.rows == "slack_squares":
            costs = costs * self.misses(v)
        return float(costs.sum())

    def matrix_cost(self, A: Array) -> float:
        """Return what A itself costs, in addition to its readings."""
        cost = 0.0
        if isinstance(self.C, float):
            cost += self.C * float(np.trace(A).real) if self.C else 0.0
        else:
            cost += float(np.vdot(self.C, A).real)
        if self.alpha:
            D = A - (self.prior * np.eye(len(A)) if isinstance(self.prior, float) else self.prior)
            cost += self.alpha * float(np.vdot(D, D).real)
        if self.log_det:
            cost -= float(np.linalg.slogdet(A)[1])
        return cost
