"""Where nothing fits: how small the largest miss can be, between a proved bound and a matrix.

A method that proves that nothing fits stops there. For the message the smallest worst ratio (with
`bounds`, the smallest largest miss) is sought once more, until both bounds on it are within the
gap.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import numpy as np

from quadsense.arrays import Vector
from quadsense.core.matrix import SensedMatrix
from quadsense.core.records import changed
from quadsense.methods import METHODS
from quadsense.methods.conic.solve import solve_question
from quadsense.methods.steps import LENIENT, own
from quadsense.methods.traits import GapOptions
from quadsense.preferences import Preference, make_question
from quadsense.proofs.exact import user_dual
from quadsense.proofs.infeasible import Proof, check_infeasible
from quadsense.proofs.rounding import Enclosure
from quadsense.query.plan import shape_of
from quadsense.query.request import start_value
from quadsense.result.values import Values, allowed_size
from quadsense.stages.runs import Request, found_in
from quadsense.system.watch import FLOPS, Stop

MAX_FLOPS = 5.0 * FLOPS
"""Predicted work up to which the gap is closed, unless the solve itself was predicted to take as
much: about five seconds of one core."""

GAP = 0.25 * GapOptions().gap
"""Relative gap of the question: what rounding costs comes on top."""

STARTS = (None, 10.0, 0.3, 3.0)
"""Multiples of the identity to begin from, in units of the one that fits constraints or readings;
None for the kernel's own. Others than the first are rarely needed."""


class Smallest(NamedTuple):
    """What was found: a dual vector of the user's rows with what it proves, and a matrix.

    `matrix` is None, and all that is about it, where none meets constraints and equalities.
    """

    dual: Vector
    proof: Proof
    matrix: SensedMatrix | None = None
    found: Enclosure | None = None
    values: Values | None = None


def smallest_miss(request: Request) -> Smallest | None:
    """Return the dual vector of the best bound on the smallest miss, and the best matrix.

    With `bounds` the miss is the largest of an interval in units of the readings, otherwise the
    worst ratio to the tolerance. Constraints and equalities are not missed. None where that takes
    too long or proves nothing.
    """
    data, problem, psd = request.data, request.problem, request.positive
    name = "slack_max" if data.from_bounds else "minimax"
    shape = changed(shape_of(data, psd=psd, rank=None, target=True), prefer=name, damped=False)
    conic = METHODS.traits("conic")
    if not conic.serves(shape) or conic.work(shape).flops > max(MAX_FLOPS, request.plan.flops):
        return None
    question = make_question(data, Preference(name, psd, True), unit=True)
    assert question is not None
    scaled = data.scaled()
    size = data.fixed_multiple or start_value("mean", scaled.b, scaled.telling, data.unit_rows)
    eye, best = np.eye(data.n), None
    starts = STARTS if data.has_hard and psd and size > 0.0 else STARTS[:1]
    with suppress(Stop, MemoryError), LENIENT():
        for factor in starts:
            start = None if factor is None else factor * size * eye
            solution = solve_question(data.unit_rows, question, start=start, gap=GAP)
            # In questions y > 0 leans on the upper end, as in proofs about the cone, but not else.
            dual = user_dual(data, solution.y if psd else -solution.y)
            proof = check_infeasible(data, dual, psd)
            if proof.proved and (best is None or proof.lower_bound > best.proof.lower_bound):
                best = (
                    Smallest(dual, proof) if best is None else best._replace(dual=dual, proof=proof)
                )
            if solution.X is not None:
                matrix = SensedMatrix.from_factor(own(problem, solution.X))
            else:
                matrix = SensedMatrix.from_dense(own(problem, solution.A))
            found = found_in(matrix, problem)
            values = Values(data, found, size=allowed_size(data, matrix))
            if best is not None and bool(values.met[data.hard].all()):
                return best._replace(matrix=matrix, found=found, values=values)
    return best
