"""A Dask cluster as the driver sees it: results waited for, what is lost asked for again."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from quadsense.system.watch import Stop, look

POLL = 0.1
"""Seconds between two looks at limits and signals."""

QUIET = 10.0
"""Seconds after which somebody who waits is told that there is no worker."""

ATTEMPTS = 4
"""How often work is handed out that takes its workers down with it: each time Dask itself tries
``distributed.scheduler.allowed-failures`` times more."""

GONE = (concurrent.futures.CancelledError, asyncio.CancelledError)


class Lost(Exception):
    """What was asked for is no more: to be asked for again."""


class Crew:
    """The workers that a client has.

    Parameters
    ----------
    client : distributed.Client
    """

    def __init__(self, client: Any) -> None:
        if client.asynchronous:
            raise ValueError("the client is asynchronous: give one made with asynchronous=False")
        if client.status in ("closing", "closed"):
            raise ValueError("the client is closed: give one that is connected to its scheduler")
        self.client = client
        self.address = client.scheduler.address if client.scheduler is not None else "?"

    def results(self, ask: Callable[[], Any]) -> Any:
        """What the futures that `ask` makes come to; it is called again where these are lost.

        Raises
        ------
        ConnectionError
            Where the scheduler is lost, or some work takes down every worker that has it.
        """
        from distributed.scheduler import KilledWorker

        for attempt in range(ATTEMPTS):
            self._connect()
            try:
                return self._gathered(ask())
            except KilledWorker as error:
                if attempt == ATTEMPTS - 1:
                    raise ConnectionError(
                        f"every worker that was given this work was lost ({error}): it may take "
                        "more memory than a worker has"
                    ) from error
            except Stop:
                raise
            except (Lost, *GONE):
                pass
            except Exception:  # of whatever kind, where the client lost its scheduler
                if self.client.status == "running":
                    raise
        raise ConnectionError(
            f"the cluster of {self.address} lost the same work {ATTEMPTS} times: it is restarted "
            "again and again"
        )

    def _gathered(self, futures: Any) -> Any:
        """Results of these, with an eye on limits and signals meanwhile."""
        client = self.client

        async def gather() -> Any:
            return await client.gather(futures, asynchronous=True)

        return self._on_loop(gather())

    def _on_loop(self, coroutine: Any) -> Any:
        """What a coroutine of the client's comes to."""
        from distributed.comm import CommClosedError

        coming = asyncio.run_coroutine_threadsafe(coroutine, self.client.loop.asyncio_loop)
        try:
            return self._waited(coming)
        except CommClosedError as error:
            raise Lost from error
        finally:
            coming.cancel()

    def _waited(self, coming: Any) -> Any:
        begin, told = time.monotonic(), 0.0
        while not coming.done():
            concurrent.futures.wait([coming], POLL)
            now = time.monotonic()
            look()
            if now - begin > told + QUIET:
                told = now - begin if not told else float("inf")
                self._say_whether_none_is_there(now - begin)
        return coming.result()

    def _say_whether_none_is_there(self, seconds: float) -> None:
        client = self.client
        try:
            threads = client.sync(client.scheduler.ncores, callback_timeout=POLL)
        except Exception:  # that is seen elsewhere
            return
        if not threads:
            warnings.warn(
                f"the cluster of {self.address} has had no worker for {seconds:.0f} s: the run "
                "goes on when one comes",
                RuntimeWarning,
                stacklevel=2,
            )

    def _connect(self) -> None:
        """Wait while the client tries to reach its scheduler again."""
        while self.client.status in ("connecting", "newly-created"):
            look()
            time.sleep(POLL)
        if self.client.status != "running":
            raise ConnectionError(
                f"the Dask scheduler {self.address} was lost, or its client closed: where the run "
                "had a checkpoint, the same call with another client goes on from there"
            )

    def held(self, futures: Sequence[Any]) -> list[bool]:
        """Which of these are there, or will be."""
        return [
            future is not None and future.status in ("pending", "finished") for future in futures
        ]

    def holders(self, futures: Sequence[Any]) -> tuple[list[list[str]], dict[str, int]]:
        """Which workers have each of these, by address, and the threads of all workers."""
        client = self.client

        async def ask() -> Any:
            keys = [future.key for future in futures]
            scheduler = client.scheduler
            return await asyncio.gather(scheduler.who_has(keys=keys), scheduler.ncores())

        there, threads = self._on_loop(ask())
        return [list(there.get(future.key, ())) for future in futures], dict(threads)
