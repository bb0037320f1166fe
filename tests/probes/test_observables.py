"""Expectation values as readings: compared with traces of matrices that are made in full."""

from functools import reduce
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp

import quadsense
from quadsense.probes import observables

PAULI = {
    "I": np.eye(2), "X": np.array([[0, 1], [1, 0]]), "Y": np.array([[0, -1j], [1j, 0]]),
    "Z": np.diag([1.0, -1.0]),
}  # fmt: skip


def matrix_of(string):
    return reduce(np.kron, [PAULI[letter] for letter in string])


def strings(q):
    return ["".join(letters) for letters in product("IXYZ", repeat=q)]


def hermitian(n, seed=0, complex_=True):
    rng = np.random.default_rng(seed)
    G = rng.standard_normal((n, n)) + 1j * complex_ * rng.standard_normal((n, n))
    return (G + G.conj().T) if complex_ else (G + G.T).real


@pytest.mark.parametrize("q", [1, 2, 3])
@pytest.mark.parametrize("by_name", [True, False])
def test_all_pauli_strings_read_their_traces_and_determine_A(q, by_name):
    names, A = strings(q), hermitian(2**q)
    values = np.array([np.trace(matrix_of(name) @ A).real for name in names])
    U = observables(names if by_name else [matrix_of(name) for name in names])
    data = quadsense.Measurements(U, values, delta=1e-9)
    np.testing.assert_allclose(data.forward(A), values, atol=1e-12)
    result = quadsense.solve(U, values, delta=1e-6)
    assert result.met
    assert result.verify(U, values)
    np.testing.assert_allclose(result.A, A, atol=1e-6)


def test_strings_share_bases_and_real_ones_stay_real():
    assert observables(strings(2)).m == 9 * 4  # 3 bases for each qubit
    assert observables(["ZZI", "IZZ", "ZIZ", "III"]).m == 8
    assert observables(["XZ", "ZX"]).is_complex is False
    assert observables(["XX", "XX"]).m == 4


@pytest.mark.parametrize("seed", range(20))
def test_any_choice_of_strings_reads_the_traces(seed):
    rng = np.random.default_rng(seed)
    q = int(rng.integers(1, 5))
    names = ["".join(rng.choice(list("IXYZ"), q)) for _ in range(rng.integers(1, 30))]
    A = hermitian(2**q, seed)
    values = [np.trace(matrix_of(name) @ A).real for name in names]
    data = quadsense.Measurements(observables(names), values)
    np.testing.assert_allclose(data.forward(A), values, atol=1e-11)


@pytest.mark.parametrize("complex_", [True, False])
def test_matrices_of_any_rank_read_their_traces(complex_):
    n, rng = 5, np.random.default_rng(1)
    x = rng.standard_normal(n)
    given = [
        hermitian(n, 1, complex_),
        np.outer(x, x),
        np.eye(n),
        np.zeros((n, n)),
        sp.eye_array(n),
    ]
    U, A = observables(given), hermitian(n, 2, complex_)
    assert U.m == 5 + 1 + 5 + 0 + 5
    assert U.is_complex == complex_
    values = [np.trace((P.toarray() if sp.issparse(P) else P) @ A).real for P in given]
    data = quadsense.Measurements(U, values)
    np.testing.assert_allclose(data.forward(A), values, atol=1e-12)


def test_a_state_from_expectation_values_with_ranges_and_for_another_solver():
    bell = np.array([1.0, 0.0, 0.0, 1.0]) / np.sqrt(2.0)
    names = ["XX", "YY", "ZZ", "XI", "IZ"]
    values = [bell @ matrix_of(name) @ bell for name in names]
    asked = {"delta": 0.01, "psd": True, "trace": 1.0}
    U = observables(names)
    result = quadsense.solve(U, np.real(values), **asked)
    assert result.met
    assert bell @ result.A @ bell >= 0.98
    ends = quadsense.interval(U, np.real(values), np.outer(bell, bell), **asked)
    assert ends.lower <= bell @ result.A @ bell <= ends.upper


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("XX", r"must be a list, got the string 'XX': give \['XX'\]"),
        (["XX", "X"], r"observables\[1\] = 'X' has 1 letters, but observables\[0\] has 2"),
        (["XQ"], r"observables\[0\] is 'XQ', but a Pauli string has the letters"),
        ([""], "a Pauli string has the letters"),
        ([], "observables is empty"),
        (["XX", np.eye(4)], r"observables\[0\] is the string 'XX', but others are matrices"),
        ([np.ones((2, 3))], r"must be a square matrix of numbers.*shape \(2, 3\)"),
        ([np.array([[0, 1], [2, 0]])], r"observables\[0\] is not Hermitian"),
        ([np.eye(2), np.eye(3)], r"observables\[1\] has order 3, but observables\[0\] has order 2"),
        ([None], "got NoneType$"),
        ([[[1.0, np.nan], [0.0, 1.0]]], r"observables\[0\]\[0, 1\] is nan"),
        ([np.zeros((2, 2))], "all observables are 0"),
        (5, "must be a sequence"),
    ],
)
def test_bad_observables_are_named(given, message):
    with pytest.raises(ValueError, match=message):
        observables(given)


def test_sums_of_the_user_and_of_the_rows_are_not_mixed_up():
    with pytest.raises(ValueError, match="do not give mix"):
        quadsense.solve(observables(["X"]), [1.0], delta=0.1, mix=np.eye(1))
