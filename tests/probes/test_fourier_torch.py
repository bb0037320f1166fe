"""Masked Fourier transforms by torch: on the device of the masks, and nothing leaves it."""

import copy
import pickle

import numpy as np
import pytest
from kinds import DEVICE
from test_fourier import octanary

import quadsense
from quadsense.device import DeviceArray, array
from quadsense.measurements.probes import same_rows
from quadsense.measurements.sensing import Sensing
from quadsense.probes import masked_fft

pytestmark = pytest.mark.gpu

torch = pytest.importorskip("torch")


def at_work(masks, shape, offsets=None):
    """Probes as on a GPU, wherever they are."""
    probes = masked_fft(torch.tensor(masks, device=DEVICE), shape, offsets)
    probes._host = False
    return probes


def image_of(rng, *shape):
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def off(found, image):
    """Relative distance up to a phase."""
    found = found.cpu().numpy()[:, 0]
    phase = np.exp(1j * np.angle(np.vdot(found, image.ravel())))
    return np.linalg.norm(phase * found - image.ravel()) / np.linalg.norm(image)


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "float32", "float64", "int64"])
@pytest.mark.parametrize("shape", [(5,), (127,), (4, 3), (3, 4, 2)], ids=str)
def test_products_are_those_of_transformed_masked_images(shape, dtype, rng):
    masks = np.rint(4 * octanary(rng, 3, *shape))
    masks = (masks if "complex" in dtype else masks.real + 8).astype(dtype)
    x = image_of(rng, *shape)
    seen = np.fft.fftn(masks * x, axes=tuple(range(1, len(shape) + 1))).reshape(-1)
    probes = masked_fft(torch.tensor(masks, device=DEVICE), shape)
    rows = Sensing(probes, conjugate=True, factors=1.0)
    found = rows.times(torch.tensor(x.reshape(-1, 1), device=DEVICE))
    assert found.dtype == torch.complex128 and found.device.type == DEVICE
    found = found.cpu().numpy()[:, 0]
    np.testing.assert_allclose(found, seen, rtol=0, atol=1e-12 * np.linalg.norm(seen))


@pytest.mark.parametrize("shape", [(64,), (127,), (211,), (12, 35), (9, 10, 11)], ids=str)
@pytest.mark.parametrize("single", [False, True])
def test_rounding_is_within_its_bound(shape, single, rng):
    masks = octanary(rng, 2, *shape)
    masks[(0, *(0 for _ in shape))] = 30.0
    work = at_work(masks, shape).held_as("device")
    work = work.held_as("single") if single else work
    held = np.asarray(work.masks).astype(np.clongdouble)
    x = image_of(rng, *shape).astype(work.dtype)
    values = held.conj() * x.astype(np.clongdouble)
    for axis, size in enumerate(shape):  # the definition in 80 bits, one axis at a time
        k = np.arange(size)
        turn = 2.0 * np.pi * (np.outer(k, k) % size / np.longdouble(size))
        wave = np.cos(turn) + 1j * np.sin(turn)
        values = np.moveaxis(np.tensordot(wave, values, axes=(1, axis + 1)), 0, axis + 1)
    found = work.times(DeviceArray(torch.tensor(x.reshape(-1, 1), device=DEVICE)))
    assert found.dtype == work.dtype
    error = np.abs(np.asarray(found)[:, 0] - values.reshape(-1))
    assert np.all(error <= work.rounding * np.asarray(work.norms) * np.linalg.norm(x))


@pytest.mark.parametrize("by_torch", [False, True])
def test_an_image_is_found_on_the_device_of_its_masks(by_torch, rng):
    masks, x = octanary(rng, 8, 12, 10), image_of(rng, 12, 10)
    b = np.abs(np.fft.fft2(masks * x)).ravel() ** 2
    probes = at_work(masks, (12, 10))
    probes._host = not by_torch
    readings = torch.tensor(b, device=DEVICE)
    result = quadsense.solve(probes, readings, delta=1e-6 * b.mean(), rank=1, conjugate=True)
    assert result.status == "met", result.message
    for values in (result.A, result.residuals, result.matrix.factor):
        assert torch.is_tensor(values) and values.device.type == DEVICE
    assert off(result.matrix.factor, x) < 1e-5
    assert result.verify(probes, readings, conjugate=True)
    wrong = readings.clone()
    wrong[7] += 1e-3 * b.mean()
    assert not result.verify(probes, wrong, conjugate=True)


def test_a_scan_is_put_together_on_the_device(rng):
    window, x = octanary(rng, 2, 6, 6), image_of(rng, 12, 12)
    offsets = np.array([(r, c) for r in range(0, 7, 2) for c in range(0, 7, 2)])
    b = [np.abs(np.fft.fft2(w * x[r : r + 6, c : c + 6])) ** 2 for r, c in offsets for w in window]
    b = np.ravel(b)
    probes = at_work(window, (12, 12), offsets)
    result = quadsense.solve(probes, b, delta=1e-6 * b.mean(), rank=1, conjugate=True, rng=0)
    assert result.status == "met", result.message
    assert off(result.matrix.factor, x) < 1e-4


def test_no_vector_leaves_the_device_but_the_answer(rng, monkeypatch):
    masks, x = octanary(rng, 8, 32, 32), image_of(rng, 32, 32)
    b = np.abs(np.fft.fft2(masks * x)).ravel() ** 2
    probes = at_work(masks, (32, 32))
    moved, seen, sent = [], DeviceArray.__array__, array.on_host

    def counted(self, dtype=None, copy=None):
        moved.append(self.shape)
        return seen(self, dtype, copy)

    def noted(value):
        if isinstance(value, DeviceArray):
            moved.append(value.shape)
        return sent(value)

    monkeypatch.setattr(DeviceArray, "__array__", counted)
    monkeypatch.setattr(array, "on_host", noted)
    readings = torch.tensor(b, device=DEVICE)
    result = quadsense.solve(probes, readings, delta=1e-6 * b.mean(), rank=1, conjugate=True)
    assert result.status == "met" and result.n_iter > 5
    assert [shape for shape in moved if np.prod(shape) > 50] in ([], [(1024, 1)])


def test_probes_are_copied_and_sent(rng):
    probes = at_work(octanary(rng, 2, 4), 4)
    for other in (copy.deepcopy(probes), pickle.loads(pickle.dumps(probes))):
        assert same_rows(probes, other) and same_rows(other, probes)
    assert not same_rows(probes, at_work(octanary(rng, 2, 4), 4))
    assert not same_rows(probes, probes.kind)


def test_rows_of_tensors_and_of_numpy_are_not_stacked(rng):
    masks = octanary(rng, 2, 4)
    with pytest.raises(ValueError, match=r"parts\[1\] is of another namespace or device"):
        quadsense.probes.stack([at_work(masks, 4), masked_fft(masks, 4)])
    both = quadsense.probes.stack([at_work(masks, 4), torch.eye(4, device=DEVICE)])
    x = torch.ones(4, 1, dtype=torch.complex128, device=DEVICE)
    seen = np.fft.fft(masks).ravel()  # of ones: rows times ones, conjugated
    found = both.times(x).cpu().numpy()[:, 0]
    np.testing.assert_allclose(found, np.append(seen.conj(), np.ones(4)), atol=1e-12)


def test_masks_that_are_views_are_read_as_what_they_show(rng):
    masks = torch.tensor(octanary(rng, 4, 6, 6), device=DEVICE)
    for view in (masks.conj(), masks.mT[:, ::2], masks.conj().imag, masks[:1].expand(3, 6, 6)):
        shape = tuple(view.shape[1:])
        probes = masked_fft(view, shape)
        plain = masked_fft(view.cpu().resolve_conj().resolve_neg().numpy(), shape)
        x = image_of(rng, plain.n, 1)
        expected = plain.times(x)
        found = probes.times(torch.tensor(x, device=DEVICE)).cpu().numpy()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
        if DEVICE == "cpu":
            np.testing.assert_allclose(
                probes.held_as("numpy").times(x), expected, rtol=0, atol=1e-12
            )


@pytest.mark.parametrize("scale", [1e-300, 1e-100, 1e150])
def test_masks_of_any_size_are_brought_into_range(scale, rng):
    masks = octanary(rng, 4, 3)
    masks[1] *= scale
    probes = at_work(masks, 3)
    beside = masked_fft(masks, 3)
    np.testing.assert_allclose(probes.norms.cpu().numpy(), beside.norms, rtol=1e-14)
    np.testing.assert_array_equal(probes.exponents, beside.exponents)
    unit = quadsense.Measurements(probes, np.ones(12)).unit_rows.rows()
    np.testing.assert_allclose(np.linalg.norm(unit.cpu().numpy(), axis=1), 1.0)
    host = probes.kind.on_host()
    np.testing.assert_array_equal(host.exponents, beside.exponents)
    np.testing.assert_allclose(host.norms, beside.norms, rtol=1e-14)


BAD = {
    "masks is a torch tensor that requires grad": lambda M: M.requires_grad_(),
    "masks is a torch tensor of float16": lambda M: M.real.half(),
    "masks is a torch tensor on the meta device": lambda M: M.to("meta"),
    r"masks\[1\] is 0 everywhere": lambda M: M * torch.tensor([1.0, 0.0], device=DEVICE)[:, None],
    r"masks must be finite, but masks\[0, 2\] is .*nan": lambda M: torch.where(
        torch.arange(8, device=DEVICE).reshape(2, 4) == 2, torch.nan, M
    ),
    r"masks have shape \(3,\), but the image": lambda M: M[:, :3],
    r"masks has shape \(1, 2, 4\), but must": lambda M: M[None],
}


@pytest.mark.parametrize("said", BAD)
def test_bad_masks_are_refused_in_a_sentence(said, rng):
    masks = torch.tensor(octanary(rng, 2, 4), device=DEVICE)
    with pytest.raises(ValueError, match=said):
        masked_fft(BAD[said](masks), 4)


def test_readings_on_another_device_are_refused(rng):
    probes = at_work(octanary(rng, 4, 4), 4)
    with pytest.raises(ValueError, match="b is a torch tensor on meta and U a torch tensor on"):
        quadsense.solve(probes, torch.empty(16, device="meta"), delta=1.0)
    beside = masked_fft(octanary(rng, 4, 4), 4)
    with pytest.raises(ValueError, match=r"b is a torch tensor on .* and U a NumPy array"):
        quadsense.solve(beside, torch.ones(16, device=DEVICE), delta=1.0)
