"""Files written whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: str | os.PathLike[str], previous: Path | None = None) -> Iterator[Path]:
    """A draft next to `path` to write, which takes its place where nothing was raised.

    The draft ends as `path` does, and does not exist yet, so that it may become a folder too. With
    `previous`, what was at `path` is kept there, and all of it is on disk before anything moves:
    whenever power fails, one of the two is there and whole.
    """
    target = Path(path).resolve()
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    draft = folder / target.name
    try:
        yield draft
        if previous is not None:
            _onto_disk(draft)
            if target.exists():
                os.replace(target, previous)
        _put(draft, target, folder)
        if previous is not None:
            _onto_disk(target.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text in UTF-8, whole or not at all."""
    with whole(path) as draft:
        draft.write_text(text, encoding="utf-8", newline="")


def _put(draft: Path, target: Path, folder: Path) -> None:
    """The draft in the target's place; a folder that was there is moved aside first."""
    if not target.is_dir():
        os.replace(draft, target)
        return
    aside = folder / "before"
    os.rename(target, aside)
    try:
        os.rename(draft, target)
    except BaseException:
        os.rename(aside, target)
        raise


def _onto_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, would survive a loss of power."""
    try:
        number = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    except PermissionError:  # a folder, on Windows
        return
    try:
        os.fsync(number)
    finally:
        os.close(number)


def check_place(path: str | os.PathLike[str], folder_allowed: bool = False) -> None:
    """Raise ValueError if nothing can be written at `path`, before any work is done for it."""
    target = Path(path).resolve()
    folder = target.parent
    if target.is_dir() and not folder_allowed:
        raise ValueError(f"{path} is a directory, not a file to write")
    if target.exists() and not (target.is_file() or target.is_dir()):
        raise ValueError(f"{path} is not a regular file")
    if not folder.is_dir():
        raise ValueError(f"{path} cannot be written: the folder {folder.name} does not exist")
    if target.exists() and not os.access(target, os.W_OK):
        raise ValueError(f"{path} cannot be written: it is read-only")
    try:
        Path(tempfile.mkdtemp(prefix=".quadsense.", dir=folder)).rmdir()
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror}") from None
