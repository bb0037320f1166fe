"""Which form of K, which method, how many threads, and why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

from quadsense.measurements import Gram, Measurements, choose_gram

SMALL_PRODUCT = 2e7
"""Flops of a product with K below which a second BLAS thread costs more than it gives."""


@dataclass(frozen=True)
class Plan:
    """What was chosen for a problem.

    Attributes
    ----------
    method : str
    gram : Gram
    threads : int or None
        BLAS threads while iterating; None leaves them as they are.
    reasons : tuple of str
        In words.
    """

    method: str
    gram: Gram
    threads: int | None
    reasons: tuple[str, ...]

    def describe(self) -> dict[str, Any]:
        """The plan as plain data, for `Result.plan`."""
        return {
            "method": self.method,
            "gram": self.gram.kind,
            "threads": self.threads,
            "reasons": list(self.reasons),
        }


def make_plan(data: Measurements, method: str) -> Plan:
    """Choose the form of K and, for ``method="auto"``, the method."""
    if data.gram is None:
        gram, reason = choose_gram(data.unit_rows, data.orthonormal)
        data.gram = gram
    else:
        gram, reason = data.gram, f"K is at hand from before ({data.gram.kind})"
    reasons = [reason]
    if method == "auto":
        method = "closed_form" if gram.kind == "identity" else "gd"
        reasons.append(
            "orthonormal rows are solved in one step"
            if method == "closed_form"
            else "the rows are not orthonormal: gradient descent on the cosh potential"
        )
    small = gram.kind == "explicit" and 2.0 * data.m**2 < SMALL_PRODUCT
    return Plan(method, gram, 1 if small else None, tuple(reasons))


@cache
def _controller() -> ThreadpoolController:
    """The BLAS libraries of this process; looking them up takes milliseconds, once."""
    return ThreadpoolController()


@contextmanager
def blas_threads(count: int | None) -> Iterator[None]:
    """Limit BLAS to so many threads and put the old limit back."""
    if count is None:
        yield
        return
    with _controller().limit(limits=count, user_api="blas"):
        yield
