"""One folder per method, under its public name.

`METHODS` is the only list of them: what else must be known of a method it says itself, in its
`Traits`, and the plan, the checks of arguments, the command and the docs ask for that.
"""

from quadsense.methods.base import COLD, Method, Problem, State, Trace, Warm
from quadsense.methods.traits import METHODS, Options, Traits, register
from quadsense.vocabulary import Claim

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
