"""What was asked, as the line of Python and as the command that ask it again."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np

from quadsense.arrays import to_numpy
from quadsense.query.query import PARAMETERS, flag_of
from quadsense.result.result import Result

IN_THE_FILE = frozenset(
    name for name, each in PARAMETERS.items() if each.part == "data" and name != "conjugate"
)
"""Arguments that the file of the measurements holds as arrays."""


def request_in(result: Result) -> dict[str, Any]:
    """What was asked: as the result keeps it, or as far as its certificate tells."""
    kept = result.plan.get("request")
    if isinstance(kept, dict):
        return {"arrays": [], **kept}
    claim, verdict = result.certificate, result.verdict
    if verdict.asked == "accuracy":
        return {"accuracy": verdict.worst.tolerance, "arrays": []}
    request: dict[str, Any] = {"arrays": ["b"]}
    if verdict.asked == "bounds":
        request["arrays"] = ["bounds"]
    elif verdict.asked == "delta":
        tolerance = np.unique(to_numpy(claim.tolerance))
        if tolerance.size == 1:
            request["delta"] = float(tolerance[0])
        else:
            request["arrays"].append("delta")
    if claim.rank is not None or claim.signs:
        request["rank"] = list(claim.signs) or claim.rank
    elif claim.psd:
        request["psd"] = True
    if verdict.prefer.startswith("slack_"):
        request["slack"] = verdict.prefer.removeprefix("slack_")
    elif verdict.prefer != "minimax":
        request["prefer"] = verdict.prefer
    if claim.constraints:
        request["arrays"].append("constraints")
    if claim.allowed:
        request["allow_violations"] = claim.allowed
    return request


def python_line(request: dict[str, Any]) -> str:
    """The call of `solve` that asks the same."""
    if "accuracy" in request:
        return f"result = quadsense.solve_spectral(oracle, A1, accuracy={request['accuracy']!r})"
    arrays = list(request["arrays"])
    parts = ["U", *(["b"] if "b" in arrays else [])]
    for name, value in request.items():
        if name != "arrays":
            shown = tuple(value) if isinstance(value, list) else value
            parts.append(f"{name}={shown!r}")
    for name in arrays:
        if name != "b":
            parts.append("bounds=(lo, hi)" if name == "bounds" else f"{name}={name}")
    return f"result = quadsense.solve({', '.join(parts)})"


def command_line(request: dict[str, Any], data: str, output: str) -> str | None:
    """The command that asks the same of a file; None where only Python can."""
    beyond = set(request["arrays"]) - IN_THE_FILE
    if "accuracy" in request or beyond:
        return None
    words = ["quadsense", "solve", data]
    for name, value in request.items():
        if name == "arrays":
            continue
        flag = flag_of(name)
        if value is True:
            words.append(flag)
        else:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            words += [flag, text]
    return shlex.join([*words, "-o", output])


def check_lines(result: Result, data: str, output: str) -> tuple[str, str | None]:
    """How to check the claim: in Python, and by the command."""
    if result.verdict.asked == "accuracy":
        return "result.verify(oracle)  # the eigenvalues, recomputed with A*", None
    python = (
        "import quadsense\n\n"
        f"data = quadsense.Measurements.open({data!r})  # or Measurements(U, b, ...)\n"
        f"result = quadsense.load_result({output!r})\n"
        "print(result.check(data))  # every statement, recomputed from the data"
    )
    return python, shlex.join(["quadsense", "verify", data, output])
