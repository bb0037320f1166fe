"""docs/theory.md says what the code cites, and every constant in the code gives its reason."""

import ast
import functools
import importlib
import io
import math
import re
import tokenize
from pathlib import Path

import numpy as np
import pytest

from quadsense import theory

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
FILES = sorted((ROOT / "src" / "quadsense").rglob("*.py"))
AUTHORS = r"Higham|Rump|Ozaki|Dekker|Gondzio|Mehrotra|Nocedal|Beck|O'Donoghue|Tong|Luo|Cox|Nesterov"
AUTHORS += r"|Knuth|Rockafellar"


@functools.cache
def prose(path):
    """Comments and text of a file, with line breaks and comment signs taken out."""
    source = path.read_text(encoding="utf-8")
    kinds = (tokenize.COMMENT, tokenize.STRING)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return re.sub(
        r"\s*\n\s*#?\s*|\s+#\s+", " ", "\n".join(t.string for t in tokens if t.type in kinds)
    )


def references():
    """Keys of the list of references."""
    return set(re.findall(r"^- \*\*\[([^\]]+)\]\*\*", PAGE, flags=re.MULTILINE))


def test_every_citation_is_in_the_list_of_references():
    cited = set()
    for path in FILES:
        for entry in re.findall(r"\[([A-Z][^\[\]]*)\]", prose(path)):
            found = re.match(r"(QSZ24|[A-Z][^0-9]*?(?:et al\. )?(?:1[89]|20)\d\d)\b", entry)
            if found:
                cited.add(re.sub(r"\s+", " ", found[1]))
    assert {"QSZ24", "Rump 2006", "Beck & Teboulle 2009", "Tong, Ma, Chi 2021"} <= cited
    assert cited <= references()


def test_citations_give_the_year():
    cited = [
        (str(path), "".join(entry))
        for path in FILES
        for entry in re.findall(rf"\[({AUTHORS})([^\[\]]*)\]", prose(path))
    ]
    assert len(cited) > 20
    assert [entry for entry in cited if not re.search(r"\d{4}", entry[1])] == []


def test_every_erratum_that_is_cited_is_listed():
    listed = {int(number) for number in re.findall(r"\*\*Erratum (\d+)\.\*\*", PAGE)}
    assert listed == set(range(1, 11))
    cited = {
        int(number) for path in FILES for number in re.findall(r"[Ee]rratum (\d+)", prose(path))
    }
    assert {2, 3, 5} <= cited <= listed


def test_references_are_all_used():
    for key in references():
        uses = PAGE.count(f"[{key}")
        assert uses > 1 or any(f"[{key}" in prose(path) for path in FILES), key


# --- the constants -----------------------------------------------------------------------------


def is_numeric(node):
    """Whether an expression is a number, or a tuple or dict of numbers."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    if isinstance(node, ast.UnaryOp):
        return is_numeric(node.operand)
    if isinstance(node, ast.BinOp):
        return is_numeric(node.left) or is_numeric(node.right)
    if isinstance(node, ast.Tuple):
        return bool(node.elts) and all(is_numeric(entry) for entry in node.elts)
    if isinstance(node, ast.Dict):
        return bool(node.values) and all(is_numeric(entry) for entry in node.values)
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "float"
    )


def constants(tree):
    """Numeric constants of a module: names, node, and what follows it."""
    for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        names = [entry.id for entry in targets if isinstance(entry, ast.Name)]
        upper = names and all(re.fullmatch(r"_?[A-Z][A-Z0-9_]*", name) for name in names)
        if upper and is_numeric(node.value):
            yield names, node, following


def reasons(source):
    """Yield the names of each constant and whether its line, the next or the one above says why."""
    found = list(constants(ast.parse(source)))
    if not found:  # tokenizing takes its time
        return
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    commented = {token.start[0] for token in tokens if token.type == tokenize.COMMENT}
    lines = {line for _, node, _ in found for line in range(node.lineno, node.end_lineno + 1)}
    for names, node, following in found:
        next_to_it = any(line in commented for line in range(node.lineno, node.end_lineno + 1))
        explained = (
            isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        )
        above = node.lineno - 1
        while above in lines:  # one comment may stand above several
            above -= 1
        yield names, next_to_it or explained or above in commented


@pytest.mark.slow
def test_every_constant_gives_its_reason():
    found = [
        (path.stem, names, explained)
        for path in FILES
        for names, explained in reasons(path.read_text(encoding="utf-8"))
    ]
    assert len(found) > 300
    assert [each for each in found if not each[-1]] == []


def test_a_constant_without_a_reason_is_noticed():
    source = 'ONE = 1  # why\nTWO = 2\n\nTHREE = 3\n"""Why."""\n# Why.\nFOUR = 4\nFIVE = 5\n'
    assert [names for names, explained in reasons(source) if not explained] == [["TWO"]]


def rows():
    """Constants that the page's table quotes: dotted name and value."""
    return re.findall(r"^\| `([a-z_.]+)\.([A-Z_]+)` \| ([0-9.e]+) \|", PAGE, flags=re.MULTILINE)


def test_the_table_is_found():
    assert len(rows()) > 15


@pytest.mark.parametrize(("module", "name", "value"), rows())
def test_the_page_quotes_the_values_of_the_code(module, name, value):
    assert getattr(importlib.import_module(f"quadsense.{module}"), name) == float(value)


# --- the lemma's constants ---------------------------------------------------------------------


def excess_over_lemma(x, c):
    """Potential after a step of the lemma less its bound, over the potential before."""
    m, before = x.size, np.cosh(x).sum()
    s = np.sinh(x)
    after = np.cosh(x - c * s / np.linalg.norm(s)).sum()
    return (after - (1.0 - 0.9 * c / math.sqrt(m)) * before - c * math.sqrt(m)) / before


@pytest.mark.parametrize("c", [theory.PAPER_C, theory.LARGEST_PROVEN_C, 0.199])
def test_the_lemma_holds_up_to_the_constant_that_the_page_proves(c, rng):
    assert (math.cosh(c) - 1.0) / c <= 0.1
    for _ in range(3000):
        x = rng.standard_normal(rng.integers(1, 12)) * 10.0 ** rng.uniform(-3.0, 1.2)
        assert excess_over_lemma(x, c) <= 1e-12


def test_the_lemma_fails_where_the_page_says_so():
    assert (
        excess_over_lemma(np.array([20.0]), 0.2140)
        < 0.0
        < excess_over_lemma(np.array([20.0]), 0.2150)
    )


def test_the_lemma_for_nearly_orthogonal_rows_covers_the_constant():
    def kappa(c):
        quadratic = 1.01 * (math.cosh(c) - 1.0) / c
        return math.sqrt(0.99) - quadratic - math.sqrt(1.01) * (math.sinh(c) / c - 1.0)

    assert kappa(theory.LARGEST_PROVEN_C) == pytest.approx(0.9047, abs=1e-4)
    assert kappa(0.177) > 0.9 > kappa(0.178)
