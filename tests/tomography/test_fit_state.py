"""`quadsense.tomography`: counts in all forms, estimates, intervals, contradictions."""

import functools
import itertools
import re

import numpy as np
import pytest

import quadsense
from quadsense.tomography import fit_state
from quadsense.tomography.region import coefficients

PAULIS = {
    "I": np.eye(2),
    "X": np.array([[0, 1], [1, 0]]),
    "Y": np.array([[0, -1j], [1j, 0]]),
    "Z": np.diag([1, -1]),
}


def kron(parts):
    """Return the Kronecker product of matrices or vectors."""
    return functools.reduce(np.kron, parts)


def settings_of(q):
    """Return all Pauli settings in their order."""
    return ["".join(each) for each in itertools.product("XYZ", repeat=q)]


def probabilities(rho, settings, readout=None):
    """Return the table (settings, outcomes), by projectors and Kronecker products."""
    q = len(settings[0])
    table = []
    for setting in settings:
        row = []
        for outcome in itertools.product((0, 1), repeat=q):
            parts = []
            for j, (letter, bit) in enumerate(zip(setting, outcome, strict=True)):
                ideal = [(np.eye(2) + sign * PAULIS[letter]) / 2 for sign in (1, -1)]
                M = np.eye(2) if readout is None else readout[j]
                parts.append(M[bit, 0] * ideal[0] + M[bit, 1] * ideal[1])
            row.append(np.trace(kron(parts) @ rho).real)
        table.append(row)
    return np.array(table).clip(0.0)


def ghz(q, noise=0.1):
    """Return a GHZ state with white noise, and its vector."""
    v = np.zeros(2**q)
    v[[0, -1]] = np.sqrt(0.5)
    return (1 - noise) * np.outer(v, v) + noise * np.eye(2**q) / 2**q, v


def random_state(n, rank, seed):
    """Return a random density matrix."""
    rng = np.random.default_rng(seed)
    G = rng.standard_normal((n, rank)) + 1j * rng.standard_normal((n, rank))
    rho = G @ G.conj().T
    return rho / np.trace(rho).real


def counted(rho, settings, shots, seed, readout=None):
    """Return counts (settings, outcomes)."""
    p = probabilities(rho, settings, readout)
    return np.random.default_rng(seed).multinomial(shots, p / p.sum(axis=1, keepdims=True))


def as_dict(settings, table, reverse=False):
    """Return the same as nested dictionaries, without zeros."""
    q = len(settings[0])
    keys = ["".join(each) for each in itertools.product("01", repeat=q)]
    return {
        setting: {
            key[::-1] if reverse else key: int(k) for key, k in zip(keys, row, strict=True) if k
        }
        for setting, row in zip(settings, table, strict=True)
    }


# --- forms of counts -------------------------------------------------------------------------


def forms():
    """Return the counts of three qubits in all forms, and the table."""
    rho = random_state(8, 2, 0)
    settings = settings_of(3)
    table = counted(rho, settings, 50, 1)
    nested, reversed_ = as_dict(settings, table), as_dict(settings, table, reverse=True)
    pairs = [(s, o, k) for s, row in nested.items() for o, k in row.items()]
    columns = dict(zip(("setting", "outcome", "count"), zip(*pairs, strict=True), strict=True))
    bits = np.array(list(itertools.product((0, 1), repeat=3)))
    return table, {
        "dict": (nested, {}),
        "array": (table, {}),
        "array (27, 2, 2, 2)": (table.reshape(27, 2, 2, 2), {}),
        "reversed": (reversed_, {"bit_order": "reversed"}),
        "reversed array": (
            table.reshape(27, 2, 2, 2).transpose(0, 3, 2, 1),
            {"bit_order": "reversed"},
        ),
        "list": (list(nested.values()), {"bases": settings}),
        "list of all": (list(nested.values()), {}),
        "tuples": ({tuple(s): row for s, row in nested.items()}, {}),
        "table": (columns, {}),
        "spaces": ({s: {" ".join(o): k for o, k in r.items()} for s, r in nested.items()}, {}),
        "digits": (
            {s: {tuple(map(int, o)): k for o, k in r.items()} for s, r in nested.items()},
            {},
        ),
        "hexadecimal": (
            {s: {hex(int(o, 2)): k for o, k in r.items()} for s, r in nested.items()},
            {},
        ),
        "numbers": ({s: {int(o, 2): k for o, k in r.items()} for s, r in nested.items()}, {}),
        "samples": (
            {s: np.repeat(bits, row, axis=0) for s, row in zip(settings, table, strict=True)},
            {},
        ),
        "frequencies": (table / 50, {"shots": 50}),
        "counts and shots": (table, {"shots": 50}),
    }


@pytest.mark.parametrize("form", list(forms()[1]))
def test_every_form_of_counts_is_read_as_the_same_table(form):
    table, every = forms()
    given, more = every[form]
    state = fit_state(given, **more)
    assert np.array_equal(state.counts.table, table)
    assert np.array_equal(state.counts.settings, np.indices((3, 3, 3)).reshape(3, -1).T)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_are_read(library):
    frames = pytest.importorskip(library)
    table, every = forms()
    frame = frames.DataFrame({k: list(v) for k, v in every["table"][0].items()})
    assert np.array_equal(fit_state(frame).counts.table, table)


# --- estimates -------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [1, 2, 3])
def test_exact_probabilities_give_the_state(q):
    rho = random_state(2**q, 2, q)
    readout = np.array([[[0.97, 0.06], [0.03, 0.94]], [[0.9, 0.02], [0.1, 0.98]]] * 2)[:q]
    settings = settings_of(q)
    for errors in (None, readout):
        table = np.rint(probabilities(rho, settings, errors) * 10**7)
        for prefer in ("likelihood", "least_squares"):
            state = fit_state(table, readout=errors, prefer=prefer)
            assert np.abs(state.rho - rho).max() < 1e-3
            found = table / table.sum(axis=1)[:, None]
            assert np.abs(state.probabilities - found).max() < 1e-3


@pytest.mark.parametrize("prefer", ["likelihood", "least_squares"])
@pytest.mark.parametrize("q", [2, 3])
def test_a_million_shots_are_decided(q, prefer):
    for seed, state in enumerate((ghz(q, 0.0)[0], ghz(q)[0], random_state(2**q, 2**q, 0))):
        found = fit_state(counted(state, settings_of(q), 10**6, seed), prefer=prefer)
        assert found.result.status == "optimal", found.result.message
        assert np.abs(found.rho - state).max() < 3e-3


@pytest.mark.parametrize("kept", [27, 11])
def test_the_estimate_is_that_of_dense_rows(kept):
    settings = settings_of(3)[:kept]
    table = counted(random_state(8, 2, 3), settings, 200, 4)
    table[0] *= 3  # as many shots more
    state = fit_state(table, bases=settings, prefer="least_squares")
    ordered = [PAULIS[s] for s in "XYZ"]
    vectors = [np.linalg.eigh(-P)[1].T for P in ordered]
    rows = [
        kron([vectors["XYZ".index(s)][o] for s, o in zip(setting, outcome, strict=True)])
        for setting in settings
        for outcome in itertools.product((0, 1), repeat=3)
    ]
    N = np.repeat(table.sum(axis=1), 8)
    plain = quadsense.solve(
        np.array(rows), table.ravel() / N, weights=N, psd=True, trace=1, prefer="least_squares"
    )
    assert state.result.objective == pytest.approx(plain.objective, rel=1e-5)
    assert state.result.objective_bounds[0] <= plain.objective
    assert plain.objective_bounds[0] <= state.result.objective


def test_of_even_settings_fewer_readings_have_the_same_estimate():
    order = np.random.default_rng(0).permutation(27)
    settings = [settings_of(3)[i] for i in order]
    table = counted(random_state(8, 2, 3), settings, 200, 4)
    state = fit_state(table, bases=settings, prefer="least_squares")
    U = quadsense.probes.product_povm(["pauli"] * 3, settings)
    b = table.ravel() / 200
    plain = quadsense.solve(U, b, psd=True, trace=1, prefer="least_squares", gap=1e-7)
    assert state.result.residuals.size == 4**3
    assert state.result.status == "optimal"
    misses = np.sum((U.forward(state.rho) - b) ** 2)
    best = np.sum((U.forward(plain.A) - b) ** 2)
    assert misses == pytest.approx(best, rel=1e-7)
    assert np.abs(state.rho - plain.A).max() < 1e-5


def test_weights_are_inverse_variances_of_frequencies():
    cp = pytest.importorskip("cvxpy")
    table = counted(random_state(4, 1, 3), settings_of(2), 50, 4)
    state = fit_state(table, prefer="weighted")
    mean = (table + 0.5) / 52.0
    precision = 53.0 / (mean * (1.0 - mean))
    U = quadsense.probes.product_povm(["pauli"] * 2)
    rows = U.take(np.arange(36))
    A = cp.Variable((4, 4), hermitian=True)
    read = cp.real(cp.diag(rows.conj() @ A @ rows.T))
    cost = cp.sum_squares(cp.multiply(np.sqrt(precision.ravel()), read - table.ravel() / 50))
    problem = cp.Problem(cp.Minimize(cost), [A >> 0, cp.real(cp.trace(A)) == 1])
    assert state.result.objective == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-6)
    assert "weighted least squares" in str(state)


@pytest.mark.parametrize("q", [4, pytest.param(5, marks=pytest.mark.deep)])
def test_least_squares_are_those_of_a_first_order_solver(q):
    cp = pytest.importorskip("cvxpy")
    pytest.importorskip("scs")
    n = 2**q
    U = quadsense.probes.product_povm(["pauli"] * q)
    p = U.forward(random_state(n, 3, 0)).clip(0.0).reshape(3**q, -1)
    table = np.random.default_rng(0).multinomial(200, p / p.sum(axis=1, keepdims=True))
    b = table.ravel() / 200
    state = fit_state(table, prefer="least_squares")
    # Of the sum of squares A is known by its coordinates alone, in which it is diagonal.
    normal = U.normal_diagonal(np.ones(U.m))
    center = normal.back(normal.into(U.adjoint(b)) / normal.values)
    rest = float(b @ b) - float(np.vdot(center, U.adjoint(b)).real)
    basis = np.array([normal.back(each).ravel() for each in np.eye(n * n)]).conj()
    A = cp.Variable((n, n), hermitian=True)
    away = cp.real(basis @ cp.vec(A - center, order="C"))
    cost = cp.sum_squares(cp.multiply(np.sqrt(normal.values), away))
    problem = cp.Problem(cp.Minimize(cost), [A >> 0, cp.real(cp.trace(A)) == 1])
    wanted = problem.solve(solver="SCS", eps_abs=1e-9, eps_rel=1e-9, max_iters=50_000)
    found = float(np.sum((U.forward(state.rho) - b) ** 2))
    assert problem.status == "optimal"
    assert found == pytest.approx(wanted + rest, rel=1e-6)


@pytest.mark.parametrize("prefer", ["likelihood", "least_squares"])
def test_the_estimate_is_the_same_where_the_steps_run_on_a_device(prefer):
    pytest.importorskip("torch")
    table = counted(ghz(2)[0], settings_of(2), 300, 3)
    plain, there = (fit_state(table, prefer=prefer, device=on) for on in (None, "cpu"))
    assert there.result.status == "optimal"
    assert isinstance(there.result.A, np.ndarray)
    assert np.abs(plain.rho - there.rho).max() < 1e-6
    with pytest.raises(ValueError, match="device 'nowhere' is not there"):
        fit_state(table, device="nowhere")


def test_other_bases():
    rho = random_state(3, 1, 5)
    w = np.exp(2j * np.pi / 3)
    bases = [np.eye(3)] + [
        np.array([[w ** (k * j + a * j * j) for j in range(3)] for k in range(3)]) / np.sqrt(3)
        for a in range(3)
    ]
    p = np.array([[(v.conj() @ rho @ v).real for v in basis] for basis in bases])
    state = fit_state(np.rint(p * 10**8), bases=np.array(bases))
    assert np.abs(state.rho - rho).max() < 1e-3
    assert "dimension 3" in str(state)
    local = {
        "Z": np.eye(2),
        "H": np.array([[1, 1], [1, -1]]) / np.sqrt(2),
        "R": np.array([[1, 1j], [1, -1j]]) / np.sqrt(2),
    }
    pair = random_state(4, 2, 6)
    counts = {}
    for setting in itertools.product("ZHR", repeat=2):
        own = [local[letter] for letter in setting]
        vectors = [np.kron(a, b) for a in own[0] for b in own[1]]
        each = [round(1e8 * (v.conj() @ pair @ v).real) for v in vectors]
        counts["".join(setting)] = dict(zip(("00", "01", "10", "11"), each, strict=True))
    state = fit_state(counts, bases=local)
    assert np.abs(state.rho - pair).max() < 1e-3
    fidelity = state.fidelity(np.eye(4)[0])
    assert fidelity.lower <= pair[0, 0].real <= fidelity.upper


def test_expectation_values():
    rho, v = ghz(2, 0.0)
    means = {
        "".join(s): float(np.trace(kron([PAULIS[a] for a in s]) @ rho).real)
        for s in itertools.product("IXYZ", repeat=2)
    }
    state = fit_state(means, shots=1000)
    assert state.fidelity(v).value > 0.999
    assert state.fidelity(v).lower > 0.95
    assert state.consistent is True


# --- intervals -------------------------------------------------------------------------------


def test_coefficients_are_traces_with_pauli_strings():
    C = random_state(8, 8, 7)
    strings = itertools.product("IXYZ", repeat=3)
    traces = [np.trace(kron([PAULIS[a] for a in s]) @ C).real / 8 for s in strings]
    assert np.allclose(coefficients(C, 3), traces, atol=1e-15)


@pytest.mark.parametrize("readout", [None, np.array([[0.95, 0.1], [0.05, 0.9]])])
def test_ends_of_an_interval_are_those_of_a_semidefinite_program(readout):
    cp = pytest.importorskip("cvxpy")
    rho, v = ghz(2)
    errors = None if readout is None else np.array([readout] * 2)
    table = counted(rho, settings_of(2), 300, 8, errors)
    state = fit_state(table, readout=errors)
    A = cp.Variable((4, 4), hermitian=True)
    constraints = [A >> 0, cp.real(cp.trace(A)) == 1]
    for string in itertools.product("IXYZ", repeat=2):
        if set(string) == {"I"}:
            continue
        fits = [
            i
            for i, setting in enumerate(settings_of(2))
            if all(a in ("I", b) for a, b in zip(string, setting, strict=True))
        ]
        on = np.array([a != "I" for a in string])
        parity = np.array([(-1) ** np.sum(np.array(o) * on) for o in np.ndindex(2, 2)])
        ones = table[fits][:, parity > 0].sum()
        lo, hi = quadsense.bounds_from_counts(ones, table[fits].sum(), 1 - 0.05 / 15)
        observed = []
        for j, letter in enumerate(string):
            P = PAULIS[letter]
            if letter != "I" and readout is not None:
                signs = np.array([1, -1]) @ errors[j]
                P = signs[0] * (np.eye(2) + P) / 2 + signs[1] * (np.eye(2) - P) / 2
            observed.append(P)
        mean = cp.real(cp.trace(kron(observed) @ A))
        constraints += [mean >= 2 * lo - 1, mean <= 2 * hi - 1]
    value = cp.real(cp.trace(np.outer(v, v) @ A))
    low = cp.Problem(cp.Minimize(value), constraints).solve(solver="CLARABEL")
    high = cp.Problem(cp.Maximize(value), constraints).solve(solver="CLARABEL")
    found = state.fidelity(v)
    room = 0.02 * (high - low)
    assert low - room <= found.lower <= low + 1e-6
    assert high - 1e-6 <= found.upper <= high + room


def coverage(q, seeds, shots=100):
    """Return how often the region holds the state, and all three intervals what they are of."""
    held = inside = 0
    settings = settings_of(q)
    for seed in range(seeds):
        rho, v = ghz(q, 0.0) if seed % 2 else (random_state(2**q, 2, seed), np.eye(2**q)[0])
        state = fit_state(counted(rho, settings, shots, seed), target=v)
        region = state.region
        means = region.model(rho).clip(-1.0, 1.0)
        held += bool(np.all((means >= region.lower) & (means <= region.upper)))
        fidelity, own = state.fidelity(), region.direct(np.outer(v, v))
        truth = min(float((v @ rho @ v).real), 1.0)
        assert 0.0 <= fidelity.lower <= fidelity.upper <= 1.0
        inside += fidelity.lower <= truth <= fidelity.upper and own[0] <= truth <= own[1]
    return held, inside


def test_intervals_hold_the_truth():
    assert min(coverage(1, 10)) >= 8


@pytest.mark.deep
@pytest.mark.parametrize(("q", "seeds"), [(1, 2000), (2, 2000), (3, 500)])
def test_coverage(q, seeds):
    deviation = np.sqrt(0.05 * 0.95 * seeds)
    assert min(coverage(q, seeds)) >= 0.95 * seeds - 3 * deviation


@pytest.mark.slow
def test_bounds_of_purity_and_distance_hold_the_truth():
    for seed in range(2):
        rho = random_state(4, 2, seed)
        state = fit_state(counted(rho, settings_of(2), 400, seed))
        purity, s = float(np.vdot(rho, rho).real), random_state(4, 1, 9)
        distance = 0.5 * np.abs(np.linalg.eigvalsh(rho - s)).sum()
        found = state.trace_distance(s)
        assert state.purity.lower <= purity <= state.purity.upper
        assert found.lower <= distance <= found.upper
        assert state.expectation("XY").lower <= np.trace(
            np.kron(PAULIS["X"], PAULIS["Y"]) @ rho
        ).real <= state.expectation("XY").upper  # fmt: skip


@pytest.mark.slow
def test_large_systems_have_intervals_term_by_term():
    q = 6
    settings = settings_of(q)
    rho, v = ghz(q)
    table = np.zeros((len(settings), 64), np.int64)
    p = quadsense.probes.product_povm(["pauli"] * q).forward(rho.astype(complex)).clip(0.0)
    p = p.reshape(len(settings), -1)
    table = np.random.default_rng(0).multinomial(1000, p / p.sum(axis=1, keepdims=True))
    state = fit_state(table, target=v)
    fidelity, truth = state.fidelity(), float(v @ rho @ v)
    assert truth - 0.1 < fidelity.lower <= truth <= fidelity.upper < truth + 0.1
    assert state.fidelity(v).value > 0.88


# --- do the counts agree with a state ----------------------------------------------------------


def test_drift_is_a_contradiction():
    settings = [*settings_of(1), "Z"]
    steady = np.array([[500, 500], [500, 500], [900, 100], [900, 100]])
    drifted = np.array([[500, 500], [500, 500], [900, 100], [700, 300]])
    assert fit_state(steady, bases=settings).consistent is True
    state = fit_state(drifted, bases=settings)
    assert state.consistent is False
    assert state.missed_settings == ["Z", "Z"]
    assert 0.95 < state.smallest_confidence < 1.0
    assert state._admits(state.smallest_confidence) is True
    assert "contradict every state" in str(state)
    assert np.isnan(state.fidelity([1, 0]).lower) or state.fidelity([1, 0]).lower > 0.6


def test_the_default_is_the_likelihood_of_counts_and_least_squares_of_means():
    settings = settings_of(2)
    table = counted(ghz(2)[0], settings, 300, 3)
    state, squares = fit_state(table), fit_state(table, prefer="least_squares")
    assert (state.prefer, squares.prefer) == ("likelihood", "least_squares")
    assert state.result.objective == pytest.approx(state.deviance, rel=1e-6)
    assert state.deviance < squares.deviance
    assert fit_state({"XX": 0.9, "ZZ": 0.8}, shots=100).prefer == "least_squares"
    with pytest.raises(ValueError, match="goes with counts"):
        fit_state({"XX": 0.9}, shots=100, prefer="likelihood")


def test_deviance_is_that_of_its_formula():
    settings = settings_of(2)
    table = counted(ghz(2)[0], settings, 300, 3)
    state = fit_state(table)
    p = probabilities(state.rho, settings)
    k = table[table > 0]
    assert state.deviance == pytest.approx(2 * np.sum(k * np.log(k / (300 * p[table > 0]))))


@pytest.mark.slow
def test_summary_pictures_and_report(tmp_path):
    pytest.importorskip("matplotlib")
    table = counted(ghz(2)[0], settings_of(2), 300, 3)
    state = fit_state(table, target=ghz(2)[1])
    assert "fidelity" in str(state)
    assert "2 qubits" in repr(state)
    state.plot().savefig(tmp_path / "state.png")
    state.report(tmp_path / "state.html", check=False)
    assert "2 qubits" in (tmp_path / "state.html").read_text()


# --- bad input -------------------------------------------------------------------------------

GOOD = {"X": {"0": 50, "1": 50}, "Y": {"0": 50, "1": 50}, "Z": {"0": 90, "1": 10}}

BAD = [
    ({}, {}, "counts is empty"),
    ({"X": {"0": -1}}, {}, "is -1, but a count must be a whole number, not negative"),
    ({"X": {"0": 1.5}}, {}, "give shots= with relative frequencies"),
    ({"X": {"0": float("nan")}}, {}, "is nan, but a count"),
    ({"X": {"00": 1}}, {}, "'00' with 2 digits, but there are 1 qubits"),
    ({"XX": {"00": 1, "0": 1}}, {}, "'0' with 1 digits, but there are 2 qubits"),
    ({"X": {"2": 1}}, {}, "outcomes are 1 digits, 0 and 1"),
    ({"X": {"0x7": 1}}, {}, "numbered 0 to 1"),
    ({"XX": {"00": 1}, "X": {"0": 1}}, {}, "setting 'X' has 1 letters, but 'XX' has 2"),
    ({"XQ": {"00": 1}}, {}, "has the letter 'Q': letters are X, Y, Z"),
    ({"X": {"0": 0}}, {}, "setting 'X' has no shots"),
    ({"00": 480, "11": 520}, {}, "give the settings, too"),
    ({"XX": 1.2}, {"shots": 100}, "between -1 and 1"),
    ({"XX": 0.9}, {}, "expectation values need shots="),
    ({"XX": 0.9, "Z": 0.1}, {"shots": 100}, "all must be of one length"),
    ({"X": {"0": 1}, "Z": 3}, {}, "is a number, but others are dictionaries"),
    (np.ones((5, 4)), {}, "5 settings, but 2 factors have 9"),
    (np.ones((3, 3)), {}, "3 columns"),
    (np.ones((3, 2)), {"bases": ["X"]}, "3 settings, but bases names 1"),
    (np.full((3, 2), -1.0), {}, "not negative"),
    (np.full((3, 2), 0.5), {}, "give shots="),
    (np.full((3, 2), 0.7), {"shots": 10}, "must sum to 1"),
    (np.full((3, 2), 5), {"shots": 11}, "10 counts in sum, but shots is 11"),
    (np.full((3, 2), 0.5), {"shots": 11}, "no counts out of 11"),
    (GOOD, {"shots": 0}, "positive whole number"),
    (GOOD, {"shots": [1, 2]}, "shots has 2 entries"),
    (GOOD, {"shots": {"X": 100}}, "no entry for 'Y'"),
    (GOOD, {"readout": [[0.9, 0.2], [0.1, 0.9]]}, "readout[0] is not stochastic"),
    (GOOD, {"readout": [[0.9, 0.1], [0.2, 0.8]]}, "transpose it"),
    (GOOD, {"readout": [[1.1, 0.0], [-0.1, 1.0]]}, "outside [0, 1]"),
    (GOOD, {"readout": np.eye(3)}, "one 2 x 2 matrix per qubit"),
    (GOOD, {"target": [1, 0, 0]}, "target must be a state vector (2,)"),
    (GOOD, {"target": [1, 1]}, "not normalized: its norm is 1.41421"),
    (GOOD, {"target": [[1, 0], [0, 1]]}, "not normalized: its trace is 2"),
    (GOOD, {"target": [[1.5, 0], [0, -0.5]]}, "negative eigenvalue -0.5"),
    (GOOD, {"target": [[0.5, 1], [0, 0.5]]}, "not Hermitian"),
    (GOOD, {"confidence": 1}, "confidence must lie strictly"),
    (GOOD, {"prefer": "best"}, "prefer must be one of auto"),
    (GOOD, {"bit_order": "little"}, "'same' or 'reversed'"),
    (GOOD, {"bases": "XYZ"}, "bases must be 'pauli'"),
    (GOOD, {"bases": {}}, "bases is empty"),
    (GOOD, {"bases": {"X": np.eye(2), "Y": 2 * np.eye(2)}}, "sum to the identity"),
    (GOOD, {"bases": {"X": np.eye(2), "Y": np.eye(3)}}, "all must have the same"),
    ({"setting": ["X"], "outcome": ["0", "1"], "count": [1]}, {}, "of one length"),
]


@pytest.mark.parametrize(("counts", "more", "message"), BAD)
def test_bad_input_is_named(counts, more, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        fit_state(counts, **more)
    assert "\n" not in str(error.value)


def test_settings_may_be_missing_with_dictionaries_and_shots_may_differ():
    counts = {"ZZ": {"00": 40, "11": 60}, "XX": {"00": 500, "11": 500}}
    state = fit_state(counts)
    assert state.counts.shots.tolist() == [100, 1000]
    assert state.expectation("ZZ").upper > 0.99
    assert state.expectation("YY").lower < -0.8


def test_no_target_is_an_error():
    with pytest.raises(ValueError, match="give target="):
        fit_state(GOOD).fidelity()
    with pytest.raises(ValueError, match="no Pauli string of 1 qubits"):
        fit_state(GOOD).expectation("XX")
    with pytest.raises(ValueError, match="kind must be one of"):
        fit_state(GOOD).plot("pie")
