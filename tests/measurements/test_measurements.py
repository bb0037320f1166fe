"""The sensing map on every kind of array, against loops over single rows."""

import numpy as np
import pytest
from conftest import KINDS
from helpers import gaussian_rows, hermitian, readings, sampled, sparse_rows, unit
from hypothesis import given
from hypothesis import strategies as st

import quadsense
from quadsense import Measurements
from quadsense.measurements.gram import ExplicitGram, MatrixFreeGram, SparseGram
from quadsense.query.plan import make_plan, shape_of

U_EPS = 2.0**-52


@pytest.fixture
def case(kind, complex_, rng):
    U = gaussian_rows(rng, 9, 5, complex_) * rng.uniform(0.1, 10.0, (9, 1))
    return U, quadsense.Measurements(kind(U), np.ones(9))


@given(st.sampled_from(sorted(KINDS)), st.booleans(), st.booleans(), st.integers(0, 2**31))
def test_adjoint_identity(name, complex_, conjugate, seed):
    """<F(A), y> = <A, F*(y)> on every kind of array."""
    rng = np.random.default_rng(seed)
    m, n = rng.integers(1, 12, 2)
    U = gaussian_rows(rng, m, n, complex_)
    data = quadsense.Measurements(KINDS[name](U), np.ones(m), conjugate=conjugate)
    A, y = hermitian(rng, n, complex_), rng.standard_normal(m)
    xp = data.unit_rows.xp
    left = np.asarray(data.forward(xp.asarray(A))) @ y
    right = np.vdot(A, np.asarray(data.adjoint(xp.asarray(y)))).real
    size = np.linalg.norm(A) * np.sum(np.abs(y) * np.linalg.norm(U, axis=1) ** 2)
    assert abs(left - right) <= 50 * (m + n) * U_EPS * size


def test_forward_is_the_quadratic_form_of_each_row(case, complex_, rng):
    U, data = case
    A = hermitian(rng, 5, complex_)
    found = np.asarray(data.forward(data.unit_rows.xp.asarray(A)))
    np.testing.assert_allclose(found, readings(U, A), rtol=1e-12, atol=1e-12)


def test_conjugate_means_rows_given_as_u_star(kind, rng):
    U, A = gaussian_rows(rng, 7, 4, True), hermitian(rng, 4, True)
    data = quadsense.Measurements(kind(U.conj()), np.ones(7), conjugate=True)
    xp = data.unit_rows.xp
    np.testing.assert_allclose(np.asarray(data.forward(xp.asarray(A))), readings(U, A))
    np.testing.assert_allclose(np.asarray(data.rows([1, 3])), U[[1, 3]])
    y = rng.standard_normal(7)
    truth = np.einsum("i,ij,ik->jk", y, U, U.conj())
    np.testing.assert_allclose(np.asarray(data.adjoint(xp.asarray(y))), truth, atol=1e-12)


def test_rows_are_the_users_rows(case):
    U, data = case
    np.testing.assert_allclose(np.asarray(data.rows()), U, rtol=1e-14)
    np.testing.assert_allclose(np.asarray(data.rows(3)), U[3:4], rtol=1e-14)
    assert len(data) == 9


def test_products_with_unit_rows(case, complex_, rng):
    U, data = case
    rows, V = data.unit_rows, unit(U)
    xp = rows.xp
    X = gaussian_rows(rng, 5, 2, complex_)
    Y = gaussian_rows(rng, 9, 2, complex_)
    y = rng.standard_normal(9)
    K = np.abs(V.conj() @ V.T) ** 2
    for found, truth in (
        (rows.times(xp.asarray(X)), V.conj() @ X),
        (rows.combine(xp.asarray(Y)), V.T @ Y),
        (rows.squared_columns(xp.asarray(y)), y @ np.abs(V) ** 2),
        (rows.gram_times(xp.asarray(y)), K @ y),
        (rows.gram_block(slice(2, 5), slice(1, 9)), K[2:5, 1:9]),
    ):
        np.testing.assert_allclose(np.asarray(found), truth, atol=1e-13)


def test_every_form_of_k_is_the_same_operator(case, rng):
    U, data = case
    rows = data.unit_rows
    xp, V = rows.xp, unit(U)
    K = np.abs(V.conj() @ V.T) ** 2
    forms = [ExplicitGram(rows), MatrixFreeGram(rows)]
    if rows.is_sparse:
        forms.append(SparseGram(rows))
    s, index = rng.standard_normal(9), np.array([7, 0, 4])
    part = np.zeros(9)
    part[index] = s[index]
    for gram in forms:
        np.testing.assert_allclose(np.asarray(gram.apply(xp.asarray(s))), K @ s, atol=1e-13)
        found = gram.apply_part(xp.asarray(part), xp.asarray(index))
        np.testing.assert_allclose(np.asarray(found), K @ part, atol=1e-13)
        assert gram.top >= np.linalg.eigvalsh(K)[-1] * (1 - 1e-14)


def test_matrix_free_k_through_the_small_side(rng):
    U = gaussian_rows(rng, 40, 3, True)
    rows = quadsense.Measurements(U, np.ones(40)).unit_rows
    s = rng.standard_normal(40)
    K = np.abs(unit(U).conj() @ unit(U).T) ** 2
    np.testing.assert_allclose(MatrixFreeGram(rows).apply(s), K @ s, atol=1e-12)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_matrix_that_is_not_symmetric_is_measured_as_it_is(order, rng):
    U = np.array(gaussian_rows(rng, 7, 4, True), order=order)
    A = rng.standard_normal((4, 4)) + 1j * rng.standard_normal((4, 4))
    expected = np.array([(u.conj() @ A @ u).real for u in unit(U)])
    found = quadsense.Measurements(U, np.ones(7)).unit_rows.forward(A)
    np.testing.assert_allclose(found, expected, atol=1e-13)


@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize("is_complex", [False, True])
def test_either_triangle_of_k_is_that_of_k(is_complex, blocked, rng, monkeypatch):
    from quadsense.core import products

    if blocked:
        monkeypatch.setattr(products, "divided", lambda *_: True)
        monkeypatch.setattr(products, "BLOCK_FLOPS", 1.0)
        monkeypatch.setattr(products, "PANEL", 8)
    U = gaussian_rows(rng, 23, 6, is_complex)
    K = np.abs(unit(U).conj() @ unit(U).T) ** 2
    rows = quadsense.Measurements(U, np.ones(23)).unit_rows
    upper, lower = rows.gram_triangle(), rows.gram_triangle(lower=True)
    assert upper.flags.f_contiguous and lower.flags.f_contiguous
    np.testing.assert_allclose(np.triu(upper), np.triu(K), atol=1e-13)
    np.testing.assert_allclose(np.tril(lower), np.tril(K), atol=1e-13)


def test_blocks_do_not_change_the_products(rng, monkeypatch):
    from quadsense.measurements import blockwise, probes

    U = gaussian_rows(rng, 23, 6, True)
    y, A = rng.standard_normal(23), hermitian(rng, 6, True)
    whole = quadsense.Measurements(U, np.ones(23)).unit_rows
    expected = [whole.forward(A), whole.adjoint(y), whole.gram_times(y), whole.squared_columns(y)]
    triangles = [np.triu(whole.gram_triangle(single)) for single in (False, True)]
    monkeypatch.setattr(probes, "BLOCK_ELEMENTS", 30)
    monkeypatch.setattr(probes.RowFacts, "block_elements", 30)
    monkeypatch.setattr(blockwise, "BLOCK_ELEMENTS", 30)
    monkeypatch.setattr(blockwise, "MIN_COLUMNS", 1)
    rows = quadsense.Measurements(U, np.ones(23)).unit_rows
    np.testing.assert_allclose(np.triu(rows.gram_triangle()), triangles[0], atol=1e-13)
    np.testing.assert_allclose(np.triu(rows.gram_triangle(single=True)), triangles[1], atol=1e-5)
    found = [rows.forward(A), rows.adjoint(y), rows.gram_times(y), rows.squared_columns(y)]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-13)


@pytest.mark.parametrize("seed", sampled(range(12), 6))
def test_rows_that_are_nearly_repeated_do_not_count_twice(seed, complex_):
    rng = np.random.default_rng(seed)
    U = gaussian_rows(rng, 20, 10, complex_)
    assert quadsense.Measurements(U, np.ones(20)).facts.rank == 20
    U[-1] = U[0] + 1e-9 * U[1]
    assert quadsense.Measurements(U, np.ones(20)).facts.rank == 19
    U[-1] = U[0] + 1e-3 * U[1]
    assert quadsense.Measurements(U, np.ones(20)).facts.rank == 20


def test_facts_of_orthonormal_rows(complex_):
    p = quadsense.datasets.orthonormal(n=12, m=7, seed=0, complex=complex_)
    facts = quadsense.Measurements(3.0 * p.U, p.b).facts
    assert facts.orthonormal
    assert facts.paper_holds
    assert not facts.unit_norm
    assert facts.rank == 7
    assert facts.unknowns == (144 if complex_ else 78)


@pytest.mark.parametrize("rho", [0.004, 0.3])
def test_facts_of_coherent_rows(rho, complex_):
    p = quadsense.datasets.near_orthogonal(n=12, m=10, rho=rho, seed=0, complex=complex_)
    facts = quadsense.Measurements(p.U, p.b).facts
    assert not facts.orthonormal
    assert facts.unit_norm
    assert facts.coherence == pytest.approx(rho, rel=1e-10)
    assert facts.paper_holds == (rho <= 1 / 100)


@pytest.mark.parametrize(("m", "rank"), [(5, 5), (12, 10), (40, 10)])
def test_rank_of_the_sensing_map(m, rank, rng):
    """n = 4 real: 10 unknowns, generic rows see min(m, 10) of them."""
    U = rng.standard_normal((m, 4))
    svec = np.array([np.outer(u, u).ravel() for u in U])
    assert np.linalg.matrix_rank(svec) == rank
    assert quadsense.Measurements(U, np.ones(m)).facts.rank == rank


def test_duplicate_rows_lower_the_rank(rng):
    U = rng.standard_normal((4, 6))
    assert quadsense.Measurements(np.vstack([U, 2 * U, -U]), np.ones(12)).facts.rank == 4


def test_rank_is_left_alone_where_it_takes_longer_than_the_solve(monkeypatch):
    from quadsense.stages import answer

    monkeypatch.setattr(answer, "_rank_flops", lambda *_: 0.0)
    p = quadsense.datasets.gaussian(n=10, m=20, seed=0)
    result = quadsense.solve(p.U, p.b, delta=0.1, method="gd")
    assert "At least 35 of 55 directions" in result.message
    assert result.verdict.unseen == 35 and not result.verdict.exact
    p = quadsense.datasets.gaussian(n=3, m=20, seed=0)
    result = quadsense.solve(p.U, p.b, delta=0.1, method="gd")
    said = result.message
    assert result.verdict.unique is None and result.verdict.rank_seconds > 0.0
    assert "not computed; result.unique computes it, about" in said
    assert result.unique is True and result.unseen == 0
    assert "the measurements determine A" in str(result)


def test_k_is_chosen_by_cost(rng):
    def kind_of(U):
        data = quadsense.Measurements(U, np.ones(U.shape[0]))
        shape = shape_of(data.with_tolerance(1.0), psd=False, rank=None, target=True)
        return make_plan(shape, "gd").gram

    assert kind_of(np.eye(6)) == "identity"
    assert kind_of(rng.standard_normal((60, 20))) == "explicit"
    assert kind_of(rng.standard_normal((6000, 5))) == "matrix-free"
    assert kind_of(sparse_rows(rng, 300, 4000, 1e-3)) == "sparse"
    assert kind_of(sparse_rows(rng, 300, 40, 0.5)) == "explicit"


def test_with_tolerance_shares_rows_and_facts():
    data = quadsense.Measurements(np.eye(3), np.arange(3.0))
    assert data.tolerance is None
    other = data.with_tolerance(0.5)
    assert other.unit_rows is data.unit_rows
    np.testing.assert_array_equal(other.tolerance, 0.5)
    np.testing.assert_allclose(data.with_tolerance(rtol=0.1, delta=1.0).tolerance, [1, 1.1, 1.2])


def test_bounds_become_middle_and_half_width():
    data = quadsense.Measurements(np.eye(2), bounds=([0.0, 1.0], 3.0))
    np.testing.assert_allclose(data.b, [1.5, 2.0])
    np.testing.assert_allclose(data.tolerance, [1.5, 1.0])


def test_u_is_not_copied(rng):
    U = rng.standard_normal((50, 40))
    assert quadsense.Measurements(U, np.ones(50)).unit_rows.kind.U is U


def test_rows_of_extreme_norm_keep_their_directions(kind, rng):
    U = unit(rng.standard_normal((6, 4)))
    norms = np.array([1e-200, 1e-150, 1.0, 1e100, 1e150, 1e200])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        data = quadsense.Measurements(kind(U * norms[:, None]), np.ones(6))
        K = np.asarray(data.unit_rows.gram_block(slice(0, 6), slice(0, 6)))
    np.testing.assert_allclose(np.asarray(data.unit_rows.norms), norms, rtol=1e-13)
    np.testing.assert_allclose(K, (U @ U.T) ** 2, atol=1e-14)


def test_weights_and_readings_beside_bounds_are_kept_as_given(tmp_path, rng):
    U, b, w = rng.standard_normal((4, 2)), np.array([5.0, 0.1, -3.0, 0.0]), [0.0, 1.0, 2.0, 3.0]
    data = Measurements(U, b, bounds=(-1.0, [1.0, 2.0, np.inf, 1.0]), weights=w)
    assert data.readings.tolist() == b.tolist() and data.weights.tolist() == w
    assert data.from_bounds and data.b.tolist() == [0.0, 0.5, -1.0, 0.0]
    data.save(tmp_path / "d.npz")
    again = Measurements.open(tmp_path / "d.npz")
    for one in (again, data.with_ends(data.ends), data.set_aside([0]), data.constrained(1.0)):
        assert one.readings.tolist() == b.tolist() and one.weights.tolist() == w
    np.testing.assert_array_equal(again.hi, data.hi)
    assert Measurements(U, bounds=(-1.0, 1.0)).readings is None
    with pytest.raises(ValueError, match="are intervals"):
        again.with_tolerance(1.0)


def test_one_weight_for_all_stays_one_number(tmp_path, rng):
    data = Measurements(rng.standard_normal((4, 2)), np.ones(4), delta=0.1, weights=2)
    assert data.weights == 2.0 and isinstance(data.weights, float)
    for one in (data.with_tolerance(0.2), data.without_tolerance(), data.constrained((0, 1))):
        assert one.weights == 2.0 and one.readings.tolist() == [1.0] * 4
    data.save(tmp_path / "d.npz")
    again = Measurements.open(tmp_path / "d.npz")
    assert again.weights == 2.0 and again.readings.tolist() == [1.0] * 4
    assert Measurements(np.eye(2), np.ones(2)).weights is None


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"weights": -1.0}, r"weights must not be negative, got -1\.0"),
        ({"weights": [1.0, -2.0]}, r"weights\[1\] must not be negative, got -2\.0"),
        ({"weights": [1.0, np.inf]}, r"weights must be finite, but weights\[1\] is inf"),
        ({"weights": [1.0]}, r"weights has shape \(1,\), but must have shape \(2,\)"),
        ({"b": [1.0, np.nan], "bounds": (0, 1)}, r"b must be finite, but b\[1\] is nan"),
        ({"b": [1.0, 1.0], "bounds": (0, 1), "delta": 1}, "bounds replaces delta and rtol"),
        ({"b": [1.0, 1.0], "bounds": (0, 1), "rtol": 1.0}, "bounds replaces delta and rtol"),
    ],
)
def test_bad_weights_and_readings_are_named(named, message):
    with pytest.raises(ValueError, match=message):
        Measurements(np.eye(2), **({"b": [1.0, 1.0]} | named))


def test_the_normal_matrix_of_no_rows_is_zero_and_nothing_is_printed(rng, capfd):
    """BLAS writes to the standard output where it is called with no rows."""
    rows = Measurements(rng.standard_normal((4, 3)), np.ones(4)).unit_rows
    none = rows.only(np.empty(0, np.int64))
    np.testing.assert_array_equal(none.normal(), np.zeros((6, 6)))
    assert capfd.readouterr() == ("", "")
