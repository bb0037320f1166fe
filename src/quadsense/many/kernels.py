"""The compiled loops: least squares over the cone, one small problem after the other.

A matrix is held packed (`core.products`), in a loop as its real and its imaginary part. The cost
is ``(x - x0)^T S (x - x0)`` plus a constant, with S the normal matrix and x0 its minimizer without
the cone. Steps are those of the accelerated projected gradient method with restarts [O'Donoghue &
Candes 2015]. Eigenvalues are found by Jacobi rotations, from the eigenvectors of the step before,
so that few rotations are left. The projection yields the multiplier of the cone as well: a step
costs one decomposition and tells how far the optimum can be.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

# Sums may be reordered and fused, but NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}

MAX_SWEEPS = 30
"""Sweeps of Jacobi rotations; 4 to 6 are enough from any start."""

NEGLIGIBLE_ENTRY = 1e-15
"""Entry off the diagonal, relative to the norm of the matrix, that is not rotated away."""

MIN_PIVOT = 1e-15
"""Pivot, relative to the largest entry of the diagonal, from which a matrix counts as definite."""

POWER_STEPS = 12
"""Steps of the power method that estimates an extreme eigenvalue to some percent."""

ABOVE_ESTIMATE = 1.1
"""Factor from that estimate, which is too small, to what a step is taken for."""

UNIT = 2.0**-53
"""Unit roundoff of float64."""

END_ERROR = 8.0 * UNIT
"""Bound on the relative error of the distance of an end (see `core.intervals`)."""

READING_ROUNDINGS = 4.0 * UNIT
"""Bound on the errors of subtracting a reading, relative to it."""

ROOT_HALF = math.sqrt(0.5)
ROOT_TWO = math.sqrt(2.0)


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def unpack(x: Any, R: Any, I: Any, is_complex: bool) -> None:  # noqa: E741
    """Write the real and the imaginary part of the matrix whose packed form is x."""
    n = R.shape[0]
    pairs = n * (n - 1) // 2
    place = n
    for j in range(n):
        R[j, j] = x[j]
        I[j, j] = 0.0
        for k in range(j + 1, n):
            R[j, k] = R[k, j] = ROOT_HALF * x[place]
            if is_complex:
                imaginary = ROOT_HALF * x[place + pairs]
                I[j, k], I[k, j] = imaginary, -imaginary
            place += 1


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def pack(R: Any, I: Any, x: Any, is_complex: bool) -> None:  # noqa: E741
    """Write the packed form of a matrix."""
    n = R.shape[0]
    pairs = n * (n - 1) // 2
    place = n
    for j in range(n):
        x[j] = R[j, j]
        for k in range(j + 1, n):
            x[place] = ROOT_TWO * R[j, k]
            if is_complex:
                x[place + pairs] = ROOT_TWO * I[j, k]
            place += 1


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def multiply(AR: Any, AI: Any, BR: Any, BI: Any, CR: Any, CI: Any) -> None:
    """Write the product of two complex matrices given by their real and imaginary parts."""
    n = AR.shape[0]
    for a in range(n):
        for c in range(n):
            re = im = 0.0
            for e in range(n):
                re += AR[a, e] * BR[e, c] - AI[a, e] * BI[e, c]
                im += AR[a, e] * BI[e, c] + AI[a, e] * BR[e, c]
            CR[a, c], CI[a, c] = re, im


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def add_squares(values: Any, R: Any, I: Any, x: Any, is_complex: bool) -> None:  # noqa: E741
    """Write the packed ``sum_k values_k v_k v_k*`` of the positive ones; row k of R + iI is v_k."""
    n = R.shape[0]
    pairs = n * (n - 1) // 2
    x[:] = 0.0
    for k in range(n):
        value = values[k]
        if value <= 0.0:
            continue
        place = n
        for a in range(n):
            re, im = value * R[k, a], value * I[k, a]
            x[a] += re * R[k, a] + im * I[k, a]
            for b in range(a + 1, n):
                x[place] += ROOT_TWO * (re * R[k, b] + im * I[k, b])
                if is_complex:
                    x[place + pairs] += ROOT_TWO * (im * R[k, b] - re * I[k, b])
                place += 1


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def rotate(R: Any, I: Any, VR: Any, VI: Any, is_complex: bool) -> None:  # noqa: E741
    """Make ``R + iI`` diagonal by Jacobi rotations, which are applied to the rows of V as well."""
    n = R.shape[0]
    size = 0.0
    for j in range(n):
        for k in range(n):
            size += R[j, k] * R[j, k] + I[j, k] * I[j, k]
    least = NEGLIGIBLE_ENTRY * NEGLIGIBLE_ENTRY * size
    for _ in range(MAX_SWEEPS):
        done = True
        for p in range(n - 1):
            for q in range(p + 1, n):
                square = R[p, q] * R[p, q] + I[p, q] * I[p, q]
                if square <= least:
                    continue
                done = False
                beta = math.sqrt(square)
                er, ei = R[p, q] / beta, I[p, q] / beta
                theta = (R[q, q] - R[p, p]) / (2.0 * beta)
                t = 1.0 / (abs(theta) + math.sqrt(theta * theta + 1.0))
                if theta < 0.0:
                    t = -t
                c = 1.0 / math.sqrt(t * t + 1.0)
                s = t * c
                cr, ci, sr, si = c * er, c * ei, s * er, s * ei
                low, high = R[p, p] - t * beta, R[q, q] + t * beta
                if is_complex:
                    for k in range(n):
                        pr, pi, qr, qi = R[p, k], I[p, k], R[q, k], I[q, k]
                        R[p, k] = c * pr - (sr * qr - si * qi)
                        I[p, k] = c * pi - (sr * qi + si * qr)
                        R[q, k] = s * pr + (cr * qr - ci * qi)
                        I[q, k] = s * pi + (cr * qi + ci * qr)
                    for k in range(n):
                        pr, pi, qr, qi = VR[p, k], VI[p, k], VR[q, k], VI[q, k]
                        VR[p, k] = c * pr - (sr * qr + si * qi)
                        VI[p, k] = c * pi - (sr * qi - si * qr)
                        VR[q, k] = s * pr + (cr * qr + ci * qi)
                        VI[q, k] = s * pi + (cr * qi - ci * qr)
                    for k in range(n):
                        R[k, p], I[k, p] = R[p, k], -I[p, k]
                        R[k, q], I[k, q] = R[q, k], -I[q, k]
                else:
                    for k in range(n):
                        pr, qr = R[p, k], R[q, k]
                        R[p, k] = c * pr - sr * qr
                        R[q, k] = s * pr + cr * qr
                    for k in range(n):
                        pr, qr = VR[p, k], VR[q, k]
                        VR[p, k] = c * pr - sr * qr
                        VR[q, k] = s * pr + cr * qr
                    for k in range(n):
                        R[k, p], R[k, q] = R[p, k], R[q, k]
                R[p, p], R[q, q] = low, high
                I[p, p] = I[q, q] = 0.0
                R[p, q] = R[q, p] = I[p, q] = I[q, p] = 0.0
        if done:
            return


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def turn(R: Any, I: Any, VR: Any, VI: Any, YR: Any, YI: Any, is_complex: bool) -> None:  # noqa: E741
    """Replace M = R + iI by ``v_k* M v_l``, v_k the rows of V."""
    n = R.shape[0]
    for k in range(n):
        for a in range(n):
            YR[k, a] = 0.0
            YI[k, a] = 0.0
        for b in range(n):
            re, im = VR[k, b], VI[k, b]
            if is_complex:
                for a in range(n):  # times M[a, b], the conjugate of M[b, a]
                    YR[k, a] += re * R[b, a] + im * I[b, a]
                    YI[k, a] += im * R[b, a] - re * I[b, a]
            else:
                for a in range(n):
                    YR[k, a] += re * R[b, a]
    for k in range(n):
        for b in range(k, n):
            re = im = 0.0
            if is_complex:
                for a in range(n):
                    re += VR[k, a] * YR[b, a] + VI[k, a] * YI[b, a]
                    im += VR[k, a] * YI[b, a] - VI[k, a] * YR[b, a]
            else:
                for a in range(n):
                    re += VR[k, a] * YR[b, a]
            R[k, b] = R[b, k] = re
            I[k, b], I[b, k] = im, -im


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def is_definite(R: Any, I: Any, CR: Any, CI: Any) -> bool:  # noqa: E741
    """Return whether ``R + iI`` has a lower Cholesky factor of clearly positive pivots, written."""
    n = R.shape[0]
    most = 0.0
    for j in range(n):
        most = max(most, R[j, j])
    least = n * MIN_PIVOT * most
    for j in range(n):
        pivot = R[j, j]
        for k in range(j):
            pivot -= CR[j, k] * CR[j, k] + CI[j, k] * CI[j, k]
        if not pivot > least:
            return False
        root = math.sqrt(pivot)
        CR[j, j], CI[j, j] = root, 0.0
        for a in range(j + 1, n):
            re, im = R[a, j], I[a, j]
            for k in range(j):
                re -= CR[a, k] * CR[j, k] + CI[a, k] * CI[j, k]
                im -= CI[a, k] * CR[j, k] - CR[a, k] * CI[j, k]
            CR[a, j], CI[a, j] = re / root, im / root
    return True


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def level_of(values: Any, total: float) -> float:
    """Return the t for which the positive parts of ``values - t`` add up to `total`."""
    n = values.size
    level = -math.inf
    for _ in range(n + 1):
        count, mass = 0, 0.0
        for k in range(n):
            if values[k] > level:
                count += 1
                mass += values[k]
        following = (mass - total) / count
        if following == level:
            break
        level = following
    return level


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def product(S: Any, d: Any, out: Any) -> None:
    """Write ``S d`` for a symmetric S."""
    N = d.size
    out[:] = 0.0
    for j in range(N):
        value = d[j]
        for k in range(N):
            out[k] += S[j, k] * value


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def largest_eigenvalue(S: Any, v: Any, out: Any) -> float:
    """Return an estimate of the largest eigenvalue of a positive semidefinite S, from below."""
    N = v.size
    for j in range(N):
        v[j] = math.sqrt(S[j, j]) * (1.0 + 0.1 * (j % 3))
    found = 0.0
    for _ in range(POWER_STEPS):
        square = 0.0
        for j in range(N):
            square += v[j] * v[j]
        if not square > 0.0:
            return 0.0
        scale = 1.0 / math.sqrt(square)
        for j in range(N):
            v[j] *= scale
        product(S, v, out)
        found = 0.0
        for j in range(N):
            found += v[j] * out[j]
        v[:] = out
    return found


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def cone_least_squares(
    S: Any, least: Any, most: Any, sigma: Any, x0: Any, rest: Any, floor: Any, trace: float,
    gap: float, max_steps: int, n: int, is_complex: bool, X: Any, P: Any, steps: Any,
) -> None:  # fmt: skip
    """Minimize ``rest + (x - x0)^T S (x - x0)`` over the positive semidefinite matrices.

    Parameters
    ----------
    S : (1 or k, N, N) array
        Of all problems, or of each.
    least, most : (1 or k,) arrays
        Estimates of the extreme eigenvalues of S, of its part across the identity where the trace
        is fixed; 0 for the largest where it is yet to be estimated.
    sigma : (1 or k,) array
        Proved bound on the least one, by which the gap is judged.
    x0 : (k, N) array
        Of that trace, where it is fixed.
    rest, floor : (k,) arrays
        The cost at x0, and a cost below which the gap need not be closed.
    trace : float
        What the trace must be; NaN where it is free.
    gap : float
        Relative distance of the bounds at which to stop.
    max_steps : int
    n : int
    is_complex : bool
    X, P : (k, N) arrays
        Where the minimizer and the multiplier of the cone are written.
    steps : (k,) int64 array
        How many steps each took: 0 where x0 is in the cone.
    """
    count, N = x0.shape
    R, I, VR, VI = np.empty((n, n)), np.zeros((n, n)), np.empty((n, n)), np.empty((n, n))  # noqa: E741
    YR, YI = np.empty((n, n)), np.empty((n, n))
    values = np.empty(n)
    x, last, y, gx, gy, glast, v = (
        np.empty(N), np.empty(N), np.empty(N), np.empty(N), np.empty(N), np.empty(N), np.empty(N)
    )  # fmt: skip
    shared = S.shape[0] == 1
    fixed = trace == trace
    for i in range(count):
        which = 0 if shared else i
        unpack(x0[i], R, I, is_complex)
        if is_definite(R, I, YR, YI):
            X[i], P[i], steps[i] = x0[i], 0.0, 0
            continue
        Si, L, mu = S[which], most[which], least[which]
        if L == 0.0:
            L = ABOVE_ESTIMATE * largest_eigenvalue(Si, v, x)
        limit = (math.sqrt(L) - math.sqrt(mu)) / (math.sqrt(L) + math.sqrt(mu))
        VR[:] = 0.0
        VI[:] = 0.0
        for j in range(n):
            VR[j, j] = 1.0
        y[:] = x0[i]
        gy[:] = 0.0
        momentum, begun = 1.0, False
        steps[i] = max_steps
        for step in range(max_steps):
            for j in range(N):
                v[j] = y[j] - gy[j] / L
            unpack(v, R, I, is_complex)
            turn(R, I, VR, VI, YR, YI, is_complex)
            rotate(R, I, VR, VI, is_complex)
            for j in range(n):
                values[j] = R[j, j]
            level = 0.0
            if fixed:
                level = level_of(values, trace)
            for j in range(n):
                values[j] -= level
            add_squares(values, VR, VI, x, is_complex)
            for j in range(N):
                v[j] = x[j] - x0[i, j]
            product(Si, v, gx)
            cost, far, back = rest[i], 0.0, 0.0
            for j in range(N):
                cost += v[j] * gx[j]
                d = x[j] - y[j]
                r = L * d - (gx[j] - gy[j])
                far += r * r
                if begun:
                    back += d * (x[j] - last[j])
            if far <= sigma[which] * max(gap * cost, floor[i]):
                steps[i] = step + 1
                break
            if begun and back < 0.0:  # the step turns back: begin anew from here
                momentum, begun = 1.0, False
            following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum * momentum))
            share = min((momentum - 1.0) / following, limit) if begun else 0.0
            momentum = following
            for j in range(N):
                dx, dg = (x[j] - last[j], gx[j] - glast[j]) if begun else (0.0, 0.0)
                y[j] = x[j] + share * dx
                gy[j] = gx[j] + share * dg
                last[j] = x[j]
                glast[j] = gx[j]
            begun = True
        X[i] = x
        for j in range(n):
            values[j] = -values[j]
        add_squares(values, VR, VI, x, is_complex)
        for j in range(N):
            P[i, j] = 2.0 * L * x[j]


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def factor(
    entries: Any, q: int, p: int, rounding: float, schur: Any, inverse: Any, sigma: Any,
) -> None:  # fmt: skip
    """Factor one normal matrix after the other.

    Parameters
    ----------
    entries : (k, q (q + 1)/2) array
        The lower triangles, by rows.
    q, p : int
        Unknowns, and how many of them, the first, are coefficients of covariates.
    rounding : float
        Bound on the error of a matrix and of its factor, relative to its trace.
    schur : (k, q - p, q - p) array
        Where the Schur complements are written.
    inverse : (k, q, q) array
        Where the inverses of the lower factors are written.
    sigma : (k,) array
        Where a proved bound on the least eigenvalue of the whole matrix is written; 0 where it has
        no factor.
    """
    N = q - p
    C = np.zeros((q, q))
    for i in range(entries.shape[0]):
        place, trace, sound = 0, 0.0, True
        for j in range(q):
            for k in range(j + 1):
                C[j, k] = entries[i, place]
                place += 1
            trace += C[j, j]
        size = 0.0
        for j in range(q):
            for k in range(j + 1):
                value = C[j, k]
                for a in range(k):
                    value -= C[j, a] * C[k, a]
                if k < j:
                    C[j, k] = value / C[k, k]
                elif value > rounding * trace:
                    C[j, j] = math.sqrt(value)
                else:
                    sound = False
                    break
                size += C[j, k] * C[j, k]
            if not sound:
                break
        H = inverse[i]
        H[:, :] = 0.0
        if not sound:
            schur[i] = 0.0
            for j in range(q):
                H[j, j] = 1.0
            for j in range(N):
                schur[i, j, j] = 1.0
            sigma[i] = 0.0
            continue
        length = 0.0
        for j in range(q):
            for k in range(j):
                value = 0.0
                for a in range(k, j):
                    value -= C[j, a] * H[a, k]
                H[j, k] = value / C[j, j]
                length += H[j, k] * H[j, k]
            H[j, j] = 1.0 / C[j, j]
            length += H[j, j] * H[j, j]
        slip = (q + 4) * 2.0 * UNIT * math.sqrt(length * size)
        found = 0.0
        if slip < 1.0:
            found = (1.0 - slip) * (1.0 - slip) / length * (1.0 - 1e-9) - rounding * trace
        sigma[i] = max(found, 0.0)
        for j in range(N):
            for k in range(j + 1):
                value = 0.0
                for a in range(k + 1):
                    value += C[p + j, p + a] * C[p + k, p + a]
                schur[i, j, k] = schur[i, k, j] = value


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def judge(
    z: Any, b: Any, w: Any, lengths: Any, sizes: Any, rounding: float, target: bool,
    below: Any, above: Any, unit: Any, pushes: Any,
    ratio: Any, row: Any, met: Any, most: Any, fewest: Any, errors: Any, support: Any, rooms: Any,
) -> None:  # fmt: skip
    """Compare what each matrix reads with its intervals, and add up what it costs.

    Parameters
    ----------
    z : (k, r) array
        Residuals; overwritten by y, ``W z`` plus half the pushes. The last is that of the trace,
        where r is m + 1.
    b : (k, m) array
    w : (1 or k, r) array
    lengths : (r,) array
        Norms of the rows of features.
    sizes : (k,) array
        Norms of the unknowns.
    rounding : float
        Error of a residual, relative to these norms.
    target : bool
        Whether there are intervals.
    below, above, unit : (1 or k, m) arrays
        See `readings.Ends`; without intervals infinite where a reading is missing.
    pushes : (0 or k, m) array
        Multipliers of the ends, positive at an upper one.
    ratio, row, met : (k,) arrays
        Largest ratio to the tolerance, its row, and whether all intervals are surely met.
    most, fewest : (k,) arrays
        Bounds on the sum of squares, without the rounding of the sum itself.
    errors : (k,) array
        Weighted sum of squares of bounds on the errors of residuals.
    support : (k, 3) array
        The largest y.v over v in the intervals, infinite where y belongs to an end that does not
        exist; the sum of the moduli of its terms; ``sum |y_i| unit_i``.
    rooms : (k,) array
        The largest sum of squares of an A that meets all intervals; infinite where a reading that
        counts has one end.
    """
    k, m = b.shape
    r = z.shape[1]
    gw, ge = (0 if w.shape[0] == 1 else 1), (0 if below.shape[0] == 1 else 1)
    pushed = pushes.shape[0] > 0
    for i in range(k):
        worst, place, held = -1.0, 0, True
        high = low = err = 0.0
        value = mass = cost = far = 0.0
        wi, lo, up, half = w[gw * i], below[ge * i], above[ge * i], unit[ge * i]
        for j in range(r):
            own = z[i, j]
            size = abs(own)
            e = rounding * lengths[j] * sizes[i]
            if j < m:
                e += READING_ROUNDINGS * abs(b[i, j])
            weight = wi[j]
            if weight > 0.0:
                least = max(size - e, 0.0)
                high += weight * (size + e) * (size + e)
                low += weight * least * least
                err += weight * e * e
            y = weight * own
            if pushed and j < m:
                y += 0.5 * pushes[i, j]
            z[i, j] = y
            if j >= m:
                continue
            if not target:
                if size > worst and lo[j] < math.inf:
                    worst, place = size, j
                continue
            upper, lower = up[j] < math.inf, lo[j] < math.inf
            found = 0.0
            if upper and lower:
                found = abs(own - 0.5 * (up[j] - lo[j])) / half[j]
            elif upper or lower:
                over = own - up[j] if upper else -lo[j] - own
                if over > 0.0:
                    found = 1.0 + over / half[j]
            if found > worst:
                worst, place = found, j
            if upper and not own + e + END_ERROR * abs(up[j]) <= up[j]:
                held = False
            if lower and not e - own + END_ERROR * abs(lo[j]) <= lo[j]:
                held = False
            if y != 0.0:
                if (y > 0.0 and upper) or (y < 0.0 and lower):
                    end = b[i, j] + up[j] if y > 0.0 else b[i, j] - lo[j]
                    value += y * end
                    mass += abs(y) * (abs(b[i, j]) + abs(up[j] if y > 0.0 else lo[j]))
                    cost += abs(y) * half[j]
                else:
                    value = math.inf
            if weight > 0.0:
                room = max(abs(up[j]), abs(lo[j]))
                far += weight * room * room
        ratio[i], row[i], met[i] = worst, place, held
        most[i], fewest[i], errors[i] = high, low, err
        support[i, 0], support[i, 1], support[i, 2] = value, mass, cost
        rooms[i] = far


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def eigensystems(x: Any, n: int, values: Any, vectors: Any) -> None:
    """Write eigenvalues and eigenvectors, in rows, of packed real matrices; in no order."""
    R, I, VR, VI = np.empty((n, n)), np.zeros((n, n)), np.empty((n, n)), np.zeros((n, n))  # noqa: E741
    for i in range(x.shape[0]):
        VR[:] = 0.0
        for j in range(n):
            VR[j, j] = 1.0
        unpack(x[i], R, I, False)
        rotate(R, I, VR, VI, False)
        for j in range(n):
            values[i, j] = R[j, j]
        vectors[i] = VR
