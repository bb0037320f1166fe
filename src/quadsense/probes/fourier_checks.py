"""Bad masks, shapes and offsets stopped at the door: one sentence each."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import as_numbers, check_tensor, is_tensor
from quadsense.device import DeviceArray
from quadsense.typing import is_whole


def checked_shape(shape: Any) -> tuple[int, ...]:
    """The shape of an image as a tuple, or a ValueError."""
    sizes = shape if isinstance(shape, tuple | list) else (shape,)
    if isinstance(shape, np.ndarray):
        sizes = shape.ravel().tolist()
    if not sizes or not all(is_whole(size) and size >= 1 for size in sizes):
        raise ValueError(
            f"shape must be the shape of the image, positive whole numbers, got {shape!r}"
        )
    return tuple(int(size) for size in sizes)


def checked_masks(masks: Any, shape: tuple[int, ...], placed: bool) -> Any:
    """Masks as an array (q, *window) of float64 or complex128, or a ValueError.

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
    """Offsets as whole numbers (k, d) within the image, or a ValueError."""
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
