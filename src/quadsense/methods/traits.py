"""What a method says of itself, apart from its mathematics, and the list of all methods.

A plan needs this of all methods at once, and imports the mathematics of none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar, get_args

import numpy as np

from quadsense.core.records import record
from quadsense.system.machine import FLOAT64_BYTES, MAX_FORMED_BYTES
from quadsense.system.watch import cholesky_flops, real_flops
from quadsense.typing import DEFAULT_GAP, is_number

T = TypeVar("T")


def option(default: T, text: str) -> T:
    """A field of an `Options`: its default, and what it is, in a line."""
    described: T = field(default=default, metadata={"help": text})
    return described


@dataclass(frozen=True)
class Options:
    """No options: the base of those of every method, whose fields are keywords of `solve`."""

    def check(self, m: int) -> None:
        """Raise ValueError for a value that makes no sense for m measurements."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The keywords."""
        return tuple(entry.name for entry in fields(cls))


@dataclass(frozen=True)
class GapOptions(Options):
    """Of methods that know both bounds on the smallest worst error."""

    gap: float = option(DEFAULT_GAP, "relative gap of the two bounds at which the optimum is found")

    def check(self, m: int) -> None:
        """Refuse a gap that is none."""
        super().check(m)
        if not (is_number(self.gap) and 0 < self.gap < 1):
            raise ValueError(f"gap must lie strictly between 0 and 1, got {self.gap!r}")


@dataclass(frozen=True)
class DeviceOptions(Options):
    """Of methods whose steps may be less precise than what is claimed of them."""

    allow_tf32: bool = option(
        False, "let steps on a GPU use TF32 products; what is claimed stays float64"
    )

    def check(self, m: int) -> None:
        """Refuse what is neither yes nor no."""
        super().check(m)
        if not isinstance(self.allow_tf32, bool | np.bool):
            raise ValueError(f"allow_tf32 must be True or False, got {self.allow_tf32!r}")


@dataclass(frozen=True)
class PsdOptions(DeviceOptions, GapOptions):
    """Of `psd`."""


Cone: TypeAlias = Literal["symmetric", "psd", "rank"]
"""Where A is sought: everywhere, among the positive semidefinite, among those of low rank."""

HALF_RATE = 70.0
"""Columns at which products with blocks of U run at half the rate of large square ones."""

VECTORS = 12
"""Numbers per row that are held, in methods that keep only a few vectors (measured)."""

MAX_MOVED_UNKNOWNS = 2000
"""Unknowns up to which a dual vector is moved for its proof: at the cost of a step."""

MAX_WIDE = 1000
"""Columns up to which A is formed though there are fewer rows than columns."""


SINGLE_TIME = 0.5
"""Time of a product in single precision, next to one in float64."""


def factor_flops(side: float, build: float) -> float:
    """Return the work of forming and factoring a system in single precision."""
    return SINGLE_TIME * (cholesky_flops(side) + side * build)


@record(frozen=True)
class Shape:
    """All of a problem that its cost depends on.

    Attributes
    ----------
    m, n : int
    complex, sparse, orthonormal : bool
    copied : bool
        Whether rows in single precision are a copy: of a dense NumPy array in double precision.
    converted : bool
        Whether U came in another type, or in another order of magnitude than float64 squares: it
        was copied before the plan was made.
    started : bool
        Whether a dense matrix was given to start from.
    density : float
        Share of nonzeros of K, where U is sparse.
    psd : bool
    rank : int or None
        Asked rank; 0 where it may grow.
    target : bool
        Whether there is a tolerance to meet.
    one_sided : bool
        Whether some interval has only one end.
    raw : int
        Rows of U and of constraints, where readings are sums over them; else 0.
    summed : bool
        Whether the user's readings are such sums (`mix`).
    ratio : float
        Worst residual of the start in units of the tolerance, a power of two.
    gram : str
        Form of K where the method uses one, else "none".
    prefer : str
        Which A is wanted: a value of `prefer`, or "slack_max", "slack_sum", "slack_squares".
    damped : bool
        Whether least squares is pulled towards a prior.
    constrained : bool
        Whether there are linear constraints or equalities.
    in_parts : bool
        Whether some rows by themselves cost no more than their share (see `Probes.in_blocks`).
    on_gpu : bool
        Whether the rows are on a GPU.
    strip : int
        Bytes that are read together of rows in files; 0 where they are in memory.
    at_hand : bool
        Whether a pass over the rows costs no more than its arithmetic (see `RowFacts`).
    diagonal : bool
        Whether the rows know a basis in which the normal matrix of least squares is diagonal.
    """

    m: int
    n: int
    complex: bool = False
    sparse: bool = False
    orthonormal: bool = False
    copied: bool = True
    converted: bool = False
    started: bool = False
    density: float = 1.0
    psd: bool = False
    rank: int | None = None
    target: bool = True
    one_sided: bool = False
    raw: int = 0
    summed: bool = False
    ratio: float = 32.0
    gram: str = "none"
    prefer: str = "any"
    damped: bool = False
    constrained: bool = False
    in_parts: bool = False
    on_gpu: bool = False
    strip: int = 0
    at_hand: bool = True
    diagonal: bool = False

    @property
    def cone(self) -> Cone:
        """Where A is sought."""
        if self.rank is not None:
            return "rank"
        return "psd" if self.psd else "symmetric"

    @property
    def damped_squares(self) -> bool:
        """Whether least squares with a pull is sought, without a cone and without constraints."""
        plain = self.cone == "symmetric" and not self.constrained
        return plain and self.damped and self.prefer == "least_squares"

    @property
    def nearest_by_rows(self) -> bool:
        """Whether the nearest matrix is sought by an active set of the rows: K is formed."""
        plain = self.cone == "symmetric" and not (self.constrained or self.mixed)
        formed = self.m < self.unknowns and FLOAT64_BYTES * self.m**2 <= 2 * MAX_FORMED_BYTES
        return plain and formed and self.prefer == "nearest"

    @property
    def mixed(self) -> bool:
        """Whether readings are sums over rows."""
        return self.raw > 0

    @property
    def rows(self) -> int:
        """Rows of U."""
        return self.raw or self.m

    @property
    def is_wide(self) -> bool:
        """Whether A is so much larger than the span of the rows that it is not formed."""
        return self.n > max(self.rows, MAX_WIDE)

    @property
    def unknowns(self) -> int:
        """Real dimensions of A."""
        return self.n**2 if self.complex else self.n * (self.n + 1) // 2

    @property
    def item(self) -> int:
        """Bytes of an entry of A."""
        return FLOAT64_BYTES * (2 if self.complex else 1)

    @property
    def weight(self) -> float:
        """Real multiplications in a multiplication of two entries of U."""
        return real_flops(self.complex)

    @property
    def row_bytes(self) -> int:
        """Bytes of a dense U."""
        return self.rows * self.n * self.item

    @property
    def matrix_bytes(self) -> int:
        """Bytes of a dense A."""
        return self.n**2 * self.item

    @property
    def single_bytes(self) -> int:
        """Bytes of the rows in single precision, where they are a copy."""
        return self.row_bytes // 2 if self.copied else 0

    @property
    def product(self) -> float:
        """Operations of ``F(A)`` or of ``F*(y)``, at the rate of large products."""
        return self.weight * (1.0 + HALF_RATE / self.n) * self.rows * float(self.n) ** 2


class Work(NamedTuple):
    """What a method is expected to do until it has a verdict.

    Attributes
    ----------
    flops : float
        Float64 operations, in units of those of a large matrix product.
    traffic : float
        Bytes read from memory by what memory bounds.
    passes : float
        Steps, each of which costs some calls of Python whatever its size.
    known : bool
        Whether it is known to a factor of about five.
    """

    flops: float
    traffic: float
    passes: float
    known: bool = True


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
    built_in : frozenset of str
        Those of them that it seeks by itself, from readings and tolerances, without an objective.
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
    built_in: ClassVar[frozenset[str]] = frozenset()
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


# --- the methods ---------------------------------------------------------------------------------

M = TypeVar("M", bound=type[Any])


@cache
def _usual_options(kind: Any) -> Any:
    """Return the options of a method where none is given."""
    return kind()


class _Methods(Mapping[str, Any]):
    """Classes by public name, each imported when it is first asked for.

    A solve needs one or two of them, and importing all takes longer than a small solve. A plan
    needs to know something of all: so the traits of those that come with the package are at the
    top of the folder of the method, in its `__init__`, and are bases of the methods.
    """

    def __init__(self, homes: dict[str, tuple[str, str]]) -> None:
        self._homes = homes
        self._registered: dict[str, type[Any]] = {}
        self._imported: dict[str, type[Any]] = {}
        self._traits: dict[str, type[Traits]] = {}

    def __getitem__(self, name: str) -> Any:
        if name in self._registered:
            return self._registered[name]
        if name not in self._imported:
            module, kind = self._homes[name]
            self._imported[name] = getattr(import_module(f"quadsense.methods.{module}"), kind)
        return self._imported[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self) -> tuple[str, ...]:
        """Return all names."""
        return (*self._homes, *self._registered)

    def __len__(self) -> int:
        return len(self._homes) + len(self._registered)

    def __contains__(self, name: object) -> bool:
        return name in self._homes or name in self._registered

    def traits(self, name: str) -> type[Traits]:
        """What a method says of itself, without its mathematics."""
        if name in self._registered:
            return self._registered[name]
        if name not in self._traits:
            module, kind = self._homes[name]
            home = import_module(f"quadsense.methods.{module.partition('.')[0]}")
            self._traits[name] = getattr(home, f"{kind}Traits")
        return self._traits[name]

    def options(self, name: str, given: Mapping[str, Any]) -> Options:
        """Return what of the options given a method knows, as its own."""
        known: Any = self.traits(name).options
        if not given:
            return _usual_options(known)
        return known(**{key: value for key, value in given.items() if key in known.names()})

    def able(self, cone: Cone, proves: bool = False) -> list[str]:
        """Those that seek A there, or only those that can prove that nothing fits."""
        kinds = [self.traits(name) for name in self]
        return [kind.name for kind in kinds if cone in kind.cones and (kind.proves or not proves)]

    def add(self, kind: type[Any]) -> None:
        """Take up a method of the user's own."""
        from quadsense.methods.base import Method  # which knows `Options`

        missing = missing_traits(kind)
        functions = [name for name in vars(Method) if not name.startswith("_")]
        missing += [f"{name}()" for name in functions if not callable(getattr(kind, name, None))]
        if missing:
            raise ValueError(f"{kind.__name__} is no method yet: it lacks {', '.join(missing)}")
        if kind.name == "auto" or kind.name in self:
            raise ValueError(f"there is a method {kind.name!r} already: choose another name")
        self._registered[kind.name] = kind


METHODS = _Methods(
    {
        "closed_form": ("descent.gd", "ClosedForm"),
        "gd": ("descent.gd", "GradientDescent"),
        "sgd": ("descent.sgd", "StochasticDescent"),
        "cg": ("cg.method", "ConjugateGradient"),
        "minimax": ("minimax.method", "Minimax"),
        "psd": ("psd.method", "Psd"),
        "low_rank": ("low_rank.method", "LowRank"),
        "conic": ("conic.method", "Conic"),
        "least_squares": ("least_squares.method", "LeastSquares"),
        "consensus": ("consensus.method", "Consensus"),
    }
)
"""Public name of each method, the module of its mathematics in its folder, and its class."""


def register(kind: M) -> M:
    """Make a class into a method of `solve`, of the plan and of the command.

    Parameters
    ----------
    kind : type
        With the functions of `Method` and everything that `Traits` asks for.

    Returns
    -------
    type
        The class itself, so that this serves as a decorator.

    Raises
    ------
    ValueError
        Naming what the class lacks, or that its name is taken.
    """
    METHODS.add(kind)
    return kind
