"""Small constructions used by several tests."""

import numpy as np
import pytest
import scipy.sparse as sp

import quadsense
from quadsense.measurements.gram import gram_form, make_gram
from quadsense.methods import METHODS, Problem
from quadsense.stages.runs import start_value


def build(U, b, delta, *, method="gd", seed=0, start="tau", **options):
    """Method, program and first state, for stepping by hand."""
    data = quadsense.Measurements(U, b, delta=delta)
    scaled = data.scaled()
    kind, _ = gram_form(data.m, data.n, data.orthonormal)
    problem = Problem(
        rows=data.unit_rows,
        gram=make_gram(data.unit_rows, kind),
        b=scaled.b,
        delta=scaled.delta,
        tau=start_value(start, scaled.b, data.unit_rows.nonzero),
        options=METHODS.traits(method).options(**options),
        seed=seed,
    )
    solver = METHODS[method]()
    program = solver.prepare(problem)
    return solver, program, solver.start(program)


def unit(U):
    return U / np.linalg.norm(U, axis=1, keepdims=True)


def gaussian_rows(rng, m, n, complex_):
    U = rng.standard_normal((m, n))
    return U + 1j * rng.standard_normal((m, n)) if complex_ else U


def sparse_rows(rng, m, n, density):
    return sp.csr_array(rng.standard_normal((m, n)) * (rng.random((m, n)) < density))


def hermitian(rng, n, complex_):
    A = gaussian_rows(rng, n, n, complex_)
    return A + A.conj().T


def readings(U, A):
    return np.einsum("ij,jk,ik->i", U.conj(), A, U).real


def features(U):
    """The sensing map written out on a real basis of the Hermitian matrices."""
    n = U.shape[1]
    columns = []
    for j in range(n):
        for k in range(j, n):
            E = np.zeros((n, n), dtype=complex)
            E[j, k] = E[k, j] = 1.0
            columns.append(readings(U, E))
            if k > j and np.iscomplexobj(U):
                E[j, k], E[k, j] = 1j, -1j
                columns.append(readings(U, E))
    return np.array(columns).T


def sampled(values, quick=10):
    """Return parameters of a test, of which the quick tests take the first ones alone."""
    return [value if i < quick else deep(value) for i, value in enumerate(values)]


def cover(rows, columns, each=1, quick=None):
    """Return every pair as parameters of a test; the quick tests take some pairs of each row.

    Parameters
    ----------
    rows, columns : iterable
        What the pairs are made of; a column that is a tuple gives several parameters.
    each : int
        How many columns the quick tests take with a row: the next ones in turn, so that every
        column has its share of the rows.
    quick : int, optional
        From how many rows, spread evenly, the quick tests take pairs; from all by default.
    """
    rows, columns = list(rows), list(columns)
    stride = 1 if quick is None else -(-len(rows) // quick)
    found = []
    for i, row in enumerate(rows):
        taken = each if i % stride == 0 else 0
        kept = {(each * (i // stride) + j) % len(columns) for j in range(taken)}
        for j, column in enumerate(columns):
            pair = (row, *column) if isinstance(column, tuple) else (row, column)
            found.append(pair if j in kept else deep(*pair))
    return found


def deep(*values):
    """Return parameters of a case that the quick tests leave out."""
    return pytest.param(*values, marks=pytest.mark.deep)
