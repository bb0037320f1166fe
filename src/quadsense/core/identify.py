"""How near A is to the true A*, from the data alone: ``(1-delta) A* <= A <= (1+delta) A*``.

If ``b = F(A*) + e`` with ``|e_i| <= noise_i`` then ``F(A* - A) = -(z + e)``, z the known
residual.  Where F determines A*, the least-squares solution ``S`` of ``F(S) = -z`` is A* - A
up to what the noise can hide, and that is bounded by the smallest singular value of F,
which is proven by a Cholesky factorisation.  Departs from [QSZ24], which leaves the
spectral guarantee without an oracle open, and whose coherence bound forces m <= n, where
A* is never determined: this certificate lives outside those assumptions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cho_factor, cho_solve

Matrix = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)  # twice the unit roundoff
_SIMULATIONS = 400  # the level of a 95% quantile is then known to 1%
_BLOCK_ENTRIES = 4_000_000  # 32 MB of features at a time


class Verdict(StrEnum):
    """What the certificate could say."""

    BOUNDED = "bounded"
    TOO_NOISY = "too noisy"
    UNDETERMINED = "undetermined"
    REFUTED = "refuted"


@dataclass(frozen=True)
class SpectralCertificate:
    """The answer of `spectral_certificate`.

    Attributes
    ----------
    verdict : Verdict
    delta : float
        Of ``(1-delta) A* <= A <= (1+delta) A*``; infinite unless bounded.
    unseen : int
        Dimensions of A that no measurement sees.
    sigma : float
        Proven lower bound on the smallest singular value of the whitened map, rows
        weighted by 1/noise (rounding included); 0 when there is none.
    simulated : bool
        Whether delta rests on simulated noise rather than on every noise in bounds.
    message : str
    """

    verdict: Verdict
    delta: float
    unseen: int
    sigma: float
    simulated: bool
    message: str


def spectral_certificate(
    U: Matrix,
    b: Vector,
    A: Matrix,
    noise: float | Vector = 0.0,
    *,
    confidence: float | None = None,
    seed: int = 0,
) -> SpectralCertificate:
    """Bound the relative spectral error of A without knowing A*.

    Parameters
    ----------
    U : (m, n) array, float64 or complex128
        Rows of unit norm.
    b : (m,) float64
        Readings, within ``noise`` of ``u_i* A* u_i``.
    A : (n, n) array
        Hermitian positive definite estimate.
    noise : float or (m,) float64
        Bound on the error of each reading.
    confidence : float, optional
        In (0, 1): bound instead the error caused by independent errors of random sign
        and full size, at this confidence, by simulation.
    seed : int
        Of the simulation.

    Notes
    -----
    In the eigenbasis of A, ``A = Q diag(lam) Q*``, the unknown ``Q* (A* - A) Q`` is written
    in real coordinates of a Hermitian matrix, orthonormal for the Frobenius norm, and
    ``G`` is the Gram matrix of the weighted map.  With S the computed solution, r the
    residual ``z + F(S)``, and T the unknown rest, ``r + e = -F(T)``; r is orthogonal to the
    range, so ``|F(T)|^2 = |e|^2 - |r|^2 <= m - |r|^2`` in units of the noise
    (``skew`` pays for r being so only nearly).  Whitening is
    ``T_jk / sqrt(lam_j lam_k)``, whence ``|T_white|_op <= |F(T)| / sigma`` for every sigma with
    ``G - sigma^2 diag(1/(lam_j lam_k))`` positive definite.  In this form, unlike with G
    whitened, the conditioning of A does not enter the rounding error of the proof.
    """
    m, n = U.shape
    unknowns = n * n if np.iscomplexobj(U) else n * (n + 1) // 2
    lam, Q = np.linalg.eigh(A)
    if not lam[0] > 0.0:
        raise ValueError(f"A must be positive definite; its smallest eigenvalue is {lam[0]:.3g}")
    V = U @ Q.conj()  # V[i] = Q* u_i, the row in the eigenbasis of A
    z = np.abs(V) ** 2 @ lam - b
    rounding = (4 * n + 16) * _EPS * (lam[-1] * n + np.abs(b))
    allowed = np.broadcast_to(np.asarray(noise, dtype=np.float64), (m,)) + rounding
    weight = 1.0 / allowed
    G = _gram(V, weight)
    trace = float(np.trace(G))
    # Rounding of G (sums of m products of entries each of a few operations) and of the
    # factorisation [Rump 2006, Thm 2.3], all relative to the trace.
    slip = (m + 2 * unknowns + 40) * _EPS * trace
    plain = _proven_sigma(G, np.ones(unknowns), slip)
    if m < unknowns or plain == 0.0:
        values = np.linalg.eigvalsh(G)
        unseen = max(int(np.sum(values <= slip)), unknowns - m)
        text = f"the measurements do not determine A: {unseen} of {unknowns} dimensions are unseen"
        return SpectralCertificate(Verdict.UNDETERMINED, np.inf, unseen, 0.0, False, text)
    factor = cho_factor(G)
    x = np.zeros(unknowns)
    for _ in range(2):  # the second round refines the first
        S = _unpack(x, n, V.dtype)
        r = z + _forward(V, S)
        x -= cho_solve(factor, _adjoint(V, weight**2 * r))
    S = _unpack(x, n, V.dtype)
    r = z + _forward(V, S)
    # What rounding of F(S) can hide in r, and r's computed component in the range of F.
    length = float(np.linalg.norm(weight * r))
    fog = (4 * n + 16) * n * _EPS * float(np.linalg.norm(S)) * float(np.linalg.norm(weight))
    skew = float(np.linalg.norm(_adjoint(V, weight**2 * r))) + m * _EPS * np.sqrt(trace) * length
    skew = skew / plain + fog
    budget = m - max(0.0, length - fog) ** 2
    if budget < -(skew**2):
        factor_of_noise = np.sqrt(1.0 - budget / m)
        text = (
            f"the data refute this noise: it must be at least {factor_of_noise:.3g} times as large"
        )
        return SpectralCertificate(Verdict.REFUTED, np.inf, 0, 0.0, False, text)
    root = np.sqrt(lam)
    sigma = _proven_sigma(G, 1.0 / _pair_products(lam, V.dtype), slip)
    errors = np.linalg.eigvalsh(S / np.outer(root, root))
    if confidence is None:
        hidden = (skew + np.sqrt(skew**2 + max(budget, 0.0))) / sigma if sigma > 0.0 else np.inf
    else:
        hidden = _simulated(V, weight, factor, root, confidence, seed)
    # Rounding of the eigendecomposition of A, relative to its smallest eigenvalue.
    hidden += 4.0 * n * _EPS * lam[-1] / lam[0]
    least = 1.0 + errors[0] - hidden
    if not least > 0.0:
        text = "this noise is too large for a bound: A* may be singular as far as the data say"
        return SpectralCertificate(
            Verdict.TOO_NOISY, np.inf, 0, sigma, confidence is not None, text
        )
    delta = float(max(1.0 / least - 1.0, 1.0 - 1.0 / (1.0 + errors[-1] + hidden)))
    kind = (
        "for every noise within bounds"
        if confidence is None
        else (f"at confidence {confidence:g} for errors of random sign, by simulation")
    )
    text = f"(1-d) A* <= A <= (1+d) A* with d = {delta:.3g}, {kind}"
    return SpectralCertificate(Verdict.BOUNDED, delta, 0, sigma, confidence is not None, text)


def _features(V: Matrix) -> Vector:
    """Return the real coordinates of ``conj(v) v^T`` for every row, (rows, unknowns)."""
    j, k = np.triu_indices(V.shape[1], 1)
    diagonal = np.abs(V) ** 2
    products = np.sqrt(2.0) * V[:, j].conj() * V[:, k]
    if np.iscomplexobj(V):
        return np.concatenate([diagonal, products.real, -products.imag], axis=1)
    return np.concatenate([diagonal, products], axis=1)


def _unpack(x: Vector, n: int, dtype: npt.DTypeLike) -> Matrix:
    """Return the Hermitian matrix of real coordinates x."""
    j, k = np.triu_indices(n, 1)
    S = np.zeros((n, n), dtype=dtype)
    off = x[n : n + len(j)] / np.sqrt(2.0)
    if np.iscomplexobj(S):
        off = off + 1j * x[n + len(j) :] / np.sqrt(2.0)
    S[j, k] = off
    S[k, j] = off.conj()
    S[np.arange(n), np.arange(n)] = x[:n]
    return S


def _pair_products(lam: Vector, dtype: npt.DTypeLike) -> Vector:
    """Return ``lam_j lam_k`` for every real coordinate."""
    j, k = np.triu_indices(len(lam), 1)
    pairs = lam[j] * lam[k]
    repeats = [pairs, pairs] if np.issubdtype(dtype, np.complexfloating) else [pairs]
    return np.concatenate([lam**2, *repeats])


def _blocks(V: Matrix) -> list[slice]:
    m, n = V.shape
    rows = max(1, _BLOCK_ENTRIES // (n * n))
    return [slice(i, min(i + rows, m)) for i in range(0, m, rows)]


def _gram(V: Matrix, weight: Vector) -> Matrix:
    """Return the Gram matrix of the weighted map, one block of rows at a time."""
    first = _features(V[:0])  # there may be no row at all
    G: Matrix = first.T @ first
    for rows in _blocks(V):
        part = _features(V[rows]) * weight[rows, None]
        G = G + part.T @ part
    return G


def _forward(V: Matrix, S: Matrix) -> Vector:
    """Return ``v_i* S v_i`` for every row."""
    values: Vector = np.einsum("ij,ij->i", V.conj() @ S, V).real
    return values


def _adjoint(V: Matrix, y: Vector) -> Vector:
    parts = [_features(V[rows]).T @ y[rows] for rows in _blocks(V)]
    total: Vector = np.sum(parts, axis=0)
    return total


def _proven_sigma(G: Matrix, diagonal: Vector, slip: float) -> float:
    """Return s for which ``G - s^2 diag(diagonal)`` is proven positive definite, or 0.

    Parameters
    ----------
    slip : float
        Bound on the rounding error of G and of a Cholesky factorisation of that size:
        completed on ``G - s^2 diag - 2 slip``, it proves the claim.
    """
    root = 1.0 / np.sqrt(diagonal)
    estimate = float(np.linalg.eigvalsh(G * np.outer(root, root))[0])
    if not estimate > 0.0:
        # Bad scaling may hide a positive value; the proof below starts lower.
        estimate = float(np.linalg.eigvalsh(G)[0]) / float(diagonal.max())
    share = 0.99
    while share > 1e-3 and estimate > 0.0:
        shifted = G.copy()
        shifted.flat[:: len(G) + 1] -= share * estimate * diagonal + 2.0 * slip
        try:
            cho_factor(shifted, lower=True)
        except LinAlgError:
            share /= 2.0
            continue
        return float(np.sqrt(share * estimate))
    return 0.0


def _simulated(
    V: Matrix, weight: Vector, factor: Any, root: Vector, confidence: float, seed: int
) -> float:
    """Return the quantile of the whitened error caused by errors of random sign."""
    rng = np.random.default_rng(seed)
    m, n = V.shape
    norms = np.empty(_SIMULATIONS)
    for i in range(_SIMULATIONS):
        x = cho_solve(factor, _adjoint(V, weight * rng.choice((-1.0, 1.0), m)))
        norms[i] = np.linalg.norm(_unpack(x, n, V.dtype) / np.outer(root, root), 2)
    return float(np.quantile(norms, confidence, method="higher"))
