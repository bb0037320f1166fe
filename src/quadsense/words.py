"""The message of a result: one or two sentences in the user's own units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack

from quadsense.arrays import to_numpy
from quadsense.certificate import Certificate, Values
from quadsense.measurements import Measurements
from quadsense.result import Status
from quadsense.runs import Answer, Request

SMALL_ORDER = 50
"""Order up to which the smallest eigenvalue is looked at, for a remark only."""


@dataclass(frozen=True)
class Words:
    """The message: the verdict and what it does not say.

    Attributes
    ----------
    request, answer
        What was asked, how the runs ended.
    data : Measurements
        All of them, those set aside included.
    values : Values
        What the answer reads.
    certificate : Certificate
    status : Status
    unique, unseen
        Whether the measurements determine A, how many dimensions they do not see.
    exact : bool
        Whether `unseen` is the number, not a bound.
    suspects : ndarray of int
    """

    request: Request
    answer: Answer
    data: Measurements
    values: Values
    certificate: Certificate
    status: Status
    unique: bool | None
    unseen: int | None
    exact: bool
    suspects: npt.NDArray[np.int64]

    def message(self) -> str:
        """Everything."""
        if self.status is Status.INFEASIBLE:
            return self._infeasible()
        parts = [self._head(), self._seen(), self._remark()]
        return "; ".join(part for part in parts if part)

    @property
    def _kept(self) -> int:
        return self.data.m - self.answer.set_aside.size

    @property
    def _sizes(self) -> Any:
        """Sizes of the residuals of the rows that are not set aside."""
        sizes = np.abs(self.values.residuals)
        if self.answer.set_aside.size:
            sizes = sizes.copy()
            sizes[self.answer.set_aside] = 0.0
        return sizes

    def _head(self) -> str:
        if not self.request.problem.target:
            return self._best_error()
        aside = self.answer.set_aside.size
        rest = f", {aside} set aside as asked" if aside else ""
        if self.status is Status.MET:
            if self.data.from_bounds:
                return f"met: all {self._kept} measurements within their intervals{rest}"
            return f"met: {self._against()}, all {self._kept} measurements within tolerance{rest}"
        over = int(np.count_nonzero(self.values.ratios > 1.0))
        if not over and self.data.contradictions().size == 0:
            found = "every measurement is within tolerance as computed, but not beyond rounding"
            return f"not certified: {found}; {self._reason()}"
        if self.data.from_bounds:
            return f"not met: {self._worst_miss()}, {over} of {self._kept} missed; {self._reason()}"
        return f"not met: {self._against()}, {over} of {self._kept} over; {self._reason()}"

    def _reason(self) -> str:
        claimed = self.answer.outcome.status
        if claimed is not self.status:
            return f"that it is {claimed} could not be proved from the data, rounding included"
        return self.answer.outcome.reason or str(self.status)

    def _against(self) -> str:
        """The worst residual beside its tolerance, in the user's units."""
        sizes, tolerance = self._sizes, to_numpy(self.data.tolerance)
        worst, nearest = int(np.argmax(sizes)), int(np.argmax(self.values.ratios))
        size, delta = float(sizes[worst]), float(tolerance[worst])
        if tolerance.min() == tolerance.max():
            return f"worst residual {size:.4g} against delta {delta:.4g}"
        text = f"worst residual {size:.4g} against a tolerance of {delta:.4g} (row {worst})"
        if nearest == worst:
            return text
        size, delta = float(sizes[nearest]), float(tolerance[nearest])
        return f"{text}, most of its tolerance in row {nearest}, {size:.4g} of {delta:.4g}"

    def _worst_miss(self) -> str:
        """The interval missed by most, and by how much."""
        ends = self.data.ends
        assert ends is not None
        z = np.asarray(self.values.residuals, dtype=np.float64)
        two = ends.sides.all(axis=0)
        z = np.where(two, np.maximum(np.abs(z) - ends.unit, 0.0), np.abs(z))
        z[self.answer.set_aside] = 0.0
        row = int(np.argmax(z))
        return f"worst miss {float(z[row]):.4g}, of the interval {self._interval(row)} in row {row}"

    def _interval(self, row: int) -> str:
        return f"[{float(self.data.lo[row]):.6g}, {float(self.data.hi[row]):.6g}]"

    def _best_error(self) -> str:
        """The smallest worst error that was found, and what is known of smaller ones."""
        certificate, size = self.certificate, float(self._sizes.max())
        if self.status is Status.OPTIMAL:
            if certificate.upper_bound <= 1e-8 * float(np.abs(to_numpy(self.data.b)).max()):
                return f"optimal: an exact fit, worst residual {size:.4g}"
            condition = f" ({certificate.condition})" if certificate.condition else ""
            return (
                f"optimal: worst residual {size:.4g}, and no matrix does better than "
                f"{certificate.lower_bound:.4g}{condition}"
            )
        return f"{self.status}: worst residual {size:.4g}; {self._reason()}"

    def _infeasible(self) -> str:
        data, certificate = self.data, self.certificate
        which = "positive semidefinite matrix" if certificate.psd else "matrix"
        condition = f" ({certificate.condition})" if certificate.condition else ""
        if certificate.allowed:
            count = f"{certificate.allowed} measurement" + "s" * (certificate.allowed > 1)
            return f"infeasible: no {which} meets all but {count}, whichever these are{condition}"
        if data.contradictions().size:
            i = int(self.suspects[0])
            wanted = (
                f"its interval is {self._interval(i)}"
                if data.from_bounds
                else f"b[{i}] = {float(data.b[i]):.6g} with tolerance "
                f"{float(to_numpy(data.tolerance)[i]):.6g}"
            )
            return f"infeasible: row {i} of U is zero, so every matrix reads 0 there, but {wanted}"
        rows = ", ".join(str(int(i)) for i in self.suspects)
        if data.from_bounds:
            assert data.ends is not None
            least = (certificate.lower_bound - 1.0) * float(data.ends.unit.min())
            most = f"some interval by {least:.4g} or more" if least > 0.0 else "some interval"
            said = f"no {which} is within all intervals{condition}; each misses {most}"
        else:
            tolerance = to_numpy(data.tolerance)
            unit = "delta" if tolerance.min() == tolerance.max() else "its tolerance"
            said = (
                f"no {which} meets {unit}{condition}; the best worst-case error is between "
                f"{certificate.lower_bound:.6g} and {certificate.upper_bound:.6g} times {unit}"
            )
        return f"infeasible: {said}; rows {rows} carry most of the contradiction"

    def _seen(self) -> str:
        unknowns = self.data.unit_rows.unknowns
        if self.unique:
            return "the measurements determine A"
        if self.unseen is None:
            return "whether the measurements determine A was too costly to find out"
        least = "" if self.exact else "at least "
        fits = self.status.success
        fit = "A fits, but is not the only one" if fits else "A is not determined"
        return f"{least}{self.unseen} of {unknowns} directions of A are unseen: {fit}"

    def _remark(self) -> str:
        """Advice that costs next to nothing to give."""
        if not self.status.success or self.request.positive or self.data.n > SMALL_ORDER:
            return ""
        b = to_numpy(self.data.b)
        if b.min() < 0.0:
            return ""
        A, shift = np.asarray(self.answer.matrix), 1e-6 * float(b.max())
        moved = A.copy()
        moved.flat[:: len(A) + 1] += shift
        if shift > 0.0 and _is_definite(moved):
            return ""
        smallest = float(np.linalg.eigvalsh(A)[0])
        if smallest < -shift:
            return f"A has a negative eigenvalue ({smallest:.2g}) though no b is: try psd=True"
        return ""


def _is_definite(A: npt.NDArray[Any]) -> bool:
    """Whether a Cholesky factorisation runs to its end, at a tenth of the cost of eigenvalues."""
    factor = lapack.zpotrf if np.iscomplexobj(A) else lapack.dpotrf
    return bool(factor(A, lower=1, clean=0)[1] == 0)
