"""Least squares by steps of the first order, against CVXPY and closed forms."""

from dataclasses import replace

import numpy as np
import pytest
from toy import Toy  # noqa: F401  (registers nothing: the path of the tests is set)

import quadsense
from quadsense.methods import METHODS, Problem
from quadsense.methods.squares.cone import Cone
from quadsense.methods.squares.state import Stage

cp = pytest.importorskip("cvxpy")
