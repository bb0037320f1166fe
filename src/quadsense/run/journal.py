"""Runs that survive: what a solve has come to, in a folder, from which the same call goes on.

A solve is a row of runs of the one loop, in an order that follows from the data and the request.
The folder is a journal of them: the runs that are over, and the last state of the one that is not.
Who goes on replays it: a run that is over begins at its last state and is judged at once, the one
that was interrupted goes on from its own, and those after it run as ever. `Folder` keeps the files
whole, `run.fingerprint` knows whether data and request are the same.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quadsense.files import Arrays, Unreadable, read_arrays
from quadsense.files.codec import decode, encode
from quadsense.files.formats import check_place, whole
from quadsense.files.npz import save
from quadsense.run.fingerprint import DATA, Marks, difference, held_otherwise
from quadsense.system.watch import Watch
from quadsense.typing import check_path
from quadsense.vocabulary import Claim

FORMAT = "quadsense checkpoint"
"""What the metadata of every file of it says it is."""

VERSION = 1
"""Of that format: it rises when those written before could not be read any more."""

REQUEST = "request"
"""The file that makes a folder a checkpoint: of which data and request it is."""


class StoredRun:
    """A file as it was read: values by name, not yet made."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays, self._plain = arrays, arrays.metadata["values"]

    @property
    def keys(self) -> list[str]:
        """Names of the values."""
        return list(self._plain)

    def value(
        self,
        key: str,
        convert: Callable[[Any], Any] | None = None,
        also: tuple[str, ...] = (),
    ) -> Any:
        """The value of that name; see `codec.decode`."""
        if key not in self._plain:
            raise ValueError(f"{key} is missing")
        return decode(self._arrays, self._plain[key], convert, also=also)


class Folder:
    """A folder with the files of one checkpoint, held by one solve from `enter` to `leave`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: Any = None

    @property
    def exists(self) -> bool:
        """Whether there is a checkpoint; raises ValueError where there is something else."""
        if not self.path.exists():
            return False
        if not self.path.is_dir():
            raise ValueError(f"checkpoint {self.path} is a file: give a folder")
        names = [name for name in os.listdir(self.path) if not name.startswith(".")]
        held = {self._file(REQUEST).name, self._previous(REQUEST).name}
        if names and not held.intersection(names):
            raise ValueError(
                f"checkpoint {self.path} holds other files ({min(names)}): give a new folder, or "
                "an empty one"
            )
        return bool(names)

    def enter(self) -> None:
        """Make the folder where there is none, and keep other solves out of it."""
        if not self.path.is_dir():
            check_place(self.path, folder_allowed=True)
            self.path.mkdir()
        self._hold()
        for name in os.listdir(self.path):  # drafts of a solve that was killed
            if name.startswith(".") and (self.path / name).is_dir():
                shutil.rmtree(self.path / name, ignore_errors=True)

    def _hold(self) -> None:
        try:
            import fcntl
        except ImportError:  # not on Windows
            return
        try:
            self._lock = open(self.path / ".lock", "ab")  # noqa: SIM115
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.leave()
            raise ValueError(
                f"checkpoint {self.path} is in use by another solve: give another folder"
            ) from None
        except PermissionError:
            raise ValueError(f"checkpoint {self.path} cannot be written: read-only") from None
        except OSError:  # a file system that knows no locks
            pass

    def leave(self) -> None:
        """Let others in."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write(self, name: str, values: dict[str, Any], also: tuple[str, ...] = ()) -> None:
        """Write a file, whole and on disk, or not at all; the previous one is kept next to it."""
        arrays, plain = encode(values, also)
        meta = {"format": FORMAT, "version": VERSION, "values": plain["dict"]}
        with whole(self._file(name), previous=self._previous(name)) as draft:
            save(draft, arrays, meta)

    def double(self, name: str) -> None:
        """Copy a file to where the one before is kept."""
        shutil.copyfile(self._file(name), self._previous(name))

    def read(self, name: str) -> list[StoredRun]:
        """The file and the one before it, as far as they are there and whole."""
        found = []
        for path in (self._file(name), self._previous(name)):
            if not path.exists():
                continue
            try:
                found.append(_read(path))
            except Unreadable as error:
                warnings.warn(f"{error}: the checkpoint goes on without it", stacklevel=2)
        return found

    def numbered(self, stem: str) -> list[str]:
        """Names of the files that begin so, in order."""
        return sorted(path.stem for path in self.path.glob(f"{stem}-*.npz"))

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.npz"

    def _previous(self, name: str) -> Path:
        return self.path / f"{name}.npz.previous"


def _read(path: Path) -> StoredRun:
    arrays = read_arrays(path)
    meta = arrays.metadata
    ours = isinstance(meta, dict) and meta.get("format") == FORMAT
    if not (ours and isinstance(meta.get("values"), dict)):
        raise Unreadable(f"{path} is no part of a checkpoint")
    if meta.get("version") != VERSION:
        raise ValueError(
            f"checkpoint {path.parent} was written by another quadsense (format "
            f"{meta.get('version')}, this one reads {VERSION}): remove it to begin anew"
        )
    return StoredRun(arrays)


SHARE = 100.0
"""Writing takes at most one part in `SHARE`: what takes long is written less often. With the first
and the last it stays within the two per cent that are promised of a run of some seconds."""

CURRENT = "current"
"""The file of the run under way."""

OVER = "runs"
"""What the files of runs that are over begin with; the first of them, and how many, follow."""

Table = Callable[[int], Any]
"""Makes the first rows of a run's history, as many as it is given."""


@dataclass(frozen=True)
class Record:
    """A run between two strides, or as it ended: all that the loop needs to go on.

    Attributes
    ----------
    origin : str
        A mark of the method and the problem.
    state, best : State or None
        The last and the best.
    claim : Claim or None
        The last that was checked.
    corrections, quiet : int
    mark : float
        Of the stall rule, with `quiet`.
    rows : int
        Of the history, by then.
    ended : bool
        Whether the run ended by what its last state shows, and not by a limit or an interrupt.
    history : ndarray of shape (rows, 8), optional
        As written.
    """

    origin: str
    state: Any
    best: Any
    claim: Claim | None
    corrections: int
    quiet: int
    mark: float
    rows: int
    ended: bool = False
    history: Any = None


class Journal:
    """The journal of one solve, in its folder: replayed first, then written on.

    Parameters
    ----------
    path : Path
    every : float
        Seconds between two writings, at least; 0: after every stride, whatever it takes.
    watch : Watch

    Attributes
    ----------
    seed : int or None
        Seed of the random numbers of the earlier part; None before the folder is known.
    """

    def __init__(self, path: Path, every: float, watch: Watch) -> None:
        self.every, self.watch = every, watch
        self.seed: int | None = None
        self._folder = Folder(path)
        self._marks: Marks = {}
        self._versions: dict[str, str] = {}
        self._files: dict[int, tuple[str, int]] = {}  # of runs that are over, by the first
        self._opened: tuple[str, StoredRun] | None = None  # the last of these that was read
        self._last: StoredRun | None = None  # the run that was under way
        self._known = 0  # runs that were over when the folder was found
        self._number = -1  # the run at hand
        self._over: dict[int, tuple[Record, Table]] = {}  # not written yet
        self._now: tuple[Record, Table] | None = None  # the run at hand, not written yet
        self._open = self._closed = self._checked = False
        self._also: tuple[str, ...] = ()
        self._due = watch.clock() + every

    # --- the folder --------------------------------------------------------------------------

    def __enter__(self) -> Journal:
        """Nothing yet: the folder is entered when the request is known to be sound."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Write what is not written, whatever happened, and let others in."""
        try:
            self.write()
        finally:
            self._folder.leave()

    def find(self, marks: Marks, versions: Mapping[str, str]) -> None:
        """Look for an earlier part of this solve.

        Raises
        ------
        ValueError
            If the folder is that of another solve.
        """
        self._marks, self._versions = marks, dict(versions)
        mine = self._versions["quadsense"]
        if not self._folder.exists:
            return
        path = self._folder.path
        self._folder.enter()
        found = self._folder.read(REQUEST)
        if not found:
            raise ValueError(
                f"checkpoint {path} is damaged ({REQUEST}.npz): remove it to begin anew"
            )
        other = found[0].value("versions")["quadsense"]
        if other != mine:
            raise ValueError(
                f"checkpoint {path} was written by quadsense {other}, this is {mine}: remove it "
                "to begin anew"
            )
        name = difference(marks, found[0].value("marks"))
        held = held_otherwise(marks, found[0].value("marks"))
        if name is not None and held is not None and name.partition(" ")[0] == "U":
            raise ValueError(
                f"checkpoint {path} is of rows held otherwise ({held}): even if they are the same "
                "rows, sums differ in their last bits, so give another folder, or rows held as "
                "before"
            )
        if name is not None:
            data = name.partition(" ")[0] in DATA
            what = "of other data" if data else "of another request"
            raise ValueError(
                f"checkpoint {path} is {what}, {name} differs: give another folder, or remove it"
            )
        self.seed = int(found[0].value("seed"))
        self._index()

    def _index(self) -> None:
        """Which runs are known."""
        for name in self._folder.numbered(OVER):
            _, first, count = name.split("-")
            if int(first) == self._known:
                self._files[self._known] = name, int(count)
                self._known += int(count)
        key = str(self._known)
        self._last = next((each for each in self._folder.read(CURRENT) if key in each.keys), None)

    def open(self, seed: int) -> int:
        """Begin to write; return the seed of the earlier part, or this one if there is none."""
        if self.seed is None:
            try:
                self._folder.enter()
                value = {"marks": self._marks, "versions": self._versions, "seed": seed}
                self._folder.write(REQUEST, value)
                self._folder.double(REQUEST)  # never written again, it has no previous otherwise
            except OSError as error:
                raise ValueError(
                    f"checkpoint {self._folder.path} cannot be written: {error.strerror or error}"
                ) from None
            self.seed = seed
        self._open = True
        return self.seed

    # --- the runs ----------------------------------------------------------------------------

    def begin(
        self, origin: str, convert: Callable[[Any], Any], also: tuple[str, ...]
    ) -> Record | None:
        """The record of the run that comes now; None where it has none.

        Parameters
        ----------
        origin : str
            A mark of the method and the problem.
        convert : callable
            Makes arrays of the data's namespace.
        also : tuple of str
            The module of a method that did not come with the package.
        """
        self._number, self._checked = self._number + 1, False
        self._also = tuple(dict.fromkeys((*self._also, *also)))
        if self._closed:
            return None
        try:
            record = self._stored(convert)
        except ValueError as error:
            self._forget(f"is damaged ({error})")
            return None
        if record is not None and record.origin != origin:
            self._forget("is of another run: other methods are known now")
            return None
        return record

    def _stored(self, convert: Callable[[Any], Any]) -> Record | None:
        found: Record | None = None
        if self._number < self._known:
            first = max(each for each in self._files if each <= self._number)
            name, _ = self._files[first]
            if self._opened is None or self._opened[0] != name:
                whole = self._folder.read(name)
                if not whole:
                    raise ValueError(f"{name}.npz")
                self._opened = name, whole[0]
            found = self._opened[1].value(str(self._number), convert, self._also)
        elif self._number == self._known and self._last is not None:
            last, self._last = self._last, None
            found = last.value(str(self._number), convert, self._also)
        return found

    def _forget(self, why: str) -> None:
        """Go on without what is known of this run and of those after it."""
        self._known, self._last = self._number, None
        self._files = {first: held for first, held in self._files.items() if first < self._number}
        warnings.warn(
            f"checkpoint {self._folder.path}: what is known of run {self._number + 1} {why}; it "
            "begins anew",
            stacklevel=2,
        )

    def note(self, record: Record, table: Table) -> None:
        """Keep the run at hand in mind, and write it where it is time to."""
        if self._closed or self._number < self._known:
            return
        if self._also and not self._checked:
            self._check(record)
        self._now = record, table
        if self.watch.clock() >= self._due:
            self.write()

    def _check(self, record: Record) -> None:
        """Refuse, before it has run for long, a method from elsewhere whose states are no data."""
        try:
            encode(record, self._also)
        except TypeError as error:
            raise ValueError(f"checkpoint cannot hold the states of this method: {error}") from None
        self._checked = True

    def end(self, record: Record | None, table: Table) -> None:
        """The run at hand is over; not so (`Record.ended`), the solve can only be taken up again.

        None is a run that ended before it had anything.
        """
        if self._closed:
            return
        self._now = None
        if record is None or not record.ended:
            if record is not None and self._number >= self._known:
                self._now = record, table
            self.write()  # at once: who sent a signal may not wait for long
            self._closed = True
            return
        if self._number >= self._known:
            self._over[self._number] = record, table
        if self.watch.clock() >= self._due:
            self.write()

    def write(self) -> None:
        """Write what is not written yet; where that fails, say so, and try again later."""
        if not self._open or not (self._over or self._now):
            return
        begin = self.watch.clock()
        with self.watch.part("checkpoint"):
            try:
                if self._over:
                    first, count = min(self._over), len(self._over)
                    self._put(f"{OVER}-{first:06d}-{count:06d}", self._over)
                    self._over = {}
                if self._now:
                    self._put(CURRENT, {self._number: self._now})
                    self._now = None
            except OSError as error:
                warnings.warn(
                    f"checkpoint {self._folder.path} was not written "
                    f"({error.strerror or error}); the one before stands",
                    stacklevel=2,
                )
        end = self.watch.clock()
        self._due = end + (max(self.every, SHARE * (end - begin)) if self.every else 0.0)

    def _put(self, name: str, records: Mapping[int, tuple[Record, Table]]) -> None:
        value = {
            str(number): replace(record, history=table(record.rows))
            for number, (record, table) in records.items()
        }
        self._folder.write(name, value, self._also)


def to_journal(checkpoint: Any, every: float, watch: Watch) -> Journal:
    """Return the journal in that folder, not entered yet."""
    check_path("checkpoint", checkpoint, "folder")
    return Journal(Path(os.fsdecode(os.fspath(checkpoint))), every, watch)
