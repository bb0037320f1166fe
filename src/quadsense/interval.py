"""`interval`: the certified range of what is asked of A, over all A that fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from quadsense.arrays import Array, as_numbers
from quadsense.core.matrix import SensedMatrix
from quadsense.measurements import Measurements
from quadsense.system.threads import with_one_blas_thread
from quadsense.typing import is_whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from quadsense.measurements import Measurements
    from quadsense.ranges.ranges import Interval
    from quadsense.result.result import Result
    from quadsense.typing import MatrixLike, MissingName, Real, RealOrVector, VectorLike


LARGEST = 1e70
"""Entries of C, and their inverses, of which squares and products stay within float64."""

SKEW = 1e-8
"""Largest part of C by which it may differ from its conjugate transpose, as rounding does."""


def asked_for(C: Any, data: Measurements) -> Array:
    """C as a Hermitian matrix, from any of its forms, or a ValueError.

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
    if largest > LARGEST or 0.0 < largest < 1.0 / LARGEST:
        raise ValueError(f"C has entries up to {largest:.3g}, out of range: rescale it")
    if M.ndim == 1:
        M = np.outer(M, M.conj())
    if np.max(np.abs(M - M.conj().T)) > SKEW * np.max(np.abs(M)):
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
    confidence: Real = 0.95,
    missing: MissingName = "raise",
    weights: RealOrVector | None = None,
    mix: MatrixLike | None = None,
    conjugate: bool = False,
    psd: bool = False,
    rank: Any = None,
    trace: Any = None,
    constraints: Iterable[Any] = (),
    gap: Real = 0.01,
) -> Any:
    """Certified range of ``<C, A>`` over all A that fit, with the vectors that prove its ends.

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
    psd : bool, default=False
        Whether only positive semidefinite A count.
    rank : int, (p, q) or "auto", optional
        A rank is not looked at: the range is that over all positive semidefinite A, or all
        symmetric ones for ``(p, q)``, which is wider, and `relaxed`.
    trace, constraints
        As in `solve`.
    gap : float, default=0.01
        Share of its width by which an interval may be too wide.

    Returns
    -------
    Interval, or list of Interval for a list

    Raises
    ------
    NothingFits
        A ValueError: where nothing fits, with the proof.

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
    from quadsense.interval import asked_for
    from quadsense.measurements.frame import columns_of
    from quadsense.query.query import check_rank
    from quadsense.ranges.ranges import measurements_of, ranges
    from quadsense.typing import is_number

    options: dict[str, Any] = {
        "delta": delta, "rtol": rtol, "bounds": bounds, "weights": weights, "mix": mix,
        "conjugate": conjugate, "sigma": sigma, "shots": shots,
    }  # fmt: skip
    if not isinstance(data, Measurements):
        options |= {"confidence": confidence, "missing": missing}
    found = measurements_of(data, b, trace=trace, constraints=constraints, **options)
    if not isinstance(psd, bool):
        raise ValueError(f"psd must be True or False, got {psd!r}")
    if not (is_number(gap) and gap > 0):
        raise ValueError(f"gap must be a positive number, got {gap!r}")
    pair = isinstance(rank, tuple)
    if not pair:
        check_rank(rank, found.n)
    many = isinstance(C, list) and not _is_nested(C)
    matrices = [asked_for(each, found) for each in (C if many else [C])]
    intervals: list[Interval] = ranges(
        found,
        matrices,
        psd=psd or (rank is not None and not pair),
        gap=float(gap),
        relaxed=rank is not None,
        columns=columns_of(found),
        otherwise=lambda: _solved(found, psd or (rank is not None and not pair)),
    )
    return intervals if many else intervals[0]


def _is_nested(C: list[Any]) -> bool:
    """Whether a list is a matrix, row by row: one of several vectors has them as arrays."""
    return bool(C) and all(isinstance(row, list) and len(row) == len(C) for row in C)


def _solved(data: Measurements, psd: bool) -> tuple[Any, Any]:
    """A fit, or the certificate that there is none; neither where it is not known."""
    from quadsense.solve import solve

    result = solve(data, psd=psd, prefer="any")
    if result.success:
        return result.matrix, None
    return None, result.certificate if str(result.status) == "infeasible" else None


@with_one_blas_thread
def interval_of(
    result: Result, C: Any, *, data: Measurements | None = None, gap: Real = 0.01
) -> Any:
    """The range of ``<C, A>`` over all that fit what a result was asked to: `Result.interval`."""
    from dataclasses import replace

    from quadsense.interval import asked_for
    from quadsense.measurements.frame import columns_of
    from quadsense.query.query import asks_rank
    from quadsense.ranges.ranges import ranges
    from quadsense.typing import is_number

    claim = result.certificate
    if data is None and claim.data is None:
        raise ValueError("the result was read from a file: give the measurements as data=")
    if result.verdict.asked not in ("delta", "bounds"):
        raise ValueError("an interval needs a tolerance: solve with delta, rtol or bounds")
    if not (is_number(gap) and gap > 0):
        raise ValueError(f"gap must be a positive number, got {gap!r}")
    found = claim.data if data is None else replace(claim, columns=None).own_data(data, None, {})
    assert found is not None
    refuted = claim if str(result.status) == "infeasible" else None
    many = isinstance(C, list) and not _is_nested(C)
    intervals: list[Interval] = ranges(
        found,
        [asked_for(each, found) for each in (C if many else [C])],
        psd=claim.psd,
        gap=float(gap),
        relaxed=asks_rank(result),
        set_aside=claim.set_aside,
        fit=result.matrix if result.met else None,
        columns=columns_of(found),
        otherwise=lambda: (None, refuted) if refuted else _solved(found, claim.psd),
    )
    return intervals if many else intervals[0]
