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

from quadsense.arrays import available_memory
from quadsense.core.intervals import EPS
from quadsense.core.products import forward, gram, packed_adjoint, pair_products, size_of, unpack
from quadsense.core.sums import SPARE
from quadsense.measurements.mixed import Mixed
from quadsense.measurements.sensing import Sensing
from quadsense.proofs.definite import (
    HELD_BYTES,
    MAX_GRAM_ROWS,
    cholesky,
    factorisation_error,
    numerical_rank,
    proven_sigma,
    solve,
)
from quadsense.proofs.rounding import COMPLEX, SPARE_OF_NESTED
from quadsense.system.machine import in_bytes

Matrix = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]

SIMULATIONS = 400
"""Of the noise: the level of a 95% quantile is then known to 1%."""

LARGEST_NOISE = 1e100
"""The largest noise, in units of A, that still says something: its square is within range."""


class SpectralVerdict(StrEnum):
    """What the certificate could say."""

    BOUNDED = "bounded"
    TOO_NOISY = "too noisy"
    UNDETERMINED = "undetermined"
    REFUTED = "refuted"
    SINGULAR = "singular"


@dataclass(frozen=True)
class SpectralCertificate:
    """The answer of `spectral_certificate`.

    Attributes
    ----------
    verdict : SpectralVerdict
    delta : float
        Of ``(1-delta) A* <= A <= (1+delta) A*``; infinite unless bounded.
    unseen : int or None
        Dimensions of A that no measurement sees, to rounding; a lower bound where that
        would cost too much to find out; None where A is singular, and it was not looked for.
    sigma : float
        Proven lower bound on the smallest singular value of the whitened map, rows
        weighted by 1/noise (rounding included); 0 when there is none.
    simulated : bool
        Whether delta rests on simulated noise rather than on every noise in bounds.
    message : str
    """

    verdict: SpectralVerdict
    delta: float
    unseen: int | None
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
    mix: Any = None,
) -> SpectralCertificate:
    """Bound the relative spectral error of A without knowing A*.

    Parameters
    ----------
    U : (m, n) array, float64 or complex128
        Rows of unit norm.
    b : (m,) float64
        Readings, within ``noise`` of ``u_i* A* u_i``.
    A : (n, n) array
        Hermitian estimate; only where it is positive definite is there a relative bound.
    noise : float or (m,) float64
        Bound on the error of each reading.
    confidence : float, optional
        In (0, 1): bound instead the error caused by independent errors of random sign
        and full size, at this confidence, by simulation.
    seed : int
        Of the simulation.
    mix : (p, m) array or sparse array, optional
        Reading i is ``sum_k mix_ik u_k* A u_k``; b and noise are then of length p.

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
    m, n = b.size, U.shape[1]
    size = size_of(U.shape[1], np.iscomplexobj(U))
    if m < size:
        return _too_few(U, size, mix)
    lam, Q = np.linalg.eigh(A)
    if not lam[0] > COMPLEX * n * EPS * lam[-1]:
        return _without_bound(SpectralVerdict.SINGULAR, None, _SINGULAR)
    _refuse_what_cannot_fit(size)
    # The claim is relative: in units of A nothing overflows.
    exponent = -int(np.frexp(lam[-1])[1])
    with np.errstate(under="ignore", over="ignore"):
        lam, b = np.ldexp(lam, exponent), np.ldexp(b, exponent)
        levels = np.ldexp(np.broadcast_to(np.asarray(noise, dtype=np.float64), (m,)), exponent)
        V = U @ Q.conj()  # V[i] = Q* u_i, the row in the eigenbasis of A
        data = _Whitened(V, lam, b, np.minimum(levels, LARGEST_NOISE), mix)
        return _bounded(data, confidence, seed)


_SINGULAR = "A is singular or indefinite, to rounding, so no relative bound exists"


def _without_bound(verdict: SpectralVerdict, unseen: int | None, text: str) -> SpectralCertificate:
    return SpectralCertificate(verdict, np.inf, unseen, 0.0, False, text)


def _sensed(V: Matrix, mix: Any) -> Sensing:
    """Return the map of these rows, mixed where asked."""
    rows = Sensing.of(V)
    if mix is None:
        return rows
    ones = np.ones(mix.shape[0])
    return Mixed(rows, mix, ones, ones)


def _too_few(U: Matrix, size: int, mix: Any) -> SpectralCertificate:
    """Return the answer for fewer rows than unknowns: nothing of that size is formed."""
    m, n = len(U) if mix is None else mix.shape[0], U.shape[1]
    seen, least = m, "at least "
    if m <= MAX_GRAM_ROWS:
        # K has ones on its diagonal, and its entries err by some n roundings.
        F, error = _sensed(U, mix), 2.0 * COMPLEX * (m + n) * EPS
        if not F.rank_one:
            error *= (1.0 + len(U)) * F.amplification**2
        K = F.gram() if not F.rank_one else gram(U)
        seen, least = numerical_rank(K, error) if m else 0, ""
    return _undetermined(size - seen, size, least)


def _undetermined(unseen: int, size: int, least: str = "") -> SpectralCertificate:
    text = f"the measurements do not determine A: {least}{unseen} of {size} dimensions are unseen"
    return _without_bound(SpectralVerdict.UNDETERMINED, unseen, text)


def _refuse_what_cannot_fit(size: int) -> None:
    """Raise MemoryError before the Gram matrix, its factor and a shifted copy are made."""
    needed, free = HELD_BYTES * size * size, available_memory()
    if needed > free:
        raise MemoryError(
            f"a spectral bound on {size} unknowns takes {in_bytes(needed)} and "
            f"{in_bytes(free)} are free"
        )


class _Whitened:
    """Rows, residuals and weights in the eigenbasis of A, and the Gram matrix of the map."""

    def __init__(self, V: Matrix, lam: Vector, b: Vector, noise: Vector, mix: Any = None) -> None:
        self.V, self.lam, self.F = V, lam, _sensed(V, mix)
        self.m, self.n = b.size, V.shape[1]
        self.z = self.F.mixed(np.abs(V) ** 2 @ lam) - b
        # Sums of rows round by as much as their parts together, and by the sum.
        self.sizes: float | Vector = 1.0
        self.length = int(COMPLEX) * self.n + 2 * SPARE + self.F.sum_terms(SPARE)
        if not self.F.rank_one:
            self.sizes = self.F.masses
        rounding = self.length * EPS * (self.sizes * lam[-1] * self.n + np.abs(b))
        self.weight = 1.0 / (noise + rounding)
        self.G = self.F.normal(self.weight**2)
        self.trace = self.scale(self.weight, self.G)
        # Rounding of V and of G (sums of m products of entries each of a few operations) and of
        # the factorisation, all relative to the trace.
        size = len(self.G)
        self.slip = (self.m + self.length + self.n + SPARE_OF_NESTED) * EPS * self.trace
        self.slip += factorisation_error(size, self.trace)

    def scale(self, weight: float | Vector, G: Matrix) -> float:
        """Return what rounding of G is relative to: its trace, or that without cancellation."""
        if not self.F.rank_one:
            return float(np.sum((weight * self.F.masses) ** 2)) * (1.0 + self.m * EPS)
        return float(np.trace(G))

    def residual(self, S: Matrix) -> Vector:
        """Return ``z + F(S)``."""
        return self.z + self.F.mixed(forward(self.V, S))

    def adjoint(self, Y: Matrix) -> Matrix:
        """Return ``F*`` of a vector or of columns, in coordinates."""
        return packed_adjoint(self.V, self.F.unmixed(Y))

    def slope(self, r: Vector) -> Vector:
        """Return the adjoint of the weighted map at the weighted r."""
        return self.adjoint(self.weight**2 * r)


def _bounded(data: _Whitened, confidence: float | None, seed: int) -> SpectralCertificate:
    """Return the answer where there are as many rows as unknowns."""
    m, n, lam, weight = data.m, data.n, data.lam, data.weight
    size = len(data.G)
    factor = cholesky(data.G)
    plain = 0.0
    if factor is not None:
        plain = proven_sigma(data.G, factor, np.ones(size), data.slip)
    if factor is None or plain == 0.0:
        return _unproven(data)
    x = np.zeros(size)
    for _ in range(2):  # the second round refines the first
        x -= solve(factor, data.slope(data.residual(unpack(x, n, data.V.dtype))))
    S = unpack(x, n, data.V.dtype)
    r = data.residual(S)
    # What rounding of F(S) can hide in r, and r's computed component in the range of F.
    length = float(np.linalg.norm(weight * r))
    spread = float(np.linalg.norm(weight * data.sizes))
    fog = data.length * n * EPS * float(np.linalg.norm(S)) * spread
    terms = m + (len(data.V) if not data.F.rank_one else 0)
    skew = float(np.linalg.norm(data.slope(r))) + terms * EPS * np.sqrt(data.trace) * length
    skew = skew / plain + fog
    budget = m - max(0.0, length - fog) ** 2
    if budget < -(skew**2):
        factor_of_noise = np.sqrt(1.0 - budget / m)
        text = (
            f"the data refute this noise: it must be at least {factor_of_noise:.3g} times as large"
        )
        return SpectralCertificate(SpectralVerdict.REFUTED, np.inf, 0, 0.0, False, text)
    root = np.sqrt(lam)
    sigma = proven_sigma(data.G, factor, 1.0 / pair_products(lam, data.V.dtype), data.slip)
    errors = np.linalg.eigvalsh(S / np.outer(root, root))
    if confidence is None:
        hidden = (skew + np.sqrt(skew**2 + max(budget, 0.0))) / sigma if sigma > 0.0 else np.inf
    else:
        hidden = _simulated(data, factor, root, confidence, seed)
    # Rounding of the eigendecomposition of A, relative to its smallest eigenvalue.
    hidden += COMPLEX * n * EPS * lam[-1] / lam[0]
    least = 1.0 + errors[0] - hidden
    if not least > 0.0:
        text = "this noise is too large for a bound: A* may be singular as far as the data say"
        return SpectralCertificate(
            SpectralVerdict.TOO_NOISY, np.inf, 0, sigma, confidence is not None, text
        )
    delta = float(max(1.0 / least - 1.0, 1.0 - 1.0 / (1.0 + errors[-1] + hidden)))
    kind = (
        "for every noise within bounds"
        if confidence is None
        else (f"at confidence {confidence:g} for errors of random sign, by simulation")
    )
    text = f"(1-d) A* <= A <= (1+d) A* with d = {delta:.3g}, {kind}"
    return SpectralCertificate(
        SpectralVerdict.BOUNDED, delta, 0, sigma, confidence is not None, text
    )


def _unproven(data: _Whitened) -> SpectralCertificate:
    """Return the answer where full rank of the map is not proved: its rank, without weights."""
    G = data.F.normal()
    size = len(G)
    slip = (data.m + 2 * size + data.length + SPARE_OF_NESTED) * EPS * data.scale(1.0, G)
    unseen = size - numerical_rank(G, slip)
    if unseen:
        return _undetermined(unseen, size)
    text = "noise of sizes this unequal leaves no bound that float64 can prove"
    return _without_bound(SpectralVerdict.TOO_NOISY, 0, text)


def _simulated(data: _Whitened, factor: Any, root: Vector, confidence: float, seed: int) -> float:
    """Return the quantile of the whitened error caused by errors of random sign."""
    rng = np.random.default_rng(seed)
    signs = rng.choice((-1.0, 1.0), (data.m, SIMULATIONS))
    X = solve(factor, data.adjoint(data.weight[:, None] * signs))
    scale = np.outer(root, root)
    norms = [np.linalg.norm(unpack(x, data.n, data.V.dtype) / scale, 2) for x in X.T]
    return float(np.quantile(norms, confidence, method="higher"))
