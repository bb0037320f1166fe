"""What pyproject.toml promises of other packages is what `make test-oldest` tries."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def lower_bounds():
    """Name and oldest version of every dependency, the extras' and the groups' included."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = settings["project"]
    extras = [*project["optional-dependencies"].values(), *settings["dependency-groups"].values()]
    entries = [*project["dependencies"], *(entry for extra in extras for entry in extra)]
    entries = [entry for entry in entries if not isinstance(entry, dict)]  # an included group
    found = [
        re.fullmatch(r"([a-z0-9-]+)>=([0-9.]+)", entry)
        for entry in entries
        if not entry.startswith("quadsense[")
    ]
    assert all(found), "every dependency states its oldest version, and nothing else"
    return {match[1]: match[2] for match in found}


def test_the_oldest_versions_tried_are_the_lower_bounds():
    lines = (ROOT / "tests" / "oldest.txt").read_text(encoding="utf-8").splitlines()
    tried = dict(line.split("==") for line in lines if "==" in line)
    assert tried == lower_bounds()
