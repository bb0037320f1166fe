"""Pictures are drawn of whatever `solve` returns, show its numbers, and need not be closed."""

import io

import matplotlib as mpl
import numpy as np
import pytest
import scipy.sparse as sp
from cases import CASES, solved
from helpers import cover, deep, gaussian_rows, sampled
from matplotlib import pyplot
from matplotlib.figure import Figure

import quadsense
from quadsense import datasets, plot
from quadsense.plot.pictures import density_of, labelled, patch_of, readings_of, spectrum_of

mpl.use("Agg")


def drawn(figure):
    """That a figure is one, can be drawn, and is not held by pyplot."""
    assert isinstance(figure, Figure)
    with np.errstate(all="warn"):
        figure.savefig(io.BytesIO(), format="png", dpi=40)
    assert pyplot.get_fignums() == []
    return figure


@pytest.mark.parametrize(
    ("picture", "name"), cover(["history", "residuals", "matrix"], CASES, each=3)
)
def test_every_result_is_drawn(name, picture):
    with np.errstate(all="raise"):
        figure = getattr(plot, picture)(solved(name))
    drawn(figure)


@pytest.mark.parametrize(
    "name", sampled(["sparse", "sums", "met", "complex psd", "constrained", "one"], 2)
)
def test_the_probes_of_a_result_are_drawn(name):
    drawn(plot.gram(solved(name)))


def test_a_figure_is_shown_by_a_notebook_without_pyplot():
    assert plot.residuals(solved("met"))._repr_png_().startswith(b"\x89PNG")


def points(axes):
    """All points, by label, in order of the rows."""
    drawn = {line.get_label(): line.get_xydata() for line in axes.lines if line.get_marker() == "o"}
    return {label: places[np.argsort(places[:, 0])] for label, places in drawn.items()}


@pytest.mark.parametrize("name", ["infeasible", "slack", "rtol", "violations"])
def test_residuals_are_in_tolerances_and_those_over_are_set_apart(name):
    result = solved(name)
    found = points(plot.residuals(result).axes[0])
    ratios = result.residuals / result.certificate.tolerance
    over = np.abs(ratios) > 1.0
    over[result.set_aside] = False
    rows = np.arange(over.size)
    np.testing.assert_allclose(found["over"] if over.any() else np.empty((0, 2)),
                               np.stack([rows, ratios], 1)[over])  # fmt: skip
    kept = ~over
    kept[result.set_aside] = False
    np.testing.assert_allclose(found["within tolerance"], np.stack([rows, ratios], 1)[kept])


def test_the_worst_row_is_named():
    result = solved("infeasible")
    axes = plot.residuals(result).axes[0]
    worst = int(np.argmax(np.abs(result.residuals)))
    assert any(text.get_text().startswith(f"row {worst}:") for text in axes.texts)


def test_rows_with_one_end_are_at_nought_unless_it_is_crossed():
    U, one = np.eye(3), np.array([1.0, 1.0, 1.0])
    result = quadsense.solve(U, bounds=(one, [np.inf, 2.0, np.inf]))
    found = readings_of(result)
    np.testing.assert_array_equal(found.one_sided, [True, False, True])
    assert found.ratios[0] == found.ratios[2] == 0.0
    soft = quadsense.solve(
        np.array([[1.0], [1.0]]), bounds=([1.0, -np.inf], [np.inf, 0.0]), slack="max"
    )
    crossed = readings_of(soft)
    assert crossed.ratios[0] < -1.0
    assert crossed.ratios[1] > 1.0
    assert crossed.over.all()
    drawn(plot.residuals(soft))


def test_equalities_that_are_met_are_at_nought():
    found = readings_of(solved("equalities"))
    assert found.exact.sum() == 4
    assert not found.ratios[found.exact].any()


def test_many_rows_are_counted_where_they_are(rng):
    ratios = rng.standard_normal(20000)
    edges = np.linspace(-3.0, 3.0, 31)
    found = density_of(ratios, 20, edges)
    counts, _, _ = np.histogram2d(
        np.repeat(np.arange(20), 1000), np.clip(ratios, -2.999, 2.999),
        bins=[np.arange(21) - 0.5, edges],
    )  # fmt: skip
    np.testing.assert_array_equal(found, counts.T[::-1])


def test_many_rows_become_a_density_and_those_over_stay_points():
    p = datasets.gaussian(n=4, m=3000, seed=0, noise=0.1)
    result = quadsense.solve(p.U, p.b, delta=0.3, slack="squares")
    axes = drawn(plot.residuals(result)).axes[0]
    found = points(axes)
    assert "within tolerance" not in found
    assert len(found["over"]) == result.violations.size > 0


@pytest.mark.parametrize(
    ("part", "complex_"), cover(["auto", "real", "imag", "abs"], [True, False])
)
def test_entries_are_those_asked_for(rng, complex_, part):
    A = gaussian_rows(rng, 5, 5, complex_)
    A = A + A.conj().T
    figure = drawn(plot.matrix(A, part=part))
    shown = figure.axes[0].images[0].get_array()
    truth = {"real": A.real, "imag": A.imag, "abs": np.abs(A)}
    truth["auto"] = truth["abs"] if complex_ else truth["real"]
    np.testing.assert_array_equal(shown, truth[part])


def test_the_spectrum_is_that_of_the_matrix(rng):
    A = rng.standard_normal((9, 9))
    A = A + A.T
    found = spectrum_of(quadsense.SensedMatrix.from_dense(A))
    np.testing.assert_allclose(found.values, np.linalg.eigvalsh(A)[::-1])
    X = gaussian_rows(rng, 9, 3, True)
    signed = quadsense.SensedMatrix.from_factor(X, [1, -1, 1])
    truth = np.linalg.eigvalsh(np.asarray(signed))
    truth = np.sort(truth[np.abs(truth) > 1e-9])[::-1]
    np.testing.assert_allclose(spectrum_of(signed).values, truth, rtol=1e-9)
    assert "6" in spectrum_of(signed).how


def test_a_large_matrix_is_shown_by_its_largest_entries(rng):
    A = np.zeros((450, 450))
    A[7, 300] = A[300, 7] = -3.0
    A[9, 301] = A[301, 9] = 2.0
    patch = patch_of(quadsense.SensedMatrix.from_dense(A))
    assert patch.values.shape == (150, 150)
    assert patch.values[7 // 3, 300 // 3] == -3.0
    assert patch.values[9 // 3, 301 // 3] == 2.0
    assert "3 × 3" in patch.how
    drawn(plot.matrix(A))


@pytest.mark.slow
def test_a_matrix_too_large_to_form_is_sampled():
    p = datasets.gaussian(n=3000, m=30, seed=0, rank=2)
    result = quadsense.solve(p.U, p.b, delta=0.1, prefer="any")
    patch = patch_of(result.matrix, 20)
    chosen = np.unique(np.linspace(0, 2999, 20).astype(int))
    np.testing.assert_allclose(patch.values, result.A[np.ix_(chosen, chosen)], atol=1e-12)
    assert patch.how.startswith("20 of 3,000 rows")
    found = spectrum_of(result.matrix)
    values = np.linalg.eigvalsh(result.A)
    largest = np.sort(values[np.argsort(-np.abs(values))[: found.values.size]])[::-1]
    np.testing.assert_allclose(found.values, largest, rtol=1e-6)


@pytest.mark.parametrize("m", [1, deep(2), deep(30), 700])
def test_the_gram_matrix_is_that_of_unit_rows(rng, m, complex_):
    U = gaussian_rows(rng, m, 5, complex_)
    U[0] *= 1e-60
    figure = drawn(plot.gram(U))
    unit = U / np.linalg.norm(U, axis=1, keepdims=True)
    chosen = np.unique(np.linspace(0, m - 1, min(m, 200)).astype(int))
    truth = np.abs(unit.conj() @ unit.T)[np.ix_(chosen, chosen)]
    np.testing.assert_allclose(figure.axes[0].images[0].get_array(), truth, atol=1e-7)


def test_the_gram_matrix_of_probes_that_are_not_held(rng):
    U = gaussian_rows(rng, 12, 4, True)
    masks = np.exp(2j * np.pi * rng.random((3, 8)))
    for given in (
        quadsense.probes.differences([(0, 1), (1, 2), (0, 2)], 5),
        quadsense.probes.kronecker([U, U]),
        quadsense.probes.masked_fft(masks, (8,)),
        quadsense.probes.operator(
            lambda X: U.conj() @ X, lambda Y: U.T @ Y, (12, 4), dtype=complex
        ),
        quadsense.probes.stack([U, quadsense.probes.differences([(0, 1)], 4)]),
        sp.csr_array(U),
        U.tolist(),
    ):
        rows = quadsense.Measurements(given, np.zeros(getattr(given, "m", None) or 12)).rows()
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        shown = plot.gram(given).axes[0].images[0].get_array()
        np.testing.assert_allclose(shown, np.abs(unit.conj() @ unit.T), atol=1e-7)


def test_the_gram_matrix_of_sums_is_theirs(rng):
    U, W = rng.standard_normal((6, 3)), rng.standard_normal((4, 6))
    data = quadsense.Measurements(U, np.zeros(4), mix=W)
    matrices = np.einsum("pk,ki,kj->pij", W, U, U).reshape(4, -1)
    matrices /= np.linalg.norm(matrices, axis=1, keepdims=True)
    shown = plot.gram(data).axes[0].images[0].get_array()
    np.testing.assert_allclose(shown, np.sqrt(np.abs(matrices @ matrices.T)), atol=1e-7)


def bars(axes):
    return [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches]


def test_intervals_are_bars_from_end_to_end():
    U = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    result = quadsense.solve(U, [1.0, 2.0, 3.0], delta=0.1)
    found = result.interval(["trace", (0, 1)])
    figure = drawn(plot.intervals(found, A=result))
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert names == ["trace", "A[0, 1]"]
    np.testing.assert_allclose(bars(figure.axes[0]), [tuple(each) for each in found])
    assert list(labelled({"x": found[0]})) == ["x"]
    assert list(labelled([found[0]] * 2)) == ["trace", "trace (2)"]
    with pytest.raises(ValueError, match="as many labels"):
        plot.intervals(found, labels=["one"])
    with pytest.raises(ValueError, match="at least one"):
        plot.intervals([])


def test_infinite_ends_reach_the_edge():
    result = quadsense.solve(np.eye(2), [1.0, 2.0], delta=0.1)
    axes = drawn(plot.intervals(result.interval([(0, 1), (0, 0)]))).axes[0]
    np.testing.assert_allclose(bars(axes)[0], axes.get_xlim())
    unbounded = quadsense.interval(np.eye(2), [1.0, 2.0], (0, 1), delta=0.1)
    drawn(plot.intervals(unbounded))


@pytest.mark.parametrize("picture", ["residuals", "intervals"])
def test_axes_of_the_user_are_used(picture):
    figure = Figure()
    axes = figure.subplots()
    result = solved("complex psd")
    thing = result if picture == "residuals" else result.interval("trace")
    assert getattr(plot, picture)(thing, ax=axes, title="mine") is figure
    assert axes.get_title() == "mine"


def test_no_history_is_said():
    result = solved("time_limit")
    assert len(result.history) == 0
    axes = plot.history(result).axes[0]
    assert [text.get_text() for text in axes.texts] == ["no iterations"]


def test_titles_and_bad_arguments():
    result = solved("met")
    for picture in (plot.history, plot.residuals, plot.matrix, plot.gram):
        assert picture(result, title="mine").get_suptitle() == "mine"
    with pytest.raises(ValueError, match="part must be"):
        plot.matrix(result, part="both")
    with pytest.raises(ValueError, match="square"):
        plot.matrix(np.ones((2, 3)))


def test_a_result_from_a_file_has_no_probes_to_draw(tmp_path):
    solved("met").save(tmp_path / "r.npz")
    loaded = quadsense.load_result(tmp_path / "r.npz")
    drawn(plot.residuals(loaded))
    with pytest.raises(ValueError, match="read from a file"):
        plot.gram(loaded)
