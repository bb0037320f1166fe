"""What several commands share: exit statuses, words as values, outputs checked beforehand."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np

from quadsense import files
from quadsense.query import request
from quadsense.query.query import check_rank
from quadsense.vocabulary import Status

EXIT = {
    Status.MET: 0,
    Status.OPTIMAL: 0,
    Status.INFEASIBLE: 4,
    Status.INTERRUPTED: 130,
}
"""Exit status of `solve`; every other status is `NOT_MET`."""

NOT_MET = 3
"""Exit status where nothing was decided, and of `verify` where the claim is false."""


def to_rank(text: str | None) -> int | tuple[int, int] | Literal["auto"] | None:
    """What ``--rank`` says, as `solve` takes it."""
    if text is None:
        return None
    if text == "auto":
        return "auto"
    try:
        parts = [int(part) for part in text.split(",")]
        if len(parts) in (1, 2):
            return parts[0] if len(parts) == 1 else (parts[0], parts[1])
    except ValueError:
        pass
    raise ValueError(f"--rank must be a whole number or 'auto', or two as in 2,1, got {text!r}")


def to_trace(text: str | None) -> float | tuple[float, float] | None:
    """What ``--trace`` says, as `solve` takes it."""
    if text is None:
        return None
    try:
        parts = [float(part) for part in text.split(",")]
        if len(parts) in (1, 2):
            return parts[0] if len(parts) == 1 else (parts[0], parts[1])
    except ValueError:
        pass
    raise ValueError(f"--trace must be a number, or two as in 0.9,1.1, got {text!r}")


def to_ridge(text: str) -> float | Literal["auto"]:
    """Return what ``--ridge`` says, as `solve` takes it."""
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--ridge must be a number or 'auto', got {text!r}") from None


def to_order(text: str | None, n: int) -> int | None:
    """The plan's word for a rank, 0 where it may grow; refused where `solve` would refuse it."""
    rank = to_rank(text)
    check_rank(rank, n)
    return request.to_rank(rank)[0]


def check_outputs(inputs: Sequence[str | None], output: str | None, dense: str | None) -> None:
    """Refuse, before any work, outputs that cannot be written or would destroy something."""
    given = [each.partition(files.APART)[0] for each in inputs if each]
    taken = {Path(each).resolve(): "the input" for each in given}
    for name, path in (("-o", output), ("--dense", dense)):
        if path is None:
            continue
        if name == "-o":
            files.check_writable(path)
        else:
            files.writer_of(path, "A", several=False)
        where = Path(path).resolve()
        if where in taken:
            raise ValueError(f"{name} {path} would overwrite {taken[where]}: choose another name")
        taken[where] = f"the file of {name}"


def echo_json(fields: Any) -> None:
    """Print JSON as its standard has it, on one line: see docs/command.md."""
    click.echo(json.dumps(strict(fields), allow_nan=False))


def strict(value: Any) -> Any:
    """The value with what JSON lacks: NaN is null, infinities are the texts "inf" and "-inf"."""
    if isinstance(value, Mapping):
        return {str(key): strict(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [strict(each) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        return strict(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value
