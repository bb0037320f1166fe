"""Counts as people have them: dictionaries, arrays, tables, samples, results of other tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, as_numbers
from quadsense.tomography.bases import LETTERS, Bases
from quadsense.typing import is_number, is_whole, to_list

BIT_ORDERS = ("same", "reversed")
"""Whether the first digit of an outcome belongs to the first letter of a setting, or the last."""

COLUMNS = ("setting", "outcome", "count")
"""Columns of a table of counts."""

MAX_UNEVEN = 1e-6
"""Share by which frequencies may miss whole counts: they are printed with few digits."""

HEXADECIMAL = "0x"
"""Beginning of an outcome as Qiskit writes it in JSON."""


@dataclass(frozen=True)
class Counts:
    """Counts of the outcomes of each setting.

    Attributes
    ----------
    settings : ndarray of int, shape (k, q)
        Which of its settings each factor was in.
    names : list of str
        The settings, as they were given.
    table : ndarray, shape (k, outcomes)
        Whole numbers; the outcome of the last factor changes fastest.
    """

    settings: npt.NDArray[np.int64]
    names: list[str]
    table: Vector

    @property
    def shots(self) -> Vector:
        """Counts of each setting in sum."""
        return np.asarray(self.table.sum(axis=1))


@dataclass(frozen=True)
class Expectations:
    """Mean values of Pauli strings: of `shots` results 1 and -1 each.

    Attributes
    ----------
    strings : list of str
    means, shots : ndarray, shape (k,)
    """

    strings: list[str]
    means: Vector
    shots: Vector


def read_counts(given: Any, bases: Bases, shots: Any, bit_order: Any) -> Counts | Expectations:
    """Return counts, or expectation values, from any of their forms; see `fit_state`."""
    if bit_order not in BIT_ORDERS:
        raise ValueError(f"bit_order must be 'same' or 'reversed', got {bit_order!r}")
    reverse = bit_order == "reversed"
    rows = _table_rows(given)
    if rows is not None:
        return _of_dict(rows, bases, shots, reverse)
    if isinstance(given, Mapping):
        if not given:
            raise ValueError("counts is empty: give at least one setting")
        plain = [is_number(value) for value in given.values()]
        if all(plain):
            return _expectations(given, shots, bases)
        if any(plain):
            key = list(given)[plain.index(True)]
            raise ValueError(
                f"counts[{key!r}] is a number, but others are dictionaries: give "
                "{setting: {outcome: count}}, or numbers alone for expectation values"
            )
        return _of_dict(given, bases, shots, reverse)
    if isinstance(given, list | tuple) and given and all(isinstance(g, Mapping) for g in given):
        names = bases.listed(len(given))
        return _of_pairs(list(zip(names, given, strict=True)), bases, shots, reverse)
    return _of_array(given, bases, shots, reverse)


# --- forms -----------------------------------------------------------------------------------


def _table_rows(given: Any) -> dict[Any, dict[Any, Any]] | None:
    """Return a table with columns setting, outcome and count as nested dictionaries."""
    columns = list(given) if isinstance(given, Mapping) else getattr(given, "columns", None)
    if columns is None or {str(each).lower() for each in columns} < set(COLUMNS):
        return None
    by_name = {str(each).lower(): each for each in columns}
    if not set(COLUMNS) <= by_name.keys():
        if isinstance(given, Mapping):
            return None
        missing = next(each for each in COLUMNS if each not in by_name)
        raise ValueError(
            f"counts is a table without a column {missing!r}: it must have the columns setting, "
            "outcome and count"
        )
    parts = [list(given[by_name[each]]) for each in COLUMNS]
    if len({len(each) for each in parts}) != 1:
        raise ValueError("counts: the columns setting, outcome and count must be of one length")
    found: dict[Any, dict[Any, Any]] = {}
    for setting, outcome, count in zip(*parts, strict=True):
        _check_count(f"counts of setting {setting!r}, outcome {outcome!r}:", count, None)
        own = found.setdefault(setting, {})
        own[outcome] = own.get(outcome, 0) + count
    return found


def _of_dict(given: Mapping[Any, Any], bases: Bases, shots: Any, reverse: bool) -> Counts:
    return _of_pairs(list(given.items()), bases, shots, reverse)


def _of_pairs(pairs: list[tuple[Any, Any]], bases: Bases, shots: Any, reverse: bool) -> Counts:
    """Return the counts of settings, each a dictionary, an array of counts or of samples."""
    settings = [bases.setting(name) for name, _ in pairs]
    q = len(settings[0])
    for (name, _), setting in zip(pairs, settings, strict=True):
        if len(setting) != q:
            raise ValueError(
                f"setting {name!r} has {len(setting)} letters, but {pairs[0][0]!r} has {q}: all "
                "must be of one length"
            )
    sizes = bases.outcomes(q)
    names = [_named(name) for name, _ in pairs]
    each = _per_setting(shots, names)
    table = np.stack([
        _outcomes(f"counts[{name!r}]", value, sizes, total, reverse)
        for (name, value), total in zip(pairs, each, strict=True)
    ])  # fmt: skip
    return _checked(Counts(np.array(settings, np.int64), names, table))


def _of_array(given: Any, bases: Bases, shots: Any, reverse: bool) -> Counts:
    """Return the counts of an array (settings, outcomes)."""
    values = as_numbers("counts", given)
    if values.ndim > 2:
        values = values.reshape(len(values), -1)
    if values.ndim != 2 or values.dtype.kind not in "buif" or not values.size:
        raise ValueError(
            "counts must be a dictionary {setting: {outcome: count}}, an array (settings, "
            f"outcomes) or a table, got an array of {values.dtype} of shape {values.shape}"
        )
    q = bases.factors(values.shape[1])
    named = bases.listed(len(values), q)
    settings = np.array([bases.setting(name) for name in named], np.int64)
    sizes, names = bases.outcomes(q), [_named(name) for name in named]
    each = _per_setting(shots, names)
    rows = [
        _row(f"counts[{i}]", row, total)
        for i, (row, total) in enumerate(zip(values, each, strict=True))
    ]
    table = np.stack(rows)
    if reverse:
        shape = (len(table), *sizes[::-1])
        table = table.reshape(shape).transpose(0, *range(q, 0, -1)).reshape(len(table), -1)
    return _checked(Counts(settings, names, np.ascontiguousarray(table)))


def _expectations(given: Mapping[Any, Any], shots: Any, bases: Bases) -> Expectations:
    """Return mean values by Pauli string."""
    strings = [str(key) for key in given]
    digits = [string for string in strings if not set(string) <= set("I" + LETTERS) or not string]
    if digits:
        wrong = digits[0]
        if set(wrong) <= set("01 ") and wrong:
            raise ValueError(
                f"counts has the bitstring {wrong!r} at its top: give the settings, too, as "
                "{setting: {bitstring: count}}"
            )
        raise ValueError(
            f"counts[{wrong!r}]: expectation values belong to strings of I, X, Y and Z"
        )
    if not bases.is_pauli:
        raise ValueError("expectation values of Pauli strings go with bases='pauli'")
    for string in strings:
        if len(string) != len(strings[0]):
            raise ValueError(
                f"counts[{string!r}] has {len(string)} letters, but {strings[0]!r} has "
                f"{len(strings[0])}: all must be of one length"
            )
    if shots is None:
        raise ValueError("expectation values need shots=: how many results each is the mean of")
    totals = np.array([_shots_of(each, "shots") for each in _per_setting(shots, strings)])
    means = np.array([float(value) for value in given.values()])
    outside = np.flatnonzero(~(np.abs(means) <= 1.0 + MAX_UNEVEN))
    if outside.size:
        i = outside[0]
        raise ValueError(
            f"counts[{strings[i]!r}] is {means[i]:g}, but an expectation value of a Pauli string "
            "lies between -1 and 1"
        )
    keep = np.array([bool(set(string) - {"I"}) for string in strings])
    if not keep.any():
        raise ValueError("counts has no Pauli string other than the identity")
    kept = [string for string, kept in zip(strings, keep, strict=True) if kept]
    return Expectations(kept, means[keep].clip(-1.0, 1.0), totals[keep])


# --- outcomes --------------------------------------------------------------------------------


def _outcomes(name: str, value: Any, sizes: tuple[int, ...], shots: Any, reverse: bool) -> Vector:
    """Return the counts of one setting, one per combination of outcomes."""
    if hasattr(value, "get_counts"):  # a result of Qiskit
        value = value.get_counts()
    if isinstance(value, Mapping):
        row = np.zeros(prod(sizes))
        for outcome, count in value.items():
            _check_count(f"{name}[{outcome!r}]", count, shots)
            row[_place(name, outcome, sizes, reverse)] += count
        return _row(name, row, shots)
    values = as_numbers(name, value)
    if values.ndim == 2 and values.shape[1] == len(sizes):  # samples, one row per shot
        digits = values[:, ::-1] if reverse else values
        if not ((digits >= 0) & (digits < np.array(sizes)) & (digits == np.floor(digits))).all():
            raise ValueError(f"{name} holds samples, but some are no outcomes: 0 and 1 for qubits")
        places = np.ravel_multi_index(tuple(digits.astype(np.int64).T), sizes)
        return np.bincount(places, minlength=prod(sizes)).astype(np.float64)
    if values.shape != (prod(sizes),):
        raise ValueError(
            f"{name} must be a dictionary of outcomes, {prod(sizes)} counts, or samples of "
            f"{len(sizes)} columns, got shape {values.shape}"
        )
    row = _row(name, values, shots)
    return row.reshape(sizes[::-1]).T.ravel() if reverse else row


def _place(name: str, outcome: Any, sizes: tuple[int, ...], reverse: bool) -> int:
    """Return the number of an outcome among all combinations."""
    q, bits = len(sizes), set(sizes) == {2}
    if is_whole(outcome) or (isinstance(outcome, str) and outcome.startswith(HEXADECIMAL)):
        try:
            number = int(outcome, 16) if isinstance(outcome, str) else int(outcome)
        except ValueError:
            number = -1
        if not 0 <= number < prod(sizes):
            raise ValueError(
                f"{name} has the outcome {outcome!r}, but outcomes are numbered 0 to "
                f"{prod(sizes) - 1}"
            )
        digits = [int(each) for each in np.unravel_index(number, sizes[::-1] if reverse else sizes)]
    elif isinstance(outcome, str):
        text = outcome.replace(" ", "").replace("_", "")
        if len(text) != q:
            raise ValueError(
                f"{name} has the outcome {outcome!r} with {len(text)} digits, but there are {q} "
                f"{'qubits' if bits else 'factors'}"
            )
        digits = [int(digit) if digit.isdecimal() else -1 for digit in text]
    else:
        digits = [int(each) if is_whole(each) else -1 for each in to_list(name, outcome, "digits")]
    if reverse:
        digits = digits[::-1]
    if len(digits) != q or not all(0 <= d < s for d, s in zip(digits, sizes, strict=True)):
        allowed = "0 and 1" if bits else f"below {sizes}"
        raise ValueError(
            f"{name} has the outcome {outcome!r}, but outcomes are {q} digits, {allowed}"
        )
    return int(np.ravel_multi_index(tuple(digits), sizes))


def _row(name: str, values: Any, shots: Any) -> Vector:
    """Return the counts of one setting as floats; relative frequencies are times shots."""
    row = np.asarray(values, np.float64)
    for outcome in np.flatnonzero(~(np.isfinite(row) & (row >= 0.0))):
        _check_count(f"{name}, outcome {outcome}:", row[outcome], shots)
    if shots is None:
        for outcome in np.flatnonzero(row != np.floor(row)):
            _check_count(f"{name}, outcome {outcome}:", row[outcome], shots)
        return row
    total, held = _shots_of(shots, f"shots of {name}"), float(row.sum())
    if (row == np.floor(row)).all() and not (held == 1.0 and total > 1.0):  # counts
        if held != total:
            raise ValueError(
                f"{name} holds {held:g} counts in sum, but shots is {total:g}: give counts of all "
                "shots, or probabilities that sum to 1"
            )
        return row
    if np.any(row > 1.0) or abs(held - 1.0) > MAX_UNEVEN:
        raise ValueError(f"{name} holds probabilities that sum to {held:.6g}: they must sum to 1")
    counts = np.rint(row * total)
    if np.abs(counts - row * total).max() > MAX_UNEVEN * total or counts.sum() != total:
        raise ValueError(
            f"{name} holds probabilities that are no counts out of {total:g} shots: give the counts"
        )
    return counts


def _check_count(name: str, count: Any, shots: Any) -> None:
    """Raise a ValueError unless it is a count, or with shots a probability."""
    number = float(count) if is_number(count) else np.nan
    if not (np.isfinite(number) and number >= 0.0):
        what = "a count must be a whole number, not negative"
        if shots is not None:
            what = "a probability must lie between 0 and 1, and a count not be negative"
        raise ValueError(f"{name} is {count!r}, but {what}".replace(": is", " is"))
    if shots is None and number != np.floor(number):
        raise ValueError(
            f"{name} is {number:g}, but a count must be a whole number: give shots= with relative "
            "frequencies".replace(": is", " is")
        )
    if shots is not None and number > 1.0 and number != np.floor(number):
        raise ValueError(
            f"{name} is {number:g}, but a probability must lie between 0 and 1".replace(
                ": is", " is"
            )
        )


def _per_setting(shots: Any, names: list[str]) -> list[Any]:
    """Return the shots of each setting; None where none were given."""
    if shots is None or is_number(shots):
        return [shots] * len(names)
    if isinstance(shots, Mapping):
        by_name = {_named(key): value for key, value in shots.items()}
        for name in names:
            if name not in by_name:
                raise ValueError(f"shots has no entry for {name!r}: give one per setting")
        return [by_name[name] for name in names]
    each = to_list("shots", shots, "numbers, one per setting")
    if len(each) != len(names):
        raise ValueError(f"shots has {len(each)} entries, but there are {len(names)} settings")
    return each


def _shots_of(value: Any, name: str) -> float:
    """Return a positive whole number."""
    if not (is_number(value) and value == np.floor(value) and 0 < value < np.inf):
        raise ValueError(f"{name} must be a positive whole number, got {value!r}")
    return float(value)


def _named(setting: Any) -> str:
    """Return a setting in words."""
    if isinstance(setting, str):
        return setting
    return ",".join(str(each) for each in setting) if np.ndim(setting) else str(setting)


def _checked(found: Counts) -> Counts:
    """Raise a ValueError where nothing was counted in a setting."""
    empty = np.flatnonzero(found.shots == 0.0)
    if empty.size:
        raise ValueError(
            f"setting {found.names[empty[0]]!r} has no shots: leave out settings that were not "
            "measured"
        )
    return found


def all_outcomes(sizes: tuple[int, ...]) -> list[str]:
    """Return the outcomes in their order, as strings of digits."""
    return ["".join(map(str, digits)) for digits in product(*map(range, sizes))]
