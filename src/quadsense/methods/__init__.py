"""One folder per method, under its public name.

`METHODS` is the only list of them: what else must be known of a method it says itself, in its
`Traits`, and the plan, the checks of arguments, the command and the docs ask for that.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, TypeVar

from quadsense.methods.base import COLD, Method, Problem, State, Trace, Warm
from quadsense.methods.traits import Cone, Options, Traits, missing_traits
from quadsense.vocabulary import Claim

M = TypeVar("M", bound=type[Any])


class _Methods(Mapping[str, Any]):
    """Classes by public name, each imported when it is first asked for.

    A solve needs one or two of them, and importing all takes longer than a small solve. A plan
    needs to know something of all: so the traits of those that come with the package are in
    modules of their own, `traits` in the folder of the method, and are bases of the methods.
    """

    def __init__(self, homes: dict[str, tuple[str, str, str]]) -> None:
        self._homes = homes
        self._registered: dict[str, type[Any]] = {}
        self._imported: dict[str, type[Any]] = {}
        self._traits: dict[str, type[Traits]] = {}

    def __getitem__(self, name: str) -> Any:
        if name in self._registered:
            return self._registered[name]
        if name not in self._imported:
            module, _, kind = self._homes[name]
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
            _, module, kind = self._homes[name]
            home = import_module(f"quadsense.methods.{module}")
            self._traits[name] = getattr(home, f"{kind}Traits")
        return self._traits[name]

    def able(self, cone: Cone, proves: bool = False) -> list[str]:
        """Those that seek A there, or only those that can prove that nothing fits."""
        kinds = [self.traits(name) for name in self]
        return [kind.name for kind in kinds if cone in kind.cones and (kind.proves or not proves)]

    def add(self, kind: type[Any]) -> None:
        """Take up a method of the user's own."""
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
        "closed_form": ("descent.gd", "descent.traits", "ClosedForm"),
        "gd": ("descent.gd", "descent.traits", "GradientDescent"),
        "sgd": ("descent.sgd", "descent.traits", "StochasticDescent"),
        "cg": ("cg.method", "cg.traits", "ConjugateGradient"),
        "minimax": ("minimax.method", "minimax.traits", "Minimax"),
        "psd": ("psd.method", "psd.traits", "Psd"),
        "low_rank": ("low_rank.method", "low_rank.traits", "LowRank"),
        "conic": ("conic.method", "conic.traits", "Conic"),
        "least_squares": ("least_squares.method", "least_squares.traits", "LeastSquares"),
        "consensus": ("consensus.method", "consensus.traits", "Consensus"),
    }
)
"""Public name of each method, the modules of its mathematics and of its traits, and its class."""


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


__all__ = [
    "COLD",
    "METHODS",
    "Claim",
    "Method",
    "Options",
    "Problem",
    "State",
    "Trace",
    "Traits",
    "Warm",
    "register",
]
