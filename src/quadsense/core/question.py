"""The question: which A is wanted of those that fit, as one convex problem on the readings.

With ``v = F(A)`` it is to minimise

    <C, A> + alpha ||A - P||_F^2 - log det A (where `log_det`) + sum_i phi_i(v_i)

over symmetric (Hermitian) A, or over ``A >= 0``. The terms ``phi_i`` say what a reading may be and
what it costs; `row_terms` lists them. Every preference, slack and interval is such a question, and
one vector y bounds every one of them from below: as ``phi_i(v) >= y v - phi_i*(y)``,

    objective >= -sum_i phi_i*(y_i) + inf_A ( <C + F*(y), A> + alpha ||A - P||_F^2 - log det A ).

The interior-point kernel and the proofs both go by this file.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector
from quadsense.core.intervals import Array
from quadsense.core.records import record
from quadsense.core.row_terms import RowTerm
from quadsense.core.smooth_terms import ROW_TERMS


@record(frozen=True)
class Question:
    """A convex problem on m readings.

    Attributes
    ----------
    rows : str
        Name of the row term, one of `ROW_TERMS`.
    lo, hi : ndarray of shape (m,)
        Intervals of the intervals, infinite where there is none; equal for an equality.
    weights : ndarray of shape (m,)
        Not negative; not used by terms that are not `weighed`. In "squares" a row of weight 0 has
        its interval only; under slack one of weight 0 asks for nothing.
    reading : ndarray of shape (m,)
        What readings are to be near to: 0 where the weight is 0, or lo if a logarithm is of v - lo.
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
        Of a term that is linear in part; not negative, and 0 for hard rows.
    """

    rows: str
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
    def term(self) -> RowTerm:
        """What readings cost, and all that is asked of that."""
        return ROW_TERMS[self.rows]

    @property
    def soft(self) -> npt.NDArray[np.bool_]:
        """Which rows may leave their intervals, at a price."""
        return ~self.hard if ROW_TERMS[self.rows].soft else np.zeros(self.m, bool)

    def scaled(self, factors: Vector) -> Question:
        """The same question on readings that are `factors` times these: rows of another norm.

        The objective keeps its value except for "center", which gains ``-sum log`` of the factor at
        every end. Powers of two change no digit.
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            per = factors**self.term.power
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

    @property
    def slopes_at_zero(self) -> Vector:
        """The y for which the bound of a row is its cost at the reading 0: slopes of ``phi_i``.

        For rows of zeros, which read 0 whatever A is.
        """
        with np.errstate(all="ignore"):
            slope = self.term.slopes_at_zero(self)
            slope = np.where(self.soft | self.term.priced(self), slope, 0.0)
        return np.where(np.isfinite(slope), slope, 0.0)

    def row_cost(self, v: Vector) -> float:
        """Return ``sum_i phi_i(v_i)`` for readings within what they must be within, unchecked."""
        return self.term.value(self, v)

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
