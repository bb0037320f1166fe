"""The documentation holds together: examples run, names are listed, links lead somewhere."""

import ast
import doctest
import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import quadsense

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS.glob("*.md")]
EXAMPLES = sorted(DOCS.glob("examples/*/plot_*.py"))


def with_examples():
    """Modules that show examples, by name."""
    for path in sorted(SOURCE.rglob("*.py")):
        if ">>> " in path.read_text(encoding="utf-8"):
            parts = path.relative_to(SOURCE).with_suffix("").parts
            yield ".".join(parts).removesuffix(".__init__")


# --- examples


def test_modules_with_examples_are_found():
    assert {"quadsense", "quadsense.solve", "quadsense.core.noise"} <= set(with_examples())


def compiled_late(name):
    """Mark what compiles the loops of many problems, which their own tests compile already."""
    return pytest.param(name, marks=[pytest.mark.slow] if "many" in name else [])


@pytest.mark.parametrize("name", [compiled_late(name) for name in with_examples()])
def test_examples_in_docstrings_run(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.md")), ids=lambda path: path.stem)
def test_examples_in_pages_run(path):
    assert doctest.testfile(str(path), module_relative=False).failed == 0


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_of_the_gallery_are_written_to_be_read(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    text = ast.get_docstring(tree)
    title, line, *rest = text.splitlines()
    assert set(line) == {"="}
    assert len(line) >= len(title)
    assert len(" ".join(rest).split()) > 30  # what it is about
    source = path.read_text(encoding="utf-8")
    assert "plt.show()" in source
    assert source.count("\n# %%\n") >= 3
    assert "np.random.default_rng()" not in source  # seeded: what it says is what it prints


# --- the list of public names


def listed():
    """Names of the API pages, with the module that they are listed under."""
    for path in sorted((DOCS / "api").glob("*.rst")):
        module, inside = "", False
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith(".. currentmodule:: "):
                module = line.removeprefix(".. currentmodule:: ").strip()
            if line and not line.startswith(" "):
                inside = line.startswith(".. autosummary::")
            elif inside and re.fullmatch(r"   \w+", line):
                yield module, line.strip()


def looked_up(module, name):
    """The object behind ``quadsense.part.name``."""
    found = quadsense
    for part in module.split(".")[1:]:
        found = getattr(found, part, None) or importlib.import_module(module)
    return getattr(found, name)


def test_every_name_that_is_listed_exists_and_is_described():
    names = list(listed())
    assert len(names) > 25
    assert len(set(names)) == len(names)
    for module, name in names:
        assert inspect.getdoc(looked_up(module, name)), f"{module}.{name}"


def test_every_public_name_is_listed():
    public = {
        ("quadsense", name)
        for name in quadsense.__all__
        if name != "__version__" and not inspect.ismodule(getattr(quadsense, name))
    }
    homes = {"theory": "core.theory"} | {
        name: name for name in ("datasets", "diffusion", "plot", "report", "sklearn", "tomography")
    }
    for part, home in homes.items():
        module = importlib.import_module(f"quadsense.{home}")
        public |= {
            (f"quadsense.{part}", name)
            for name, value in ((name, getattr(module, name)) for name in dir(module))
            if not name.startswith("_")
            and (inspect.isroutine(value) or inspect.isclass(value))
            and getattr(value, "__module__", "").startswith(module.__name__)
        }
    assert len(public) > 25
    assert public <= set(listed())


# --- links


def anchor(heading):
    """What a forge makes of a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_links_lead_somewhere(path):
    text = without_code(path.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://", target):
            continue
        file, _, part = target.partition("#")
        there = path if not file else (path.parent / file).resolve()
        assert there.is_file(), target
        if part:
            page = without_code(there.read_text(encoding="utf-8"))
            heads = re.findall(r"^#+ (.*)$", page, flags=re.MULTILINE)
            assert part in {anchor(head) for head in heads}, target


# --- nothing from elsewhere


def load_offline():
    spec = importlib.util.spec_from_file_location("offline", DOCS / "offline.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_would_be_fetched_is_found(tmp_path):
    offline = load_offline()
    (tmp_path / "fine.html").write_text(
        '<link rel="stylesheet" href="_static/a.css"><img src="a.png"><script src="a.js"></script>'
        '<a href="https://example.org">a link</a><link rel="canonical" href="https://x.org/">'
    )
    (tmp_path / "a.css").write_text("@font-face { src: url('a.woff2') } @import 'b.css';")
    assert list(offline.fetched(tmp_path)) == []
    for text in (
        '<script src="https://cdn.org/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.org/x.css">',
        '<img alt="" src="http://x.org/a.png">',
    ):
        (tmp_path / "not.html").write_text(text)
        assert len(list(offline.fetched(tmp_path))) == 1
    (tmp_path / "b.css").write_text('@import "https://x.org/c.css"; a { b: url(//x.org/d.png) }')
    assert len(list(offline.fetched(tmp_path))) == 3
