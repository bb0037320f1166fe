"""Grids of numbers as small PNG images in ``data:`` addresses, for pages without any request.

Colours are hue and opacity: zero is transparent, so that one image serves light and dark pages.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

POSITIVE, NEGATIVE = (204, 82, 54), (38, 112, 178)
"""Hues of positive and negative numbers, legible on white and on black."""

LEVELS = 127
"""Shades of each hue."""

FAINTEST = 0.15
"""Opacity of a count of 1, so that a single row is seen."""


def signed_image(values: npt.NDArray[Any], largest: float) -> str:
    """Return an image of numbers between ``-largest`` and ``largest``, (k, l).

    Opacity is linear in the size of a number.
    """
    if not largest > 0.0:
        return _address(np.zeros(values.shape, np.uint8), _palette())
    with np.errstate(under="ignore"):
        part = np.clip(values / largest, -1.0, 1.0)
    index = np.rint(part * LEVELS).astype(np.int64)
    return _address(np.where(index < 0, LEVELS - index, index).astype(np.uint8), _palette())


def count_image(counts: npt.NDArray[Any]) -> str:
    """Return an image of counts, (k, l), in one hue.

    Nothing is drawn for 0; opacity is linear from `FAINTEST` for 1 to full for the largest count.
    """
    most = max(float(np.max(counts, initial=0)) - 1.0, 1.0)
    shade = FAINTEST + (1.0 - FAINTEST) * (counts - 1.0) / most
    index = np.rint(np.where(counts > 0, shade, 0.0) * LEVELS).astype(np.uint8)
    return _address(np.where(index > 0, index + LEVELS, 0).astype(np.uint8), _palette())


def _palette() -> npt.NDArray[np.uint8]:
    """(255, 4): transparent, then shades of the positive hue, then of the negative one."""
    colors = np.zeros((2 * LEVELS + 1, 4), np.uint8)
    shades = np.rint(255.0 * np.arange(1, LEVELS + 1) / LEVELS).astype(np.uint8)
    for first, hue in ((1, POSITIVE), (LEVELS + 1, NEGATIVE)):
        colors[first : first + LEVELS, :3] = hue
        colors[first : first + LEVELS, 3] = shades
    return colors


def _address(index: npt.NDArray[np.uint8], palette: npt.NDArray[np.uint8]) -> str:
    """An image of palette numbers, (height, width)."""
    height, width = index.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), index], axis=1).tobytes()
    image = (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0))
        + _chunk(b"PLTE", palette[:, :3].tobytes())
        + _chunk(b"tRNS", palette[:, 3].tobytes())
        + _chunk(b"IDAT", zlib.compress(lines, 9))
        + _chunk(b"IEND", b"")
    )
    return "data:image/png;base64," + base64.b64encode(image).decode("ascii")


def _chunk(kind: bytes, contents: bytes) -> bytes:
    checked = zlib.crc32(kind + contents)
    return struct.pack(">I", len(contents)) + kind + contents + struct.pack(">I", checked)
