"""Ctrl-C and SIGTERM noted while work is under way, and acted on where nothing is lost."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

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
        if threading.current_thread() is threading.main_thread():
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
