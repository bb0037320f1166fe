"""The files of a checkpoint: each written whole, the one before kept, one solve at a time."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quadsense.files import Arrays, Unreadable, read_arrays
from quadsense.files.atomic import check_place, whole
from quadsense.files.codec import decode, encode
from quadsense.files.npz import save

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
