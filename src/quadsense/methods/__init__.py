"""One algorithm a file: ``prepare``, ``start``, ``advance`` a stride, ``claim``, ``matrix``."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from quadsense.methods.base import COLD, Claim, Method, Options, Problem, State, Trace, Warm


class _Methods(Mapping[str, Any]):
    """Classes by public name, each imported when it is first asked for.

    A solve needs one or two of them, and importing all takes longer than a small solve.
    """

    def __init__(self, homes: dict[str, tuple[str, str]]) -> None:
        self._homes = homes

    def __getitem__(self, name: str) -> Any:
        module, kind = self._homes[name]
        return getattr(import_module(f"quadsense.methods.{module}"), kind)

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


METHODS: Mapping[str, Any] = _Methods(
    {
        "closed_form": ("closed_form", "ClosedForm"),
        "gd": ("gradient_descent", "GradientDescent"),
        "sgd": ("stochastic", "StochasticDescent"),
        "cg": ("conjugate_gradient", "ConjugateGradient"),
        "minimax": ("minimax", "Minimax"),
        "dual": ("dual", "Dual"),
        "factored": ("factored", "Factored"),
    }
)
"""Public name of each method, and where it lives."""

__all__ = [
    "COLD", "METHODS", "Claim", "Method", "Options", "Problem", "State", "Trace", "Warm",
]  # fmt: skip
