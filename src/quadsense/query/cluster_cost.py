"""How memory, bytes and time grow with n, m and workers: docs/scaling.md, in formulas.

Rows are divided as `measurements.shards` divides them, and travel costs what the tasks of
`measurements.cluster` send.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from quadsense.files.strips import STRIP_BYTES
from quadsense.measurements.cluster import FEW_TOGETHER, LARGE_SUM_BYTES, MANY_TOGETHER
from quadsense.measurements.shards import part_bytes
from quadsense.methods import METHODS
from quadsense.methods.low_rank import READINGS_PER_STEP, TYPICAL_STEPS
from quadsense.methods.minimax import PASSES
from quadsense.methods.traits import Shape
from quadsense.system.machine import FLOAT64_BYTES, Rates, in_bytes

NETWORK = 1.25e9
"""Bytes per second between two machines: 10 Gbit/s."""

DISK = 5e8
"""Bytes per second of a file: a solid-state disk by SATA; one by PCIe gives 2e9 to 7e9."""

TASK_SECONDS = 1e-3
"""What a scheduler takes for a task (https://distributed.dask.org/en/stable/efficiency.html says
about a millisecond; `benchmarks/scaling_model.py` measures it)."""

VECTORS = 24
"""Numbers per row that the driver holds, with the checks: as the plan counts them."""

MATRICES = 6
"""Matrices like A that the driver holds: as the plan of cg counts them."""


@dataclass(frozen=True)
class ClusterCost:
    """A sweep, ``F(A)`` and ``F*(y)`` for all rows, on a cluster.

    With N = n, or the rank where A is a factor (n, rank), w = 1, or 4 for complex rows, s bytes of
    an entry of the rows, e = 8 or 16 of an entry of A, W workers and P parts:

        rows        m n s bytes
        a part      max(32 MiB, n^2 s, m n s / 1024) bytes
        computing   2 w m n^2 (1 + 70/n) / flops / min(W, P) seconds for a matrix,
                    (4 w m n N / flops + 2 m n s / memory) / min(W, P) for a factor
        the driver  sends and gets 2 (n N e + r m) / network seconds, r = 8 bytes per row, or e N
        spreading   n N e W / network: the one worker that has it sends it to all others
        adding up   n N e ((P - 1) / W + (k - 1) log_k W) / network: a tree of the parts, k = 8 at
                    a time, or 2 where n^2 e is over 32 MiB
        tasks       at most one to send A, P to multiply, P to combine, and those of the tree: parts
                    of one worker, up to 512 MiB, are one

    Attributes
    ----------
    m, n : int
    workers : int
        Processes, each on a machine of its own that has the rates below.
    complex : bool
    single : bool
        Whether rows are held in single precision.
    rank : int or None
        Of A, where it is sought as a factor.
    psd : bool
        Whether A is to be positive semidefinite.
    threads : int
        Of a worker: tasks that it has under way.
    rates : Rates
        Of a worker, all its threads together.
    network, disk : float
        Bytes per second: of a machine's link, and of a worker's reading.
    task : float
        Seconds that the scheduler takes for a task.
    """

    m: int
    n: int
    workers: int = 1
    complex: bool = False
    single: bool = False
    rank: int | None = None
    psd: bool = False
    threads: int = 1
    rates: Rates = field(default_factory=Rates)
    network: float = NETWORK
    disk: float = DISK
    task: float = TASK_SECONDS

    def __post_init__(self) -> None:
        """Refuse what is no size."""
        for name in ("m", "n", "workers", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    # --- sizes -------------------------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        """As the plan sees it: rows elsewhere, in parts, none of them copied."""
        psd = self.psd or self.rank is not None
        return Shape(
            m=self.m, n=self.n, complex=self.complex, psd=psd, rank=self.rank,
            copied=False, at_hand=False,
        )  # fmt: skip

    @property
    def entry(self) -> int:
        """Bytes of an entry of the rows, as they are held."""
        return self.shape.item // 2 if self.single else self.shape.item

    @property
    def width(self) -> int:
        """Columns of what all rows are multiplied with."""
        return self.n if self.rank is None else max(1, self.rank)

    @property
    def row_bytes(self) -> int:
        """Bytes of all rows."""
        return self.m * self.n * self.entry

    @property
    def part_rows(self) -> int:
        """Rows of the largest part."""
        return self._divided[1]

    @property
    def parts(self) -> int:
        """Parts of all rows: more workers than these have nothing to do."""
        return self._divided[0]

    @property
    def _divided(self) -> tuple[int, int]:
        """How many parts the strips of one file make, and rows of the largest."""
        row = self.n * self.entry
        strip = max(1, STRIP_BYTES // row)
        most = part_bytes(self.m, self.n, self.entry)
        together = max(1, most // (strip * row))
        whole, rest = divmod(self.m, strip)
        parts = max(1, -(-whole // together))
        last = (whole - (parts - 1) * together) * strip + rest
        if rest and whole and last * row > most:  # what is left is a part of its own
            parts, last = parts + 1, rest
        return parts, min(self.m, max(last, together * strip))

    @property
    def parts_a_worker(self) -> int:
        """Of the worker that has most."""
        return -(-self.parts // self.workers)

    @property
    def matrix_bytes(self) -> int:
        """Bytes of A, or of its factor."""
        return self.n * self.width * self.shape.item

    @property
    def worker_memory(self) -> int:
        """Bytes of a worker: its rows and their norms, A, and the sums that a thread adds up."""
        rows = min(self.m, self.parts_a_worker * self.part_rows)
        return rows * (self.n * self.entry + 2 * FLOAT64_BYTES) + self.matrix_bytes * (
            1 + self.together * min(self.threads, self.parts_a_worker)
        )

    @property
    def driver_memory(self) -> int:
        """Bytes of the driver: vectors of length m, and matrices like A."""
        numbers = 0 if self.rank is None else 3 * self.width * self.shape.item
        return (FLOAT64_BYTES * VECTORS + numbers) * self.m + MATRICES * self.matrix_bytes

    # --- a sweep -----------------------------------------------------------------------------

    @property
    def flops(self) -> float:
        """Operations of a sweep, at the rate of large products."""
        if self.rank is None:
            return 2.0 * self.shape.product
        return 4.0 * self.shape.weight * self.m * float(self.n) * self.width

    @property
    def traffic(self) -> float:
        """Bytes that a sweep reads from memory, where that and no arithmetic is what takes time."""
        return 0.0 if self.rank is None else 2.0 * self.row_bytes

    @property
    def row_numbers(self) -> int:
        """Bytes per row that go to the driver, and from it: a number, or one for each column."""
        return FLOAT64_BYTES if self.rank is None else self.shape.item * self.width

    @property
    def driver_bytes(self) -> float:
        """Bytes of a sweep over the driver's link: A and ``F(A)``, y and ``F*(y)``."""
        return 2.0 * self.matrix_bytes + 2.0 * self.row_numbers * self.m

    @property
    def worker_bytes(self) -> float:
        """Bytes of a sweep from worker to worker, at most: what all want, and sums."""
        here = min(self.workers, self.parts)
        if here == 1:
            return 0.0
        return float(self.matrix_bytes) * (here + self.parts - 1)

    @property
    def together(self) -> int:
        """Sums that a task adds up."""
        return FEW_TOGETHER if self.n**2 * self.shape.item > LARGE_SUM_BYTES else MANY_TOGETHER

    @property
    def tasks(self) -> int:
        """Tasks of a sweep, at most."""
        count, level = 2 * self.parts + 1, self.parts
        while level > 1:
            level = -(-level // self.together)
            count += level
        return count

    @property
    def computing(self) -> float:
        """Seconds of arithmetic, evenly shared out."""
        return self._computing(self.workers)

    @property
    def communicating(self) -> float:
        """Seconds in which bytes and tasks travel."""
        return self._communicating(self.workers)

    @property
    def seconds(self) -> float:
        """Seconds of a sweep."""
        return self.computing + self.communicating

    @property
    def loading(self) -> float:
        """Seconds until the workers have read their rows, each from a disk of its own."""
        return self.row_bytes / min(self.workers, self.parts) / self.disk

    @property
    def reading(self) -> float:
        """Seconds of a sweep of one process that reads the rows for both products.

        The next strip is read while this one is used.
        """
        return max(2.0 * self.row_bytes / self.disk, self._computing(1))

    @property
    def crossing(self) -> int:
        """The least number of workers for which communicating takes as long as computing.

        Their ratio grows with the workers: each of the terms of the former, over 1/W, does.
        """
        high = 1
        while self._communicating(high) < self._computing(high):
            high *= 2
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            overtaken = self._communicating(middle) >= self._computing(middle)
            low, high = (low, middle) if overtaken else (middle, high)
        return high

    def _computing(self, workers: int) -> float:
        return self.rates.seconds(self.flops, self.traffic) / min(workers, self.parts)

    def _communicating(self, workers: int) -> float:
        spread = added = 0.0
        if workers > 1:
            spread = float(self.matrix_bytes) * workers
            levels = math.log(workers, self.together)
            added = self.matrix_bytes * (
                (self.parts - 1.0) / workers + (self.together - 1.0) * levels
            )
        return (self.driver_bytes + spread + added) / self.network + self.task * self.tasks

    # --- solves ------------------------------------------------------------------------------

    def sweeps(self, memory: float = math.inf) -> dict[str, float]:
        """Sweeps that a solve is expected to take, by each method whose own work fits."""
        if self.rank is not None:
            return {"low_rank": TYPICAL_STEPS * READINGS_PER_STEP / 2.0}
        if self.psd:
            return {"psd": METHODS.traits("psd").work(self.shape).flops / self.flops}
        found = {"cg": METHODS.traits("cg").work(self.shape).passes}
        if self.m > self.shape.unknowns and self._minimax_memory <= memory:
            found["minimax"] = PASSES / 2.0  # F(A) of all rows, and the rest on those that matter
        return found

    @property
    def _minimax_memory(self) -> int:
        return METHODS.traits("minimax").memory(replace(self.shape, psd=False))

    def notes(self, memory: float) -> list[str]:
        """What does not fit where every machine has that many bytes, and what to do, in words."""
        found = []
        if self.rank is None and self.n > self.m:
            return [
                f"with n > m no matrix of order n is formed: one machine with {self._few()} does"
            ]
        if self.rank is None and MATRICES * self.matrix_bytes > memory:
            found.append(
                f"A takes {in_bytes(self.matrix_bytes)}, and the driver holds {MATRICES} such: "
                "only a factor of it fits (rank=)"
            )
        elif self.driver_memory > memory:
            found.append(
                f"the driver takes {in_bytes(self.driver_memory)}, mostly vectors of length m"
            )
        if len(self.sweeps(memory)) < len(self.sweeps()):
            found.append(
                f"minimax would take {in_bytes(self._minimax_memory)} on the driver, for the rows "
                f"that matter to {self.shape.unknowns:,} unknowns"
            )
        if self.worker_memory > memory:
            found.append(f"a worker takes {in_bytes(self.worker_memory)}: {self._needed(memory)}")
        if self.workers > self.parts:
            found.append(f"{self.parts_keep} no more workers busy than that")
        return found

    @property
    def parts_keep(self) -> str:
        """How many parts there are, as the subject and verb of a sentence."""
        return f"{self.parts:,} part{'s keep' if self.parts != 1 else ' keeps'}"

    def _few(self) -> str:
        """What a machine needs where rows are fewer than their length."""
        K = in_bytes(float(FLOAT64_BYTES) * self.m**2)
        return f"{in_bytes(self.row_bytes)} for U and {K} for K"

    def _needed(self, memory: float) -> str:
        """How many workers would do."""
        part = self.part_rows * (self.n * self.entry + 2 * FLOAT64_BYTES)
        room = memory - self.matrix_bytes * (1 + self.together * self.threads)
        if room < part:
            return f"not even one part of {in_bytes(part)} fits in the {in_bytes(memory)} of one"
        return f"{-(-self.parts // int(room // part)):,} workers would do"
