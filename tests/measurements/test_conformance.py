"""One suite for every kind of probes: products, bounds on their rounding, and every task."""

import numpy as np
import pytest
import workers
from helpers import cover, gaussian_rows, hermitian
from kinds import NAMES, SEEN, cases, fourier_rows

import quadsense
from quadsense.arrays import placed, to_numpy
from quadsense.core.products import features, pack
from quadsense.measurements.arrays import Dense
from quadsense.measurements.blockwise import spread
from quadsense.measurements.sensing import Sensing
from quadsense.proofs.rounding import enclosure

SIZES = ("few rows", "many rows")

on_every_kind = pytest.mark.parametrize(("name", "size"), cover(NAMES, SIZES))
on_kinds_that_methods_see = pytest.mark.parametrize(("name", "size"), cover(SEEN, SIZES))


@pytest.fixture
def case(name, size, tmp_path):
    """What is given as U, the same rows in an array, and further arguments of `solve`."""
    if name.startswith("dask"):
        workers.client()
    found = cases(tmp_path, many=size == "many rows")
    return next(rest for each, *rest in found if each == name)


def sensed(case):
    """The operator on NumPy, and its rows of unit norm."""
    given, U, named = case
    F = quadsense.Measurements(given, np.ones(len(U)), **named).unit_rows.on_numpy()
    return F, U / np.linalg.norm(U, axis=1)[:, None]


def close(found, truth, size=1.0):
    np.testing.assert_allclose(to_numpy(found), truth, rtol=0, atol=1e-12 * size)


@on_every_kind
def test_products_are_those_of_the_rows(case, rng):
    F, V = sensed(case)
    m, n = V.shape
    c = F.is_complex
    X, Y = gaussian_rows(rng, n, 3, c), gaussian_rows(rng, m, 3, c)
    A, y = hermitian(rng, n, c), rng.standard_normal(m)
    K = np.abs(V.conj() @ V.T) ** 2
    close(F.times(X), V.conj() @ X, 10)
    close(F.combine(Y), V.T @ Y, 100)
    close(F.forward(A), np.einsum("ij,jk,ik->i", V.conj(), A, V).real, 100)
    close(F.adjoint(y), np.einsum("i,ij,ik->jk", y, V, V.conj()), 100)
    close(F.images(X.T), (V.conj() @ X).T, 10)
    close(F.squared_columns(y), y @ np.abs(V) ** 2, 100)
    close(F.rows(), V)
    close(F.block(1, 3), V[1:3])
    close(F.take_unit(np.array([3, 0])), V[[3, 0]])
    close(F.gram(), K, 10)
    close(F.gram_times(y), K @ y, 100)
    close(F.gram_block(slice(1, 4), slice(0, 3)), K[1:4, :3], 10)
    close(F.features(), features(V), 10)
    close(F.features() @ pack(A), F.forward(A), 1000)
    w = rng.uniform(0.5, 2.0, m)
    G = features(V)
    normal = F.normal(w)
    close(np.triu(normal), np.triu(G.T @ (w[:, None] * G)), 100)
    assert np.all(np.abs(F.squares - 1.0) <= 1e-12)
    assert F.shape == V.shape and F.unknowns == (n * n if c else n * (n + 1) // 2)


@on_every_kind
def test_the_adjoint_is_the_adjoint(case, rng):
    F, _ = sensed(case)
    A, y = hermitian(rng, F.n, F.is_complex), rng.standard_normal(F.m)
    left, right = F.forward(A) @ y, np.vdot(A, F.adjoint(y)).real
    assert abs(left - right) <= 1e-13 * np.linalg.norm(A) * np.sum(np.abs(y))


@on_every_kind
def test_a_pass_is_a_product_there_and_one_back(case, rng):
    F, V = sensed(case)
    Y, scale = gaussian_rows(rng, 2, F.n, F.is_complex), rng.standard_normal(F.m)
    P, total = F.through(Y, lambda rows, p: p * scale[rows])
    close(P, (V.conj() @ Y.T).T, 10)
    close(total, (P * scale) @ V, 100)
    A = hermitian(rng, F.n, F.is_complex)
    z = F.forward(A)
    seen, taken = np.full(F.m, np.nan), []

    def visit(part, values, take):
        seen[part] = values
        taken.append(take(np.arange(len(values))[::2]))
        close(taken[-1], V[part][::2], 10)

    for part, rows in F.in_blocks():
        visit(part, rows.forward(A), rows.take_unit)
    close(seen, z, 100)


@on_every_kind
def test_some_rows_can_be_held_in_memory(case, rng):
    F, V = sensed(case)
    index = spread(F.m, 3)
    held, A = F.held(index), hermitian(rng, F.n, F.is_complex)
    assert index.size >= 3 and isinstance(held.kind, Dense)
    close(held.rows(), V[index], 10)
    close(held.forward(A), F.forward(A)[index], 100)


@on_every_kind
def test_views_are_of_the_same_rows(case, rng):
    F, V = sensed(case)
    A, y = hermitian(rng, F.n, F.is_complex), rng.standard_normal(F.m)
    s = rng.uniform(0.2, 1.0, F.m)
    weighed, chosen = F.weighed(s), F.only(np.array([4, 1, 2]))
    close(weighed.forward(A), s**2 * F.forward(A), 100)
    close(weighed.adjoint(y), F.adjoint(s**2 * y), 100)
    close(weighed.rows(), s[:, None] * V)
    close(weighed.squares, s**2)
    close(weighed.on_numpy().forward(A), s**2 * F.forward(A), 100)
    close(chosen.forward(A), F.forward(A)[[4, 1, 2]], 100)
    close(chosen.adjoint(y[:3]), np.einsum("i,ij,ik->jk", y[:3], V[[4, 1, 2]], V[[4, 1, 2]].conj()))
    close(chosen.combine(y[:3, None] + 0 * V[:3, :1]), V[[4, 1, 2]].T @ y[:3, None], 10)
    Q = np.linalg.qr(gaussian_rows(rng, F.n, F.n, F.is_complex))[0]
    close(F.within(Q).forward(Q.conj().T @ A @ Q), F.forward(A), 100)
    near, exponents = F.exact()
    close(np.ldexp(1.0, 2 * exponents) * near.forward(A), F.norms**2 * F.forward(A), 1000)
    np.testing.assert_allclose(F.single.forward(A), F.forward(A), rtol=0, atol=1e-4)


@on_every_kind
def test_rounding_is_within_its_bound(case, rng):
    """Against 80-bit arithmetic, for a dense matrix and for a factor."""
    given, U, named = case
    data = quadsense.Measurements(given, np.ones(len(U)), **named)
    rows, wide = data.unit_rows, U.astype(np.clongdouble)
    wide = wide / np.sqrt(np.sum(np.abs(wide) ** 2, axis=1))[:, None]
    X = gaussian_rows(rng, U.shape[1], 2, rows.is_complex) * 1e3
    for A, matrix in (
        (X @ X.conj().T, quadsense.SensedMatrix.from_dense),
        (X, quadsense.SensedMatrix.from_factor),
    ):
        held = matrix(placed(A, rows.norms))
        found = enclosure(held, rows, 0.0 * rows.norms)
        P = wide.conj() @ A.astype(np.clongdouble)
        exact = np.sum(P * wide, axis=1).real if A.shape[1] > 2 else np.sum(np.abs(P) ** 2, axis=1)
        off, error = np.abs(to_numpy(found.z) - exact), to_numpy(found.error)
        assert np.all(off <= error)
        assert np.all(error <= 1e-10 * np.linalg.norm(X) ** 2)


TASKS = {
    "consistent": {},
    "cg": {"method": "cg"},
    "gd": {"method": "gd"},
    "sgd": {"method": "sgd", "rng": 0},
    "minimax": {"method": "minimax"},
    "no delta": {"delta": None},
    "infeasible": {"shift": 1.0},
    "psd": {"psd": True},
    "psd no delta": {"psd": True, "delta": None, "shift": 0.3},
    "psd infeasible": {"psd": True, "shift": 1.0},
    "rank": {"rank": 2},
    "cg tf32": {"method": "cg", "allow_tf32": True},
    "psd tf32": {"psd": True, "prefer": "any", "allow_tf32": True},
    "rank auto": {"rank": "auto"},
    "violations": {"allow_violations": 1, "off": 3},
    "bounds": {"bounds": True},
}


def question(U, task):
    """Readings and arguments of a task: a matrix of rank 2, or what contradicts itself."""
    named = {"delta": 1e-6, **TASKS[task]}
    rng = np.random.default_rng(3)
    X = gaussian_rows(rng, U.shape[1], 2, np.iscomplexobj(U))
    b = np.sum(np.abs(U.conj() @ X) ** 2, axis=1)
    b = b + named.pop("shift", 0.0) * np.abs(b) * rng.standard_normal(len(b))
    if (row := named.pop("off", None)) is not None:
        b[row] += 5.0
    scale = float(np.max(np.abs(b)))
    if named["delta"] is None:
        named.pop("delta")
    else:
        named["delta"] *= scale
    if named.pop("bounds", False):
        delta = named.pop("delta")
        lo, hi = b - delta, b + delta
        hi[::2] = np.inf
        return {"b": None, "bounds": (lo, hi), **named}
    return {"b": b, **named}


@pytest.mark.parametrize(
    ("name", "size", "task"),
    cover(SEEN, [(size, task) for size in SIZES for task in TASKS], each=2),
)
def test_every_task_gives_the_verdict_of_the_array(case, task):
    given, U, named = case
    asked = question(U, task)
    if task in ("gd", "sgd") and hasattr(given, "held_as") and given.held_as("device") is not None:
        asked["delta"] *= 1e4  # on a CPU, every call of torch costs as much as ten steps
    truth = quadsense.solve(U, **asked)
    result = quadsense.solve(given, **asked, **named)
    assert result.status is truth.status, (result.message, truth.message)
    assert result.success or result.status == "infeasible", result.message
    b = asked["b"]
    assert result.certificate.verify(given, b, conjugate="conjugate" in named)
    # Whatever the kind, the claim is about the rows themselves.
    if result.status == "met" and "bounds" not in asked and "allow_violations" not in asked:
        z = np.einsum("ij,jk,ik->i", U.conj(), to_numpy(result.A), U).real - b
        assert np.max(np.abs(z)) <= asked["delta"] * (1 + 1e-9)
    # With a rank, A is the only one near itself; others may fit too, and be found first.
    alone = truth.unique and "rank" not in asked and task != "violations"
    if alone and truth.status == "met":  # within delta of it
        assert np.linalg.norm(to_numpy(result.A) - truth.A) <= 1e-3 * np.linalg.norm(truth.A)
    if truth.status == "infeasible" and "allow_violations" not in asked:
        assert result.certificate.lower_bound == pytest.approx(
            truth.certificate.lower_bound, rel=0.05
        )
    if truth.status == "optimal":
        assert result.certificate.upper_bound == pytest.approx(
            truth.certificate.upper_bound, rel=0.02, abs=1e-8 * np.max(np.abs(b))
        )


@on_kinds_that_methods_see
def test_the_least_squares_fit_is_the_same_on_every_kind(case):
    given, U, named = case
    asked = question(U, "consistent")
    asked["delta"] *= 1e-5
    truth = quadsense.solve(U, **asked)
    found = to_numpy(quadsense.solve(given, **asked, **named).A)
    share = 1e-9 if truth.unique else 1e-6  # otherwise the one nearest to the same start
    assert np.linalg.norm(found - truth.A) <= share * np.linalg.norm(truth.A)


@on_kinds_that_methods_see
def test_results_are_read_back_and_checked_on_every_kind(case, tmp_path):
    given, U, named = case
    asked = question(U, "consistent")
    result = quadsense.solve(given, **asked, **named)
    result.save(tmp_path / "result.npz")
    again = quadsense.load_result(tmp_path / "result.npz")
    np.testing.assert_allclose(again.A, to_numpy(result.A), rtol=1e-12, atol=1e-12)
    assert again.verify(given, asked["b"], conjugate="conjugate" in named)


def test_rows_that_are_never_formed_ask_for_little_at_once():
    """64 MiB of rows, of which no more than 16 are made at a time."""
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((8, 32_768, 2))
    factors /= np.linalg.norm(factors, axis=2)[:, :, None]
    probes = quadsense.probes.kronecker(factors)
    F = Sensing(probes)
    x, y = rng.standard_normal((256, 1)), rng.standard_normal(probes.m)
    image = F.times(x)
    assert (F.combine(y[:, None]).T @ x).item() == pytest.approx((y @ image).item(), rel=1e-10)
    _, total = F.through(x.T, lambda rows, p: p * y[rows])
    np.testing.assert_allclose(total[0], F.combine((y * image[:, 0])[:, None])[:, 0], rtol=1e-9)
    b = np.sum(F.times(X := rng.standard_normal((256, 2))) ** 2, axis=1)
    result = quadsense.solve(probes, b, delta=1e-3 * float(b.max()), rank=2)
    assert result.status == "met", result.message
    assert np.linalg.norm(result.A - X @ X.T) <= 0.1 * np.linalg.norm(X @ X.T)


def test_a_kind_of_its_own_norms_and_storage():
    probes = quadsense.probes.masked_fft(np.ones((2, 8)), 8)
    data = quadsense.Measurements(probes, np.ones(16))
    np.testing.assert_allclose(data.unit_rows.norms, np.sqrt(8.0))
    assert "masked fft" in repr(data)
    np.testing.assert_allclose(data.rows([3]), fourier_rows(probes)[[3]], atol=1e-12)
    with pytest.raises(ValueError, match="cannot be written"):
        data.save("nowhere.npz")


@pytest.mark.parametrize("name", ["dense real", "kronecker complex", "offsets", "masked fft"])
@pytest.mark.parametrize("named", [{}, {"psd": True}, {"slack": "sum"}, {"prefer": "minimax"}])
@pytest.mark.parametrize("mixed", [False, True])
def test_rows_of_which_none_has_a_finite_bound(name, named, mixed, tmp_path):
    given, U = next(case[1:3] for case in cases(tmp_path, many=False) if case[0] == name)
    mix = np.ones((2, len(U))) if mixed else None
    free = (-np.inf, np.inf)
    result = quadsense.solve(given, bounds=free, mix=mix, **named)
    assert result.status == "met"
    assert result.certificate.verify(given, bounds=free, mix=mix)
