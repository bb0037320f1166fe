"""HTML taken apart without a browser: what is in it, and what a browser would fetch."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

EMPTY = {"meta", "br", "hr", "img", "link", "input", "source"}
FETCHED = {"src", "srcset", "href", "xlink:href", "data", "action", "poster", "background"}


class Page(HTMLParser):
    """Elements in order with their attributes and all text below them; refuses bad nesting."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self._open, self.words = [], [], []
        self.source = text
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {[tag for tag, _ in self._open]}"

    def handle_starttag(self, tag, attributes):
        entry = {"tag": tag, "text": "", **{f"@{k}": v for k, v in attributes}}
        self.elements.append(entry)
        if tag not in EMPTY:
            self._open.append((tag, entry))

    def handle_startendtag(self, tag, attributes):
        self.elements.append({"tag": tag, "text": "", **{f"@{k}": v for k, v in attributes}})

    def handle_endtag(self, tag):
        opened, _ = self._open.pop()
        assert opened == tag, f"</{tag}> closes <{opened}>"

    def handle_data(self, data):
        for _, entry in self._open:
            entry["text"] += data
        if not any(tag in ("style", "pre", "script") for tag, _ in self._open):
            self.words.append(data)

    def all(self, tag, class_=None):
        found = [each for each in self.elements if each["tag"] == tag]
        if class_ is None:
            return found
        return [each for each in found if class_ in (each.get("@class") or "").split()]

    def tables(self):
        """Every table as lists of the texts of its cells, the header first."""
        parts = re.findall(r"<table[^>]*>.*?</table>", self.source, flags=re.DOTALL)
        found = []
        for part in parts:
            rows = re.findall(r"<tr>(.*?)</tr>", part, flags=re.DOTALL)
            cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, flags=re.DOTALL) for row in rows]
            found.append([[re.sub(r"<[^>]*>", "", cell) for cell in row] for row in cells])
        return found

    def pictures(self):
        """Every SVG, parsed as XML."""
        parts = re.findall(r"<svg .*?</svg>", self.source, flags=re.DOTALL)
        return [ElementTree.fromstring(part) for part in parts]


def assert_harmless(page, script=None):
    """No script but that one, no handler, nothing that a browser would fetch."""
    assert [each["text"] for each in page.all("script")] == ([] if script is None else [script])
    for each in page.elements:
        assert each["tag"] not in ("object", "embed", "link", "base", "form"), each
        assert each["tag"] != "script" or set(each) == {"tag", "text"}
        for name, value in each.items():
            assert not name.startswith("@on"), each
            if name.removeprefix("@") in FETCHED:
                assert value.startswith("data:image/png;base64,"), each
            if name == "@style":
                assert "url(" not in value
    for style in page.all("style"):
        assert "url(" not in style["text"]
        assert "@import" not in style["text"]


def number(text):
    """A number as a page writes it, back to a float."""
    raised = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    text = text.replace("−", "-").replace(",", "").strip()
    mantissa, _, power = text.partition(" × 10")
    if power:
        return float(f"{mantissa}e{power.translate(raised)}")
    return float(mantissa.replace("∞", "inf"))
