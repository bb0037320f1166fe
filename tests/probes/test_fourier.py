"""Masked Fourier transforms: what they are, how far they are off, and what is refused."""

import re
import tracemalloc

import numpy as np
import pytest
from kinds import fourier_rows as dense

import quadsense
from quadsense.core.sums import transform_error
from quadsense.measurements.probes import squares
from quadsense.measurements.sensing import Sensing
from quadsense.probes import masked_fft

SHAPES = [(5,), (8,), (127,), (4, 3), (3, 4, 2), (1, 6), (1,)]


def octanary(rng, *shape):
    """Masks as [Candes, Li, Soltanolkotabi 2015] draw them."""
    turns = rng.choice([1.0, -1.0, 1j, -1j], shape)
    return turns * rng.choice([np.sqrt(0.5), np.sqrt(3.0)], shape, p=[0.8, 0.2])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_are_those_of_transformed_masked_images(shape, rng):
    masks = octanary(rng, 3, *shape)
    probes = masked_fft(masks, shape)
    x = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    seen = np.fft.fftn(masks * x, axes=tuple(range(1, len(shape) + 1))).reshape(-1)
    found = Sensing(probes, conjugate=True, factors=1.0).times(x.reshape(-1, 1))[:, 0]
    np.testing.assert_allclose(found, seen, rtol=0, atol=1e-12 * np.linalg.norm(seen))
    np.testing.assert_allclose(probes.norms, np.linalg.norm(dense(probes), axis=1), rtol=1e-13)


def test_windows_are_read_where_they_lie(rng):
    window, offsets = octanary(rng, 2, 3, 2), [[0, 0], [2, 3], [1, 1], [2, 3]]
    probes = masked_fft(window, (5, 6), offsets)
    x = rng.standard_normal((5, 6)) + 1j * rng.standard_normal((5, 6))
    seen = [np.fft.fft2(w * x[r : r + 3, c : c + 2]) for r, c in offsets for w in window]
    found = Sensing(probes, conjugate=True, factors=1.0).times(x.reshape(-1, 1))[:, 0]
    np.testing.assert_allclose(found, np.ravel(seen), rtol=0, atol=1e-12)
    U, y = dense(probes), rng.standard_normal(probes.m)
    np.testing.assert_allclose(probes.block(0, probes.m), U, rtol=0, atol=1e-13)
    np.testing.assert_allclose(probes.adjoint(y), (U.T * y) @ U.conj(), rtol=0, atol=1e-10)
    np.testing.assert_allclose(probes.squared_columns(y), y @ np.abs(U) ** 2, rtol=0, atol=1e-10)


def test_products_with_nothing_are_nothing(rng):
    probes = masked_fft(octanary(rng, 2, 3), 4, [0, 1])
    assert probes.times(np.zeros((4, 0))).shape == (12, 0)
    assert probes.combine(np.zeros((12, 0))).shape == (4, 0)
    assert not squares(probes, np.zeros((4, 0)), None, None).any()


@pytest.mark.parametrize("shape", [(64,), (127,), (211,), (12, 35), (17, 19), (9, 10, 11)], ids=str)
@pytest.mark.parametrize("peak", [1.0, 1e3])
def test_rounding_is_within_its_bound_of_80_bits(shape, peak, rng):
    masks = octanary(rng, 2, *shape)
    masks[(0, *(0 for _ in shape))] = peak
    for probes in (masked_fft(masks, shape), masked_fft(masks, shape).held_as("single")):
        masks = probes.masks.astype(np.clongdouble)
        x = (rng.standard_normal(probes.n) + 1j * rng.standard_normal(probes.n)).astype(
            probes.dtype
        )
        wide, values = x.astype(np.clongdouble).reshape(shape), masks
        for axis, size in enumerate(shape):  # the definition, one axis at a time
            k = np.arange(size)
            turn = 2.0 * np.pi * (np.outer(k, k) % size / np.longdouble(size))
            wave = np.cos(turn) + 1j * np.sin(turn)
            if axis == 0:
                values = masks.conj() * wide
            values = np.moveaxis(np.tensordot(wave, values, axes=(1, axis + 1)), 0, axis + 1)
        off = np.abs(probes.times(x[:, None])[:, 0] - values.reshape(-1))
        bound = probes.rounding * probes.norms * np.linalg.norm(x)
        assert np.all(off <= bound)
        assert np.max(off / bound) > 1e-5  # nor absurdly large


@pytest.mark.parametrize("shape", [(97,), (12, 35), (5, 6, 7)], ids=str)
def test_rows_that_are_formed_are_within_their_own_bound(shape, rng):
    probes = masked_fft(octanary(rng, 2, *shape), shape)
    index = np.arange(0, probes.m, 7)
    frames, frequencies = np.divmod(index, probes.frame)
    turns = np.zeros((index.size, probes.n), dtype=np.longdouble)
    axes = zip(
        np.unravel_index(frequencies, shape),
        np.unravel_index(np.arange(probes.n), shape),
        shape,
        strict=True,
    )
    for k, j, size in axes:
        turns += np.outer(k, j) % size / np.longdouble(size)
    angle = 8 * np.arctan(np.longdouble(1)) * turns
    masks = probes.masks.reshape(2, -1)[frames].astype(np.clongdouble)
    exact = masks * (np.cos(angle) - 1j * np.sin(angle))
    off = np.abs(probes.take(index) - exact)
    assert np.all(off <= probes.row_rounding * np.abs(exact))


def test_the_bound_grows_as_the_logarithm():
    assert transform_error((2**20,)) == 200.0
    assert transform_error((1024, 1024)) == 200.0
    assert transform_error((3,)) == 10.0 + 7 * np.sqrt(6.0)
    assert transform_error((1,)) == 0.0


def test_a_pass_holds_one_frame_beside_what_it_returns(rng):
    probes = masked_fft(octanary(rng, 32, 128, 128), (128, 128))
    x = rng.standard_normal((1, probes.n)) + 0j
    frame = 16 * probes.n
    F = Sensing(probes).plain()
    F.through(x, lambda rows, p: p)
    tracemalloc.start()
    P, total = F.through(x, lambda rows, p: 2.0 * p)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= P.nbytes + total.nbytes + 16 * 4 * frame
    np.testing.assert_allclose(total[0], F.combine(2.0 * P.T)[:, 0], rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e-100, 1e150])
def test_masks_of_any_size_are_brought_into_range(scale, rng):
    masks = octanary(rng, 4, 3)
    masks[1] *= scale
    probes = masked_fft(masks, 3)
    np.testing.assert_allclose(probes.norms[3:6], scale * np.linalg.norm(masks[1] / scale))
    unit = quadsense.Measurements(probes, np.ones(12)).unit_rows.rows()
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1.0, rtol=1e-13)


def test_an_image_is_found_and_checked_with_probes_made_again(rng):
    masks = octanary(rng, 8, 12, 10)
    x = rng.uniform(size=120) * np.exp(1j * rng.uniform(size=120))
    b = np.abs(np.fft.fft2(masks * x.reshape(12, 10))).reshape(-1) ** 2
    asked = {"delta": 1e-6 * b.mean(), "conjugate": True}
    result = quadsense.solve(masked_fft(masks, (12, 10)), b, rank=1, **asked)
    assert result.status == "met", result.message
    assert result.verify(masked_fft(masks.copy(), (12, 10)), b, conjugate=True)
    assert not result.verify(masked_fft(1.01 * masks, (12, 10)), b, conjugate=True)
    assert not result.verify(masked_fft(masks, (12, 10)), b, conjugate=False)  # other rows
    found = result.matrix.factor[:, 0]
    found = found * np.exp(-1j * np.angle(np.vdot(x, found)))
    assert np.linalg.norm(found - x) <= 1e-5 * np.linalg.norm(x)


def test_several_modes_are_added_up_by_mix(rng):
    modes, offsets = octanary(rng, 2, 4), [0, 1, 2, 3, 4]
    probes = masked_fft(modes, 8, offsets)
    x = rng.standard_normal(8) + 1j * rng.standard_normal(8)
    each = np.abs([np.fft.fft(w * x[r : r + 4]) for r in offsets for w in modes]) ** 2
    b = each.reshape(5, 2, 4).sum(axis=1).reshape(-1)
    mix = np.kron(np.eye(5), np.kron(np.ones((1, 2)), np.eye(4)))
    result = quadsense.solve(
        probes, b, mix=mix, delta=1e-7 * b.mean(), rank=1, conjugate=True, rng=0
    )
    assert result.status == "met", result.message
    A = result.A
    z = np.einsum("ij,jk,ik->i", dense(probes), A, dense(probes).conj()).real
    assert np.max(np.abs(mix @ z - b)) <= 1e-7 * b.mean() * (1 + 1e-9)


def test_constraints_and_weights_go_with_it(rng):
    masks = octanary(rng, 3, 4)
    probes, U = masked_fft(masks, 4), dense(masked_fft(masks, 4))
    b = 1.5 * np.sum(np.abs(U) ** 2, axis=1) + rng.uniform(-0.4, 0.4, probes.m)
    asked = {"delta": 0.5, "psd": True, "weights": rng.uniform(0.5, 2.0, probes.m), "trace": (0, 9)}
    for more in ({}, {"prefer": "least_squares"}, {"prefer": "min_trace"}):
        truth = quadsense.solve(U, b, **asked, **more)
        found = quadsense.solve(probes, b, **asked, **more)
        assert found.status is truth.status
        assert found.certificate.verify(probes, b)
        assert found.objective == pytest.approx(truth.objective, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("asked", [{"delta": 0.1}, {"prefer": "least_squares"}])
def test_constraints_are_held_to_what_transforms_err_by(asked):
    """One pixel is far brighter than the other, so that an entry errs by far more than a sum."""
    rng = np.random.default_rng(0)
    masks = octanary(rng, 6, 2) * [30.0, 1.0]
    probes = masked_fft(masks, 2)
    x = rng.standard_normal(2) + 1j * rng.standard_normal(2)
    b = np.abs(dense(probes).conj() @ x) ** 2 + 0.05 * rng.uniform(-1.0, 1.0, 12)
    trace = float(np.linalg.norm(x) ** 2)
    result = quadsense.solve(probes, b, psd=True, trace=trace, **asked)
    assert result.success, result.message
    assert result.verify(probes, b, **{k: v for k, v in asked.items() if k == "delta"})
    assert np.trace(result.A).real == pytest.approx(trace, rel=1e-12)


BAD = {
    "masks have shape (4, 3), but the image has shape (3, 4): masks smaller": (
        np.ones((2, 4, 3)), (3, 4),
    ),
    "masks has shape (4,), but must hold masks of 2 axes": (np.ones(4), (2, 2)),
    "masks has shape (0, 4), but must hold masks of 1 axes": (np.ones((0, 4)), 4),
    "masks must be finite, but masks[1, 2] is nan": ([[1, 1, 1], [1, 1, np.nan]], 3),
    "masks must be finite, but masks[0, 1] is (inf+0j)": ([[1, np.inf + 0j]], 2),
    "masks[1] is 0 everywhere": ([[1, 1, 1], [0, 0, 0]], 3),
    "masks must hold numbers, got an array of type str": (["a", "b"], 2),
    "masks is not a rectangular array": ([[1, 2], [3]], 2),
    "masks is a masked array": (np.ma.array([1.0, 2.0]), 2),
    "positive whole numbers, got (2, 0)": (np.ones(4), (2, 0)),
    "shape must be the shape of the image, positive whole numbers, got 2.5": (np.ones(4), 2.5),
    "shape must be the shape of the image, positive whole numbers, got 'ab'": (np.ones(4), "ab"),
    "masks of shape (3, 3) do not fit into the image of shape (3, 2)": (
        np.ones((3, 3)), (3, 2), [[0, 0]],
    ),
    "offsets[1] is [2, 0], where a window of shape (2, 2) is not within": (
        np.ones((2, 2)), (3, 3), [[0, 0], [2, 0]],
    ),
    "offsets[0] is [-1], where a window of shape (2,) is not within": (np.ones(2), 3, [-1]),
    "offsets must be whole numbers of pixels, but offsets[1] is [0.5]": (np.ones(2), 3, [0, 0.5]),
    "offsets must be whole numbers of pixels, but offsets[0] is [nan]": (np.ones(2), 3, [np.nan]),
    "offsets has shape (2,), but must have one position per row, shape (k, 2)": (
        np.ones((2, 2)), (3, 3), [0, 0],
    ),
    "offsets has shape (0,), but must have one position per row": (np.ones(2), 3, []),
    "offsets must hold whole numbers, got an array of type str": (np.ones(2), 3, ["0"]),
    "offsets is not a rectangular array": (np.ones((1, 1)), (3, 3), [[0, 0], [1]]),
}  # fmt: skip


@pytest.mark.parametrize("words", BAD)
def test_bad_input_is_refused_in_a_sentence(words):
    with pytest.raises(ValueError, match=re.escape(words)):
        masked_fft(*BAD[words])


def test_names_are_found_and_unknown_ones_are_not():
    assert "masked_fft" in dir(quadsense.probes)
    with pytest.raises(AttributeError, match="no attribute 'masked_ftt'"):
        quadsense.probes.masked_ftt  # noqa: B018
