"""Measure the structure of `src/`: print a table of counts and their goals.

    python tests/structure.py [--check] [--list]

Everything is read from the syntax tree; nothing is imported. `--list` names what is counted: each
module with a single importer and that importer, the modules with the most numeric literals, the
longest modules and the class names that occur twice. With `--check`, which `make check` runs, the
exit status is 1 where a count is above its goal.
"""

from __future__ import annotations

import argparse
import ast
import collections
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "quadsense"

KINDS = {"DeviceArray": "device", "Mixed": "measurements"}
"""Classes of arrays and operators, and the folder in which code may ask for them."""

ORDINARY = {0, 1, 2, -1, 0.5}
"""Numbers that need no name."""

MAX_LINES = 600

MOST_LITERALS = 1056
"""Half of the numeric literals of commit f95ed47, which had 2,113."""

LISTED = 20
"""Modules that `--list` names for their numeric literals."""

FIELDS = ("many", "diffusion", "tomography")
"""Field modules: folders, or single files, next to the package's own."""

MAX_FIELD_MODULES = 12
"""Modules that each of them may have."""


@dataclass(frozen=True)
class Module:
    """A file of the package: its dotted name, its tree and its lines."""

    name: str
    path: Path
    tree: ast.Module
    lines: int

    @property
    def folder(self) -> str:
        """The folder below the package, or the file's own name without its suffix."""
        return self.path.relative_to(SOURCE).parts[0].removesuffix(".py")


def modules() -> list[Module]:
    """Return all modules of the package."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(name, path, ast.parse(text), text.count("\n")))
    return found


def imports(module: Module, names: set[str]) -> set[str]:
    """Return the modules of the package that one imports."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return (found & names) - {module.name}


def single_importer(all_modules: list[Module]) -> dict[str, str]:
    """Return the modules that exactly one other imports, and which; packages do not count."""
    names = {module.name for module in all_modules}
    importers = collections.defaultdict(list)
    for module in all_modules:
        for name in imports(module, names):
            importers[name].append(module.name)
    plain = sorted(module.name for module in all_modules if module.path.name != "__init__.py")
    return {name: importers[name][0] for name in plain if len(importers[name]) == 1}


def type_tests(module: Module) -> Iterator[int]:
    """Yield the lines that ask whether something is one of `KINDS`, outside their folders."""
    for node in ast.walk(module.tree):
        about: list[ast.expr] = []
        if isinstance(node, ast.Compare):  # type(x) is Mixed
            about = node.comparators if _calls(node.left, "type") else []
        elif _calls(node, "isinstance", "issubclass"):
            about = node.args[-1:]
        names = (each for part in about for each in ast.walk(part))
        asked = {each.id for each in names if isinstance(each, ast.Name)}
        if any(module.folder != KINDS[name] for name in asked & KINDS.keys()):
            yield node.lineno


def _calls(node: ast.AST, *names: str) -> TypeGuard[ast.Call]:
    """Return whether it is a call of one of these functions."""
    return isinstance(node, ast.Call) and getattr(node.func, "id", None) in names


def literals(module: Module) -> int:
    """Return how many numbers are written that are not `ORDINARY`."""
    values = (node.value for node in ast.walk(module.tree) if isinstance(node, ast.Constant))
    return sum(
        isinstance(value, int | float | complex)
        and not isinstance(value, bool)
        and value not in ORDINARY
        for value in values
    )


def twice(all_modules: list[Module]) -> list[str]:
    """Return the names of classes that are defined more than once."""
    names = collections.Counter(
        node.name
        for module in all_modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    )
    return sorted(name for name, count in names.items() if count > 1)


def members(all_modules: list[Module], name: str) -> int:
    """Return how many public members a class defines."""
    for module in all_modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and node.name == name:
                return sum(
                    isinstance(each, ast.FunctionDef) and not each.name.startswith("_")
                    for each in node.body
                )
    return 0


def layers() -> int:
    """Return how many layers import-linter keeps."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    return max(len(contract.get("layers", [])) for contract in contracts)


def table() -> list[tuple[str, int, int | None]]:
    """Return each count and its goal; None where there is none."""
    everything = modules()
    found = [module for module in everything if module.folder not in FIELDS]
    single = single_importer(everything).keys() & {module.name for module in found}
    fields = collections.Counter(module.folder for module in everything)
    return [
        ("modules", len(found), 200),
        ("modules of the largest field", max(fields[name] for name in FIELDS), MAX_FIELD_MODULES),
        ("lines", sum(module.lines for module in everything), None),
        (f"modules over {MAX_LINES} lines", sum(m.lines > MAX_LINES for m in everything), 0),
        ("modules with a single importer", len(single), 30),
        ("layers", layers(), 12),
        ("tests of array or operator type", sum(len(list(type_tests(m))) for m in everything), 0),
        ("members of Probes", members(everything, "Probes"), 10),
        ("class names defined twice", len(twice(everything)), 0),
        ("numeric literals", sum(map(literals, found)), MOST_LITERALS),
    ]


def print_lists() -> None:
    """Print what the table counts."""
    found = modules()
    lines = {module.name: module.lines for module in found}
    print("\nmodules with a single importer")
    for name, importer in single_importer(found).items():
        print(f"{lines[name]:6}  {name}  <- {importer} ({lines[importer]})")
    print("\nmodules with the most numeric literals")
    for module in sorted(found, key=literals, reverse=True)[:LISTED]:
        print(f"{literals(module):6}  {module.name}")
    print(f"\nmodules over {MAX_LINES} lines")
    for module in found:
        if module.lines > MAX_LINES:
            print(f"{module.lines:6}  {module.name}")
    print("\nclass names defined twice")
    for name in twice(found):
        print(f"        {name}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit 1 where a goal is exceeded")
    parser.add_argument("--list", action="store_true", help="name what is counted")
    given = parser.parse_args()
    missed = False
    for what, count, goal in table():
        above = goal is not None and count > goal
        missed |= above
        said = "" if goal is None else f"   goal {goal}"
        print(f"{what:36}{count:8}{said}" + (" !" if above else ""))
    if given.list:
        print_lists()
    sys.exit(1 if missed and given.check else 0)


if __name__ == "__main__":
    main()
