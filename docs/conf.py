"""How the documentation is built: ``make docs``.

Everything is made from the checkout and nothing is fetched, while building or while reading: no
inventories of other projects, no fonts or scripts from elsewhere (`offline.py` looks through the
pages that were made).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import quadsense

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))

import drawing  # noqa: E402  # it is next to this file

# `quadsense.theory` lives in `quadsense.core`: autodoc looks for the name that users write.
sys.modules.setdefault("quadsense.theory", quadsense.theory)

project = "quadsense"
author = "the authors of quadsense"
version = release = quadsense.__version__
html_title = "quadsense"

extensions = [
    "myst_parser",
    "numpydoc",
    "formulas",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "examples", "**/GALLERY_HEADER.rst"]
templates_path = ["_templates"]
root_doc = "index"
highlight_language = "none"
default_role = "py:obj"  # a name in backquotes is a link where it is a public name: `setup`
nitpicky = True

# --- pages in Markdown

myst_heading_anchors = 4  # links such as theory.md#8-rounding, as a forge makes them
myst_enable_extensions = ["attrs_inline", "colon_fence", "dollarmath"]
html_math_renderer = "mathml"  # formulas.py

# --- docstrings

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's sections say them in words
autodoc_member_order = "bysource"
numpydoc_show_class_members = False  # the template of classes lists them
numpydoc_use_plots = False

# --- the gallery

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "subsection_order": ["examples/basics", "examples/fields"],
    "within_subsection_order": "FileNameSortKey",
    "filename_pattern": r"/plot_",
    "doc_module": ("quadsense",),
    "reference_url": {"quadsense": None},
    "backreferences_dir": "gallery/backreferences",
    "reset_modules": ("drawing.alike",),
    "image_scrapers": ("drawing.pictures",),
    "matplotlib_animations": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "abort_on_example_error": False,
    "only_warn_on_example_error": False,
    "write_computation_times": False,  # its page would fetch a script
}

# --- the pages

html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["quadsense.css"]
html_favicon = "_static/mark.svg"
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {
        "text": "quadsense",
        "image_light": "_static/mark.svg",
        "image_dark": "_static/mark.svg",
    },
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "navigation_with_keys": False,
    "show_prev_next": True,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
SINGLE = (
    "index",
    "tutorial",
    "how_it_works",
    "how_to_choose",
    "faq",
    "glossary",
    "methods",
    "benchmarks",
    "scaling",
    "theory",
    "changelog",
    "contributing",
)
html_sidebars = {name: [] for name in SINGLE}  # no sidebar on these pages
copyright = f"{author}, version {version}, BSD-3-Clause"


def to_pages(app: Any, name: str, source: list[str]) -> None:
    """Turn links that hold on a forge, to an example or a file above, into links to their pages."""
    text = re.sub(r"\]\(examples/(\S+?)\.py\)", r"](gallery/\1.rst)", source[0])
    text = text.replace("](../CONTRIBUTING.md", "](contributing.md")
    text = text.replace("](../CHANGELOG.md", "](changelog.md")
    source[0] = re.sub(r"(?m)^\.\. code-block:: Python\n((?:\n|    .*\n)+)", folded, text)


FOLD = """.. raw:: html

    <details class="plotting"><summary>Code of the picture</summary>

{}
.. raw:: html

    </details>

"""


def folded(code: re.Match[str]) -> str:
    """Return a block of an example, folded if it draws."""
    return FOLD.format(code[0]) if "plt.s" in code[1] else code[0]


def plain(app: Any, env: Any, node: Any, inside: Any) -> Any:
    """Leave a name in backquotes as it is where it is an argument, an attribute or a formula."""
    return inside if (node.get("refdomain"), node.get("reftype")) == ("py", "obj") else None


def without_requests(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> Any:
    """Leave out what scikit-learn adds to its estimators: its text links to pages of its own."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-skip-member", without_requests)
    app.connect("source-read", to_pages)
    app.connect("missing-reference", plain)
    app.connect("builder-inited", drawing.to_thumbnails, priority=900)  # once examples have run
