"""Small constructions used by several tests."""

import numpy as np
import scipy.sparse as sp

import quadsense
from quadsense.measurements.gram import gram_form, make_gram
from quadsense.methods import METHODS, Problem
from quadsense.request import start_value


def build(U, b, delta, *, method="gd", seed=0, start="tau", **options):
    """Method, problem and first state, for stepping by hand."""
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
        seed=np.random.default_rng(seed),
    )
    solver = METHODS[method]()
    return solver, problem, solver.start(problem)


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
