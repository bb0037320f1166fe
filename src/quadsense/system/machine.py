"""What this machine has: memory that can still be taken, and rates for the plan's predictions.

Memory is that of the machine, the process, its control group and a solve. Rates are measured once
and cached.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

# Bytes: of prefixes in tens, and of those in twos.
KB, KIB = 1000, 1024
MIB, GIB = KIB * KIB, KIB * KIB * KIB
FLOAT64_BYTES = np.dtype(np.float64).itemsize

CACHE_BYTES = MIB // 2
"""Half of a usual second-level cache, so that block, factor and result fit together."""

BLOCK_ELEMENTS = MIB
"""Elements of a temporary block: 8 or 16 MiB, half a last-level cache."""

GUESSED_BYTES = 2 * GIB
"""Bytes, where the system says nothing at all."""

MAX_ARRAY_ENTRIES = 25_000_000
"""Entries of an array that is formed only because that is quicker, at most: 200 MB."""

MAX_FORMED_BYTES = 2 * GIB
"""Bytes of a matrix of order m or N up to which a method forms or factors it to save time. It is a
constant, because a bound that followed the free memory would change the steps, and with them A."""

UNLIMITED = GIB * GIB
"""What control groups of the first version call no limit is about 2^63: more than this is none."""

UNITS = {"": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("kmgt", 1)
    for suffix, base in (("", KB), ("i", KIB))
}
"""What stands before the B of a number of bytes."""

_limit: ContextVar[float] = ContextVar("memory_limit", default=math.inf)


def to_bytes(value: Any) -> float:
    """A number of bytes, as one or as text ("1 GiB", "500 MB"); infinity for None.

    Raises
    ------
    ValueError
        Where it is neither, or not positive.
    """
    if value is None:
        return math.inf
    number: float | None = None
    several = getattr(value, "ndim", 0) > 0
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d*\.?\d+(?:e\d+)?)\s*([kmgt]?i?)b?\s*", value.lower())
        if match and match[2] in UNITS:
            number = float(match[1]) * UNITS[match[2]]
    elif not isinstance(value, bool) and hasattr(value, "__float__") and not several:
        with suppress(Exception):  # of what only looks like a number
            number = float(value)
    if number is None or not number > 0.0:
        got = f"an array of shape {tuple(value.shape)}" if several else repr(value)
        raise ValueError(
            f"memory_limit must be a number of bytes, or as '1 GiB' or '500 MB', got {got}"
        )
    return number


def in_bytes(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < KB - 0.5:
            return f"{count:.3g} {unit}"
        count /= KB
    return f"{count:,.4g} PB"


@contextmanager
def limited_memory(most: float, instead: bool = False) -> Iterator[None]:
    """Let what is done inside count on no more than `most` bytes.

    Parameters
    ----------
    most : float
    instead : bool
        Whether that replaces the limit under way, of which else the lower one holds.
    """
    token = _limit.set(most if instead else min(most, _limit.get()))
    try:
        yield
    finally:
        _limit.reset(token)


def memory_limit() -> float:
    """Bytes that what is under way may take, whatever is free; infinity without a limit."""
    return _limit.get()


def is_limited(free: float) -> bool:
    """Whether what can be taken is so little for the limit, and not for the machine."""
    return memory_limit() < free + 1.0  # whole bytes are counted


def room_in_words(free: float) -> str:
    """How much can be taken, and who says so, as the subject and verb of a sentence."""
    said = in_bytes(free)
    return f"memory_limit is {said}" if is_limited(free) else f"{said} are free"


def room_for_rows(limit: Any = None) -> float:
    """Bytes up to which rows in a file are read into memory: half of what may be taken."""
    return min(to_bytes(limit), memory_limit(), float(free_memory())) / 2.0


def free_memory(root: str = "/") -> int:
    """Bytes that can be taken without swapping, or breaking a limit of the process or its group.

    Parameters
    ----------
    root : str
        Where ``proc`` and ``sys`` are; for tests.
    """
    found = [*_of_machine(root), *_of_process(root), *_of_groups(root)]
    return max(0, min(found, default=GUESSED_BYTES))


def _of_machine(root: str) -> Iterator[int]:
    """What the kernel calls available, or half of all memory."""
    available = _field(Path(root, "proc/meminfo"), "MemAvailable:")
    if available is not None:
        yield available * KIB
        return
    try:
        yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):
        return


def _of_process(root: str) -> Iterator[int]:
    """What `ulimit` leaves of the address space and of the data segment."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    status = Path(root, "proc/self/status")
    for name, used in (("RLIMIT_AS", "VmSize:"), ("RLIMIT_DATA", "VmData:")):
        limit = resource.getrlimit(getattr(resource, name))[0]
        if limit != resource.RLIM_INFINITY:
            yield limit - (_field(status, used) or 0) * KIB


def _of_groups(root: str) -> Iterator[int]:
    """What the control groups leave: that of the process, and all above it.

    What the group holds of files only to have them at hand counts as free, as with the machine.
    """
    try:
        lines = Path(root, "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, names = "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            top = "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        yield from _of_group(Path(root, top), path, *names)


def _of_group(top: Path, path: str, limit: str, usage: str, cached: str) -> Iterator[int]:
    """What a group and those above it leave.

    Within a container the path may be that of the host: what is seen at the top is then its own.
    """
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for depth in range(len(parts), -1, -1):
        folder = top.joinpath(*parts[:depth])
        most, used = _number(folder / limit), _number(folder / usage)
        if most is not None and used is not None and most < UNLIMITED:
            yield most - used + (_field(folder / "memory.stat", cached) or 0)


def _number(path: Path) -> int | None:
    """The number in a file; None where there is none ("max")."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _field(path: Path, name: str) -> int | None:
    """The number after a name at the beginning of a line."""
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                words = line.split()
                if len(words) > 1 and words[0] == name:
                    return int(words[1])
    except (OSError, ValueError):
        pass
    return None


MIN_KEPT_BYTES = 2**17
"""Bytes from which an array is worth keeping."""

MAX_KEPT_ARRAYS = 8
"""Arrays kept at most."""

# References to an array that only the list below holds: it, the loop's variable and the argument.
_ALONE = 3


class Scratch:
    """Arrays of a run. Who drops one, and all views of it, gives it back."""

    def __init__(self) -> None:
        self._held: list[npt.NDArray[Any]] = []

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an array of arbitrary contents that is not in use elsewhere."""
        wanted = (shape,) if isinstance(shape, int) else shape
        for array in self._held:
            free = sys.getrefcount(array) == _ALONE
            if free and array.shape == wanted and array.dtype == dtype:
                return array
        made = np.empty(wanted, dtype)
        if made.nbytes >= MIN_KEPT_BYTES:
            self._held = [*self._held[-(MAX_KEPT_ARRAYS - 1) :], made]
        return made


# --- rates ----------------------------------------------------------------------------------------

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
