"""Which parts go to which task, who should get some of another's, and sums of a tree in pieces."""

import operator

import numpy as np
import pytest
from helpers import sampled

from quadsense.measurements import cluster as shares
from quadsense.measurements import shards as on_worker


def cluster(rng):
    """Some parts, workers and who has what; now and then a part that no worker has."""
    count = int(rng.integers(1, 40))
    names = [f"tcp://{i}" for i in range(rng.integers(1, 6))]
    threads = {name: int(rng.integers(1, 4)) for name in names}
    known = [*names, "tcp://gone"] if rng.random() < 0.3 else names
    most = int(rng.integers(1, 3))
    holders = [
        list(rng.choice(known, size=min(most, len(known)), replace=False)) for _ in range(count)
    ]
    return holders, threads, [int(size) for size in rng.integers(1, 100, count)]


@pytest.mark.parametrize("seed", sampled(range(40)))
def test_every_part_is_in_one_share_of_one_who_has_it(seed, monkeypatch):
    monkeypatch.setattr(shares, "SHARE_BYTES", 150)
    rng = np.random.default_rng(seed)
    holders, threads, sizes = cluster(rng)
    wanted = sorted(rng.choice(len(sizes), rng.integers(1, len(sizes) + 1), replace=False))
    found = shares.shared_out(wanted, holders, threads, sizes)
    assert sorted(part for share in found for part in share) == wanted
    for share in found:
        assert share == sorted(share) and share
        able = [{name for name in holders[part] if name in threads} for part in share]
        assert len(share) == 1 or set.intersection(*able)
        assert sum(sizes[part] for part in share) <= 150 + 100  # no more than half a part too many


def test_few_large_shares_and_none_for_threads_without_a_part():
    held = [["a"]] * 5 + [["b"]] * 5
    threads = {"a": 1, "b": 2, "c": 4}
    found = shares.shared_out(range(10), held, threads, [10] * 10)
    assert found[0] == [0, 1, 2, 3, 4] and found[1] + found[2] == [5, 6, 7, 8, 9]
    assert len(found) == 3 and {len(found[1]), len(found[2])} == {2, 3}
    assert shares.shared_out([1, 6], held, threads, [10] * 10) == [[1], [6]]
    assert shares.shared_out(range(2), [[], []], threads, [1, 1]) == [[0], [1]]


@pytest.mark.parametrize("seed", sampled(range(40)))
def test_moves_leave_nobody_with_much_more_than_others(seed):
    rng = np.random.default_rng(seed)
    names = [f"tcp://{i}" for i in range(rng.integers(2, 6))]
    threads = {name: int(rng.integers(1, 4)) for name in names}
    sizes = [int(size) for size in rng.integers(1, 100, rng.integers(1, 60))]
    before = [str(rng.choice(names[:2])) for _ in sizes]
    after = list(before)
    for part, worker in shares.moves([[one] for one in before], threads, sizes).items():
        after[part] = worker

    def loads(owners):
        return [
            sum(size for size, one in zip(sizes, owners, strict=True) if one == name)
            / threads[name]
            for name in names
        ]

    assert max(loads(after)) <= max(loads(before))
    assert max(loads(after)) <= sum(sizes) / sum(threads.values()) + max(sizes)
    assert shares.moves([[one] for one in after], threads, sizes) == {}


def test_nothing_is_moved_while_parts_are_loaded_or_where_it_would_not_help():
    assert shares.moves([["a"], ["a"], []], {"a": 1, "b": 1}, [1, 1, 1]) == {}
    assert shares.moves([["a"]], {"a": 1, "b": 1}, [1]) == {}
    assert shares.moves([["a"], ["a"], ["b"]], {"a": 1, "b": 1}, [1, 1, 1]) == {}
    assert shares.moves([["a"], ["a"]], {"a": 1, "b": 1}, [1, 1]) == {1: "b"}
    assert shares.moves([["a"], ["a"]], {}, [1, 1]) == {}


def in_one(values):
    """Neighbours first, and so on."""
    while len(values) > 1:
        pairs = [sum(values[i : i + 2][1:], values[i]) for i in range(0, len(values), 2)]
        values = pairs
    return values[0]


@pytest.mark.parametrize("seed", sampled(range(40)))
def test_sums_are_those_of_one_tree_however_parts_are_shared_out(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 30))
    values = [rng.standard_normal(3) * 10.0 ** rng.integers(-8, 8) for _ in range(count)]
    owners, pieces = rng.integers(0, rng.integers(1, 6), count), []
    for owner in np.unique(owners):
        piece = {}
        for part in np.flatnonzero(owners == owner):
            piece[0, int(part)] = values[part].copy()
            on_worker.add_up(piece, count, operator.iadd)
        pieces.append(piece)
    kept = [{key: value.copy() for key, value in piece.items()} for piece in pieces]
    while len(pieces) > 1:
        pieces = [on_worker.joined(count, *pieces[i : i + 2]) for i in range(0, len(pieces), 2)]
    (found,) = on_worker.joined(count, *pieces).values()
    assert np.array_equal(found, in_one(values))
    for piece in kept:  # whole branches only: none of them a half of another
        assert all((level, place ^ 1) not in piece for level, place in piece)
