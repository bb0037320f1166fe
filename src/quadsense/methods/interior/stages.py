"""The stages of `minimax`, and the linear program of each, from the problem as it came."""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from functools import cached_property

import numpy as np

from quadsense.arrays import to_numpy
from quadsense.core.packed import Vector
from quadsense.methods.base import Problem
from quadsense.methods.interior.asked import asked
from quadsense.methods.interior.program import Program, prepare, prepare_rows
from quadsense.methods.interior.rows import fits


class Stage(IntEnum):
    """What the state is of."""

    START = 0  # A_1 itself
    FAST = 1  # interior point by normal equations, from A_1
    CAREFUL = 2  # interior point by rows (see `interior.rows`), from 0


class Stages:
    """All that follows from a problem: the rows that ask, and the program of each stage.

    Attributes
    ----------
    given, problem : Problem
        As it came, and with a start that makes sense.
    asked : Asked
    weighed, squares : bool, ndarray
        Whether the rows of `fast` are scaled so that all tolerances are the same, and the squares
        of those scales.
    fast : Program or None
        For the difference from A_1, in units of ``asked.scale``; None where nothing is asked.
    """

    def __init__(self, problem: Problem) -> None:
        self.given, self.asked = problem, asked(problem)
        what = self.asked
        largest = what.scale * float(np.max(np.abs(what.b) + what.delta, initial=0.0))
        plain = problem.base is None and problem.c_start is None
        if plain and abs(problem.tau) > largest:  # a mean of middles that nobody gave
            problem = replace(problem, tau=0.0)
        self.problem = problem
        self.fast: Program | None = None
        self.weighed = False
        self.squares = np.ones_like(what.b)
        if what.b.size:
            image = to_numpy(replace(problem, b=0.0 * problem.b).initial_residual())
            left = what.b - what.of(image) / what.scale
            F = what.on(problem.rows)
            squares = float(what.delta.min()) / what.delta
            self.weighed = float(squares.min()) <= 1.0 - 1e-12  # else equal but for rounding
            if self.weighed:
                self.squares, F = squares, F.weighed(np.sqrt(squares))
            self.fast = prepare(F, self.squares * left, self.squares * what.delta, what.sides)

    @cached_property
    def careful(self) -> Program | None:
        """For A itself, on unit rows; None where it would take too long."""
        what = self.asked
        if not what.b.size or not fits(what.b.size, self.problem.rows.unknowns):
            return None
        return prepare_rows(what.on(self.problem.rows), what.b, what.delta, what.sides)

    def program(self, stage: Stage) -> Program:
        """The linear program of a stage."""
        program = self.careful if stage is Stage.CAREFUL else self.fast
        assert program is not None
        return program

    def dual(self, stage: Stage, y: Vector) -> Vector:
        """The vector of a lower bound on all unit rows."""
        y = y if stage is Stage.CAREFUL else self.squares * y
        return self.asked.spread(y, self.problem.m)
