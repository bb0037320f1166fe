"""The clock of a solve: when work must end, and what each part of it took.

Work that takes long calls `look` between its blocks. Where a limit is reached by then, `look`
raises `Stop`: methods leave the states they got alone, so a stride may be abandoned anywhere and
the last whole state stands. Nothing is watched, and `look` does nothing, outside of a solve.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, Token
from typing import Any, TypeVar

# What `signal` wraps: its wrappers make enumerations of numbers and handlers, which takes longer
# than a small solve has. Elsewhere than in CPython there may be no such module.
_plain: Any = sys.modules.get("_signal", signal)
SIGINT, SIGTERM, DEFAULT = int(signal.SIGINT), int(signal.SIGTERM), int(signal.SIG_DFL)


class Interrupts:
    """Notes the first Ctrl-C or SIGTERM; a second one acts at once.

    An exception raised inside compiled code, as Python's own handler would, can be lost there.
    Handlers of the user's own stay as they are, and so do those of other threads.
    """

    def __init__(self) -> None:
        self.pressed = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        """Install the handler, where this is the main thread and no other handler is set."""
        if threading.get_ident() == threading.main_thread().ident:
            for number, default in ((SIGINT, signal.default_int_handler), (SIGTERM, DEFAULT)):
                if _plain.getsignal(number) == default:
                    self._previous[number] = _plain.signal(number, self._note)
        return self

    def _note(self, number: int, frame: Any) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True

    def __exit__(self, *exception: object) -> None:
        """Put the handlers back."""
        for number, handler in self._previous.items():
            _plain.signal(number, handler)
        self._previous.clear()


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM during a solve, carrying what was found until then.

    Attributes
    ----------
    result : Result
        The best so far; its status is INTERRUPTED unless there was a verdict already.
    """

    def __init__(self, result: Any) -> None:
        super().__init__(f"interrupted; the exception's .result has the best so far: {result}")
        self.result = result


T = TypeVar("T")

BLOCK_FLOPS = 2e9
"""Float64 operations between two looks, about a tenth of a second of one core."""

FLOPS = 2e10
"""Float64 operations per second of one core in large products, to a factor of about three."""

GRACE = 0.25
"""Seconds beyond a time limit that one piece of work which cannot be interrupted may take."""


def real_flops(is_complex: bool) -> float:
    """Return the products of real numbers that one product takes."""
    return 4.0 if is_complex else 1.0


def cholesky_flops(order: float) -> float:
    """Return the operations of a Cholesky factorization, over real numbers."""
    return float(order) ** 3 / 3.0


def eigen_flops(order: float) -> float:
    """Return about how many operations all eigenvectors of a symmetric matrix take."""
    return 30.0 * cholesky_flops(order)


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
    entered : float or None
        When `grace` began, inside of it.
    reserve : float
        Seconds to leave, of up to half the limit, for checking what was found.
    proof_reserve : float
        Seconds to leave in addition for proofs, once there is something to prove.
    has_fit : bool
        Whether there is: a fit, or, without a tolerance, any matrix.
    stopped : bool
        Whether `look` has raised `Stop`, inside of `grace` since that was entered.
    """

    def __init__(
        self,
        clock: Callable[[], float] | None = None,
        interrupts: Interrupts | None = None,
        time_limit: float | None = None,
    ) -> None:
        self.clock, self.time_limit = clock or time.perf_counter, time_limit
        self.stopped = False
        self.interrupts = Interrupts() if interrupts is None else interrupts
        self.begin = self._since = self.clock()
        self.reserve = self.proof_reserve = 0.0
        self.has_fit = False
        self.entered: float | None = None
        self._part = "prepare"
        self._seconds: dict[str, float] = {}

    @property
    def elapsed(self) -> float:
        """Seconds since the solve began."""
        return self.clock() - self.begin

    @property
    def end(self) -> float:
        """When work must end: the time limit minus the reserve, or plus the grace period."""
        end = math.inf if self.time_limit is None else self.begin + self.time_limit
        if self.entered is not None:
            return (self.entered if self.interrupts.pressed else max(end, self.entered)) + GRACE
        if self.time_limit is None:
            return end
        reserve = self.reserve + (self.proof_reserve if self.has_fit else 0.0)
        return end - min(reserve, 0.5 * self.time_limit)

    @property
    def late(self) -> bool:
        """Whether the time is over, except what is reserved for checking and proving."""
        return self.time_limit is not None and self.clock() >= self.end

    @property
    def left(self) -> float | None:
        """Seconds left, at least 0; None where there is no limit."""
        return None if self.time_limit is None else max(0.0, self.time_limit - self.elapsed)

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
        pressed = self.interrupts.pressed
        if self.time_limit is None and not pressed:
            return
        ahead = max(0.0, flops / FLOPS - GRACE) if flops else 0.0
        if (pressed and self.entered is None) or self.clock() + ahead >= self.end:
            self.stopped = True
            raise Stop

    def grace(self) -> _Grace:
        """Let what is done inside take a little longer than the limits, so that it may be said."""
        return _Grace(self)

    def part(self, name: str, heeded: bool | None = None, grace: bool = False) -> _Part:
        """Count what is done inside for that part, and for no other.

        With `heeded` and `grace` inside as in the functions of these names.
        """
        return _Part(self, name, heeded, grace)

    def heeded(self, heeded: bool = True) -> _Heeded:
        """Let `look` see this watch inside, or none."""
        return _Heeded(self if heeded else None)

    def timings(self) -> dict[str, float]:
        """Seconds by part; they add up to the time since the solve began."""
        now, found = self.clock(), dict(self._seconds)
        found[self._part] = found.get(self._part, 0.0) + now - self._since
        return found


_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


# Plain classes: a generator for each would cost a small solve as much as a step.


class _Part:
    """See `Watch.part`."""

    __slots__ = ("before", "entered", "grace", "heeded", "name", "token", "watch")

    def __init__(self, watch: Watch, name: str, heeded: bool | None, grace: bool) -> None:
        self.watch, self.name, self.heeded, self.grace = watch, name, heeded, grace
        self.token: Token[Watch | None] | None = None

    def __enter__(self) -> None:
        watch = self.watch
        now, before, seconds = watch.clock(), watch._part, watch._seconds
        seconds[before] = seconds.get(before, 0.0) + now - watch._since
        self.before, watch._since, watch._part = before, now, self.name
        if self.grace:
            self.entered, watch.entered, watch.stopped = watch.entered, now, False
        if self.heeded is not None:
            self.token = _watch.set(watch if self.heeded else None)

    def __exit__(self, *exception: object) -> None:
        watch = self.watch
        if self.token is not None:
            _watch.reset(self.token)
        if self.grace:
            watch.entered = self.entered
        now, seconds = watch.clock(), watch._seconds
        seconds[self.name] = seconds.get(self.name, 0.0) + now - watch._since
        watch._since, watch._part = now, self.before


class _Heeded:
    """See `Watch.heeded`."""

    __slots__ = ("token", "watch")

    def __init__(self, watch: Watch | None) -> None:
        self.watch = watch

    def __enter__(self) -> None:
        self.token: Token[Watch | None] = _watch.set(self.watch)

    def __exit__(self, *exception: object) -> None:
        _watch.reset(self.token)


class _Grace:
    """See `Watch.grace`."""

    __slots__ = ("before", "watch")

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def __enter__(self) -> None:
        self.before, self.watch.entered = self.watch.entered, self.watch.clock()
        self.watch.stopped = False

    def __exit__(self, *exception: object) -> None:
        self.watch.entered = self.before


def look(flops: float = 0.0) -> None:
    """Raise `Stop` where the solve under way must end; see `Watch.look`."""
    watch = _watch.get()
    if watch is not None:
        watch.look(flops)


def part(name: str) -> AbstractContextManager[None]:
    """Count what is done inside for that part of the solve under way, if one is."""
    watch = _watch.get()
    return nullcontext() if watch is None else watch.part(name)


def watched() -> Watch | None:
    """Return the watch that `look` sees."""
    return _watch.get()


def with_watch(watch: Watch | None, work: Callable[[], T]) -> T:
    """Return what `work` returns while `look` sees that watch, which threads begin without."""
    with _Heeded(watch):
        return work()
