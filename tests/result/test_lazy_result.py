"""What a result says is made when it is read, and stays what it was."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import quadsense
from quadsense.core.records import Lazy
from quadsense.stages import answer

LATER = ("facts", "history", "plan")


def solved(rng: np.random.Generator, m: int = 40):
    p = quadsense.datasets.gaussian(n=4, m=m, seed=int(rng.integers(1000)))
    b, delta = p.b.copy(), np.full(m, 0.1)
    return b, delta, quadsense.solve(p.U, b, delta=delta), quadsense.solve(p.U, p.b, delta=0.1)


def test_texts_are_not_made_before_they_are_read(rng):
    *_, result, _ = solved(rng)
    assert not set(LATER) & set(vars(result))
    assert result.message.startswith("met: ")
    assert "facts" in vars(result)
    assert result.verdict is result.verdict


def test_changed_readings_change_no_verdict(rng):
    b, delta, result, other = solved(rng)
    b[:], delta[:] = 5.0, 7.0
    assert result.message == other.message
    assert result.verdict == other.verdict


def test_copies_are_whole(rng):
    *_, result, _ = solved(rng)
    again = copy.copy(result)
    assert set(LATER) <= set(vars(again))
    assert again.message == result.message
    assert again.plan == result.plan
    np.testing.assert_array_equal(again.history.max_ratio, result.history.max_ratio)


def test_a_name_that_no_field_has_is_an_error():
    record = Lazy.of({"late": lambda: 3}, early=2)
    assert (record.early, record.late, record.late) == (2, 3, 3)
    with pytest.raises(AttributeError, match="'Lazy' object has no attribute 'never'"):
        _ = record.never


def test_of_many_readings_the_facts_are_made_at_once(monkeypatch, rng):
    monkeypatch.setattr(answer, "MAX_KEPT_READINGS", 20)
    *_, result, _ = solved(rng)
    assert "facts" in vars(result)
    assert "facts" not in result._later
    assert set(result._later) == {"history", "plan"}
