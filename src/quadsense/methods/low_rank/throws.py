"""A start near a factor that is wrong in few unknowns: some of them thrown elsewhere."""

from __future__ import annotations

import numpy as np

from quadsense.methods.low_rank.passes import evaluate
from quadsense.methods.low_rank.program import Matrix, Program
from quadsense.methods.low_rank.starts import random_start

# Unknowns that are thrown elsewhere at once, at most.
_THROWN = 3


def thrown(problem: Program, Y: Matrix, rng: np.random.Generator) -> Matrix:
    """Return a factor some columns of which, that a missed row sees, are somewhere else nearby.

    For sparse rows: an unknown is seen by few of them, so that the others hardly mind.
    """
    U, F = problem.shared.sparse, problem.F
    assert U is not None
    point = evaluate(problem, Y, 1.0)
    blame = np.abs(F.unmixed((point.excess / problem.delta) ** 2))
    total = float(blame.sum())
    if not total > 0.0:
        return Y
    moved = Y.copy()
    reads = np.sqrt(np.sum(np.abs(point.P) ** 2, axis=0))
    seen = abs(U)
    for row in rng.choice(blame.size, size=int(rng.integers(1, _THROWN + 1)), p=blame / total):
        columns = U.indices[U.indptr[row] : U.indptr[row + 1]]
        column = int(rng.choice(columns))
        # As far as the row reads, or as all that see the unknown do, or between.
        others = seen[:, [column]]
        far = float(reads @ others.toarray().ravel()) / float(others.sum())
        near = min(float(reads[row]), far) or far
        size = near * (far / near) ** rng.random() if near > 0.0 else 1.0
        noise = random_start(problem, len(Y), rng)[:, column]
        moved[:, column] += noise * (2.0 * size * rng.random() / float(np.linalg.norm(noise)))
    return moved
