"""`interval`: the certified range of what is asked of A, over all A that fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.sparse as sp

from quadsense.arrays import Array, as_numbers
from quadsense.core.matrix import SensedMatrix
from quadsense.core.noise import CONFIDENCE
from quadsense.measurements import Measurements
from quadsense.measurements.validate import MAX_SKEW
from quadsense.system.threads import with_one_blas_thread
from quadsense.typing import DEFAULT_GAP, is_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from quadsense.measurements import Measurements
    from quadsense.query.query import Query
    from quadsense.ranges import Interval
    from quadsense.result.result import Result
    from quadsense.run.loop import Intermediate, Limits
    from quadsense.typing import MatrixLike, MissingName, Real, RealOrVector, VectorLike, Whole


MAX_ENTRY = 1e70
"""Entries of C, and their inverses, of which squares and products stay within float64."""


def asked_for(C: Any, data: Measurements) -> Array:
    """Return C as a Hermitian matrix, from any of its forms, or a ValueError.

    Parameters
    ----------
    C : array of shape (n, n) or (n,), (i, j) or "trace"
        See `quadsense.interval`.
    data : Measurements
        Of that n; real or complex.
    """
    n, is_complex = data.n, data.unit_rows.is_complex
    dtype = np.complex128 if is_complex else np.float64
    if isinstance(C, str):
        if C != "trace":
            raise ValueError(f'C must be a matrix, a vector, a pair (i, j) or "trace", got {C!r}')
        return np.eye(n, dtype=dtype)
    if isinstance(C, tuple):
        if len(C) != 2 or not all(is_whole(k) and -n <= k < n for k in C):
            raise ValueError(f"C must be a pair (i, j) of indices below n = {n}, got {C!r}")
        E = np.zeros((n, n), dtype=dtype)
        E[C] += 0.5
        E[C[::-1]] += 0.5
        return E
    if sp.issparse(C):
        C = C.toarray()
    M = as_numbers("C", C.to_dense() if isinstance(C, SensedMatrix) else C)
    M = M.astype(np.complex128 if np.iscomplexobj(M) else np.float64)
    if M.shape not in ((n, n), (n,)):
        raise ValueError(f"C has shape {M.shape}, but must have shape ({n}, {n}) or ({n},)")
    if not np.isfinite(M).all():
        raise ValueError("C must be finite")
    largest = float(np.max(np.abs(M), initial=0.0))
    if largest > MAX_ENTRY or 0.0 < largest < 1.0 / MAX_ENTRY:
        raise ValueError(f"C has entries up to {largest:.3g}, out of range: rescale it")
    if M.ndim == 1:
        M = np.outer(M, M.conj())
    if np.max(np.abs(M - M.conj().T)) > MAX_SKEW * np.max(np.abs(M)):
        raise ValueError(f"C must be {'Hermitian' if np.iscomplexobj(M) else 'symmetric'}")
    M = 0.5 * (M + M.conj().T)
    return M.astype(dtype) if is_complex else np.ascontiguousarray(M.real)


@with_one_blas_thread
def interval(
    data: MatrixLike | Measurements,
    b: VectorLike | None = None,
    C: Any = "trace",
    *,
    delta: RealOrVector | None = None,
    rtol: Real = 0.0,
    bounds: tuple[RealOrVector, RealOrVector] | None = None,
    sigma: Real | None = None,
    shots: RealOrVector | None = None,
    confidence: Real = CONFIDENCE,
    missing: MissingName = "raise",
    weights: RealOrVector | None = None,
    mix: MatrixLike | None = None,
    conjugate: bool = False,
    psd: bool | None = None,
    rank: Whole | tuple[Whole, Whole] | Literal["auto"] | None = None,
    trace: Real | tuple[Real, Real] | None = None,
    constraints: Sequence[tuple[MatrixLike | SensedMatrix | tuple[Any, Any], Real, Real]] = (),
    time_limit: Real | None = None,
    callback: Callable[[Intermediate], Any] | None = None,
    progress: bool = False,
    gap: Real = DEFAULT_GAP,
) -> Any:
    """Return the certified range of ``<C, A>`` over all fits, with the vectors that prove its ends.

    Parameters
    ----------
    data : array or sparse array of shape (m, n), or Measurements
        The probes, row i is ``u_i`` (then `b` or `bounds` is needed), or measurements.
    b : array_like of shape (m,), optional
        Readings.
    C : array of shape (n, n) or (n,), (i, j), "trace", or a list of these
        What is asked of A: ``<C, A> = Re tr(C A)`` of a symmetric (Hermitian) matrix; ``v* A v``
        of a vector v; the entry ``A[i, j]``, its real part where A is complex (the imaginary part
        is ``<C, A>`` with ``C[i, j] = -0.5j`` and ``C[j, i] = 0.5j``); the trace. A list asks for
        several at once, which share what is found out of the rows.
    delta, rtol, bounds, sigma, shots, confidence, missing, weights, mix, conjugate
        As in `solve`; a tolerance is needed. Weights say nothing here.
    psd : bool, optional
        Whether only positive semidefinite A count.
    rank : int, (p, q) or "auto", optional
        A rank is not looked at: the range is that over all positive semidefinite A, or all
        symmetric ones for ``(p, q)``, which is wider, and `relaxed`.
    trace, constraints
        As in `solve`.
    time_limit : float, optional
        Most seconds from the call on. Ends are then as far out as was proved by then, infinite
        where that is nothing. By default there is no limit.
    callback : callable, optional
        ``callback(intermediate_result)`` after every step for a C, as in `solve`; `matrix` is the
        one of the lower end. StopIteration ends the search for that C.
    progress : bool, default=False
        Show a bar for each C.
    gap : float, default=0.01
        Share of its width by which an interval may be too wide.

    Returns
    -------
    Interval, or list of Interval for a list

    Raises
    ------
    NothingFits
        A ValueError: where nothing fits, with the proof.
    KeyboardInterrupt
        After Ctrl-C or SIGTERM; its ``.result`` is what was proved so far.

    Examples
    --------
    >>> import numpy as np
    >>> import quadsense
    >>> U = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> quadsense.interval(U, [1.0, 2.0, 3.0], (0, 1), delta=0.1)
    <Interval [-0.15, 0.15]>
    >>> seen = quadsense.interval(U[:2], [1.0, 2.0], ["trace", (0, 1)], delta=0.1)
    >>> seen[0].verify(U[:2], [1.0, 2.0], delta=0.1), seen[1].lower
    (True, -inf)
    """
    named = locals()
    from quadsense.query.query import Query
    from quadsense.ranges import measurements_of

    given = {name: value for name, value in named.items() if name not in ("C", "gap")}
    query = Query(**given)
    limits = _limits(query)
    found = measurements_of(query)
    positive = bool(psd) or (rank is not None and not isinstance(rank, tuple | list))
    return _ranged(
        found,
        C,
        gap,
        limits,
        psd=positive,
        relaxed=rank is not None,
        otherwise=lambda seconds: fit_or_proof(found, positive, seconds),
    )


def _limits(query: Query) -> Limits:
    """Return the limits of a query, its clock running."""
    from quadsense.system.watch import Watch

    query.check(None)
    return query.limits(Watch())


def _ranged(data: Measurements, C: Any, gap: Real, limits: Limits, **asked: Any) -> Any:
    """Return the ranges of all that C asks for; `asked` as in `ranges`."""
    from quadsense.measurements.column_scaling import columns_of
    from quadsense.ranges import ranges
    from quadsense.system.watch import Interrupted
    from quadsense.typing import is_number

    if not (is_number(gap) and gap > 0):
        raise ValueError(f"gap must be a positive number, got {gap!r}")
    many = isinstance(C, list) and not _is_nested(C)
    matrices = [asked_for(each, data) for each in (C if many else [C])]
    try:
        found: list[Interval] = ranges(
            data, matrices, gap=float(gap), columns=columns_of(data), limits=limits, **asked
        )
    except Interrupted as interrupt:
        raise Interrupted(interrupt.result if many else interrupt.result[0]) from None
    return found if many else found[0]


def _is_nested(C: list[Any]) -> bool:
    """Return whether a list is a matrix, row by row: one of several vectors has them as arrays."""
    return bool(C) and all(isinstance(row, list) and len(row) == len(C) for row in C)


def fit_or_proof(data: Measurements, psd: bool, seconds: float | None) -> tuple[Any, Any]:
    """Return a fit, or the certificate that there is none; neither where it is not known."""
    from quadsense.solve import solve

    result = solve(data, psd=psd, prefer="any", time_limit=seconds)
    if result.success:
        return result.matrix, None
    return None, result.certificate if str(result.status) == "infeasible" else None


@with_one_blas_thread
def interval_of(
    result: Result,
    C: Any,
    *,
    data: Measurements | None = None,
    gap: Real,
    time_limit: Real | None = None,
    callback: Callable[[Intermediate], Any] | None = None,
    progress: bool = False,
) -> Any:
    """Return the range of ``<C, A>`` over all that fit the request of a result."""
    from dataclasses import replace

    from quadsense.query.query import Query, asks_rank

    query = Query(data, time_limit=time_limit, callback=callback, progress=progress)
    limits = _limits(query)
    claim = result.certificate
    if data is None and claim.data is None:
        raise ValueError("the result was read from a file: give the measurements as data=")
    if result.verdict.asked not in ("delta", "bounds"):
        raise ValueError("an interval needs a tolerance: solve with delta, rtol or bounds")
    found = claim.data if data is None else replace(claim, columns=None).own_data(data, None, {})
    assert found is not None
    refuted = claim if str(result.status) == "infeasible" else None
    return _ranged(
        found,
        C,
        gap,
        limits,
        psd=claim.psd,
        relaxed=asks_rank(result),
        set_aside=claim.set_aside,
        fit=result.matrix if result.met else None,
        otherwise=lambda seconds: (
            (None, refuted) if refuted else fit_or_proof(found, claim.psd, seconds)
        ),
    )
