"""Problems of the peer benchmark, and every solver as its own users would call it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

import quadsense

Array = npt.NDArray[np.float64]
DECADES = tuple(10.0**-k for k in range(1, 11))


@dataclass(frozen=True)
class Data:
    """One problem: rows, values, one tolerance, and the priors of its group."""

    U: Array
    b: Array
    delta: float
    rank: int | None = None
    value: float = 1.0  # what `met` divides by: delta, or the noise where there is none


@dataclass(frozen=True)
class Solver:
    """A column: ``run(data, tolerance)`` gives A (n, n), or its factor X (n, r), A = X X^T."""

    name: str
    run: Callable[[Data, float], Array]
    tolerances: Sequence[float] = (0.0,)
    limit: Callable[[Data], float] = field(default=lambda data: 0.0)  # seconds expected, roughly
    refine: bool = False


def gaussian(n: int, m: int, delta: float, seed: int = 0) -> Data:
    """Unit Gaussian rows, A* positive definite of condition 10 and trace n (so b is about 1)."""
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((m, n)) / np.sqrt(n)
    U /= np.linalg.norm(U, axis=1)[:, None]
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    eigenvalues = np.logspace(0.0, 1.0, n)
    A = (Q * (eigenvalues * (n / eigenvalues.sum()))) @ Q.T
    return Data(U, measure(U, A), delta, value=delta)


def noisy(n: int, m: int, noise: float, seed: int = 0) -> Data:
    """`gaussian` with Gaussian errors: no delta, the smallest worst-case error is wanted."""
    data = gaussian(n, m, 1.0, seed)
    errors = noise * np.random.default_rng(seed + 1).standard_normal(m)
    return Data(data.U, data.b + errors, np.inf, value=noise)


def low_rank(n: int, m: int, rank: int, relative: float, seed: int = 0) -> Data:
    """Unit Gaussian rows, ``A* = X X^T`` of the given rank and trace n; delta relative to max b."""
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((m, n))
    U /= np.linalg.norm(U, axis=1)[:, None]
    X = rng.standard_normal((n, rank)) / np.sqrt(rank)
    b = np.sum((U @ X) ** 2, axis=1)
    delta = relative * float(b.max())
    return Data(U, b, delta, rank=rank, value=delta)


def measure(U: Array, A: Array) -> Array:
    """``u_i^T A u_i``, from A or from its factor X."""
    if A.shape[0] != A.shape[1]:
        return np.sum((U @ A) ** 2, axis=1)
    return np.einsum("ij,ij->i", U @ A, U)


def noisy_low_rank(n: int, m: int, rank: int, noise: float, delta: float, seed: int = 0) -> Data:
    """`low_rank` with uniform errors."""
    data = low_rank(n, m, rank, 1.0, seed)
    errors = np.random.default_rng(seed + 1).uniform(-noise, noise, m)
    return Data(data.U, data.b + errors, delta, value=delta)


def positive_low_rank(n: int, m: int, rank: int, delta: float, seed: int = 0) -> Data:
    """`low_rank` with an absolute tolerance, the rank not told."""
    data = low_rank(n, m, rank, 1.0, seed)
    return Data(data.U, data.b, delta, value=delta)


# --- quadsense


def ours(data: Data, tolerance: float, **options: object) -> Array:
    """A whole solve: checks, plan, method, certificate."""
    delta = data.delta if np.isfinite(data.delta) else None
    if delta is not None:
        options = {"prefer": "any", **options}  # what the peers are asked for: to meet delta
    elif data.rank is None:
        options = {"prefer": "minimax", **options}
    if data.rank is not None:
        options = {"rank": data.rank, **options}
    result = quadsense.solve(data.U, data.b, delta=delta, **options)  # type: ignore[arg-type]
    assert result.success, result.message
    return np.asarray(result.A if data.rank is None else result.matrix.factor)


# --- peers: consistent data


def _krylov(solve: Callable[..., tuple[Array, ...]], data: Data, tolerance: float) -> Array:
    from scipy.sparse.linalg import LinearOperator

    U, (m, n) = data.U, data.U.shape
    operator = LinearOperator(
        (m, n * n),
        matvec=lambda x: np.einsum("ij,ij->i", U @ x.reshape(n, n), U),
        rmatvec=lambda y: (U.T @ (y[:, None] * U)).ravel(),
        dtype=np.float64,
    )
    return solve(operator, data.b, atol=tolerance, btol=tolerance)[0].reshape(n, n)


def scipy_lsqr(data: Data, tolerance: float) -> Array:
    from scipy.sparse.linalg import lsqr

    return _krylov(lsqr, data, tolerance)


def scipy_lsmr(data: Data, tolerance: float) -> Array:
    from scipy.sparse.linalg import lsmr

    return _krylov(lsmr, data, tolerance)


def _features(U: Array) -> tuple[Array, tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
    """The sensing map as a matrix on the upper triangle of A, off-diagonal counted twice."""
    index = np.triu_indices(U.shape[1])
    return U[:, index[0]] * U[:, index[1]] * np.where(index[0] == index[1], 1.0, 2.0), index


def _symmetric(x: Array, index: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]], n: int) -> Array:
    A = np.zeros((n, n))
    A[index] = x
    return A + np.triu(A, 1).T


def numpy_lstsq(data: Data, tolerance: float) -> Array:
    P, index = _features(data.U)
    return _symmetric(np.linalg.lstsq(P, data.b, rcond=None)[0], index, data.U.shape[1])


def _lstsq_seconds(data: Data) -> float:
    m, n = data.U.shape
    size = n * (n + 1) // 2
    return 1e-10 * 4 * max(m, size) * min(m, size) ** 2


def sklearn_kernel_ridge(data: Data, tolerance: float) -> Array:
    from sklearn.kernel_ridge import KernelRidge

    model = KernelRidge(kernel="poly", degree=2, coef0=0.0, gamma=1.0, alpha=tolerance)
    dual = model.fit(data.U, data.b).dual_coef_
    return data.U.T @ (dual[:, None] * data.U)


# --- peers: minimax


def scipy_highs_ipm(data: Data, tolerance: float) -> Array:
    from scipy.optimize import linprog

    P, index = _features(data.U)
    ones = np.ones((len(P), 1))
    cost = np.append(np.zeros(P.shape[1]), 1.0)
    rows = np.block([[P, -ones], [-P, -ones]])
    bounds = [(None, None)] * P.shape[1] + [(0, None)]
    solution = linprog(cost, rows, np.append(data.b, -data.b), bounds=bounds, method="highs-ipm")
    return _symmetric(solution.x[:-1], index, data.U.shape[1])


def _cvxpy_minimax(data: Data, tolerance: float, *, solver: str) -> Array:
    import cvxpy as cp

    P, index = _features(data.U)
    x = cp.Variable(P.shape[1])
    cp.Problem(cp.Minimize(cp.norm_inf(P @ x - data.b))).solve(solver=solver)
    return _symmetric(np.asarray(x.value), index, data.U.shape[1])


def _lp_seconds(data: Data, each: float) -> float:
    """Seconds, growing as the 2.5th power of the size, from those of n = 40, m = 4000."""
    m, n = data.U.shape
    return each * (m * n * n / (4000 * 1600)) ** 1.25


# --- peers: PSD


def _cvxpy_psd(data: Data, tolerance: float, *, solver: str) -> Array:
    import cvxpy as cp

    n = data.U.shape[1]
    A = cp.Variable((n, n), PSD=True)
    values = cp.sum(cp.multiply(data.U @ A, data.U), axis=1)
    options = {"eps_abs": tolerance, "eps_rel": tolerance} if solver == "SCS" else {}
    problem = cp.Problem(cp.Minimize(0), [cp.abs(values - data.b) <= data.delta])
    problem.solve(solver=solver, **options)
    return np.asarray(A.value)


# --- peers: low rank


def _factor_value(data: Data, X: Array) -> tuple[float, Array]:
    """``1/4 sum (u^T X X^T u - b)^2`` and its gradient."""
    P = data.U @ X
    z = np.sum(P * P, axis=1) - data.b
    return 0.25 * float(z @ z), data.U.T @ (z[:, None] * P)


def _spectral_start(data: Data) -> Array:
    """Leading eigenvectors of ``sum b_i u_i u_i^T``, the usual start of the literature."""
    from scipy.linalg import eigh

    m, n = data.U.shape
    assert data.rank is not None
    # E[b u u^T] = (2 A + tr(A) I) / (n (n + 2)) for unit Gaussian rows, and tr(A) = n mean(b).
    mean = data.b.mean()
    M = 0.5 * ((n + 2) * n / m * (data.U.T @ (data.b[:, None] * data.U)) - n * mean * np.eye(n))
    values, vectors = eigh(M, subset_by_index=[n - data.rank, n - 1])
    return vectors * np.sqrt(np.maximum(values, 1e-3 * values[-1]))


def scipy_lbfgs(data: Data, tolerance: float) -> Array:
    from scipy.optimize import minimize

    start = _spectral_start(data)

    def value(x: Array) -> tuple[float, Array]:
        f, G = _factor_value(data, x.reshape(start.shape))
        return f, G.ravel()

    options = {"maxiter": 5000, "maxfun": 10000, "ftol": 0.0, "gtol": tolerance, "maxcor": 10}
    solution = minimize(value, start.ravel(), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(solution.x.reshape(start.shape))


def pymanopt_fixed_rank(data: Data, tolerance: float) -> Array:
    import pymanopt
    from pymanopt.manifolds import PSDFixedRank
    from pymanopt.optimizers import ConjugateGradient

    n = data.U.shape[1]
    manifold = PSDFixedRank(n, data.rank)
    cost = pymanopt.function.numpy(manifold)(lambda X: _factor_value(data, X)[0])
    gradient = pymanopt.function.numpy(manifold)(lambda X: _factor_value(data, X)[1])
    problem = pymanopt.Problem(manifold, cost, euclidean_gradient=gradient)
    optimizer = ConjugateGradient(
        verbosity=0, min_gradient_norm=tolerance, min_step_size=1e-15, max_iterations=2000,
        max_time=120,
    )  # fmt: skip
    return np.asarray(optimizer.run(problem, initial_point=_spectral_start(data)).point)


DEFAULT = "quadsense, default call"
"""What a user types: of the fits one is chosen, which the peers are not asked for."""


def _entropy_seconds(data: Data) -> float:
    """Seconds of the default over the cone with few readings: ten systems of order m."""
    m, n = data.U.shape
    return 1e-10 * float(m) ** 3 if m < 0.75 * n * (n + 1) else 0.0


SOLVERS: dict[str, list[Solver]] = {
    "consistent": [
        Solver("quadsense", ours),
        Solver(DEFAULT, partial(ours, prefer="auto")),
        Solver("SciPy LSQR", scipy_lsqr, DECADES, refine=True),
        Solver("SciPy LSMR", scipy_lsmr, DECADES, refine=True),
        Solver(
            "sklearn KernelRidge",
            sklearn_kernel_ridge,
            DECADES,
            limit=lambda data: 1.2 * (len(data.b) / 4800) ** 3,
        ),
        Solver("NumPy lstsq", numpy_lstsq, limit=_lstsq_seconds),
    ],
    "minimax": [
        Solver("quadsense", ours),
        Solver("SciPy highs-ipm", scipy_highs_ipm, limit=partial(_lp_seconds, each=30.0)),
        Solver(
            "CVXPY Clarabel",
            partial(_cvxpy_minimax, solver="CLARABEL"),
            limit=partial(_lp_seconds, each=115.0),
        ),
        Solver(
            "CVXPY HiGHS",
            partial(_cvxpy_minimax, solver="HIGHS"),
            limit=partial(_lp_seconds, each=240.0),
        ),
    ],
    "psd": [
        Solver("quadsense", partial(ours, psd=True)),
        Solver(DEFAULT, partial(ours, psd=True, prefer="auto"), limit=_entropy_seconds),
        Solver(
            "CVXPY Clarabel",
            partial(_cvxpy_psd, solver="CLARABEL"),
            limit=lambda data: 40.0 * (data.U.shape[1] / 50) ** 5,
        ),
        Solver(
            "CVXPY SCS",
            partial(_cvxpy_psd, solver="SCS"),
            (1e-4, 1e-6),
            limit=lambda data: 130.0 * (data.U.shape[1] / 50) ** 4,
        ),
    ],
    "low rank": [
        Solver("quadsense", ours),
        Solver(DEFAULT, partial(ours, prefer="auto")),
        Solver("SciPy L-BFGS", scipy_lbfgs, DECADES),
        Solver("Pymanopt CG", pymanopt_fixed_rank, DECADES),
    ],
}
