"""Where the data lives: the probes, the readings and their tolerances. Nothing else knows."""

from quadsense.measurements.measurements import Measurements
from quadsense.measurements.gram import Gram

__all__ = ["Gram", "Measurements"]
