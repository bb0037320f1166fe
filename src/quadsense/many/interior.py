"""The compiled interior-point method for intervals that bind: one small problem after the other.

The sum of squares is minimized over the interior of the cone and of the intervals, with a slack s
and a multiplier for every end, ``X S = mu I`` on the cone by Nesterov and Todd's scaling, and a
predictor that chooses how far to center [Nocedal & Wright 2006, 16.6; Todd, Toh & Tutuncu 1998].
What is found lies strictly inside, so that its residuals are verified to meet every interval.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from quadsense.many.kernels import (
    FAST,
    ROOT_TWO,
    add_squares,
    is_definite,
    multiply,
    pack,
    rotate,
    unpack,
)

MAX_INTERIOR_STEPS = 60
"""Steps after which a problem is left to `solve`; 10 to 20 are usual."""

TO_BOUNDARY = 0.98
"""Share of the way to the boundary that a step goes at most."""

SHORTER = 0.8
"""Factor by which a step is shortened until it stays inside the cone."""

MIN_STEP = 1e-3
"""Length of a step below which nothing more is gained: no A, or hardly one, is within all ends."""

FIRST_WIDTH = 0.1
"""Slack of an end that is crossed at the start, in units of the tolerance."""

INWARD = 1e-8
"""Units by which ends are moved inwards, so that readings which miss them by `MAX_MISS` are met."""

MAX_MISS = 3e-9
"""Units by which an end may be missed in the end."""

MIN_CENTERING = 1e-4
"""Least factor by which mu falls in a step."""


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def invert_lower(CR: Any, CI: Any, R: Any, I: Any) -> None:  # noqa: E741
    """Write the inverse of a lower triangular matrix of positive diagonal."""
    n = CR.shape[0]
    R[:] = 0.0
    I[:] = 0.0
    for j in range(n):
        for k in range(j):
            re = im = 0.0
            for a in range(k, j):
                re -= CR[j, a] * R[a, k] - CI[j, a] * I[a, k]
                im -= CR[j, a] * I[a, k] + CI[j, a] * R[a, k]
            R[j, k], I[j, k] = re / CR[j, j], im / CR[j, j]
        R[j, j] = 1.0 / CR[j, j]


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def add_scaling(R: Any, I: Any, M: Any, p: int, is_complex: bool) -> None:  # noqa: E741
    """Add the matrix of ``X -> V X V``, V = R + iI, on packed X, to M from row p on."""
    n = R.shape[0]
    pairs = n * (n - 1) // 2
    kinds = 2 if is_complex else 1
    for a in range(n):
        for j in range(n):
            M[p + a, p + j] += R[j, a] * R[j, a] + I[j, a] * I[j, a]
        place = n
        for j in range(n):
            for k in range(j + 1, n):
                M[p + a, p + place] += ROOT_TWO * (R[j, a] * R[k, a] + I[j, a] * I[k, a])
                if is_complex:
                    im = I[j, a] * R[k, a] - R[j, a] * I[k, a]
                    M[p + a, p + place + pairs] += ROOT_TWO * im
                place += 1
    column = n
    for a in range(n):
        for b in range(a + 1, n):
            for kind in range(kinds):
                row = p + column + kind * pairs
                for j in range(n):
                    re = R[j, a] * R[j, b] + I[j, a] * I[j, b]
                    im = I[j, a] * R[j, b] - R[j, a] * I[j, b]
                    M[row, p + j] += ROOT_TWO * (re if kind == 0 else -im)
                place = n
                for j in range(n):
                    for k in range(j + 1, n):
                        # V[j, a] conj(V[k, b]) and V[j, b] conj(V[k, a])
                        r1 = R[j, a] * R[k, b] + I[j, a] * I[k, b]
                        i1 = I[j, a] * R[k, b] - R[j, a] * I[k, b]
                        r2 = R[j, b] * R[k, a] + I[j, b] * I[k, a]
                        i2 = I[j, b] * R[k, a] - R[j, b] * I[k, a]
                        if kind == 0:
                            M[row, p + place] += r1 + r2
                            if is_complex:
                                M[row, p + place + pairs] += i1 + i2
                        else:
                            M[row, p + place] += i2 - i1
                            M[row, p + place + pairs] += r1 - r2
                        place += 1
            column += 1


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def factor_in_place(M: Any) -> bool:
    """Write the lower Cholesky factor over the lower triangle; False where there is none."""
    q = M.shape[0]
    for j in range(q):
        for k in range(j + 1):
            value = M[j, k]
            for a in range(k):
                value -= M[j, a] * M[k, a]
            if k < j:
                M[j, k] = value / M[k, k]
            elif value > 0.0:
                M[j, j] = math.sqrt(value)
            else:
                return False
    return True


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def solve_in_place(C: Any, x: Any) -> None:
    """Solve with the lower factor C and its transpose."""
    q = x.size
    for j in range(q):
        value = x[j]
        for a in range(j):
            value -= C[j, a] * x[a]
        x[j] = value / C[j, j]
    for j in range(q - 1, -1, -1):
        value = x[j] / C[j, j]
        x[j] = value
        for a in range(j):
            x[a] -= C[j, a] * value


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def longest_step(x: Any, d: Any, R: Any, I: Any, CR: Any, CI: Any, v: Any, start: float,  # noqa: E741
                 is_complex: bool) -> float:  # fmt: skip
    """Return how far x may go along d within the cone, at most `start`."""
    step = start
    while step > MIN_STEP:
        for j in range(x.size):
            v[j] = x[j] + step / TO_BOUNDARY * d[j]
        unpack(v, R, I, is_complex)
        if is_definite(R, I, CR, CI):
            return step
        step *= SHORTER
    return 0.0


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def interior_least_squares(
    psi: Any, w: Any, b: Any, below: Any, above: Any, unit: Any, p: int, n: int, is_complex: bool,
    psd: bool, trace: float, gap: float, sigma: Any, floor: Any, Y: Any, P: Any,
    rows: Any, found: Any,
) -> None:  # fmt: skip
    """Minimize ``sum_i w_i (psi_i.y - b_i)^2`` within the cone and the intervals.

    Parameters
    ----------
    psi : (m, q) array
    w : (1 or k, m) array
    b : (k, m) array
    below, above, unit : (1 or k, m) arrays
        See `readings.Ends`.
    p, n : int
        Covariates, and the order of A.
    is_complex, psd : bool
    trace : float
        What the trace must be; NaN where it is free.
    gap : float
        Relative distance of the bounds at which to stop.
    sigma : (1 or k,) array
        Bound on the least eigenvalue of the normal matrix.
    floor : (k,) array
        Cost below which the gap need not be closed.
    Y : (k, q) array
        The starts, overwritten by the answers.
    P : (k, N) array
        Where the multiplier of the cone is written.
    rows : (k, m) array
        Where the multipliers of the ends are written, positive at an upper one.
    found : (k,) bool array
        Whether the gap was closed.
    """
    k, m = b.shape
    q = psi.shape[1]
    N = q - p
    gw, ge = (0 if w.shape[0] == 1 else 1), (0 if below.shape[0] == 1 else 1)
    z, su, sl, lu, ll = np.empty(m), np.empty(m), np.empty(m), np.empty(m), np.empty(m)
    move, weight = np.empty(m), np.empty(m)
    M, scaled = np.empty((q, q)), np.empty((m, q))
    R, I, CR, CI = np.empty((n, n)), np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n))  # noqa: E741
    HR, HI, VR, VI = np.empty((n, n)), np.zeros((n, n)), np.empty((n, n)), np.zeros((n, n))
    roots = np.empty(n)
    S, dS, inverse, v = np.zeros(N), np.zeros(N), np.zeros(N), np.empty(N)
    wx, direction, right, along = np.zeros(N), np.empty(q), np.empty(q), np.empty(q)
    fixed = trace == trace
    for i in range(k):
        wi, lo, up, half = w[gw * i], below[ge * i], above[ge * i], unit[ge * i]
        y = Y[i]
        found[i] = False
        mass, ends = 0.0, 0
        for j in range(m):
            mass += wi[j] * b[i, j] * b[i, j]
        if psd:  # away from the boundary
            size = 0.0
            for j in range(n):
                size += y[p + j]
            shift = 0.1 * abs(size) / n + 1e-6 * math.sqrt(mass / max(np.sum(wi), 1e-300)) + 1e-300
            share = 1.0
            if fixed:
                share = trace / (trace + n * shift)
            for j in range(N):
                y[p + j] = share * (y[p + j] + (shift if j < n else 0.0))
        cost = 0.0
        for j in range(m):
            value = -b[i, j]
            for a in range(q):
                value += psi[j, a] * y[a]
            z[j] = value
            cost += wi[j] * value * value
        mu = 0.0
        for j in range(m):
            ends += (1 if up[j] < math.inf else 0) + (1 if lo[j] < math.inf else 0)
        mu = 0.1 * cost / max(ends + n, 1) + 1e-14 * mass
        for j in range(m):
            su[j] = sl[j] = 1.0
            lu[j] = ll[j] = 0.0
            if up[j] < math.inf:
                su[j] = max(up[j] - z[j], FIRST_WIDTH * half[j])
                lu[j] = mu / su[j]
            if lo[j] < math.inf:
                sl[j] = max(lo[j] + z[j], FIRST_WIDTH * half[j])
                ll[j] = mu / sl[j]
        if psd:
            unpack(y[p:], R, I, is_complex)
            if not is_definite(R, I, CR, CI):
                continue
            invert_lower(CR, CI, HR, HI)
            for a in range(n):
                roots[a] = mu
                for c in range(n):
                    VR[a, c], VI[a, c] = HR[a, c], -HI[a, c]
            add_squares(roots, VR, VI, S, is_complex)
        for _ in range(MAX_INTERIOR_STEPS):
            # Residuals, and mu.
            total, cost, off, slack = 0.0, 0.0, 0.0, 0.0
            for j in range(m):
                cost += wi[j] * z[j] * z[j]
                if up[j] < math.inf:
                    total += su[j] * lu[j]
                    off = max(off, abs(up[j] - z[j] - su[j]) / half[j])
                if lo[j] < math.inf:
                    total += sl[j] * ll[j]
                    off = max(off, abs(lo[j] + z[j] - sl[j]) / half[j])
            if psd:
                for j in range(N):
                    total += y[p + j] * S[j]
            mu = total / max(ends + (n if psd else 0), 1)
            for a in range(q):
                right[a] = 0.0
            for j in range(m):
                value = 2.0 * wi[j] * z[j] + lu[j] - ll[j]
                for a in range(q):
                    right[a] -= value * psi[j, a]
            for j in range(N):
                right[p + j] += S[j]
            if fixed:
                slack = 0.0
                for j in range(n):
                    slack += right[p + j]
                slack /= n
            size = 0.0
            for a in range(q):
                value = right[a] - (slack if fixed and p <= a < p + n else 0.0)
                size += value * value
            room = max(gap * cost, floor[i])
            if off <= MAX_MISS and total <= room and size <= sigma[gw * i] * room:
                found[i] = True
                break
            # The matrix of the step.
            for j in range(m):
                weight[j] = math.sqrt(2.0 * wi[j] + lu[j] / su[j] + ll[j] / sl[j])
                for a in range(q):
                    scaled[j, a] = weight[j] * psi[j, a]
            M[:] = np.dot(scaled.T, scaled)
            if psd:
                unpack(y[p:], R, I, is_complex)
                if not is_definite(R, I, CR, CI):
                    break
                invert_lower(CR, CI, HR, HI)
                for a in range(n):
                    roots[a] = 1.0
                    for c in range(n):
                        VR[a, c], VI[a, c] = HR[a, c], -HI[a, c]
                add_squares(roots, VR, VI, inverse, is_complex)
                # T = L* S L, L in CR + i CI, in R + i I.
                unpack(S, R, I, is_complex)
                for a in range(n):
                    for c in range(n):
                        re = im = 0.0
                        for e in range(c, n):
                            re += R[a, e] * CR[e, c] - I[a, e] * CI[e, c]
                            im += R[a, e] * CI[e, c] + I[a, e] * CR[e, c]
                        VR[a, c], VI[a, c] = re, im
                for a in range(n):
                    for c in range(n):
                        re = im = 0.0
                        for e in range(a, n):
                            re += CR[e, a] * VR[e, c] + CI[e, a] * VI[e, c]
                            im += CR[e, a] * VI[e, c] - CI[e, a] * VR[e, c]
                        R[a, c], I[a, c] = re, im
                VR[:] = 0.0
                VI[:] = 0.0
                for a in range(n):
                    VR[a, a] = 1.0
                rotate(R, I, VR, VI, is_complex)
                for a in range(n):
                    roots[a] = math.sqrt(max(R[a, a], 0.0))
                for a in range(n):  # L^-* u_a, in row a of R + i I
                    for c in range(n):
                        re = im = 0.0
                        for e in range(c, n):
                            re += HR[e, c] * VR[a, e] + HI[e, c] * VI[a, e]
                            im += HR[e, c] * VI[a, e] - HI[e, c] * VR[a, e]
                        R[a, c], I[a, c] = re, im
                add_squares(roots, R, I, v, is_complex)
                unpack(v, VR, VI, is_complex)
                add_scaling(VR, VI, M, p, is_complex)
            if not factor_in_place(M):
                break
            if fixed:
                for a in range(q):
                    along[a] = 1.0 if p <= a < p + n else 0.0
                solve_in_place(M, along)
                bend = 0.0
                for j in range(n):
                    bend += along[p + j]
            target = 0.0
            length = 0.0
            for phase in range(2):
                # The right-hand side, with the products of slacks brought to `target`.
                for a in range(q):
                    direction[a] = right[a]
                for j in range(m):
                    value = 0.0
                    if up[j] < math.inf:
                        value += target / su[j] - lu[j] - lu[j] / su[j] * (up[j] - z[j] - su[j])
                    if lo[j] < math.inf:
                        value -= target / sl[j] - ll[j] - ll[j] / sl[j] * (lo[j] + z[j] - sl[j])
                    for a in range(q):
                        direction[a] -= value * psi[j, a]
                if psd:
                    for j in range(N):
                        direction[p + j] += target * inverse[j] - S[j]
                solve_in_place(M, direction)
                if fixed:
                    missing = trace
                    for j in range(n):
                        missing -= y[p + j] + direction[p + j]
                    for a in range(q):
                        direction[a] += missing / bend * along[a]
                for j in range(m):
                    value = 0.0
                    for a in range(q):
                        value += psi[j, a] * direction[a]
                    move[j] = value
                length = 1.0
                for j in range(m):
                    if up[j] < math.inf:
                        ds = up[j] - z[j] - su[j] - move[j]
                        dl = target / su[j] - lu[j] - lu[j] / su[j] * ds
                        if ds < 0.0:
                            length = min(length, -TO_BOUNDARY * su[j] / ds)
                        if dl < 0.0:
                            length = min(length, -TO_BOUNDARY * lu[j] / dl)
                    if lo[j] < math.inf:
                        ds = lo[j] + z[j] - sl[j] + move[j]
                        dl = target / sl[j] - ll[j] - ll[j] / sl[j] * ds
                        if ds < 0.0:
                            length = min(length, -TO_BOUNDARY * sl[j] / ds)
                        if dl < 0.0:
                            length = min(length, -TO_BOUNDARY * ll[j] / dl)
                if psd:
                    # dS = target X^-1 - S - V dX V
                    unpack(direction[p:], R, I, is_complex)
                    multiply(VR, VI, R, I, CR, CI)
                    multiply(CR, CI, VR, VI, R, I)
                    pack(R, I, wx, is_complex)
                    for j in range(N):
                        dS[j] = target * inverse[j] - S[j] - wx[j]
                    length = longest_step(y[p:], direction[p:], R, I, CR, CI, v, length, is_complex)
                    length = longest_step(S, dS, R, I, CR, CI, v, length, is_complex)
                if phase == 0:
                    after = 0.0
                    for j in range(m):
                        if up[j] < math.inf:
                            ds = up[j] - z[j] - su[j] - move[j]
                            dl = -lu[j] - lu[j] / su[j] * ds
                            after += (su[j] + length * ds) * (lu[j] + length * dl)
                        if lo[j] < math.inf:
                            ds = lo[j] + z[j] - sl[j] + move[j]
                            dl = -ll[j] - ll[j] / sl[j] * ds
                            after += (sl[j] + length * ds) * (ll[j] + length * dl)
                    if psd:
                        for j in range(N):
                            after += (y[p + j] + length * direction[p + j]) * (
                                S[j] + length * dS[j]
                            )
                    share = after / total if total > 0.0 else 0.0
                    target = mu * max(share * share * share, MIN_CENTERING)
            if length <= MIN_STEP:
                break
            for j in range(m):
                if up[j] < math.inf:
                    ds = up[j] - z[j] - su[j] - move[j]
                    lu[j] += length * (target / su[j] - lu[j] - lu[j] / su[j] * ds)
                    su[j] += length * ds
                if lo[j] < math.inf:
                    ds = lo[j] + z[j] - sl[j] + move[j]
                    ll[j] += length * (target / sl[j] - ll[j] - ll[j] / sl[j] * ds)
                    sl[j] += length * ds
            for a in range(q):
                y[a] += length * direction[a]
            if psd:
                for j in range(N):
                    S[j] += length * dS[j]
            for j in range(m):
                value = -b[i, j]
                for a in range(q):
                    value += psi[j, a] * y[a]
                z[j] = value
        P[i] = S
        for j in range(m):
            rows[i, j] = lu[j] - ll[j]
