"""Matrices: their entries as colors, their eigenvalues, and how alike probes are."""

from __future__ import annotations

from typing import Any

import numpy as np

from quadsense.measurements import Measurements
from quadsense.measurements.validate import checked_rows
from quadsense.plot.figures import (
    BLUE,
    GREY,
    INK,
    RED,
    PointerValues,
    color_bar,
    legend,
    new_figure,
    plain_decades,
    said_of_points,
    say,
    signed_colors,
    sized_colors,
    tidy,
    whole,
)
from quadsense.plot.pictures import (
    Patch,
    SpectrumPicture,
    coherences_of,
    matrix_of,
    patch_of,
    rounding_of,
    spectrum_of,
)
from quadsense.view.markup import number

PARTS: dict[str, tuple[str, Any]] = {
    "real": ("real parts", np.real), "imag": ("imaginary parts", np.imag), "abs": ("moduli", np.abs)
}  # fmt: skip
"""What of the entries is shown: its name, and the function that takes it."""

MANY_DECADES = 100.0
"""Largest over smallest modulus of eigenvalues from which on they are drawn by decades."""

MOST_HOVERED = 100
"""Rows up to which a picture of a matrix carries the values of its entries for the script."""

MAX_CODE = 9999
"""The largest entry of a matrix as the script gets it: four digits relative to that."""


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
    if part not in ("auto", *PARTS):
        raise ValueError(f"part must be one of auto, {', '.join(PARTS)}, got {part!r}")
    held = matrix_of(A)
    patch, spectrum = patch_of(held), spectrum_of(held)
    figure = new_figure(9.0, 3.9)
    left, right = figure.subplots(1, 2)
    complex_ = np.iscomplexobj(patch.values)
    chosen = ("abs" if complex_ else "real") if part == "auto" else part
    draw_entries(left, patch, chosen)
    name = PARTS[chosen][0] if complex_ or chosen != "real" else "entries"
    left.set_title(f"{name}{'; ' * bool(patch.how)}{patch.how}", fontsize=9)
    tidy(right)
    if spectrum is None or not spectrum.values.size:
        say(right, "too large for its eigenvalues")
    else:
        draw_spectrum(right, spectrum)
        right.set_title("eigenvalues" + (f"; {spectrum.how}" if spectrum.how else ""), fontsize=9)
    figure.suptitle(title or f"A, {patch.order:,} × {patch.order:,}", fontsize=11)
    return figure


def draw_entries(axes: Any, patch: Patch, part: str, label: str = "") -> list[PointerValues]:
    """Draw entries as colors: red is positive, blue negative, 0 is the color of the paper.

    Real and imaginary parts of a matrix have one scale, that of the largest entry of either.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
    patch : Patch
    part : {"real", "imag", "abs"}
    label : str
        Of the color bar.

    Returns
    -------
    list of PointerValues
        The entries, of a matrix that is not too large.
    """
    values = PARTS[part][1](patch.values)
    both = np.abs(values) if part == "abs" else np.stack([patch.values.real, patch.values.imag])
    largest = float(np.max(np.abs(both), initial=0.0)) or 1.0
    signed = {"cmap": signed_colors(), "vmin": -largest, "vmax": largest}
    sized = {"cmap": sized_colors(), "vmin": 0.0, "vmax": largest}
    colors = signed if (both < 0.0).any() else sized
    image = axes.imshow(values, interpolation="none", **colors)
    color_bar(image, axes, label)
    if patch.how:
        axes.set(xticks=[], yticks=[])
    else:
        whole(axes.xaxis, patch.order)
        whole(axes.yaxis, patch.order)
    if patch.how or len(values) > MOST_HOVERED or part == "abs":
        return []
    with np.errstate(under="ignore"):
        codes = np.rint(values / largest * MAX_CODE).astype(np.int64)
    lower = codes[np.tril_indices(len(codes))]
    name = "A" if not np.iscomplexobj(patch.values) else {"real": "Re A", "imag": "Im A"}[part]
    told = {
        "data_order": len(values), "data_unit": repr(largest / MAX_CODE),
        "data_mirror": -1 if part == "imag" else 1, "data_name": name,
        "data_cells": " ".join(map(str, lower.tolist())),
    }  # fmt: skip
    return [PointerValues(image, told)]


def draw_spectrum(axes: Any, spectrum: SpectrumPicture) -> list[PointerValues]:
    """Draw eigenvalues in order, by decades where they differ much.

    By decades, those that are 0 to rounding are left out.
    """
    values, order = spectrum.values, np.arange(1, spectrum.values.size + 1)
    told = np.abs(values) > rounding_of(values)
    sizes = np.abs(values[told])
    decades = bool(sizes.size) and float(sizes.max()) > MANY_DECADES * float(sizes.min())
    if decades:
        values, order = values[told], order[told]
        axes.set(yscale="log", ylabel="modulus")
        plain_decades(axes.yaxis)
    else:
        axes.axhline(0.0, color=GREY, lw=0.8)
        axes.set(ylabel="value")
    heights = np.abs(values) if decades else values
    negative = values < 0.0
    found = []
    for mask, color, label in ((~negative, RED, "positive"), (negative, BLUE, "negative")):
        if mask.any():
            (points,) = axes.plot(
                order[mask], heights[mask], "o", color=color, ms=3.8, mew=0.0, label=label
            )
            texts = [
                (str(k), number(float(value), 6))
                for k, value in zip(order[mask], values[mask], strict=True)
            ]
            found.append(said_of_points(points, "eigenvalue {0}: {1}", texts))
    if negative.any() and not negative.all():
        legend(axes)
    axes.set(xlabel="eigenvalue", xlim=(0.5, spectrum.values.size + 0.5))
    if spectrum.values.size <= 2:
        axes.set_xticks(range(1, spectrum.values.size + 1))
    else:
        axes.xaxis.get_major_locator().set_params(integer=True)
    return found


def spectrum_note(spectrum: SpectrumPicture) -> str:
    """Say which eigenvalues are 0, and which were not computed."""
    values = spectrum.values
    zeros = int(np.count_nonzero(np.abs(values) <= rounding_of(values)))
    rounded = f"{zeros:,} of {values.size:,} are 0 to rounding" if zeros else ""
    return "; ".join(part for part in (rounded, spectrum.how) if part)


def gram(data: Any, *, title: str | None = None) -> Any:
    """``|<u_i, u_j>|`` of the probes scaled to unit norm: whole, and how often each size comes.

    Parameters
    ----------
    data : Measurements, Result, or array or probes of shape (m, n)
        A result must have its measurements: it must not come from a file.
    title : str, optional
        Heading; the coherence by default.

    Returns
    -------
    matplotlib.figure.Figure

    Notes
    -----
    K, on which the methods work, is the square of what is shown. The dashed line is what the
    paper's lemmas ask of the coherence, ``1/(10 m)``. Of more than 200 rows some are shown, evenly
    spaced.
    """
    found = coherences_of(_measurements(data))
    figure = new_figure(9.0, 3.9)
    left, right = figure.subplots(1, 2)
    cells = {"cmap": sized_colors(color=BLUE), "vmin": 0.0, "vmax": 1.0, "interpolation": "none"}
    color_bar(left.imshow(found.values, **cells), left, "")
    some = found.rows.size < found.m
    how = f"{found.rows.size:,} of {found.m:,} rows, evenly spaced" if some else "all rows"
    left.set_title(how, fontsize=9)
    if some:
        left.set(xticks=[], yticks=[])
    else:
        whole(left.xaxis, found.m)
        whole(left.yaxis, found.m)
    tidy(right)
    apart = found.apart
    if apart.size:
        largest = float(apart.max())
        limit = 1.0 / (10 * found.m)
        bins = np.linspace(0.0, max(largest, 2.0 * limit), 41)
        right.hist(apart, bins=bins, color=BLUE)
        right.axvline(limit, color=INK, lw=0.9, ls="--", label=f"the paper's 1/(10m) = {limit:.3g}")
        legend(right, frameon=True, edgecolor="none", framealpha=0.85)
        right.locator_params(axis="x", nbins=5)
        right.set(xlabel="between different rows", ylabel="pairs")
        said = f"coherence {largest:.3g}" + (" of these rows" if some else "")
    else:
        say(right, "one row")
        said = "one row"
    figure.suptitle(title or f"{found.m:,} probe{'s' * (found.m > 1)}: {said}", fontsize=11)
    return figure


def _measurements(data: Any) -> Measurements:
    """Return the measurements in, or of, what was given."""
    if isinstance(data, Measurements):
        return data
    kept = getattr(getattr(data, "certificate", None), "data", data)
    if kept is None:
        raise ValueError("the result was read from a file: give its measurements")
    if isinstance(kept, Measurements):
        return kept
    kind: Any = checked_rows(kept, False).kind  # whatever says how many rows there are
    return Measurements(kind, np.zeros(kind.m))
