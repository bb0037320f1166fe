"""How the pictures of the documentation look: read by ``conf.py`` and ``figures.py``."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

STYLE = Path(__file__).resolve().parent / "examples" / "quadsense.mplstyle"


def alike(gallery: object = None, name: str = "") -> None:
    """Draw every example alike; what divides by zero in one of them fails the build."""
    mpl.rcParams.update(mpl.rcParamsDefault)
    mpl.style.use(STYLE)
    warnings.filterwarnings("error", category=RuntimeWarning)


PANELS = {"plot_4_phase": 2}
"""Which panel of its first picture stands for an example; the first one unless named here."""


def pictures(block: Any, variables: dict[str, Any], gallery: dict[str, Any], **options: Any) -> str:
    """Save the figures of a block for the gallery, and one panel of the first for its thumbnail."""
    from sphinx_gallery.scrapers import matplotlib_scraper

    place = Path(variables["src_file"])
    panel = thumbnail_of(Path(variables["target_file"]))
    if plt.get_fignums() and not len(variables["image_path_iterator"]):
        figure = plt.figure(plt.get_fignums()[0])
        figure.canvas.draw()
        axes = figure.axes[PANELS.get(place.stem, 0)]
        inches = axes.get_tightbbox().transformed(figure.dpi_scale_trans.inverted()).padded(0.06)
        panel.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(panel, dpi=150, bbox_inches=inches)
    return matplotlib_scraper(block, variables, gallery, **options)


def thumbnail_of(example: Path) -> Path:
    """Return where the panel of an example of the gallery is kept."""
    return example.parent / "images" / "panel" / f"sphx_glr_{example.stem}_thumb.png"


def to_thumbnails(app: Any) -> None:
    """Put the panels in the place of thumbnails of whole pictures."""
    for panel in Path(app.srcdir, "gallery").glob("*/images/panel/*.png"):
        shutil.copy(panel, panel.parent.parent / "thumb")
