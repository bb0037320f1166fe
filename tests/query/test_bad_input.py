"""Bad input gets one clear sentence that names the argument, the row and the value."""

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spla

import quadsense

U = np.eye(3)


class Operator:
    """What libraries of linear operators make, whatever SciPy calls it."""

    shape = (3, 3)

    def matvec(self, x):
        return x


B = np.array([1.0, 2.0, 3.0])
ENDLESS = []
ENDLESS.append(ENDLESS)


class Unreadable:
    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("not now")


def bad(value, row, array):
    array = np.array(array, dtype=float)
    array[row] = value
    return array


CASES = {
    "nan in U": ({"data": bad(np.nan, 1, U)}, "U contains NaN or infinity, first in row 1"),
    "inf in U": ({"data": bad(np.inf, (2, 0), U)}, "U contains NaN or infinity, first in row 2"),
    "inf in sparse U": (
        {"data": sp.csr_array(bad(np.inf, (2, 0), U))},
        "NaN or infinity, first in row 2",
    ),
    "nan in sparse U": ({"data": sp.csr_array(bad(np.nan, (1, 0), U))}, "first in row 1"),
    "complex nan": ({"data": U * (1 + 1j * np.nan)}, "U contains NaN"),
    "nan in b": (
        {"b": bad(np.nan, 2, B)},
        r"b must be finite, but b\[2\] is nan: missing='drop' leaves out what was not measured",
    ),
    "inf in b": ({"b": bad(-np.inf, 0, B)}, r"b\[0\] is -inf"),
    "b too short": ({"b": B[:2]}, r"b has shape \(2,\), but must have shape \(3,\)"),
    "b is a matrix": ({"b": np.ones((3, 2))}, r"b has shape \(3, 2\)"),
    "b complex": ({"b": B + 1j}, "b must be real"),
    "b text": ({"b": ["a", "b", "c"]}, "b must hold numbers"),
    "b missing": ({"b": None}, "b is missing"),
    "U empty": ({"data": np.empty((0, 3)), "b": []}, r"U is empty: its shape is \(0, 3\)"),
    "U without columns": ({"data": np.empty((3, 0))}, "U is empty"),
    "U one-dimensional": ({"data": np.ones(3)}, r"U must have two dimensions.*got shape \(3,\)"),
    "U three-dimensional": ({"data": np.ones((3, 1, 1))}, "U must have two dimensions"),
    "U object": ({"data": U.astype(object)}, "U must hold numbers, got an array of type object"),
    "U text": ({"data": [["a"], ["b"], ["c"]]}, "U must hold numbers"),
    "U ragged": ({"data": [[1, 2], [3]]}, "U is not a rectangular array"),
    "delta negative": ({"delta": -1}, "delta must not be negative, got -1"),
    "delta nan": ({"delta": np.nan}, r"delta must be finite, but delta\[0\] is nan"),
    "delta of wrong length": ({"delta": [0.1, 0.1]}, r"delta has shape \(2,\)"),
    "one delta negative": (
        {"delta": [0.1, -0.2, 0.1]},
        r"delta\[1\] must not be negative, got -0\.2",
    ),
    "delta zero for gd": (
        {"delta": [0.1, 0.0, 0.1], "method": "gd"},
        "method 'gd' cannot take equalities; 'cg' and 'minimax' and 'psd' and 'low_rank' and "
        "'conic' and 'least_squares' and 'consensus' can",
    ),
    "rtol negative": ({"rtol": -0.1}, "rtol must be a finite number, not negative, got -0.1"),
    "rtol alone on zero": (
        {"delta": None, "rtol": 0.1, "b": bad(0.0, 1, B)},
        "the tolerance of row 1 is zero",
    ),
    "bounds and b": ({"bounds": (0, 1)}, "bounds replaces delta and rtol"),
    "bounds crossed": (
        {"b": None, "delta": None, "bounds": ([0, 5, 0], [1, 2, 1])},
        r"row 1 has lo = 5\.0 and hi = 2\.0",
    ),
    "bounds infinite for gd": (
        {"b": None, "delta": None, "bounds": (0.0, [1, np.inf, 1]), "method": "gd"},
        "method 'gd' cannot take one-sided bounds; 'minimax' and 'psd' and 'low_rank' and 'conic' "
        "and 'least_squares' and 'consensus' can",
    ),
    "bounds nowhere": (
        {"b": None, "delta": None, "bounds": (np.inf, np.inf)},
        "row 0 has lo = inf and hi = inf",
    ),
    "no delta for gd": ({"delta": None, "method": "gd"}, "'gd' cannot run without a delta"),
    "psd for gd": ({"psd": True, "method": "gd"}, "'gd' cannot keep A positive semidefinite"),
    "rank for psd": ({"rank": 1, "method": "psd"}, "'psd' cannot keep the rank of A low"),
    "rank zero": ({"rank": 0}, "a pair .p, q. or a whole number between 1 and n = 3, got 0"),
    "rank above n": ({"rank": 4}, "between 1 and n = 3, got 4"),
    "rank an array": ({"rank": np.array([1, 2])}, "'auto', a pair .p, q. or a whole number"),
    "psd an array": ({"psd": np.array([1, 2])}, "psd must be True, False or None"),
    "rank and not psd": ({"rank": 1, "psd": False}, "rank implies psd=True"),
    "psd a number": ({"psd": 2}, "psd must be True, False or None, got 2"),
    "factored without rank": ({"method": "low_rank"}, "method 'low_rank' needs rank"),
    "rank of three signs": ({"rank": (1, 1, 1)}, r"got \(1, 1, 1\)"),
    "rank of no sign": ({"rank": (0, 0)}, r"got \(0, 0\)"),
    "rank of a negative count": ({"rank": (2, -1)}, r"got \(2, -1\)"),
    "rank of halves": ({"rank": (0.5, 1)}, r"got \(0.5, 1\)"),
    "signs above n": ({"rank": (2, 2)}, r"n = 3, got \(2, 2\)"),
    "signs and psd": ({"rank": (1, 1), "psd": True}, r"rank=\(1, 1\) asks for signs"),
    "slack without delta": ({"delta": None, "slack": "sum"}, "slack needs delta, rtol or bounds"),
    "slack and prefer": ({"slack": "sum", "prefer": "any"}, "give slack or prefer='any', not both"),
    "slack unknown": ({"slack": "none"}, "slack must be one of max, sum, squares or None"),
    "slack with rank": ({"slack": "max", "rank": 1}, "slack cannot go with rank"),
    "prefer unknown": ({"prefer": "best"}, "prefer must be one of auto, least_squares"),
    "centre without delta": ({"delta": None, "prefer": "center"}, "'center' needs a tolerance"),
    "trace least, not psd": ({"prefer": "min_trace"}, "prefer='min_trace' needs psd=True"),
    "centre of a rank": ({"rank": 1, "prefer": "center"}, "prefer='center' cannot go with rank"),
    "ridge negative": (
        {"ridge": -1.0},
        "ridge must be 'auto' or a number that is not negative, got -1.0",
    ),
    "ridge elsewhere": ({"ridge": 1.0, "prefer": "any"}, "ridge belongs to prefer='least_squares'"),
    "prior of another order": ({"prior": np.eye(5)}, "prior is of order 5, but U has n = 3"),
    "prior elsewhere": ({"prior": 1.0, "prefer": "any"}, "prefer='any' takes none"),
    "prefer by a method": (
        {"method": "cg", "prefer": "center"},
        "method 'cg' cannot answer prefer='center'; 'conic' can: give method='auto'",
    ),
    "gap zero": ({"method": "minimax", "gap": 0.0}, "gap must lie strictly between 0 and 1"),
    "restarts negative": ({"rank": 1, "max_restarts": -1}, "max_restarts must be a whole number"),
    "violations negative": ({"allow_violations": -1}, "allow_violations must be a whole number"),
    "violations all": ({"allow_violations": 3}, "from 0 to m - 1 = 2, got 3"),
    "start of wrong order": ({"start": np.eye(2)}, "start is of order 2, but U has n = 3 columns"),
    "start not symmetric": ({"start": np.triu(np.ones((3, 3)))}, "start must be symmetric"),
    "bounds not a pair": ({"b": None, "delta": None, "bounds": 3}, r"pair \(lo, hi\)"),
    "unknown method": ({"method": "gdd"}, r"unknown method 'gdd'.*did you mean 'gd'"),
    "no method": ({"method": None}, "method must be one of auto, closed_form, .*, got None"),
    "method a number": ({"method": 3}, "method must be one of auto, closed_form, .*, got 3"),
    "method a list": ({"method": ["gd"]}, r"method must be one of auto, .*, got \['gd'\]"),
    "no schedule": ({"schedule": None}, "schedule must be one of continuation, paper, got None"),
    "U an operator without an adjoint": (
        {"data": spla.LinearOperator((3, 3), matvec=lambda x: x, dtype=float)},
        "U is an operator whose rmatvec is not implemented: it needs matvec and rmatvec",
    ),
    "U an operator by its looks": ({"data": Operator()}, "U is an operator without rmatvec"),
    "option of another method": (
        {"method": "gd", "batch_size": 2},
        "method 'gd' takes no 'batch_size'.*method='sgd'",
    ),
    "schedule for the closed form": ({"schedule": "paper"}, "takes no 'schedule'; gd and sgd do"),
    "unknown schedule": ({"schedule": "fast"}, "schedule must be one of continuation, paper"),
    "unknown start": (
        {"start": "random"},
        "start must be one of mean, tau, zero, a matrix .* got 'random'",
    ),
    "batch too large": (
        {"method": "sgd", "batch_size": 4},
        "batch_size must be a whole number between 1 and m = 3",
    ),
    "batch zero": ({"method": "sgd", "batch_size": 0}, "batch_size must be .* got 0"),
    "batch fraction": ({"method": "sgd", "batch_size": 1.5}, "batch_size must be .* got 1.5"),
    "norm unknown": ({"method": "sgd", "norm": "l2"}, "norm must be 'exact' or 'bound', got 'l2'"),
    "failure one": ({"method": "sgd", "failure": 1.0}, "failure must lie strictly between 0 and 1"),
    "step negative": ({"method": "gd", "step": -1.0}, "step must be a positive number, got -1.0"),
    "step and c": ({"method": "gd", "step": 1.0, "c": 1.0}, "give step or c"),
    "max_iter negative": ({"max_iter": -1}, "max_iter must be a whole number"),
    "max_iter fraction": ({"max_iter": 1.5}, "max_iter must be a whole number"),
    "time_limit text": ({"time_limit": "1"}, "time_limit must be a number of seconds"),
    "callback not callable": ({"callback": 3}, "callback must be callable"),
    "rng nested without end": ({"rng": ENDLESS}, "rng must be a seed"),
    "prior text": ({"prior": "a"}, "prior must hold numbers, got an array of type str"),
    "constraints a number": ({"constraints": 5}, r"constraints must be a sequence of .* got int"),
    "constraints nothing": (
        {"constraints": None},
        r"constraints must be a sequence of .* NoneType",
    ),
    "conjugate text": ({"conjugate": "a"}, "conjugate must be True or False, got 'a'"),
    "conjugate an array": ({"conjugate": np.ones(2)}, "conjugate must be True or False"),
    "progress text": ({"progress": "a"}, "progress must be True or False, got 'a'"),
    "delta beyond floats": ({"delta": 10**400}, "delta must hold numbers, got .* object"),
    "ridge beyond floats": ({"ridge": 10**400, "delta": None}, "ridge must be 'auto' or a number"),
    "memory_limit beyond floats": ({"memory_limit": 10**400}, "memory_limit must be a number"),
    "start text in a list": ({"start": [["a"]]}, "start must hold numbers"),
    "b that cannot be read": ({"b": Unreadable()}, "b cannot be read as an array .RuntimeError"),
    "rng nonsense": (
        {"rng": "seed"},
        r"rng must be a seed \(whole numbers, not negative\) or a numpy.random.Generator",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_named(name):
    change, message = CASES[name]
    arguments = {"data": U, "b": B, "delta": 0.1, **change}
    with pytest.raises(ValueError, match=f"(?s){message}") as caught:
        quadsense.solve(arguments.pop("data"), arguments.pop("b"), **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("delt", "delta"),
        ("methd", "method"),
        ("batchsize", "batch_size"),
        ("violations", "allow_violations"),
        ("max_iters", "max_iter"),
        ("restarts", "max_restarts"),
        ("conjugated", "conjugate"),
    ],
)
def test_an_unknown_keyword_is_a_type_error_with_the_nearest_known_one(name, nearest):
    # Before anything else is looked at, as Python does it.
    with pytest.raises(TypeError) as caught:
        quadsense.solve("nonsense", None, **{name: 0.1})
    assert str(caught.value) == (
        f"solve() got an unexpected keyword argument {name!r}: did you mean {nearest!r}?"
    )


def test_a_keyword_like_no_other_is_a_type_error_too():
    with pytest.raises(TypeError, match=r"argument 'zzz': see help\(quadsense.solve\)"):
        quadsense.solve(U, B, delta=0.1, zzz=1)
    with pytest.raises(TypeError, match=r"solve_spectral\(\) got .* did you mean 'accuracy'"):
        quadsense.solve_spectral(quadsense.SpectralOracle(U), U, acuracy=0.1)


def test_the_closed_form_refuses_other_rows():
    with pytest.raises(ValueError, match="'closed_form' needs orthonormal rows"):
        quadsense.solve(np.ones((2, 2)) + np.eye(2), [1, 2], delta=0.1, method="closed_form")


def test_measurements_carry_their_own_readings():
    with pytest.raises(ValueError, match="belong to Measurements"):
        quadsense.solve(quadsense.Measurements(U, B), B, delta=0.1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: quadsense.SpectralOracle(), "give A_star, or both whiten and color"),
        (lambda: quadsense.SpectralOracle(-np.eye(2)), "positive definite; its smallest"),
        (lambda: quadsense.SpectralOracle(np.ones((2, 3))), r"square matrix, got shape \(2, 3\)"),
        (lambda: quadsense.SpectralOracle(np.array([[1, 2], [0, 1]])), "must be symmetric"),
        (lambda: quadsense.SpectralOracle(bad(np.nan, 1, U)), "A_star contains NaN"),
        (lambda: quadsense.SpectralOracle(U, whiten=abs), "give either"),
        (lambda: quadsense.solve_spectral(U, U), "oracle must be a quadsense.SpectralOracle"),
        (
            lambda: quadsense.solve_spectral(quadsense.SpectralOracle(U), U, accuracy=1.0),
            "accuracy must lie strictly between 0 and 1",
        ),
        (lambda: quadsense.delta_from_sigma(-1.0, 5), "sigma must be a positive number"),
        (lambda: quadsense.delta_from_sigma("1", 5), "sigma must be a positive number, got '1'"),
        (lambda: quadsense.delta_from_sigma(np.inf, 5), "sigma must be a positive number"),
        (lambda: quadsense.delta_from_sigma(1.0, 0), "m must be a whole number, at least 1"),
        (lambda: quadsense.delta_from_sigma(1.0, 2.5), "m must be a whole .* got 2.5"),
        (lambda: quadsense.delta_from_sigma(1.0, np.inf), "m must be a whole .* got inf"),
        (lambda: quadsense.delta_from_sigma(1.0, True), "m must be a whole .* got True"),
        (lambda: quadsense.delta_from_sigma(1.0, 5, confidence=1.0), "confidence must lie"),
        (
            lambda: quadsense.interval(U, B, constraints=5, delta=0.1),
            "constraints must be a sequence",
        ),
        (
            lambda: quadsense.to_cvxpy(U, B, constraints=5, delta=0.1),
            "constraints must be a sequence",
        ),
        (lambda: quadsense.load_result(5), "path must be the path of a file, got 5"),
        (lambda: quadsense.Measurements.open(5), "path must be the path of a file, got 5"),
        (lambda: quadsense.probes.stack(5), "parts must be a sequence of probes, got int"),
        (lambda: quadsense.probes.kronecker(5), "factors must be a sequence of arrays .* got int"),
        (lambda: quadsense.probes.masked_fft(np.ones((1, 2)), [[2], 1]), "shape must be the shape"),
        (lambda: quadsense.datasets.gaussian("a", 4), "n must be a whole number"),
        (lambda: quadsense.datasets.gaussian(3, 4, complex="a"), "complex must be True or False"),
        (lambda: quadsense.datasets.gaussian(3, 4, noise="a"), "noise must not be negative"),
        (lambda: quadsense.datasets.gaussian(3, 4, seed="a"), "seed must be a seed"),
        (lambda: quadsense.bounds_from_counts(3, 4, method=U), "method must be"),
        (lambda: quadsense.delta_from_sigma(10**400, 5), "sigma must be a positive number"),
        (
            lambda: quadsense.solve_spectral(quadsense.SpectralOracle(U), np.eye(4)),
            "A1 is of order 4, but A_star of order 3",
        ),
        (lambda: quadsense.datasets.orthonormal(3, 4), "m must be at most n = 3"),
        (lambda: quadsense.datasets.gaussian(0, 4), "n must be a whole number, at least 1"),
        (lambda: quadsense.datasets.gaussian(3, 4, rank=4), "rank must lie between 1 and n = 3"),
        (lambda: quadsense.datasets.gaussian(3, 4, condition=0.5), "condition must be at least 1"),
        (lambda: quadsense.datasets.gaussian(3, 4, noise=-1), "noise must not be negative"),
        (lambda: quadsense.datasets.near_orthogonal(3, 2, rho=1.0), r"rho must lie in \[0, 1\)"),
    ],
)
def test_other_entry_points_name_bad_input_too(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("row", [False, True])
def test_a_numpy_matrix_is_an_array_of_two_dimensions(row):
    V = np.array([[1.0, 2.0], [0.0, 1.0], [1.0, -1.0]])
    b = np.matrix(B) if row else np.matrix(B).T
    result = quadsense.solve(np.matrix(V), b, delta=0.1)
    np.testing.assert_array_equal(result.A, quadsense.solve(V, B, delta=0.1).A)
    assert result.certificate.verify(np.matrix(V), b, delta=0.1)
    near = quadsense.solve(V, B, delta=0.1, prefer="nearest", prior=np.matrix(np.eye(2)))
    assert near.success


def test_readings_may_be_a_column():
    result = quadsense.solve(U, B[:, None], delta=np.full((3, 1), 0.1))
    assert result.certificate.verify(U, B, delta=0.1)


@pytest.mark.parametrize("rows", [np.eye(3), np.eye(3) + 0.1])
@pytest.mark.parametrize("prefer", ["auto", "any", "least_squares"])
def test_gap_is_accepted_whatever_the_rows(rows, prefer):
    assert quadsense.solve(rows, B, delta=0.1, prefer=prefer, gap=1e-3).success


@pytest.mark.parametrize("argument", ["U", "b"])
@pytest.mark.filterwarnings("ignore")
def test_quantized_and_nested_tensors_are_refused(argument):
    torch = pytest.importorskip("torch")
    quantized = torch.quantize_per_tensor(torch.ones(3, 3), 0.1, 0, torch.qint8)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    for values, word in ((quantized, "quantized"), (nested, "nested")):
        with pytest.raises(ValueError, match=f"{argument} is a {word} torch tensor"):
            quadsense.Measurements(**{"U": torch.eye(3), "b": B, "delta": 0.1, argument: values})


@pytest.mark.gpu
def test_a_device_that_is_none_is_named():
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match=r"device '\[\]' is not there"):
        quadsense.Measurements(U, B).on([])
