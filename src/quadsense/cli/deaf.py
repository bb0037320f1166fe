"""Workers of the command's own do not hear Ctrl-C, which a terminal sends to all processes.

The command hears it, and lets its workers finish what the answer needs.
"""

from __future__ import annotations

import signal
import threading


def dask_setup(worker: object) -> None:
    """What Dask calls in each worker that is started with this module as a preload."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
