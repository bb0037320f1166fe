"""`prepare`: a problem whose probes are checked and factored once, for readings that come in turn.

For loops, control and streams, where `solve` would spend its time on what does not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import to_numpy
from quadsense.core import products
from quadsense.many.batch import Answers, Batch
from quadsense.many.fallback import certified, solve_alone, take
from quadsense.many.readings import Readings
from quadsense.many.results import STATUSES
from quadsense.many.solve import judged, make_batch
from quadsense.system.threads import one_blas_thread
from quadsense.vocabulary import Status

if TYPE_CHECKING:
    from quadsense.result.result import Result
    from quadsense.typing import MatrixLike, Real, VectorLike

MAX_UPDATES = 200
"""Rank-one updates of the inverse normal matrix before it is made anew, for their rounding adds
up."""


@dataclass(frozen=True)
class PreparedAnswer:
    """The answer for one set of readings.

    Attributes
    ----------
    status : Status
    A : ndarray of shape (n, n)
    coef : ndarray of shape (p,)
        Coefficients of the covariates.
    max_ratio : float
    worst_row : int
    lower_bound : float
        Where INFEASIBLE, a proved lower bound on the `max_ratio` of every A; otherwise 0.
    objective, objective_lower : float
        The weighted sum of squares, and a proved lower bound on the best one.
    """

    status: Status
    A: npt.NDArray[Any]
    coef: npt.NDArray[np.float64]
    max_ratio: float
    worst_row: int
    lower_bound: float
    objective: float
    objective_lower: float
    _batch: Batch
    _answers: Answers

    @property
    def success(self) -> bool:
        """Whether the status is MET or OPTIMAL."""
        return self.status.success

    def __bool__(self) -> bool:
        """Return whether `success`."""
        return self.success

    def __repr__(self) -> str:
        """Return the status, the largest ratio and the sum of squares."""
        return (
            f"<PreparedAnswer {self.status}: largest ratio {self.max_ratio:.4g}, sum of squares "
            f"{self.objective:.6g}>"
        )

    def result(self) -> Result:
        """Return the ordinary `Result`, with its certificate."""
        return certified(self._batch, self._answers, 0)


class Prepared:
    """A prepared problem: see `quadsense.prepare`."""

    def __init__(self, U: Any, b: Any, asked: dict[str, Any]) -> None:
        self._asked = asked
        with one_blas_thread():
            first = np.zeros((1, np.shape(U)[0])) if b is None else to_numpy(b)[None]
            self._batch = make_batch(U, first, **asked)
            self._stream = None if b is None else _RunningSquares(self._batch)
            _ = self._batch.normal

    @property
    def m(self) -> int:
        """Rows, those that were appended among them."""
        return self._batch.readings.m if self._stream is None else self._stream.m

    @property
    def n(self) -> int:
        """Order of A."""
        return self._batch.features.n

    def __repr__(self) -> str:
        """Return the sizes."""
        return f"<Prepared: m = {self.m}, n = {self.n}>"

    def solve(self, b: VectorLike | None = None, *, fallback: bool = True) -> PreparedAnswer:
        """Return the certified least-squares answer for some readings.

        Parameters
        ----------
        b : array_like of shape (m,), optional
            By default the readings given so far: those of `prepare` and `append`.
        fallback : bool, default=True
            Give to `solve` what is not decided at once.
        """
        if b is None and self._stream is None:
            raise ValueError("b is missing: give readings to solve, or to prepare")
        with np.errstate(under="ignore"), one_blas_thread():
            batch = self._current(b)
            answers = Answers.empty(1, batch.features.size, batch.features.p)
            batch.work(batch.readings.chunk(0, 1), answers)
            status, decided = judged(batch, answers, slice(0, 1))
            answers.status[:] = status
            if fallback and not decided[0]:
                take(batch, answers, 0, solve_alone(batch, 0))
        return PreparedAnswer(
            STATUSES[answers.status[0]], batch.features.matrices(answers.packed)[0],
            answers.coef[0], float(answers.max_ratio[0]), int(answers.worst_row[0]),
            float(answers.lower_bound[0]), float(answers.objective[0]),
            float(answers.objective_lower[0]), batch, answers,
        )  # fmt: skip

    def _current(self, b: Any) -> Batch:
        """Return the batch of one problem."""
        if b is None:
            assert self._stream is not None
            if self._stream.pending:
                self._batch = self._stream.batch(self._asked)
            return self._batch
        found = to_numpy(b)
        batch = self._batch
        other = object.__new__(Batch)
        other.__dict__.update(batch.__dict__)
        readings = object.__new__(Readings)
        readings.__dict__.update(batch.readings.__dict__)
        if found.shape != (readings.m,):
            raise ValueError(f"b has shape {found.shape}, but must have shape ({readings.m},)")
        readings.B = found[None]
        other.__dict__["readings"] = readings
        return other

    def append(self, rows: MatrixLike, readings: Any) -> npt.NDArray[Any]:
        """Add readings to a running least-squares problem by rank-one updates.

        Parameters
        ----------
        rows : array_like of shape (n,) or (j, n)
            Probes, as the rows of U.
        readings : float or array_like of shape (j,)
            Their readings.

        Returns
        -------
        ndarray of shape (n, n)
            The A of least squares of all readings so far, without the cone and the tolerances;
            ``solve()`` returns the certified answer with them.

        Raises
        ------
        ValueError
            If `prepare` was given no readings, or tolerances or weights of one per row.
        """
        stream = self._stream
        if stream is None:
            raise ValueError("append needs the readings of the first rows: prepare(U, b)")
        if stream.updates >= MAX_UPDATES:
            self._current(None)
        return stream.append(rows, readings)


class _RunningSquares:
    """A running least-squares problem: the inverse normal matrix and its solution."""

    def __init__(self, batch: Batch) -> None:
        self.features, self.conjugate = batch.features, batch.conjugate
        self.given, self.b = [batch.given], [np.asarray(batch.readings.B[0], np.float64)]
        self.even = (
            all(
                part is None or (part.shape[0] == 1 and np.ptp(part) == 0.0)
                for part in (batch.readings.delta, batch.readings.weights)
            )
            and batch.readings.lo is None
            and not batch.features.p
            and not batch.readings.drop
        )
        self.pending = False
        self._set(batch)

    def _set(self, batch: Batch) -> None:
        """Factor all rows."""
        normal = batch.normal
        self.updates = 0
        self.determined = normal is not None and bool(normal.sigma[0] > 0.0)
        if normal is None or not self.determined or not self.even:
            return
        features, m = batch.features, batch.readings.m
        self.features = features
        inverse = normal.inverse[0]
        unit = float(normal.w[0, 0])
        self.inverse = unit * inverse.T @ inverse
        chunk = batch.readings.chunk(0, 1)
        self.tied = float(normal.w[0, -1]) / unit if features.trace is not None else 0.0
        psi, b = features.psi[:m], chunk.b[0]
        right = psi.T @ b
        if features.trace is not None:
            right = right + self.tied * features.trace * features.identity
        self.x = self.inverse @ right

    @property
    def m(self) -> int:
        """Rows so far."""
        return sum(each.size for each in self.b)

    def append(self, rows: Any, readings: Any) -> npt.NDArray[Any]:
        """Take further rows."""
        if not self.even:
            raise ValueError(
                "append needs one tolerance and one weight for all rows, without missing readings "
                "and covariates: solve all rows anew"
            )
        if not self.determined:
            raise ValueError(
                "append needs first rows that determine A: give more rows to prepare(U, b)"
            )
        given = to_numpy(rows)
        given = given[None] if given.ndim == 1 else given
        b = np.asarray(to_numpy(readings), np.float64).reshape(-1)
        n = self.features.n
        if given.shape != (b.size, n):
            raise ValueError(
                f"rows has shape {given.shape}, but must have one row of n = {n} entries for each "
                "reading"
            )
        if not (np.isfinite(given).all() and np.isfinite(b).all()):
            raise ValueError("rows and readings must be finite")
        given = given.astype(self.given[0].dtype)
        probes = given.conj() if self.conjugate else given
        for phi, reading in zip(products.features(probes), b, strict=True):
            gain = self.inverse @ phi
            gain /= 1.0 + phi @ gain
            self.x += gain * (reading - phi @ self.x)
            self.inverse -= np.outer(gain, phi @ self.inverse)
        self.given.append(given)
        self.b.append(b)
        self.pending = True
        self.updates += b.size
        return products.unpack(self.x, n, self.given[0].dtype)

    def batch(self, asked: dict[str, Any]) -> Batch:
        """Return the problem of all rows so far."""
        self.given, self.b = [np.concatenate(self.given)], [np.concatenate(self.b)]
        found = make_batch(self.given[0], self.b[0][None], **asked)
        self.pending = False
        self._set(found)
        return found


def prepare(
    U: MatrixLike,
    b: VectorLike | None = None,
    *,
    delta: Any = None,
    rtol: Real = 0.0,
    bounds: Any = None,
    weights: Any = None,
    psd: bool = False,
    trace: Real | tuple[Real, Real] | None = None,
    covariates: Any = None,
    conjugate: bool = False,
    gap: Real = 1e-6,
) -> Prepared:
    """Prepare a problem for many sets of readings that come one after the other.

    The probes are checked and factored once. ``prepared.solve(b)`` answers as
    ``solve(U, b, prefer="least_squares", ridge=0)`` does, with the same claims.

    Parameters
    ----------
    U : array of shape (m, n)
        The probes, dense, n up to 16.
    b : array_like of shape (m,), optional
        First readings of a stream, to which ``prepared.append(rows, readings)`` adds.
    delta, rtol, bounds, weights, psd, trace, covariates, conjugate, gap
        As in `quadsense.solve_many`.

    Returns
    -------
    Prepared

    Examples
    --------
    >>> import numpy as np, quadsense
    >>> U = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0]])
    >>> prepared = quadsense.prepare(U, delta=0.2, psd=True)
    >>> answer = prepared.solve([1.0, 2.0, 3.1, 2.9])
    >>> answer.status, answer.A.round(3).tolist()
    (<Status.MET: 'met'>, [[1.0, 0.05], [0.05, 2.0]])

    A stream of readings:

    >>> stream = quadsense.prepare(U, [1.0, 2.0, 3.1, 2.9], delta=0.2)
    >>> stream.append([2.0, 1.0], 6.2).round(3).tolist()
    [[1.0, 0.05], [0.05, 2.0]]
    >>> stream.solve().status
    <Status.MET: 'met'>
    """
    asked = {
        "delta": delta, "rtol": rtol, "bounds": bounds, "weights": weights, "psd": psd,
        "trace": trace, "covariates": covariates, "conjugate": conjugate, "missing": "raise",
        "gap": gap,
    }  # fmt: skip
    return Prepared(U, b, asked)
