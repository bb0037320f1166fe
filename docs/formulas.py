"""Formulas of the pages as MathML, made while the pages are built: no script, no font, no network.

In Markdown a formula is ``$...$`` within a line and ``$$...$$`` as a block of its own, as a forge
shows them too.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)

BETTER = (
    # The asterisk of text is raised by itself, that of mathematics is not.
    ("&#x0002A;", "&#x2217;"),
    # Bars stand close to what they enclose, and are all of one height.
    (r"<mo>(&#x0007C;|&#x02016;)</mo>", r'<mo stretchy="false" lspace="0em" rspace="0em">\1</mo>'),
    # Names of functions: a thin space on both sides, none before a parenthesis.
    (
        r"<m[io]([^>]*)>([A-Za-z]{2,})</m[io]>(?=<mo[^>]*>&#x00028;)",
        r'<mo\1 lspace="0.17em" rspace="0em">\2</mo>',
    ),
    (
        r"<m[io]((?: movablelimits[^>]*)?)>([A-Za-z]{2,})</m[io]>",
        r'<mo\1 lspace="0.17em" rspace="0.17em">\2</mo>',
    ),
)
"""What latex2mathml writes, and what reads better in browsers."""


def mathml(latex: str, display: str) -> str:
    """Return a formula as MathML; an unknown command raises ValueError."""
    # latex2mathml knows the columns of align* alone.
    found = convert(latex.replace("{aligned}", "{align*}"), display=display)
    unknown = re.search(r"\\[A-Za-z]+|<m[io]>&(?:amp;)?</m[io]>", found)
    if unknown:
        raise ValueError(f"no MathML for {unknown[0]} in {latex!r}")
    for part, better in BETTER:
        found = re.sub(part, better, found)
    return found


def shown(writer: Any, node: nodes.Element, display: str) -> None:
    """Write the formula of a node, or warn, which fails the build."""
    try:
        text = mathml(node.astext(), display)
    except Exception as error:
        LOGGER.warning("formula: %s", error, location=node)
        raise nodes.SkipNode from error
    if display == "block":
        text = f'<div class="formula">{text}</div>'
    writer.body.append(text)
    raise nodes.SkipNode


def inline(writer: Any, node: nodes.Element) -> None:
    """Visit a formula within a line."""
    shown(writer, node, "inline")


def block(writer: Any, node: nodes.Element) -> None:
    """Visit a formula that is a block."""
    shown(writer, node, "block")


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_html_math_renderer(
        "mathml", inline_renderers=(inline, None), block_renderers=(block, None)
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
