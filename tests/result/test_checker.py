"""The checker's own arithmetic, next to fractions: nothing is shown that is not so."""

from __future__ import annotations

import hashlib
import random
import struct
from fractions import Fraction
from itertools import combinations

import pytest
from exact_matrices import is_semidefinite

import quadsense_check as checker


def nothing(S, *_):
    """In place of the proposed factor: zeros."""
    return [[0.0] * len(S) for _ in S]


def matrices(seed):
    """Symmetric matrices of whole numbers, definite, semidefinite, and nearly so."""
    rng = random.Random(seed)
    n = rng.randint(1, 6)
    size = 2 ** rng.choice([1, 4, 30, 90])
    rank = rng.randint(1, n + 1)
    X = [[rng.randint(-size, size) for _ in range(rank)] for _ in range(n)]
    S = [[sum(a * b for a, b in zip(one, two, strict=True)) for two in X] for one in X]
    for k in range(n):
        S[k][k] += rng.choice([-1, 0, 0, 1, size])
    shift = [rng.choice([0, 0, 40]) for _ in range(n)]
    return [[S[j][k] << (shift[j] + shift[k]) for k in range(n)] for j in range(n)]


@pytest.mark.parametrize("proposed", [True, False])
def test_what_is_shown_to_be_positive_is_and_all_that_is_small_is_shown(monkeypatch, proposed):
    if not proposed:
        monkeypatch.setattr(checker, "cholesky", nothing)
    kinds = set()
    for seed in range(300):
        S = matrices(seed)
        true = is_semidefinite([[Fraction(x) for x in row] for row in S])
        assert checker.is_positive(S) == true, seed
        assert checker.eliminates([list(row) for row in S]) == true, seed
        kinds.add(true)
    assert kinds == {True, False}


def test_a_factor_shows_what_is_definite_without_elimination(monkeypatch):
    monkeypatch.setattr(checker, "eliminates", lambda _: False)
    shown = 0
    for seed in range(300):
        S = matrices(seed)
        true = is_semidefinite([[Fraction(x) for x in row] for row in S])
        assert true or not checker.is_positive(S), seed
        for scale in (1, 2**70):  # and of no size in particular
            n = len(S)
            definite = [[scale * (S[j][k] + (j == k) * (1 + sum(map(abs, S[j])) // 4))
                         for k in range(n)] for j in range(n)]  # fmt: skip
            exact = [[Fraction(x) for x in row] for row in definite]
            least = [[x - (j == k) * exact[j][j] / 1000 for k, x in enumerate(row)]
                     for j, row in enumerate(exact)]  # fmt: skip
            if is_semidefinite(least):
                assert checker.is_positive(definite), seed
                shown += 1
    assert shown > 100


@pytest.mark.parametrize(
    ("S", "dominant"),
    [
        ([[2, -1], [-1, 2]], True),
        ([[2, 2], [2, 2]], True),
        ([[1, 2], [2, 1]], False),
        ([[2, 3], [3, 5]], False),  # definite, but not dominant
        ([[4, 3, 2], [3, 4, 0], [2, 0, 4]], False),
        ([[0, 0], [0, 3]], True),
        ([[0, 1], [1, 3]], False),
        ([[-1, 0], [0, 3]], False),
    ],
)
def test_without_a_factor_only_dominant_diagonals_are_shown(monkeypatch, S, dominant):
    monkeypatch.setattr(checker, "cholesky", nothing)
    monkeypatch.setattr(checker, "eliminates", lambda _: False)
    assert checker.is_positive(S) is dominant


def test_a_wrong_factor_shows_nothing_that_is_not_so(monkeypatch):
    monkeypatch.setattr(checker, "eliminates", lambda _: False)
    rng = random.Random(0)
    for seed in range(200):
        S = matrices(seed)

        def wrong(M, *_):
            n = len(M)
            return [[rng.uniform(-2, 2) * (k <= j) for k in range(n)] for j in range(n)]

        monkeypatch.setattr(checker, "cholesky", wrong)
        true = is_semidefinite([[Fraction(x) for x in row] for row in S])
        assert true or not checker.is_positive(S), seed


def test_larger_matrices_are_not_eliminated(monkeypatch):
    monkeypatch.setattr(checker, "cholesky", nothing)
    monkeypatch.setattr(checker, "MAX_ELIMINATED", 2)
    assert checker.is_positive([[2, 3], [3, 5]])
    assert not checker.is_positive([[2, 3, 0], [3, 5, 0], [0, 0, 1]])


def test_sums_and_roots_are_those_of_fractions():
    rng = random.Random(1)
    for _ in range(100):
        A, B = ([[rng.randint(-9, 9) for _ in range(3)] for _ in range(3)] for _ in "AB")
        p, q = rng.randint(-5, 5), rng.randint(-5, 5)
        t = Fraction(rng.randint(-9, 9), 2 ** rng.randint(0, 6))
        whole, power = checker.plus((A, p), t, (B, q))
        for j in range(3):
            for k in range(3):
                true = A[j][k] * Fraction(2) ** p + t * B[j][k] * Fraction(2) ** q
                assert whole[j][k] * Fraction(2) ** power == true
    for value in (
        Fraction(0),
        Fraction(2),
        Fraction(1, 3),
        Fraction(10**40, 7),
        Fraction(1, 10**40),
    ):
        found = checker.root(value)
        assert value <= found * found <= value * (1 + Fraction(1, 2**50))


def test_hitting_sets_are_found_where_there_are_any():
    rng = random.Random(2)
    for _ in range(200):
        supports = [set(rng.sample(range(6), rng.randint(0, 4))) for _ in range(rng.randint(0, 4))]
        for allowed in range(4):
            sets = (
                set(each) for size in range(allowed + 1) for each in combinations(range(6), size)
            )
            true = any(all(each & support for support in supports) for each in sets)
            assert checker.can_be_hit(supports, allowed) == true


def test_files_next_to_a_certificate_alone_are_read(tmp_path):
    held = {"format": "quadsense-certificate", "version": "1.0", "claim": "met", "n": 1, "m": 1,
            "lo": [1], "hi": [1], "A": {"entries": [1]}}  # fmt: skip
    folder = tmp_path / "inside"
    folder.mkdir()
    inside, outside = struct.pack("<d", 1.0), struct.pack("<d", -1.0)
    (folder / "u.bin").write_bytes(inside)
    (tmp_path / "u.bin").write_bytes(outside)
    right, other = (hashlib.sha256(data).hexdigest() for data in (inside, outside))
    named = {"file": "u.bin", "sha256": right}
    assert checker.check(held | {"U": named}, str(folder))[0]
    for name in ("../u.bin", str(tmp_path / "u.bin"), "u.bin"):  # what is outside is not read
        with pytest.raises(checker.Malformed):
            checker.check(held | {"U": {"file": name, "sha256": other}}, str(folder))
    for name in ("none.bin", "."):
        with pytest.raises(checker.Malformed):
            checker.check(held | {"U": {"file": name, "sha256": right}}, str(folder))
