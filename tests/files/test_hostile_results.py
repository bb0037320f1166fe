"""Files of results with anything anywhere: read, or refused with a ValueError; never run."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import sampled

import quadsense

ODD = (
    None, True, 0, -1, 1e308, float("nan"), 10**400, "x", [], [1], {}, {"dict": {}}, {"tuple": []},
    {"array": "result.residuals"}, {"array": "not there"}, {"scalar": "result.residuals"},
    {"foreign": "result.residuals"}, {"kind": "quadsense.result.stored:Held", "fields": {}},
    {"kind": ["a"], "fields": 3}, {"kind": "quadsense.system.watch:Watch", "fields": {}},
    {"enum": "quadsense.vocabulary:Status", "name": "MET"}, {"enum": 3, "name": []},
)  # fmt: skip
ARRAYS = (
    np.array("x"), np.array(1.0), np.ones((2, 2)), np.ones(3, complex), np.empty(0),
    np.array([b"z"]), np.ones(30, bool), np.full(30, np.nan), np.ones((0, 5)), np.arange(30),
)  # fmt: skip


def _cases():
    p, w = quadsense.datasets.gaussian(5, 30, seed=0), quadsense.datasets.gaussian(12, 5, seed=0)
    short = {"delta": 0.1, "method": "gd", "max_iter": 50}
    return {
        "dense": (p.U, p.b, {"delta": 0.1}),
        "factor": (p.U, p.b, {"delta": 0.1, "psd": True}),
        "infeasible": (p.U, p.b + np.arange(30), {"delta": 0.1}),
        "implicit": (w.U, w.b, short),
        "sparse": (sp.csr_array(w.U), w.b, short),
    }


def _paths(tree, path=()):
    yield path
    items = tree.items() if isinstance(tree, dict) else ()
    for key, value in enumerate(tree) if isinstance(tree, list) else items:
        yield from _paths(value, (*path, key))


def _with(tree, path, value):
    if not path:
        return value
    tree = tree.copy()
    tree[path[0]] = _with(tree[path[0]], path[1:], value)
    return tree


def _changes(path):
    """Arrays and metadata with one thing put in the place of another."""
    rng = np.random.default_rng(0)
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files if name != "metadata"}
        metadata = json.loads(str(archive["metadata"]))
    for place in _paths(metadata):
        yield arrays, _with(metadata, place, ODD[rng.integers(len(ODD))])
    for name in arrays:
        yield {other: values for other, values in arrays.items() if other != name}, metadata
        for index in rng.permutation(len(ARRAYS))[:4]:
            yield {**arrays, name: ARRAYS[index]}, metadata


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sampled(_cases(), 1))
def test_a_file_is_read_and_checked_or_refused(name, tmp_path):
    U, b, question = _cases()[name]
    quadsense.solve(U, b, **question).save(tmp_path / "r.npz")
    refused = 0
    for arrays, metadata in list(_changes(tmp_path / "r.npz")):
        np.savez(tmp_path / "r.npz", metadata=np.array(json.dumps(metadata)), **arrays)
        try:
            result = quadsense.load_result(tmp_path / "r.npz")
            assert str(result.status) in repr(result)
            result.verify(U, b)
        except ValueError:
            refused += 1
    assert refused > 80
