"""What this machine can do: rates for the plan's predictions, measured once and cached."""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

ORDER, LARGE_ORDER, RUNS = 800, 4000, 4
"""What is measured: a product of matrices that fit into the caches, one of a matrix that does not
with a vector; and how often."""


@dataclass(frozen=True)
class Rates:
    """Speeds of this machine.

    Attributes
    ----------
    flops : float
        Float64 operations per second in a matrix product.
    bytes : float
        Bytes per second read from memory by a matrix-vector product.
    measured : bool
        Whether they were measured here, or are those of a two-core server of 2024.
    """

    flops: float = 6e10
    bytes: float = 1.5e10
    measured: bool = False

    def seconds(self, flops: float, traffic: float) -> float:
        """Return the time for so much arithmetic and memory traffic, one after the other."""
        return flops / self.flops + traffic / self.bytes


def cache_path() -> Path:
    """Where the rates are kept (``QUADSENSE_CACHE``, else the user's cache folder)."""
    folder = os.environ.get("QUADSENSE_CACHE")
    if folder is None:
        folder = os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "quadsense")
    return Path(os.path.expanduser(folder), "rates.json")


_known: dict[str | None, Rates] = {}  # by the setting that leads to the file


def known_rates() -> Rates:
    """Return the cached rates, or typical ones; never measures, so a solve may call it.

    The file is looked up once in a process: that costs more than the rest of a plan.
    """
    where = os.environ.get("QUADSENSE_CACHE")
    if where not in _known:
        _known[where] = _read_rates(cache_path())
    return _known[where]


def _read_rates(path: Path) -> Rates:
    """Return the rates in a file; typical ones where there is none, or none that makes sense."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        rates = Rates(float(found["flops"]), float(found["bytes"]), True)
    except (OSError, ValueError, KeyError, TypeError):
        return Rates()
    return rates if rates.flops > 0 and rates.bytes > 0 else Rates()


def measure_rates() -> Rates:
    """Measure for about a tenth of a second; known from then on, and cached where possible."""
    A = np.ones((ORDER, ORDER))
    K = np.ones((LARGE_ORDER, LARGE_ORDER))
    v = np.ones(LARGE_ORDER)
    flops = 2.0 * A.size * ORDER / _fastest(lambda: A @ A)
    traffic = K.nbytes / _fastest(lambda: K @ v)
    rates = _known[os.environ.get("QUADSENSE_CACHE")] = Rates(flops, traffic, True)
    path = cache_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as draft:
            json.dump(asdict(rates), draft)
        os.replace(draft.name, path)
    except OSError:
        pass
    return rates


def _fastest(call: object) -> float:
    """Return the shortest of some runs."""
    assert callable(call)
    best = float("inf")
    for _ in range(RUNS):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return best
