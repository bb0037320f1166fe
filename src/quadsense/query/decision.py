"""What follows from a query and its data before anything is computed: which A, by which plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quadsense.core.records import changed
from quadsense.measurements import Measurements
from quadsense.measurements.frame import Columns, described, framed
from quadsense.methods import METHODS
from quadsense.preferences import Preference
from quadsense.query.choice import check_preference, checked, decide, frame_for, in_frame
from quadsense.query.plan import Plan, Shape, make_plan, shape_of
from quadsense.query.query import Query
from quadsense.query.request import check_ability, check_options, given_options, to_rank
from quadsense.system.machine import Rates
from quadsense.system.memory import limited_memory, to_bytes
from quadsense.system.threads import one_blas_thread
from quadsense.system.watch import Watch


@dataclass(frozen=True)
class Decision:
    """Which A is sought, and how.

    Attributes
    ----------
    query : Query
        What was asked, in the form of `choice.checked`.
    user, data : Measurements
        With the constraints; and with the columns of U scaled, where they are.
    columns : ndarray of int or None
        The exponents of that scaling.
    preferences : tuple of Preference
        To be tried in turn: the next where one does not exist.
    shape : Shape
    plan : Plan
    options : dict
        Those of methods, as given.
    order : int or None
        Most columns of a factor; 0 where it may grow, None where no rank was asked for.
    signs : (int, int) or None
        Most positive and most negative eigenvalues, where some may be negative.
    positive : bool
        Whether A is sought among positive semidefinite matrices.
    allowed : int
        Measurements that may be set aside.
    """

    query: Query
    user: Measurements
    data: Measurements
    columns: Columns | None
    preferences: tuple[Preference, ...]
    shape: Shape
    plan: Plan
    options: dict[str, Any] = field(default_factory=dict)
    order: int | None = None
    signs: tuple[int, int] | None = None
    positive: bool = False
    allowed: int = 0

    @property
    def wanted(self) -> str:
        """The name of the preference that is wanted first."""
        named = self.query.prefer
        return self.preferences[0].name if named in ("auto", "any") else named


def decided(
    query: Query, data: Measurements, watch: Watch, given: Any = None, rates: Rates | None = None
) -> Decision:
    """Check the query against the data, and decide which A is sought, by which plan.

    Parameters
    ----------
    query : Query
    data : Measurements
        With their tolerance, if they have one.
    watch : Watch
    given : object, optional
        The U from which `data` was made, where it was made for this solve.
    rates : Rates, optional
        Of this machine, for the predicted seconds; by default what is known of it.
    """
    query.check(data)
    method = query.method
    target = data.tolerance is not None
    if not target:
        data = data.without_tolerance()
    user = data = data.constrained(query.trace, query.constraints)
    options = given_options(query, data.m)
    check_ability(query, data, target)
    named = method != "auto" and METHODS.traits(method).cones.isdisjoint({"symmetric"})
    order, signs = to_rank(query.rank)
    positive = bool(query.psd) or (signs is None if order is not None else named)
    query = checked(query, data, target=target, positive=positive, low_rank=query.rank is not None)
    columns = frame_for(query, data)
    if columns is not None:
        data, query = framed(data, columns), in_frame(query, columns)
    shape = shape_of(
        data, psd=positive, rank=order, target=target, given=given, start=query.start,
        tf32=bool(options.get("allow_tf32")),
    )  # fmt: skip
    preferences, reasons = decide(query, data, shape, watch)
    shape = changed(shape, prefer=preferences[0].name, damped=preferences[0].ridge > 0.0)
    check_preference(shape, query)
    plan = make_plan(shape, method, rates)
    scaling = () if columns is None else (described(columns),)
    plan = changed(plan, reasons=(*reasons, *scaling, *plan.reasons))
    check_options(plan.methods, options, method)
    return Decision(
        query, user, data, columns, preferences, shape, plan, options, order, signs, positive,
        int(query.allow_violations),
    )  # fmt: skip


def planned(query: Query, rates: Rates) -> Plan:
    """Return the plan that `quadsense.solve` follows for this query about measurements.

    Parameters
    ----------
    query : Query
    rates : Rates
        Of this machine.
    """
    data = query.data
    assert isinstance(data, Measurements)
    with np.errstate(under="ignore"), one_blas_thread():
        with limited_memory(to_bytes(query.memory_limit)):
            data = data.settled()
        return decided(query, data, Watch(), rates=rates).plan
