"""Answers to many problems in files."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

import numpy as np

from quadsense import files
from quadsense.arrays import is_array, to_numpy
from quadsense.many.batch import Answers
from quadsense.many.results import STATUSES, ManyResults
from quadsense.typing import check_path

ENDS = ("lo", "hi")
"""Names of the ends of bounds."""

ASKED = ("delta", "weights", "covariates")
"""Arguments that may be arrays."""

FORMAT = "quadsense-many"
VERSION = 1  # rises when programs of before cannot read what is written


def save_many(path: str | os.PathLike[str], results: ManyResults) -> None:
    """Write the answers: see `ManyResults.save`."""
    files.check_writable(path)
    arrays = {name.name: getattr(results.answers, name.name) for name in fields(Answers)}
    asked: dict[str, Any] = {}
    for name, value in results.asked.items():
        if name == "bounds" and value is not None:
            arrays |= {
                f"asked_{end}": np.asarray(each) for end, each in zip(ENDS, value, strict=True)
            }
        elif value is None or isinstance(value, bool | int | float | str | tuple):
            asked[name] = value
        else:
            arrays[f"asked_{name}"] = to_numpy(value) if is_array(value) else np.asarray(value)
    plain = {
        "format": FORMAT, "version": VERSION, "n": results.n, "is_complex": results.is_complex,
        "target": results.target, "seconds": results.seconds,
        "asked": {name: list(v) if isinstance(v, tuple) else v for name, v in asked.items()},
        "statuses": [str(status) for status in STATUSES],
    }  # fmt: skip
    files.write_arrays(path, arrays, plain)


def load_many(path: str | os.PathLike[str]) -> ManyResults:
    """Read answers written by `ManyResults.save`.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    ManyResults
        Without the data: `verify` takes them.

    Raises
    ------
    ValueError
        If the file is missing, damaged or holds something else.
    """
    check_path("path", path)
    found = files.read_arrays(path)
    meta: Any = found.metadata
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise ValueError(f"{path} holds no answers to many problems; it holds {found.listing}")
    if meta.get("version") != VERSION:
        raise ValueError(f"{path} was written by another quadsense: solve again")
    try:
        names = [str(name) for name in meta["statuses"]]
        n, is_complex = int(meta["n"]), bool(meta["is_complex"])
        arrays = {name.name: np.asarray(found[name.name]) for name in fields(Answers)}
        k = len(arrays["status"])
        size = n * n if is_complex else n * (n + 1) // 2
        kinds = {"status": "i", "worst_row": "i", "met": "b", "corrected": "b", "closed": "b"}
        for name, values in arrays.items():
            matrix = name in ("packed", "coef")
            if (
                values.ndim != 1 + matrix
                or len(values) != k
                or values.dtype.kind != kinds.get(name, "f")
            ):
                raise ValueError(f"{name} has shape {values.shape}")
        if arrays["packed"].shape[1] != size or names != [str(status) for status in STATUSES]:
            raise ValueError("sizes or statuses do not go together")
        if k and not (arrays["status"].min() >= 0 and arrays["status"].max() < len(STATUSES)):
            raise ValueError("a status that does not exist")
        asked = dict(meta["asked"])
        if isinstance(asked.get("trace"), list):
            asked["trace"] = tuple(asked["trace"])
        for name in ASKED:
            if f"asked_{name}" in found:
                asked[name] = found[f"asked_{name}"]
        if "asked_lo" in found:
            asked["bounds"] = (found["asked_lo"], found["asked_hi"])
        return ManyResults(
            Answers(**arrays), n, is_complex, bool(meta["target"]), asked,
            seconds=float(meta["seconds"]),
        )  # fmt: skip
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} holds damaged answers ({error!r})") from None
