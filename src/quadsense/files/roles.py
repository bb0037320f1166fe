"""Which array of a file is U, which is b, and what goes with them: by name, otherwise by shape.

Names count in any case, and without the groups before them. What was not called by its own name is
said in a note; where two arrays would do, nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from quadsense.files.contents import Entry, Unreadable, listed

NAMES: dict[str, tuple[str, ...]] = {
    "U": ("u", "probes", "probe", "vectors", "measurement_vectors", "x", "a"),
    "b": ("b", "readings", "reading", "y", "values", "value", "measurements"),
    "lo": ("lo", "lower"),
    "hi": ("hi", "upper"),
    "delta": ("delta", "tolerance", "tol"),
    "rtol": ("rtol",),
    "weights": ("weights", "weight", "sample_weight"),
    "mix": ("mix",),
    "conjugate": ("conjugate",),
}
"""What each is called, its own name first."""

BESIDE = ("lo", "hi", "delta", "rtol", "weights", "mix", "conjugate")
"""What is found by name alone."""

TRUTHS = ("a_star", "a_true", "truth")
"""Matrices that are the answer, and no probes."""


@dataclass(frozen=True)
class Given:
    """What is given in addition to a file, and tells what is to be found in it.

    Attributes
    ----------
    sums : int or None
        Number of readings, where they are sums of rows by a mix that is given.
    bounds : bool
        Whether intervals are given, so that there need be no readings.
    """

    sums: int | None = None
    bounds: bool = False


NOTHING = Given()


@dataclass(frozen=True)
class Roles:
    """Names of arrays by what they are, and what was guessed.

    Attributes
    ----------
    names : dict
        From role to the name in the file; what there is none of is missing.
    transposed : bool
        Whether the vectors are the columns of U.
    notes : tuple of str
    """

    names: dict[str, str]
    transposed: bool = False
    notes: tuple[str, ...] = ()


def base(name: str) -> str:
    """Return a name without its groups, in lower case."""
    return name.rsplit("/", 1)[-1].lower()


def find_roles(
    path: object,
    entries: tuple[Entry, ...],
    U: str | None,
    b: str | None,
    apart: int | None = None,
    given: Given = NOTHING,
) -> Roles:
    """Say which array is what.

    Parameters
    ----------
    path : object
        For messages.
    entries : tuple of Entry
        All that the file holds.
    U, b : str, optional
        Names that were given.
    apart : int, optional
        Number of readings, where they are not in the file.
    given : Given
        What else is not taken from the file.

    Raises
    ------
    ValueError
        Where U is not found, or could be several; b may be missing.
    """
    numbers = [entry for entry in entries if entry.numeric]
    said = None if b is None else named(path, entries, b)
    probes = _find_probes(path, entries, U, said, apart if given.sums is None else None)
    for entry in (probes, said):
        if entry is not None and not entry.numeric:
            raise Unreadable(f"{path}: {entry.name} holds no numbers, but is {entry.dtype}")
    group = probes.name.rpartition("/")[0]
    names, notes = {"U": probes.name}, []
    for role in BESIDE:
        found = _called(numbers, NAMES[role], group)
        if found is not None:
            names[role] = found.name
    rest = [entry for entry in numbers if entry.name not in names.values()]
    size = next((each.shape[0] for each in numbers if each.name == names.get("mix")), given.sums)
    if said is None and apart is None:
        optional = given.bounds or ("lo" in names and "hi" in names)
        said = _find_readings(path, rest, probes, given.sums or size, group, optional)
    if said is not None:
        names["b"] = said.name
    for role, asked in (("U", U), ("b", b)):
        if role in names and asked is None and names[role] != role:
            why = {"U": ", the only matrix that can be it", "b": ", the only vector that can be it"}
            guess = "" if base(names[role]) in NAMES[role] else why[role]
            notes.append(f"{role} is {names[role]!r}{guess}")
    m = next((each.length for each in numbers if each.name == names.get("b")), apart)
    if m is None:
        ends = [each for each in numbers if each.name in (names.get("lo"), names.get("hi"))]
        m = max((each.length for each in ends), default=None)
    transposed = (
        size is None
        and len(probes.shape) == 2
        and m is not None
        and m > 1
        and probes.shape[0] != m == probes.shape[1]
    )
    if transposed:
        shape = " x ".join(map(str, probes.shape))
        notes.append(f"{probes.name} is {shape} for {m} readings: its columns are the vectors")
    return Roles(names, transposed, tuple(notes))


def named(path: object, entries: Iterable[Entry], name: str) -> Entry:
    """Return the entry of that name: as written, in any case, or without its groups.

    Raises
    ------
    ValueError
        If there is none, or several are meant.
    """
    held = tuple(entries)
    for same in (
        lambda entry: entry.name == name,
        lambda entry: entry.name.lower() == name.lower(),
        lambda entry: base(entry.name) == name.lower(),
    ):
        found = [entry for entry in held if same(entry)]
        if len(found) == 1:
            return found[0]
        if found:
            raise Unreadable(f"{path} holds several arrays named {name!r}: {listed(found)}")
    raise Unreadable(f"{path} holds no array named {name!r}; it holds {listed(held)}")


def _called(entries: list[Entry], names: tuple[str, ...], group: str) -> Entry | None:
    """Return the entry of the first of these names that there is, in the group of U or above it."""
    for name in names:
        found = [entry for entry in entries if base(entry.name) == name]
        for place in (group, ""):
            here = [entry for entry in found if entry.name.rpartition("/")[0] == place]
            exact = [entry for entry in here if entry.name.rpartition("/")[2] == name]
            if here:
                return (exact or here)[0]
    return None


def _find_probes(
    path: object, entries: tuple[Entry, ...], U: str | None, b: Entry | None, apart: int | None
) -> Entry:
    if U is not None:
        return named(path, entries, U)
    own = [entry for entry in entries if entry.name == "U"]
    if own:
        return own[0]
    numbers = [entry for entry in entries if entry.numeric]
    m = b.length if b is not None else apart
    if m is None:
        readings = [entry for entry in numbers if base(entry.name) == "b" and entry.vector]
        m = readings[0].length if len(readings) == 1 else None
    taken = {name for role in BESIDE for name in NAMES[role]} | {*TRUTHS}
    matrices = [
        entry
        for entry in numbers
        if len(entry.shape) == 2 and not entry.vector and base(entry.name) not in taken
    ]
    called = [entry for entry in numbers if base(entry.name) == "u" and len(entry.shape) == 2]
    for candidates in (
        called,
        [entry for entry in matrices if base(entry.name) in NAMES["U"]],
        matrices,
    ):
        found = _only(candidates, m)
        if found is not None:
            return found
        if candidates:
            raise Unreadable(
                f"{path} may have its probes U in any of {listed(candidates)}: say which with U= "
                "(--U)"
            )
    raise Unreadable(
        f"{path} holds no matrix U, one vector per row; it holds {listed(entries)}: name it with "
        "U= (--U)"
    )


def _only(candidates: list[Entry], m: int | None) -> Entry | None:
    """Return the one candidate, or the one that goes with m readings."""
    if len(candidates) == 1:
        return candidates[0]
    by_rows = [entry for entry in candidates if m is not None and entry.shape[0] == m]
    by_columns = [entry for entry in candidates if m is not None and entry.shape[1] == m]
    for found in (by_rows, by_columns):
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _find_readings(
    path: object,
    rest: list[Entry],
    probes: Entry,
    sums: int | None,
    group: str,
    optional: bool,
) -> Entry | None:
    """Return the readings among what is left; None where there are none."""
    own = _called(rest, ("b",), group)
    if own is not None:
        return own
    fits = [sums] if sums is not None else list(probes.shape)
    vectors = [entry for entry in rest if entry.vector and entry.length in fits]
    near = [entry for entry in vectors if entry.name.rpartition("/")[0] == group] or vectors
    called = [entry for entry in near if base(entry.name) in NAMES["b"]]
    if optional:  # with intervals nothing is guessed from its shape
        return called[0] if len(called) == 1 else None
    for candidates in (called, [entry for entry in near if entry.length == fits[0]], near):
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            raise Unreadable(
                f"{path} may have its readings b in any of {listed(candidates)}: say which with "
                "b= (--b)"
            )
    return None
