"""The stages of `minimax`, and the linear program of each, from the problem as it came."""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum

import numpy as np

from quadsense.arrays import to_numpy
from quadsense.core.forms import MeasuredForm
from quadsense.core.matrix import SensedMatrix
from quadsense.core.packed import Array, Vector
from quadsense.core.records import cached_property
from quadsense.methods.base import Problem
from quadsense.methods.minimax.asked import asked
from quadsense.methods.minimax.coordinates import GramCoordinates, MatrixCoordinates
from quadsense.methods.minimax.growing import growing, worth
from quadsense.methods.minimax.program import Program, by_gram, prepare, prepare_rows
from quadsense.methods.minimax.rows import fits
from quadsense.methods.steps import start_matrix


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
    balanced : (ndarray, ndarray) or None
        The last dual vector that was balanced, and what came of it: it is asked for several times.
    """

    def __init__(self, problem: Problem) -> None:
        self.given, self.asked = problem, asked(problem)
        what = self.asked
        largest = what.scale * float(np.max(np.abs(what.b) + what.delta, initial=0.0))
        plain = problem.base is None and problem.c_start is None
        if plain and abs(problem.tau) > largest:  # a mean of middles, not given by the user
            problem = replace(problem, tau=0.0)
        self.problem = problem
        self.balanced: tuple[Vector, Vector] | None = None
        self.fast: Program | None = None
        self.weighed = False
        self.squares = np.ones_like(what.b)
        if what.b.size:
            image = to_numpy(replace(problem, b=0.0 * problem.b).initial_residual())
            left = what.b - what.of(image) / what.scale
            F = what.on(problem.rows)
            if by_gram(F):  # factored with pivots, by LAPACK
                F = what.on(problem.rows.on_numpy())
            squares = float(what.delta.min()) / what.delta
            self.weighed = float(squares.min()) <= 1.0 - 1e-12  # otherwise equal up to rounding
            if self.weighed:
                self.squares, F = squares, F.weighed(F.beside(np.sqrt(squares)))
            self.fast = prepare(F, self.squares * left, self.squares * what.delta, what.sides)
            if isinstance(self.fast.coordinates, MatrixCoordinates) and worth(F):
                self.fast = growing(self.fast)

    @cached_property
    def careful(self) -> Program | None:
        """For A itself, on unit rows; None where it would take too long."""
        what = self.asked
        if not what.b.size or not fits(what.b.size, self.problem.rows.unknowns):
            return None
        F = what.on(self.problem.rows.on_numpy())
        return prepare_rows(F, what.b, what.delta, what.sides)

    def unknowns(self, fit: SensedMatrix) -> Array | None:
        """What `fast` has for a matrix, where that is cheap to find."""
        program = self.fast
        assert program is not None
        coordinates = program.coordinates
        if isinstance(coordinates, MatrixCoordinates):
            near = (np.asarray(fit) - start_matrix(self.problem)) / self.asked.scale
            return program.F.beside(near)
        if not isinstance(coordinates, GramCoordinates):
            return None
        problem, form = self.problem, fit.form
        if not isinstance(form, MeasuredForm):
            difference = (np.asarray(fit) - start_matrix(problem)) / self.asked.scale
            return coordinates.unknowns(program.F.forward(difference))
        if form.rows is not problem.rows or form.tau != problem.tau:
            return None
        if form.base is not problem.base:
            return None
        c = -to_numpy(form.c) if problem.c_start is None else to_numpy(problem.c_start - form.c)
        # A = F*(c) reads K c = L (L^T c); rows are those that ask, weighed.
        return np.asarray(coordinates.L.T @ (self.asked.of(c) / self.squares / self.asked.scale))

    def program(self, stage: Stage) -> Program:
        """The linear program of a stage."""
        program = self.careful if stage is Stage.CAREFUL else self.fast
        assert program is not None
        return program

    def dual(self, stage: Stage, y: Vector) -> Vector:
        """The vector of a lower bound on all unit rows."""
        y = np.asarray(y)
        y = y if stage is Stage.CAREFUL else self.squares * y
        return self.asked.spread(y, self.problem.m)
