"""The clock of a solve: when work must end, and what each part of it took.

Work that takes long calls `look` between its blocks. Where a limit is reached by then, `look`
raises `Stop`: methods leave the states they got alone, so a stride may be abandoned anywhere and
the last whole state stands. Nothing is watched, and `look` does nothing, outside of a solve.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from quadsense.interrupts import Interrupts

T = TypeVar("T")

BLOCK_FLOPS = 2e9
"""Float64 operations between two looks, about a tenth of a second of one core."""

FLOPS = 2e10
"""Float64 operations a second of one core in large products, to a factor of about three."""

GRACE = 0.25
"""Seconds beyond a time limit that one piece of work which cannot be interrupted may take."""


class Stop(Exception):
    """A limit was reached in the middle of something; what was found before stands."""


class Watch:
    """The clock of one solve.

    Attributes
    ----------
    clock : callable
        Seconds, from any origin; tests hand in one of their own.
    interrupts : Interrupts
        Whether the user wants to stop.
    time_limit : float or None
        Seconds from `begin`.
    begin : float
        When the solve began.
    reserve : float
        Seconds to leave, of up to half the limit, for checking what was found.
    """

    def __init__(
        self,
        clock: Callable[[], float] | None = None,
        interrupts: Interrupts | None = None,
        time_limit: float | None = None,
    ) -> None:
        self.clock, self.time_limit = clock or time.perf_counter, time_limit
        self.interrupts = Interrupts() if interrupts is None else interrupts
        self.begin = self._since = self.clock()
        self.reserve = 0.0
        self._entered: float | None = None
        self._part = "prepare"
        self._seconds: dict[str, float] = {}

    @property
    def elapsed(self) -> float:
        """Seconds since the solve began."""
        return self.clock() - self.begin

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return self.time_limit is not None and self.elapsed >= self.time_limit

    @property
    def over(self) -> bool:
        """Whether to stop, for whatever reason."""
        return self.interrupts.pressed or self.late

    def look(self, flops: float = 0.0) -> None:
        """Raise `Stop` where a limit is reached, or would be far exceeded by what is to come.

        Parameters
        ----------
        flops : float
            Float64 operations of the next piece of work, where that cannot be interrupted.
        """
        pressed, entered = self.interrupts.pressed, self._entered
        if pressed and entered is None:
            raise Stop
        if self.time_limit is None and not pressed:
            return
        end = math.inf if self.time_limit is None else self.begin + self.time_limit
        if self.time_limit is not None and entered is None:
            end -= min(self.reserve, 0.5 * self.time_limit)
        if entered is not None:
            end = (entered if pressed else max(end, entered)) + GRACE
        ahead = max(0.0, flops / FLOPS - GRACE) if flops else 0.0
        if self.clock() + ahead >= end:
            raise Stop

    @contextmanager
    def grace(self) -> Iterator[None]:
        """Let what is done inside take a little longer than the limits, so that it may be said."""
        before, self._entered = self._entered, self.clock()
        try:
            yield
        finally:
            self._entered = before

    def switch(self, part: str) -> str:
        """Count time for that part from now on; return the part it was counted for."""
        now, before = self.clock(), self._part
        self._seconds[before] = self._seconds.get(before, 0.0) + now - self._since
        self._since, self._part = now, part
        return before

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what is done inside for that part, and for no other."""
        before = self.switch(name)
        try:
            yield
        finally:
            self.switch(before)

    @contextmanager
    def heeded(self, heeded: bool = True) -> Iterator[None]:
        """Let `look` see this watch inside, or none."""
        token = _watch.set(self if heeded else None)
        try:
            yield
        finally:
            _watch.reset(token)

    def timings(self) -> dict[str, float]:
        """Seconds by part; they add up to the time since the solve began."""
        self.switch(self._part)
        return dict(self._seconds)


_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


def look(flops: float = 0.0) -> None:
    """Raise `Stop` where the solve under way must end; see `Watch.look`."""
    watch = _watch.get()
    if watch is not None:
        watch.look(flops)


@contextmanager
def part(name: str) -> Iterator[None]:
    """Count what is done inside for that part of the solve under way, if one is."""
    watch = _watch.get()
    if watch is None:
        yield
    else:
        with watch.part(name):
            yield


def watched() -> Watch | None:
    """The watch that `look` sees."""
    return _watch.get()


def with_watch(watch: Watch | None, work: Callable[[], T]) -> T:
    """What `work` returns where `look` sees that watch: for threads, which begin with none."""
    token = _watch.set(watch)
    try:
        return work()
    finally:
        _watch.reset(token)
