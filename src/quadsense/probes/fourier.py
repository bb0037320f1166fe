"""Coded diffraction and ptychography: masks, then a Fourier transform, and no row is formed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.fft

from quadsense.arrays import Array, as_numbers, check_tensor, complex_of, is_tensor, to_numpy
from quadsense.core.records import cached_property
from quadsense.core.sums import transform_error
from quadsense.device import DeviceArray, on_device, tensor_of, waits
from quadsense.measurements.arrays import LARGEST_NORM, SMALLEST_NORM, powers_near
from quadsense.measurements.probes import Form, Probes
from quadsense.measurements.tensors import OfTensors
from quadsense.system.machine import BLOCK_ELEMENTS, CACHE_BYTES, FLOAT64_BYTES, Scratch
from quadsense.system.watch import look
from quadsense.typing import is_whole

BATCH_ENTRIES = CACHE_BYTES // FLOAT64_BYTES
"""Entries of frames that are transformed together: they stay in a core's own cache."""

DEVICE_BATCH_ENTRIES = 2**24
"""The same on a device, whose memory is what they share: 256 MiB."""

OTHER_ROUNDINGS = 64.0
"""Roundings in addition to those of a transform: of the product with the mask, 3, and of sums over
n entries in `forward`, which are pairwise: 19 of up to 128 terms, and the logarithm of how many."""

Matrix = npt.NDArray[Any]


class Sizes(NamedTuple):
    """Norms of masks, (q,), and the most that a modulus is in units of the mean square's root."""

    norms: Matrix
    peak: float


class Piece(NamedTuple):
    """Frames that are transformed together: which positions, masks and rows they are."""

    positions: slice
    masks: slice
    rows: slice


class MaskedFFT(Probes):
    """Rows of ``fftn(mask * x[offset : offset + window])``, for every position and mask.

    Parameters
    ----------
    masks : array of shape (q, *window), float or complex of either precision
        NumPy's, or one on a device: then so is all that comes out.
    shape : tuple of int
    starts : int array of shape (k, len(shape))
    conjugated : bool
        Whether the rows are the complex conjugates of those.
    sizes : Sizes, optional
        Of the masks, where they are known.
    """

    storage = "masked fft"
    is_complex = True
    by_column = True
    length = 1  # sums within a transform are counted by `rounding`
    has_zero_rows = False  # masks are not

    def __init__(
        self,
        masks: Any,
        shape: tuple[int, ...],
        starts: npt.NDArray[np.int64],
        conjugated: bool = False,
        sizes: Sizes | None = None,
    ) -> None:
        self.masks, self.shape, self.starts, self.conjugated = masks, shape, starts, conjugated
        self.window = self.frame_shape = tuple(masks.shape[1:])
        self.count, self.positions, self.frame = len(masks), len(starts), math.prod(self.window)
        self.m, self.n = self.positions * self.count * self.frame, math.prod(shape)
        self.whole = self.window == shape and self.positions == 1
        self.on_device = waits(masks)
        self._scratch = Scratch()
        self._units: dict[bool, MaskedFFT] = {}
        self._axes = tuple(range(-len(shape), 0))
        self._mask_norms, self._peak = found = _sizes(masks) if sizes is None else sizes
        self._shifts = np.zeros(self.count, dtype=np.int64)
        if not (found.norms.min() > SMALLEST_NORM and found.norms.max() < LARGEST_NORM):
            self._bring_into_range()
        self._conjugate_masks: Matrix | None = None
        unit = float(np.finfo(self.dtype).eps) / 2.0
        self.rounding = (transform_error(self.window) + OTHER_ROUNDINGS) * unit * self._peak

    def _bring_into_range(self) -> None:
        """Divide masks out of the range of safe norms by powers of two, exactly."""
        sizes = np.maximum(np.abs(self.masks.real), np.abs(self.masks.imag))
        largest = np.asarray(sizes.reshape(self.count, -1).max(axis=1))
        self._shifts, divisors = powers_near(largest)
        for factors in divisors:
            self.masks = self.masks * self._each(factors)
        self._mask_norms, self._peak = _sizes(self.masks)

    def _each(self, values: Matrix) -> Matrix:
        """Return one number per mask, to multiply masks with."""
        return values.reshape(-1, *(1 for _ in self.shape))

    # --- where the masks are -----------------------------------------------------------------

    def _placed(self, values: Any) -> Matrix:
        found: Any = on_device(values, self.masks) if self.on_device else np.asarray(values)
        return found

    def _own(self, values: Array) -> Any:
        """Return the same in one piece."""
        if not self.on_device:
            return np.ascontiguousarray(values, dtype=self.dtype)
        found: Any = self.own(values)
        return DeviceArray(found.tensor.contiguous())

    def _empty(self, shape: tuple[int, ...], dtype: Any) -> Matrix:
        """Return an array of any contents where the masks are."""
        if self.on_device:
            return np.empty_like(self.masks, shape=shape, dtype=dtype)
        return self._scratch.empty(shape, dtype)

    def _transformed(self, x: Matrix, forth: bool, keep: bool = False) -> Matrix:
        """Return frames transformed, or by the conjugate transform, not divided by anything."""
        if self.on_device:
            return _by_torch(x, self._axes, forth)
        if forth:
            return scipy.fft.fftn(x, axes=self._axes, overwrite_x=not keep)
        found: Matrix = scipy.fft.ifftn(x, axes=self._axes, overwrite_x=not keep, norm="forward")
        return found

    # --- facts -------------------------------------------------------------------------------

    @cached_property
    def dtype(self) -> Any:
        """Complex128, or complex64 of rows `in_single` precision."""
        return np.result_type(self.masks.dtype, np.complex64)

    @cached_property
    def row_rounding(self) -> float:
        """Of a root of unity along each axis, 5 roundings and 2 of a product, and of the mask."""
        return (7.0 * len(self.window) + 3.0) * float(np.finfo(self.dtype).eps) / 2.0

    @cached_property
    def held_norms(self) -> Array:
        """Those of the masks, whatever the frequency."""
        return self._placed(np.tile(np.repeat(self._mask_norms, self.frame), self.positions))

    @cached_property
    def exponents(self) -> npt.NDArray[np.int64]:
        """The user's rows are those held times these powers of two."""
        return np.tile(np.repeat(self._shifts, self.frame), self.positions)

    def made_of(self) -> tuple[Any, ...]:
        """Return the masks, the image and the positions."""
        return self.shape, self.conjugated, self._shifts, self.masks, self.starts

    def held_as(self, form: Form) -> MaskedFFT | None:
        """Return the same rows in single precision, or of unit norm."""
        if form == "single":
            return self.in_single()
        return self.unit(form == "conjugated") if form in ("unit", "conjugated") else None

    def unit(self, conjugate: bool) -> MaskedFFT:
        """Return the same rows of unit norm, conjugated where asked."""
        if conjugate not in self._units:
            scaled = self.masks / self._each(self._mask_norms)
            sizes = Sizes(np.ones(self.count), self._peak)
            turned = self.conjugated != conjugate
            self._units[conjugate] = MaskedFFT(scaled, self.shape, self.starts, turned, sizes)
        return self._units[conjugate]

    def in_single(self) -> MaskedFFT:
        """Return the same rows in single precision."""
        narrow = np.complex64 if self.masks.dtype.kind == "c" else np.float32
        sizes = Sizes(self._mask_norms, self._peak)
        masks = self.masks.astype(narrow)
        return MaskedFFT(masks, self.shape, self.starts, self.conjugated, sizes)

    def on_host(self) -> MaskedFFT:
        """Return the same rows for NumPy."""
        sizes = Sizes(self._mask_norms, self._peak)
        masks = self.masks.tensor.cpu().numpy() if self.on_device else self.masks
        found = MaskedFFT(masks, self.shape, self.starts, self.conjugated, sizes)
        found._shifts = self._shifts
        return found

    # --- frames ------------------------------------------------------------------------------

    def _pieces(self, count: int) -> Iterator[Piece]:
        """Yield all frames, as many at a time as stay in cache for `count` images."""
        if not count:
            return
        flops = 5.0 * count * math.log2(self.frame + 1)
        most = DEVICE_BATCH_ENTRIES if self.on_device else BATCH_ENTRIES
        size = max(1, most // (self.frame * count))
        together = max(1, size // self.count) if size >= self.count else 1
        for first in range(0, self.positions, together):
            last = min(first + together, self.positions)
            step = self.count if size >= self.count else size
            for mask in range(0, self.count, step):
                stop = min(mask + step, self.count)
                begin = (first * self.count + mask) * self.frame
                end = ((last - 1) * self.count + stop) * self.frame
                look(flops * (end - begin))
                yield Piece(slice(first, last), slice(mask, stop), slice(begin, end))

    def _windows(self, images: Matrix, positions: slice) -> Matrix:
        """Return those windows of images (k, *shape): (k, positions, 1, *window)."""
        if self.whole:
            return images[:, None, None]
        parts = [images[(slice(None), *self._at(start))] for start in self.starts[positions]]
        return np.stack(parts, axis=1)[:, :, None]

    def _masks(self, conjugate: bool) -> Matrix:
        """Return the masks, conjugated or not."""
        if not conjugate or self.masks.dtype.kind != "c":
            return self.masks
        if self._conjugate_masks is None:
            self._conjugate_masks = self.masks.conj()
        return self._conjugate_masks

    def _at(self, start: npt.NDArray[np.int64]) -> tuple[slice, ...]:
        return tuple(slice(int(a), int(a) + w) for a, w in zip(start, self.window, strict=True))

    def _add(self, total: Matrix, piece: Piece, frames: Matrix) -> None:
        """Add frames (k, positions, masks, *window), masked, to images (k, *shape)."""
        frames *= self._masks(self.conjugated)[piece.masks]
        sums = frames[:, :, 0] if frames.shape[2] == 1 else np.sum(frames, axis=2)
        if self.whole:
            total += sums[:, 0]
            return
        for index, start in enumerate(self.starts[piece.positions]):
            total[(slice(None), *self._at(start))] += sums[:, index]

    def _seen(self, images: Matrix, piece: Piece, out: Matrix) -> None:
        """What those frames are of images, ``u_i* x``, into (k, rows)."""
        masks = self._masks(not self.conjugated)[piece.masks]
        windows = self._windows(images, piece.positions)
        if self.on_device:
            out[...] = self._transformed(windows * masks, self.conjugated).reshape(out.shape)
            return
        frames = self._frames(out if out.flags.c_contiguous else np.empty_like(out), piece)
        np.multiply(windows, masks, out=frames)
        found = self._transformed(frames, self.conjugated)
        if not np.may_share_memory(found, out):  # it need not have been overwritten
            out[...] = found.reshape(out.shape)

    def _frames(self, values: Matrix, piece: Piece) -> Matrix:
        """Return values of those rows, (k, rows), as (k, positions, masks, *window)."""
        positions = piece.positions.stop - piece.positions.start
        masks = piece.masks.stop - piece.masks.start
        return values.reshape(len(values), positions, masks, *self.window)

    def _spread(self, total: Matrix, piece: Piece, values: Matrix, keep: bool = False) -> None:
        """Add ``sum_i u_i y_i`` over those rows, y (k, rows), to images; y is used up or kept."""
        frames = self._transformed(self._frames(values, piece), not self.conjugated, keep)
        self._add(total, piece, frames)

    # --- products ----------------------------------------------------------------------------

    def times(self, X: Array) -> Array:
        """Return ``u_i* x`` for every row."""
        Y = self._own(X.T)
        P, images = self._empty((len(Y), self.m), self.dtype), self._shaped(Y)
        for piece in self._pieces(len(Y)):
            self._seen(images, piece, P[:, piece.rows])
        return P.T

    def combine(self, Y: Array) -> Array:
        """Return ``sum_i u_i y_i``."""
        C = self._own(Y.T)
        total = np.zeros_like(self.masks, shape=(len(C), *self.shape), dtype=self.dtype)
        for piece in self._pieces(len(C)):
            self._spread(total, piece, self._own(C[:, piece.rows]), keep=True)
        return total.reshape(len(C), self.n).T

    def in_blocks(
        self, width: int | None = None, sums: bool = True
    ) -> Iterator[tuple[slice, Probes]]:
        """Yield all rows, as many frames at a time as stay in cache for that many images."""
        if not width:
            yield slice(0, self.m), self
            return
        for piece in self._pieces(width):
            whole = piece.rows.stop - piece.rows.start == self.m
            yield piece.rows, self if whole else self._some(piece)

    def _some(self, piece: Piece) -> MaskedFFT:
        """Return the rows of some frames."""
        sizes = Sizes(self._mask_norms[piece.masks], self._peak)
        masks, starts = self.masks[piece.masks], self.starts[piece.positions]
        found = MaskedFFT(masks, self.shape, starts, self.conjugated, sizes)
        found._conjugate_masks, found._scratch = self._masks(True)[piece.masks], self._scratch
        return found

    def _shaped(self, Y: Matrix) -> Matrix:
        return Y.reshape(len(Y), *self.shape)

    # --- rows --------------------------------------------------------------------------------

    def take(self, index: Array) -> Array:
        """Return those rows, dense, from the definition."""
        frames, frequency = np.divmod(to_numpy(index).astype(np.int64), self.frame)
        positions, masks = np.divmod(frames, self.count)
        waves = self._waves(frequency) * self._masks(self.conjugated)[masks]
        if self.whole:
            return waves.reshape(len(frames), self.n)
        rows = np.zeros_like(self.masks, shape=(len(frames), *self.shape), dtype=self.dtype)
        for row, wave, position in zip(rows, waves, positions, strict=True):
            row[self._at(self.starts[position])] = wave
        return rows.reshape(len(frames), self.n)

    @cached_property
    def _roots(self) -> list[Matrix]:
        roots = [self._placed(_roots_of_unity(size)) for size in self.window]
        return [values.conj() for values in roots] if self.conjugated else roots

    def _waves(self, index: npt.NDArray[np.int64]) -> Matrix:
        """Return roots of unity at those frequencies for all pixels, or the other way round.

        Of shape (index, *window), each entry within some roundings.
        """
        waves = np.ones((len(index), *(1 for _ in self.window)))
        for axis, k in enumerate(np.unravel_index(index, self.window)):
            size = self.window[axis]
            along = self._roots[axis][np.outer(k, np.arange(size)) % size]
            others = [size if other == axis else 1 for other in range(len(self.window))]
            waves = waves * along.reshape(-1, *others)
        return waves.astype(self.dtype, copy=False)

    def _columns(self) -> Iterator[slice]:
        """Yield pixels of the image, some at a time."""
        size = max(1, BLOCK_ELEMENTS // max(self.m, self.n))
        for begin in range(0, self.n, size):
            look()
            yield slice(begin, min(begin + size, self.n))

    def _entries(self, part: slice) -> Matrix:
        """Return ``u_i* e_j`` for those pixels j of the image: (m, part)."""
        pixels = np.arange(part.start, part.stop)
        places = np.stack(np.unravel_index(pixels, self.shape), axis=1)
        inside: Matrix = places[None] - self.starts[:, None]
        seen: Matrix = np.all((inside >= 0) & (inside < self.window), axis=2)
        inside = np.moveaxis(np.where(seen[..., None], inside, 0), 2, 0)
        local: Matrix = np.asarray(np.ravel_multi_index(tuple(inside), self.window))
        values: Matrix = self._masks(not self.conjugated).reshape(self.count, self.frame)
        size = (self.positions, self.count, self.frame, pixels.size)
        rows = np.empty_like(self.masks, shape=size, dtype=self.dtype)
        for position in range(self.positions):
            waves = self._waves(local[position]).reshape(pixels.size, self.frame).T.conj()
            waves *= seen[position]
            rows[position] = values[:, None, local[position]] * waves
        return rows.reshape(self.m, pixels.size)

    def forward(self, A: Array) -> Array:
        """Return ``sum_j (u* A e_j) conj(u* e_j)``, the latter from the definition."""
        sums: list[Matrix] = []  # of 2^k parts each, so that few sums follow each other
        for count, part in enumerate(self._columns(), 1):
            product = self.times(A[:, part]) * self._entries(part).conj()
            sums.append(np.sum(product.real, axis=1))
            for _ in range((count & -count).bit_length() - 1):
                sums.append(sums.pop() + sums.pop())
        while len(sums) > 1:
            sums.append(sums.pop() + sums.pop())
        return sums[0]

    def adjoint(self, y: Array) -> Array:
        """Return ``sum_i y_i u_i u_i*``: columns are ``sum_i u_i y_i (u_i* e_j)``."""
        weights = self._placed(y)[:, None]
        parts = [self.combine(weights * self._entries(part)) for part in self._columns()]
        return np.concatenate(parts, axis=1)

    def squared_columns(self, y: Array) -> Array:
        """Return ``sum_i y_i |u_ij|^2``: squared masks, weighed by their frequencies."""
        y = self._placed(y).reshape(self.positions, self.count, self.frame)
        squares = (np.abs(self.masks) ** 2).reshape(self.count, self.frame)
        frames = (np.sum(y, axis=2) @ squares).reshape(self.positions, *self.window)
        total = np.zeros_like(self.masks, shape=self.shape, dtype=np.float64)
        for frame, start in zip(frames, self.starts, strict=True):
            total[self._at(start)] += frame
        return total.reshape(self.n)


def _sizes(masks: Matrix) -> Sizes:
    """Of masks of any kind, for NumPy: they are few."""
    flat = masks.reshape(len(masks), -1)
    with np.errstate(over="ignore", under="ignore"):
        squares = np.square(flat.real)
        if flat.dtype.kind == "c":
            squares += np.square(flat.imag)
        norms = np.asarray(np.sqrt(squares.sum(axis=1)))
        largest = np.asarray(np.sqrt(squares.max(axis=1)))
        with np.errstate(invalid="ignore", divide="ignore"):
            peak = float(np.max(largest / norms)) * math.sqrt(flat.shape[1])
    return Sizes(norms, peak)


def _by_torch(x: Any, axes: tuple[int, ...], forth: bool) -> Any:
    """Return the transforms of arrays on a device."""
    import torch

    transform, norm = (torch.fft.fftn, "backward") if forth else (torch.fft.ifftn, "forward")
    return DeviceArray(transform(x.tensor, dim=axes, norm=norm))


def _roots_of_unity(size: int) -> Matrix:
    """Return ``exp(-2 pi i k / size)`` for k = 0..size - 1, quarter turns exactly."""
    turn, rest = np.divmod(4 * np.arange(size), size)
    angle = (0.5 * np.pi / size) * rest
    found = complex_of(np.cos(angle), -np.sin(angle))
    found[turn % 2 == 1] *= -1.0j
    found[turn >= 2] *= -1.0
    return found


# --- the function, and what it is given --------------------------------------------------------


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
