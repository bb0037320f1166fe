"""A matrix: its entries as colours, and its eigenvalues."""

from __future__ import annotations

from typing import Any

import numpy as np

from quadsense.plot.style import BLUE, GREY, RED, new_figure, say, tidy, whole
from quadsense.view.pictures import matrix_of, patch_of, spectrum_of

PARTS = ("auto", "real", "imag", "abs")


def matrix(A: Any, *, part: str = "auto", title: str | None = None) -> Any:
    """Heat map and spectrum of a symmetric or Hermitian matrix.

    Parameters
    ----------
    A : Result, SensedMatrix or array of shape (n, n)
    part : {"auto", "real", "imag", "abs"}, default="auto"
        What of the entries to show: by default all of a real matrix, the modulus of a complex one.
    title : str, optional
        Heading; the order by default.

    Returns
    -------
    matplotlib.figure.Figure

    Notes
    -----
    Red is positive, blue negative. A matrix of more than 200 rows is shown made smaller, and one
    too large to form by evenly spaced rows and columns; the picture says which. Of large matrices
    only the largest eigenvalues are found.
    """
    if part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}, got {part!r}")
    held = matrix_of(A)
    patch, spectrum = patch_of(held), spectrum_of(held)
    figure = new_figure(9.0, 3.9)
    left, right = figure.subplots(1, 2)
    complex_ = np.iscomplexobj(patch.values)
    chosen = ("abs" if complex_ else "real") if part == "auto" else part
    parts: dict[str, Any] = {"real": np.real, "imag": np.imag, "abs": np.abs}
    values = parts[chosen](patch.values)
    largest = float(np.max(np.abs(values), initial=0.0)) or 1.0
    signed = {"cmap": "RdBu_r", "vmin": -largest, "vmax": largest}
    sized = {"cmap": "Reds", "vmin": 0.0, "vmax": largest}
    image = left.imshow(values, interpolation="nearest", **(sized if chosen == "abs" else signed))
    figure.colorbar(image, ax=left, shrink=0.85)
    names = {"real": "real parts", "imag": "imaginary parts", "abs": "moduli"}
    what = names[chosen] if complex_ or chosen != "real" else "entries"
    left.set_title(f"{what}{'; ' * bool(patch.how)}{patch.how}", fontsize=9)
    if patch.how:
        left.set(xticks=[], yticks=[])
    else:
        whole(left.xaxis, patch.order)
        whole(left.yaxis, patch.order)
    tidy(right)
    if spectrum is None or not spectrum.values.size:
        say(right, "too large for its eigenvalues")
    else:
        _spectrum(right, spectrum)
    figure.suptitle(title or f"A, {patch.order:,} × {patch.order:,}", fontsize=11)
    return figure


def _spectrum(axes: Any, spectrum: Any) -> None:
    """Eigenvalues in order; by decades where they differ much."""
    values = spectrum.values
    sizes, order = np.abs(values), np.arange(1, values.size + 1)
    largest = float(sizes.max())
    told = sizes[sizes > largest * 1e-17]
    decades = bool(told.size) and largest > 100.0 * float(told.min())
    heights = np.maximum(sizes, float(told.min())) if decades else values
    if decades:
        axes.set(yscale="log", ylabel="modulus")
    else:
        axes.axhline(0.0, color=GREY, lw=0.8)
        axes.set(ylabel="value")
    negative = values < 0.0
    for mask, color, label in ((~negative, RED, "positive"), (negative, BLUE, "negative")):
        if mask.any():
            axes.scatter(order[mask], heights[mask], s=14, color=color, lw=0, label=label)
    if decades and negative.any():
        axes.legend(frameon=False, fontsize=8)
    axes.set(xlabel="eigenvalue")
    if values.size <= 2:
        axes.set_xticks(order)
    else:
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_title("eigenvalues" + (f"; {spectrum.how}" if spectrum.how else ""), fontsize=9)
