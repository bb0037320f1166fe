"""Products of local measurements: rows, readings with readout error, and least squares."""

import itertools
from functools import reduce

import numpy as np
import pytest
from generator_structured import povm_rows
from helpers import gaussian_rows, hermitian

import quadsense
from quadsense import probes
from quadsense.core.products import features, pack
from quadsense.probes.observables import EIGENVECTORS
from quadsense.proofs.rounding import dense_error, enclosure

PAULI = np.array([EIGENVECTORS[letter] for letter in "XYZ"])


def pauli_rows(settings):
    return povm_rows([PAULI] * settings.shape[1], settings)


def every_setting(q):
    return np.array(list(itertools.product(range(3), repeat=q)))


def rank_of(rows):
    return np.linalg.matrix_rank(features(rows))


def frequencies(rng, U, rho, settings, shots):
    """Multinomial counts over shots, by settings."""
    p = np.clip(np.einsum("ij,jk,ik->i", U.conj(), rho, U).real, 0.0, None)
    p = p.reshape(len(settings), -1)
    counts = rng.multinomial(shots, p / p.sum(axis=1, keepdims=True))
    return (counts / shots).ravel()


@pytest.mark.parametrize("q", [1, 2, 3, 4])
def test_pauli_rows_are_the_products(rng, q):
    settings = every_setting(q)
    given, rows = probes.product_povm(["pauli"] * q), pauli_rows(settings)
    A, y = hermitian(rng, 2**q, True), rng.standard_normal(len(rows))
    np.testing.assert_array_equal(given.take(np.arange(given.m)), rows)
    np.testing.assert_allclose(
        given.forward(A), np.einsum("ij,jk,ik->i", rows.conj(), A, rows).real, atol=1e-12
    )
    np.testing.assert_allclose(
        given.adjoint(y), (rows.T * y) @ rows.conj(), atol=1e-11 * np.sqrt(len(rows))
    )


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("complex_", [True, False])
def test_missing_and_repeated_settings_both_ways_of_reading(rng, full, complex_):
    shapes = [(3, 2, 2), (2, 3, 3), (1, 2, 2)]
    tables = [gaussian_rows(rng, s * o, d, complex_).reshape(s, o, d) for s, o, d in shapes]
    settings = np.array([[2, 1, 0], [0, 0, 0], [2, 1, 0], [2, 0, 0], [1, 1, 0]])
    given, rows = probes.product_povm(tables, settings), povm_rows(tables, settings)
    given.grid.is_full = full
    X, Y = gaussian_rows(rng, 12, 3, complex_), gaussian_rows(rng, len(rows), 2, complex_)
    A, y = hermitian(rng, 12, complex_), rng.standard_normal(len(rows))
    np.testing.assert_allclose(given.times(X), rows.conj() @ X, atol=1e-11)
    np.testing.assert_allclose(given.combine(Y), rows.T @ Y, atol=1e-11)
    read = np.einsum("ij,jk,ik->i", rows.conj(), A, rows).real
    np.testing.assert_allclose(given.forward(A), read, atol=1e-11 * np.abs(read).max())
    np.testing.assert_allclose(
        given.adjoint(y), (rows.T * y) @ rows.conj(), atol=1e-11 * np.abs(read).max()
    )
    np.testing.assert_allclose(given.held_norms, np.linalg.norm(rows, axis=1), rtol=1e-13)


def test_settings_may_be_strings():
    given = probes.product_povm(["pauli"] * 2, ["XZ", "YY"])
    np.testing.assert_array_equal(given.settings, [[0, 2], [1, 1]])
    assert (given.m, given.n) == (8, 4)


def test_few_of_many_settings_are_read_without_the_others(rng):
    """All combinations of ten qubits have 60 million outcomes."""
    settings = rng.integers(0, 3, (2, 10))
    given = probes.product_povm(["pauli"] * 10, settings)
    assert not given.grid.is_full
    X = gaussian_rows(rng, 1024, 1, True) / 32.0
    chosen = np.array([0, 1023, 1500])
    rows = np.array([
        reduce(np.kron, [PAULI[s, int(o)] for s, o in zip(settings[i // 1024], f"{i % 1024:010b}",
                                                          strict=True)])
        for i in chosen
    ])  # fmt: skip
    found = given.forward(X @ X.conj().T)[chosen]
    np.testing.assert_allclose(found, np.abs(rows.conj() @ X[:, 0]) ** 2, atol=1e-13)


# --- effects of higher rank ------------------------------------------------------------------


def readout(flip, other):
    """Effects of Pauli settings read with these errors, (3, 2, 2, 2)."""
    confusion = np.array([[1.0 - flip, other], [flip, 1.0 - other]])
    return np.einsum("or,sra,srb->soab", confusion, PAULI, PAULI.conj())


def test_readings_with_readout_error_are_those_of_the_effects(rng):
    effects, settings = [readout(0.1, 0.03), readout(0.0, 0.2)], every_setting(2)[[0, 5, 7]]
    given = probes.product_povm(effects, settings)
    A = hermitian(rng, 4, True)
    expected = [
        np.trace(np.kron(effects[0][s, o], effects[1][t, p]) @ A).real
        for s, t in settings
        for o, p in itertools.product(range(2), repeat=2)
    ]
    np.testing.assert_allclose(given.mix @ given.forward(A), expected, atol=1e-13)


def test_effects_that_do_not_commute_are_sums_of_their_eigenvectors(rng):
    roots = gaussian_rows(rng, 6, 2, True).reshape(1, 3, 2, 2)
    effects = roots @ roots.conj().swapaxes(2, 3)
    given = probes.product_povm([effects, "pauli"])
    A = hermitian(rng, 4, True)
    expected = [
        np.trace(np.kron(effects[0, o], np.outer(t, t.conj())) @ A).real
        for s in range(3) for o in range(3) for t in PAULI[s]
    ]  # fmt: skip
    np.testing.assert_allclose(given.mix @ given.forward(A), expected, atol=1e-12)


# --- the normal matrix -----------------------------------------------------------------------


@pytest.mark.parametrize("case", ["pauli", "rotated", "readout", "two of three"])
def test_the_normal_matrix_is_diagonal_in_the_basis(rng, case):
    settings, tables = every_setting(3)[rng.permutation(27)[:20]], ["pauli"] * 3
    if case == "rotated":
        Q = np.linalg.qr(gaussian_rows(rng, 2, 2, True))[0]
        tables = [PAULI @ Q, "pauli", PAULI @ Q.conj()]
    if case == "readout":
        tables = [readout(0.1, 0.1), "pauli", readout(0.2, 0.2)]
    if case == "two of three":
        settings = every_setting(3)[:18]
    given = probes.product_povm(tables, settings)
    per_setting = np.repeat(rng.uniform(0.5, 2.0, len(settings)), 8)
    G = features(given.take(np.arange(given.m)))
    G = G if given.mix is None else given.mix @ G
    found = given.normal_diagonal(per_setting)
    A = hermitian(rng, 8, True)
    image = pack(found.back(found.values * found.into(A)))
    np.testing.assert_allclose(image, G.T @ (per_setting * (G @ pack(A))), atol=1e-11)
    assert given.normal_diagonal(rng.uniform(0.5, 2.0, 8 * len(settings))) is None


@pytest.mark.parametrize("case", ["any vectors", "uneven readout"])
def test_other_tables_have_it_for_equal_weights_of_all_settings(rng, case):
    vectors = gaussian_rows(rng, 6, 2, True).reshape(3, 2, 2)
    tables = [vectors, "pauli"] if case == "any vectors" else [readout(0.1, 0.03), readout(0.2, 0)]
    given, A = probes.product_povm(tables), hermitian(rng, 4, True)
    G = features(given.take(np.arange(given.m)))
    G = G if given.mix is None else given.mix @ G
    found = given.normal_diagonal(np.full(len(G), 1.5))
    image = pack(found.back(found.values * found.into(A)))
    np.testing.assert_allclose(image, G.T @ (1.5 * (G @ pack(A))), rtol=1e-10, atol=1e-10)
    assert given.normal_diagonal(np.repeat(np.arange(1.0, 10.0), 4)) is None
    some = probes.product_povm(tables, every_setting(2)[:5])
    assert not some.is_diagonal and some.normal_diagonal(np.ones(len(G) * 5 // 9)) is None


@pytest.mark.parametrize("q", [2, 3])
@pytest.mark.parametrize("case", ["all", "missing", "shots", "readout", "conjugated"])
def test_least_squares_is_that_of_the_rows(rng, q, case):
    """The dense rows take another method, by a formed normal matrix."""
    settings = every_setting(q)[: 2 * 3 ** (q - 1)] if case == "missing" else every_setting(q)
    tables = [readout(0.1, 0.05)] * q if case == "readout" else ["pauli"] * q
    given = probes.product_povm(tables, settings)
    rows = given.take(np.arange(given.m))
    psi = gaussian_rows(rng, 2**q, 1, True)[:, 0]
    rho = np.outer(psi, psi.conj()) / np.vdot(psi, psi).real
    b, named = frequencies(rng, rows, rho, settings, 50), {}
    if case == "shots":
        named["weights"] = np.repeat(rng.integers(50, 500, len(settings)), 2**q) / 100.0
    if case == "conjugated":
        rows, named["conjugate"] = rows.conj(), True
    found = quadsense.solve(given, b, psd=True, trace=1, **named)
    named.pop("conjugate", None)
    truth = quadsense.solve(rows, b, psd=True, trace=1, mix=given.mix, **named)
    assert found.plan["methods"][0] == "consensus" and truth.plan["methods"][0] == "least_squares"
    assert found.status == truth.status == "optimal"
    assert found.objective == pytest.approx(truth.objective, rel=2e-6)
    assert found.objective_bounds[0] >= (1.0 - 2e-6) * found.objective
    assert found.unseen == truth.unseen == (0 if case != "missing" else 4**q - rank_of(rows))
    if case != "missing":
        assert found.unique
        distance = np.linalg.norm(found.A - truth.A)
        assert distance <= 2e-3 * np.linalg.norm(truth.A)


def test_weights_that_differ_within_settings_take_the_other_method(rng):
    given = probes.product_povm(["pauli"] * 2)
    b = frequencies(rng, pauli_rows(every_setting(2)), np.eye(4) / 4, np.arange(9), 100)
    found = quadsense.solve(given, b, psd=True, trace=1, weights=rng.uniform(1, 2, 36))
    assert found.plan["methods"][0] == "least_squares" and found.status == "optimal"


@pytest.mark.parametrize("case", ["contradiction", "no shots", "no trace", "ridge", "range"])
def test_least_squares_ends_with_a_proof_whatever_is_asked(rng, case):
    given = probes.product_povm(["pauli"] * 6)
    named = {"trace": 1, **({"ridge": 0.5} if case == "ridge" else {})}
    named |= {"no trace": {"trace": None}, "range": {"trace": (0.5, 0.9)}}.get(case, {})
    b = given.forward(np.eye(64) / 64 + 0j) * rng.uniform(0.5, 1.5, given.m)
    if case == "contradiction":
        b = np.arange(given.m) % 2.0
    if case == "no shots":
        b = np.zeros(given.m)
    found = quadsense.solve(given, b, psd=True, **named)
    assert found.status == "optimal" and found.plan["methods"][0] == "consensus"
    assert (
        found.objective_bounds[0] >= (1.0 - (1e-2 if case == "range" else 2e-6)) * found.objective
    )
    eigenvalues = np.linalg.eigvalsh(found.A)
    assert eigenvalues[0] >= -1e-12
    if case in ("contradiction", "no shots"):  # all outcomes alike: the state without information
        assert np.allclose(found.A.diagonal(), 1.0 / 64.0, atol=0.02)


def test_exact_readings_of_a_state_give_it_back(rng):
    given = probes.product_povm(["pauli"] * 4)
    X = gaussian_rows(rng, 16, 3, True)
    rho = X @ X.conj().T / np.vdot(X, X).real
    found = quadsense.solve(given, given.forward(rho), psd=True, trace=1)
    assert found.status == "optimal" and found.unique
    np.testing.assert_allclose(found.A, rho, atol=1e-9)


@pytest.mark.parametrize("columns", [1, 3, 16])
def test_rounding_of_a_factor_is_within_its_bound(rng, columns):
    """Against 80-bit arithmetic: of many columns the bound is far below the sum of squares."""
    given = probes.product_povm(["pauli"] * 4)
    rows = quadsense.Measurements(given, np.ones(given.m)).unit_rows
    X = np.linalg.qr(gaussian_rows(rng, 16, columns, True))[0]
    found = enclosure(quadsense.SensedMatrix.from_factor(X), rows, np.zeros(given.m))
    wide = given.take(np.arange(given.m)).astype(np.clongdouble)
    wide = wide / np.sqrt(np.sum(np.abs(wide) ** 2, axis=1))[:, None]
    exact = np.sum(np.abs(wide.conj() @ X.astype(np.clongdouble)) ** 2, axis=1)
    assert np.all(np.abs(found.z - exact) <= found.error)
    whole = dense_error(rows, columns, columns)
    assert np.all(found.error <= 1.1 * columns**-0.25 * whole)


def test_counts_of_six_qubits_are_met_by_least_squares(rng):
    """Intervals of 46,656 counts: no other preference, and the bound is near."""
    settings, q = every_setting(6), 6
    given = probes.product_povm(["pauli"] * q)
    ghz = np.zeros(64)
    ghz[[0, 63]] = np.sqrt(0.5)
    rho = 0.9 * np.outer(ghz, ghz) + 0.1 * np.eye(64) / 64
    p = given.forward(rho.astype(complex)).clip(0.0).reshape(len(settings), -1)
    counts = rng.multinomial(1000, p / p.sum(axis=1, keepdims=True)).ravel()
    found = quadsense.solve(given, counts, shots=1000, psd=True, trace=1)
    assert found.status == "met" and found.prefer == "least_squares"
    assert found.objective_bounds[0] >= 0.98 * found.objective
    assert (ghz @ found.A @ ghz).real >= 0.88


# --- bad input -------------------------------------------------------------------------------

BAD = {
    "a string": (lambda: probes.product_povm("pauli"), r"give \['pauli'\] \* q"),
    "nothing": (lambda: probes.product_povm([]), "effects is empty"),
    "another name": (lambda: probes.product_povm(["sic"]), r"effects\[0\] is 'sic'"),
    "a matrix": (lambda: probes.product_povm([np.eye(2)]), r"effects\[0\] must be 'pauli', vec"),
    "NaN": (lambda: probes.product_povm([[[[1, 0], [0, np.nan]]]]), "in setting 0, outcome 1"),
    "negative": (
        lambda: probes.product_povm([[[[[1, 0], [0, -1]]]]]),
        r"effects\[0\]: the effect of setting 0, outcome 0 has a negative eigenvalue",
    ),
    "skew": (lambda: probes.product_povm([[[[[1, 1], [0, 1]]]]]), "is not Hermitian"),
    "out of range": (
        lambda: probes.product_povm([1e30 * PAULI] * 2),
        "out of float64's range of squares: rescale the tables",
    ),
    "settings of another q": (
        lambda: probes.product_povm(["pauli"] * 2, [[0], [1]]),
        "one column for each of the 2 factors",
    ),
    "no such setting": (
        lambda: probes.product_povm(["pauli"] * 2, [[0, 3]]),
        r"settings\[0, 1\] is 3, but effects\[1\] has the settings 0 to 2",
    ),
    "a letter": (lambda: probes.product_povm(["pauli"] * 2, ["XI"]), r"settings\[0\] is 'XI'"),
    "no settings": (lambda: probes.product_povm(["pauli"], []), "settings is empty"),
    "too many sums": (
        lambda: probes.product_povm([readout(0.1, 0.1)] * 8),
        "take too much memory: give fewer settings",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named_in_one_sentence(case):
    make, words = BAD[case]
    with pytest.raises(ValueError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)
