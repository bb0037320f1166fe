"""`Traits`: what a method says of itself, for the plan, the request, the command and the docs."""

from __future__ import annotations

from typing import Any, ClassVar, get_args

from quadsense.methods.traits.options import Options
from quadsense.methods.traits.shape import Cone, Shape, Work

CONES: tuple[Cone, ...] = get_args(Cone)
NEEDS = ("rows", "gram", "orthonormal")
STATED = ("name", "summary", "cones", "one_sided", "without_tolerance", "random", "needs")
"""Attributes that have no default: every method must think of them."""

ANSWERED = ("coordinates", "memory", "work")
"""Questions of the plan that have no default answer."""


class Traits:
    """What a method says of itself.

    Attributes
    ----------
    name, summary : str
        Public name, and what it is for in a line.
    cones : frozenset of {"symmetric", "psd", "rank"}
        Where it can keep A: everywhere, positive semidefinite, of low rank.
    one_sided : bool
        Whether it takes intervals with one end.
    without_tolerance : bool
        Whether it can seek the smallest worst error; it then has an option `gap`.
    random : bool
        Whether it draws random numbers.
    needs : frozenset of {"rows", "gram", "orthonormal"}
        What it needs of the operator: the rows, K (always or in some shapes), and K = I.
    mixes : bool
        Whether it takes readings that are sums over rows (`mix`): those have no row of their own.
    local : bool
        Whether without a tolerance it seeks a least of its own, and proves nothing: it has no gap.
    constraints : bool
        Whether it takes linear constraints and equalities.
    proves : bool
        Whether it can prove that nothing fits.
    preferences : frozenset of str
        The values of `prefer` that it answers, and "slack_max", "slack_sum", "slack_squares".
    begins_anew : bool
        Whether, where a given start leads nowhere, `solve` may begin again without it.
    hands_over : tuple of str
        Under "auto", the methods that follow where this one has no verdict.
    options : type of Options
        Its own keywords of `solve`.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    cones: ClassVar[frozenset[Cone]]
    one_sided: ClassVar[bool]
    without_tolerance: ClassVar[bool]
    random: ClassVar[bool]
    needs: ClassVar[frozenset[str]]
    mixes: ClassVar[bool] = False
    local: ClassVar[bool] = False
    constraints: ClassVar[bool] = False
    proves: ClassVar[bool] = False
    preferences: ClassVar[frozenset[str]] = frozenset({"any"})
    begins_anew: ClassVar[bool] = True
    hands_over: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[type[Options]] = Options

    @classmethod
    def suits(cls, shape: Shape) -> str | None:
        """Why "auto" begins with this method for that shape; None where it does not."""
        return None

    @classmethod
    def followers(cls, shape: Shape) -> tuple[str, ...]:
        """Return `hands_over`, as far as it concerns this shape."""
        return cls.hands_over

    @classmethod
    def uses_gram(cls, shape: Shape) -> bool:
        """Whether K is to be at hand."""
        return "gram" in cls.needs

    @classmethod
    def coordinates(cls, shape: Shape) -> str:
        """What is carried: "measurement" (m coefficients), "matrix" (A) or "factor" (of A)."""
        raise NotImplementedError

    @classmethod
    def memory(cls, shape: Shape) -> int:
        """Return bytes taken in addition to U, to a factor of about two."""
        raise NotImplementedError

    @classmethod
    def proof_memory(cls, shape: Shape) -> int:
        """Bytes that a proof that nothing fits takes, where there is one to give."""
        return 0

    @classmethod
    def work(cls, shape: Shape) -> Work:
        """What a solve is expected to do, to a factor of about five."""
        raise NotImplementedError

    @classmethod
    def settles(cls, shape: Shape) -> bool:
        """Whether it is expected to need no other to take over."""
        return True

    @classmethod
    def serves(cls, shape: Shape) -> bool:
        """Whether it can honour what is asked."""
        return (
            shape.cone in cls.cones
            and (cls.one_sided or not shape.one_sided)
            and (cls.without_tolerance or shape.target)
            and (cls.mixes or not shape.mixed)
            and (cls.constraints or not shape.constrained)
            and shape.prefer in cls.preferences
            and (shape.orthonormal or "orthonormal" not in cls.needs)
        )


def missing_traits(kind: type[Any]) -> list[str]:
    """What a method class does not say of itself, in words; none where it is complete."""
    missing = [name for name in STATED if not hasattr(kind, name)]
    for name in ANSWERED:
        answer = getattr(kind, name, None)
        if answer is None or getattr(answer, "__func__", None) is getattr(Traits, name).__func__:
            missing.append(name)
    for name, known in (("cones", CONES), ("needs", NEEDS)):
        if hasattr(kind, name) and not (getattr(kind, name) and getattr(kind, name) <= set(known)):
            missing.append(f"{name} among {', '.join(known)}")
    bounds = getattr(kind, "without_tolerance", False) and not getattr(kind, "local", False)
    if bounds and "gap" not in kind.options.names():
        missing.append("an option 'gap', as it runs without a tolerance")
    return missing
