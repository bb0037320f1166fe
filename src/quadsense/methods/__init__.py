"""One algorithm a file; each is ``start``, ``advance`` a stride, ``matrix``."""

from quadsense.methods.base import Claim, Method, Options, Problem, State, Trace
from quadsense.methods.closed_form import ClosedForm
from quadsense.methods.gradient_descent import GradientDescent
from quadsense.methods.stochastic import StochasticDescent

METHODS: dict[str, type[Method]] = {
    "closed_form": ClosedForm,
    "gd": GradientDescent,
    "sgd": StochasticDescent,
}
"""Public name of each method."""

__all__ = [
    "METHODS",
    "Claim",
    "ClosedForm",
    "GradientDescent",
    "Method",
    "Options",
    "Problem",
    "State",
    "StochasticDescent",
    "Trace",
]
