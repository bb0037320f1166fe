"""Certificates of generated problems, and what becomes of them when they are tampered with."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import generator
import numpy as np

import quadsense
from quadsense import certificates

CLAIMED = ("met", "optimal", "infeasible")


def of_seed(seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The certificates of the problem of a seed: what each is of, and its fields."""
    case = generator.problem(seed)
    try:
        U, b, question = case.data()
        result = quadsense.solve(U, b, **question, **case.options)
    except ValueError:  # a wrong call, or an impossible one
        return
    claim = result.certificate
    for objective in (False, True):
        if claim.kind not in CLAIMED or (objective and claim.objective is None):
            continue
        if objective and claim.kind != "met":
            continue
        try:
            held = certificates.fields_of(claim, None, objective)
        except certificates.CannotCertify as error:
            yield f"refused: {error}", {}
            continue
        yield held["claim"], held


def of_interval(seed: int) -> dict[str, Any]:
    """The certificate of the range of an entry, or of the trace."""
    rng = np.random.default_rng([26, seed])
    n, is_complex = int(rng.integers(2, 5)), bool(seed % 2)
    m = n * n + int(rng.integers(0, 4))
    U = rng.standard_normal((m, n)) + 1j * is_complex * rng.standard_normal((m, n))
    U = U if is_complex else U.real
    X = rng.standard_normal((n, 2))
    b = np.sum(np.abs(U.conj() @ X) ** 2, axis=1)
    C = "trace" if seed % 3 else (0, 1)
    found = quadsense.interval(U, b, C, delta=0.1, psd=bool(seed % 4))
    data = quadsense.Measurements(U, b, delta=0.1)
    return certificates.fields_of_range(found, data)


def tampered(held: dict[str, Any], rng: np.random.Generator) -> str:
    """The text of a certificate in which something has been changed."""
    copy = json.loads(json.dumps(held))
    kind = rng.integers(0, 12)
    if kind == 0:
        text = json.dumps(copy)
        return text[: int(rng.integers(0, len(text)))]
    if kind == 1:
        held = copy["A"] if rng.random() < 0.3 and "A" in copy else copy
        names = ["n", "m"] if held is copy else ["rank"]
        held[str(rng.choice(names))] = int(rng.integers(-1, 12))
    elif kind == 2:
        copy["claim"] = str(rng.choice(
            ["met", "infeasible", "minimax", "least_squares", "nearest", "min_trace", "interval"]
        ))  # fmt: skip
    elif kind == 3:
        copy.pop(str(rng.choice(list(copy))))
    elif kind == 4:
        name = str(rng.choice(["psd", "complex", "conjugate"]))
        copy[name] = not copy.get(name, False)
    elif kind == 5:
        for name in ("lower", "upper", "norm", "sigma", "shift", "ridge"):
            if name in copy and rng.random() < 0.6:
                copy[name] *= float(rng.choice([-1.0, 0.5, 2.0, 1.0 + 2.0**-50, 1.0 - 2.0**-50]))
    elif kind == 6:
        copy["allowed"] = int(rng.integers(0, 4))
    else:
        _change_array(copy, rng)
    return json.dumps(copy)


def _change_array(copy: dict[str, Any], rng: np.random.Generator) -> None:
    """Change a number of an array, or two."""
    arrays = list(_arrays(copy))
    if not arrays:
        return
    values = arrays[int(rng.integers(len(arrays)))]
    i, j = (int(k) for k in rng.integers(0, len(values), 2))
    kind = rng.integers(0, 7)
    if kind == 0:
        values[i], values[j] = values[j], values[i]
    elif kind == 1:
        values.append(values[i])
    elif kind == 2:
        values[i] = None
    elif values[i] is None:
        values[i] = 0.0
    elif isinstance(values[i], list | dict):
        values[i] = values[j]
    elif kind == 3:
        values[i] = -values[i]
    elif kind == 4:
        values[i] = int(values[i]) * 10 ** int(rng.integers(0, 400))
    elif isinstance(values[i], int):
        values[i] += int(rng.integers(-1, 2))
    else:
        values[i] = math.nextafter(values[i], 0.0) if kind == 5 else values[i] * 1.5


def _arrays(held: Any) -> Iterator[list[Any]]:
    """Every list in the fields."""
    for value in held.values() if isinstance(held, dict) else held:
        if isinstance(value, list) and value:
            yield value
        if isinstance(value, dict | list):
            yield from _arrays(value)
