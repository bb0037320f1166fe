"""Where the data lives: the probes, the readings and their tolerances. Nothing else knows."""

from quadsense.measurements.gram import Gram
from quadsense.measurements.measurements import Measurements

__all__ = ["Gram", "Measurements"]
