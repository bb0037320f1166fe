"""One algorithm a file; each is ``start``, ``advance`` a stride, ``claim``, ``matrix``."""

from typing import Any

from quadsense.methods.base import Claim, Method, Options, Problem, State, Trace
from quadsense.methods.closed_form import ClosedForm
from quadsense.methods.conjugate_gradient import ConjugateGradient
from quadsense.methods.dual import Dual
from quadsense.methods.factored import Factored
from quadsense.methods.gradient_descent import GradientDescent
from quadsense.methods.minimax import Minimax
from quadsense.methods.stochastic import StochasticDescent

METHODS: dict[str, Any] = {
    "closed_form": ClosedForm,
    "gd": GradientDescent,
    "sgd": StochasticDescent,
    "cg": ConjugateGradient,
    "minimax": Minimax,
    "dual": Dual,
    "factored": Factored,
}
"""Public name of each method."""

__all__ = ["METHODS", "Claim", "Method", "Options", "Problem", "State", "Trace"]
