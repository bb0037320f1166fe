"""What each method says of itself, apart from its mathematics: a plan needs all of it at once."""

from quadsense.methods.traits.options import Options, option
from quadsense.methods.traits.shape import Shape, Work

__all__ = ["Options", "Shape", "Work", "option"]
