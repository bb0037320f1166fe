"""Coded diffraction and ptychography: masks, then a Fourier transform, and no row is formed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import as_numbers, check_tensor, is_tensor
from quadsense.device import DeviceArray, tensor_of
from quadsense.measurements.tensors import OfTensors
from quadsense.probes.transforms import MaskedFFT
from quadsense.typing import is_whole


def masked_fft(
    masks: npt.ArrayLike,
    shape: int | Sequence[int],
    offsets: npt.ArrayLike | None = None,
) -> MaskedFFT | OfTensors:
    """Return probes of coded diffraction: ``U @ x`` is ``fftn(mask * x)`` of every mask.

    Detectors measure intensities, ``b = |U @ x|**2``, so that ``conjugate=True`` goes with them:
    ``solve(masked_fft(masks, shape), b, rank=1, conjugate=True, ...)``. Nothing of the size of U is
    ever formed; products with it are fast Fourier transforms, by SciPy, or by torch where the masks
    are a tensor: on its device, where the answer then is.

    Parameters
    ----------
    masks : array_like or torch.Tensor, of shape ``(q, *shape)`` or ``shape``
        Real or complex; one mask may come without the first axis. With `offsets` of the shape
        ``(q, *window)`` or ``window``, for a window that is no larger than the image along any
        axis.
    shape : int or sequence of int
        Shape of the image x, of any number of axes; x itself is raveled, n = prod(shape).
    offsets : array_like of int, of shape (k, len(shape)), optional
        Where the window lies: the index in the image of its first corner, one a position of the
        scan; of shape (k,) where the image has one axis. A window never reaches over an edge.

    Returns
    -------
    Probes
        To be given as U. Its rows come in the order of positions, masks and frequencies (as
        ``fftn`` has them, zero first), ``m = k * q * prod(window)``. Rows u_i are those of U:
        without ``conjugate=True`` a reading is ``conj(u_i) @ A @ u_i``.

    Notes
    -----
    *Coded diffraction*: from 4 to 12 random masks determine an image, for instance octanary ones
    [Candes, Li, Soltanolkotabi 2015], each pixel 1, -1, i or -i, times ``sqrt(1/2)`` four times in
    five and ``sqrt(3)`` else.

    *Ptychography* with a known illumination P (a window, in its own smaller shape) which is moved
    over an object x: what the detector sees at offset r is ``|fftn(P * x[r : r + window])|**2``, so
    `masks` is P, and `offsets` are the positions in pixels. Where the illumination has several
    incoherent modes, give them as several masks and add their rows up with `mix`. Pixels that no
    window covers are seen by no reading: they are 0 in an answer of low rank only by chance.

    Rows have the norm of their mask, whatever the frequency. A transform of a masked image errs in
    the 2-norm by c u relatively, with the unit roundoff ``u = 2^-53`` and c the sum, over prime
    factors p of all lengths, of 10 roundings for 2 [Higham 2002, Theorem 24.2] and
    ``10 + sqrt(2 p) (p + 4)`` for others, and 64 for what is around it; an entry errs by as much in
    units of ``||mask|| ||x||`` times ``max |mask| / rms |mask|``. Certificates count that.

    The same is assumed of the transforms of torch (MKL, pocketfft, cuFFT), which are of the same
    kind, radix by radix or chirps; cuFFT itself states no more than that its relative error grows
    as ``log n``.

    The number of threads is that of ``scipy.fft.set_workers``.

    Examples
    --------
    >>> import numpy as np
    >>> import quadsense
    >>> from quadsense.probes import masked_fft
    >>> rng = np.random.default_rng(0)
    >>> masks = rng.choice([1, -1, 1j, -1j], (8, 16, 16))
    >>> U = masked_fft(masks, (16, 16))
    >>> U.m, U.n
    (2048, 256)
    >>> image = rng.uniform(size=(16, 16))
    >>> b = np.abs(np.fft.fft2(masks * image)).ravel() ** 2
    >>> result = quadsense.solve(U, b, delta=1e-6 * b.mean(), rank=1, conjugate=True)
    >>> x = result.matrix.factor[:, 0]
    >>> x = x * np.exp(-1j * np.angle(x.sum()))  # the phase of all of x is not measured
    >>> bool(np.linalg.norm(x - image.ravel()) < 1e-5 * np.linalg.norm(image))
    True
    """
    size = checked_shape(shape)
    held = checked_masks(masks, size, offsets is not None)
    starts = checked_offsets(offsets, size, held.shape[1:])
    found = MaskedFFT(held, size, starts)
    tensor = tensor_of(held)
    return found if tensor is None else OfTensors(found, tensor)


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Return the shape of an image as a tuple, or a ValueError."""
    sizes = shape if isinstance(shape, tuple | list) else (shape,)
    if isinstance(shape, np.ndarray):
        sizes = shape.ravel().tolist()
    if not sizes or not all(is_whole(size) and size >= 1 for size in sizes):
        raise ValueError(
            f"shape must be the shape of the image, positive whole numbers, got {shape!r}"
        )
    return tuple(int(size) for size in sizes)


def checked_masks(masks: Any, shape: tuple[int, ...], placed: bool) -> Any:
    """Return masks as an array (q, *window) of float64 or complex128, or a ValueError.

    Those of a torch tensor stay on its device.
    """
    if is_tensor(masks):
        check_tensor("masks", masks)
        plain = masks.resolve_conj().resolve_neg().contiguous()
        return _checked(DeviceArray(plain), masks, shape, placed)
    return _checked(as_numbers("masks", masks), masks, shape, placed)


def _checked(found: Any, masks: Any, shape: tuple[int, ...], placed: bool) -> Any:
    if found.ndim == len(shape):
        found = found[None]
    if found.ndim != len(shape) + 1 or 0 in found.shape:
        raise ValueError(
            f"masks has shape {tuple(np.shape(masks))}, but must hold masks of {len(shape)} axes, "
            f"as the image of shape {shape} has"
        )
    window = found.shape[1:]
    if placed and any(w > size for w, size in zip(window, shape, strict=True)):
        raise ValueError(f"masks of shape {window} do not fit into the image of shape {shape}")
    if not placed and window != shape:
        raise ValueError(
            f"masks have shape {window}, but the image has shape {shape}: masks smaller than the "
            "image need offsets, which say where they lie"
        )
    found = found.astype(np.complex128 if found.dtype.kind == "c" else np.float64)
    wrong = ~np.isfinite(found)
    if bool(wrong.any()):
        where = tuple(int(i) for i in np.argwhere(np.asarray(wrong))[0])
        raise ValueError(
            f"masks must be finite, but masks[{', '.join(map(str, where))}] is "
            f"{np.asarray(found[where])[()]}"
        )
    dark = np.flatnonzero(~np.asarray((found.reshape(len(found), -1) != 0.0).any(axis=1)))
    if dark.size:
        raise ValueError(f"masks[{dark[0]}] is 0 everywhere: nothing is seen through it")
    return found


def checked_offsets(
    offsets: Any, shape: tuple[int, ...], window: tuple[int, ...]
) -> npt.NDArray[np.int64]:
    """Return offsets as whole numbers (k, d) within the image, or a ValueError."""
    if offsets is None:
        return np.zeros((1, len(shape)), dtype=np.int64)
    found = as_numbers("offsets", offsets, kind="whole numbers")
    if found.dtype.kind not in "uif":
        raise ValueError(
            f"offsets must hold whole numbers, got an array of type {found.dtype.name}"
        )
    if found.ndim == 1 and len(shape) == 1:
        found = found[:, None]
    if found.ndim != 2 or found.shape[1] != len(shape) or not len(found):
        raise ValueError(
            f"offsets has shape {np.shape(offsets)}, but must have one position per row, shape "
            f"(k, {len(shape)})"
        )
    broken = np.flatnonzero(~(np.isfinite(found) & (found == np.rint(found))).all(axis=1))
    if broken.size:
        raise ValueError(
            f"offsets must be whole numbers of pixels, but offsets[{broken[0]}] is "
            f"{found[broken[0]].tolist()}"
        )
    room = np.subtract(shape, window)
    out = np.flatnonzero(((found < 0) | (found > room)).any(axis=1))
    if out.size:
        raise ValueError(
            f"offsets[{out[0]}] is {found[out[0]].tolist()}, where a window of shape {window} is "
            f"not within the image of shape {shape}"
        )
    return found.astype(np.int64)
