"""Problems, one for each method and stage, whose states are to be whole."""

from dataclasses import replace

import numpy as np

import quadsense
from quadsense.core.question import Question
from quadsense.files import read_arrays, write_arrays
from quadsense.files.codec import decode, encode
from quadsense.measurements.gram import make_gram
from quadsense.methods import METHODS, Problem
from quadsense.methods.minimax.method import Stage
from quadsense.methods.psd.method import Bisection


def save_state(path, state):
    """Write a state."""
    arrays, plain = encode(state)
    write_arrays(path, arrays, {"state": plain})


def load_state(path):
    """Read a state that `save_state` wrote."""
    stored = read_arrays(path)
    return decode(stored, stored.metadata["state"])


def _problem(U, b, delta, gram=None, **named):
    data = quadsense.Measurements(U, b, delta=delta)
    scaled = data.scaled()
    options = named.pop("options", {})  # those of a method once it is known, in `cases`
    tau = named.pop("tau", float(np.mean(scaled.b)))
    K = None if gram is None else make_gram(data.unit_rows, gram)
    return Problem(
        data.unit_rows, scaled.b, scaled.delta, tau, gram=K, options=options, seed=7, **named
    )


def _random(m, n, complex_, rank=None, noise=0.0, seed=0):
    """Rows, and readings of a positive semidefinite matrix."""
    rng = np.random.default_rng([seed, m, n, complex_])
    draw = rng.standard_normal
    U = draw((m, n)) + 1j * draw((m, n)) if complex_ else draw((m, n))
    k = n if rank is None else rank
    X = draw((n, k)) + 1j * draw((n, k)) if complex_ else draw((n, k))
    b = np.sum(np.abs(U.conj() @ X) ** 2, axis=1) / k
    return U, b + noise * draw(m)


def _preferring(problem, rows, lo=None, hi=None, psd=True, least=1.0):
    """The problem with a question about its readings."""
    b = np.asarray(problem.b)
    if lo is None:
        lo, hi = np.full(b.size, -np.inf), np.full(b.size, np.inf)
    reading = b if rows == "squares" else np.zeros_like(b)
    free = np.zeros(b.size, bool)
    question = Question(rows, lo, hi, np.geomspace(1.0, least, b.size), reading, free, psd=psd)
    return replace(problem, question=question)


def _twice(complex_):
    """Fewer rows than unknowns, each given twice with other readings."""
    U, b = _random(14, 8, complex_)
    return np.vstack([U, U]), np.concatenate([b, b + np.sin(np.arange(14.0))])


def _asked(rows, U, b, delta, **named):
    """A problem with a question of that kind."""
    problem = _problem(U, b, delta)
    lo, hi, nothing = problem.b - problem.delta, problem.b + problem.delta, np.zeros(len(b))
    reading = problem.b if rows == "squares" else nothing
    free = np.zeros(len(b), bool)
    question = Question(rows, lo, hi, nothing + 1.0, reading, free, **named)
    return replace(problem, question=question)


def cases():
    """(method, problem, steps per stride, strides before the state is written) by name."""
    out = {}
    for kind in ("real", "complex"):
        c = kind == "complex"

        def add(name, method, problem, steps, count, kind=kind):
            traits = METHODS.traits("psd" if method == "bisection" else method)
            problem = replace(problem, options=traits.options(**problem.options))
            out[f"{name} {kind}"] = method, problem, steps, count

        U, b = _random(30, 8, c)
        Q = np.linalg.qr(_random(12, 8, c)[0].T)[0].T
        add("closed_form", "closed_form", _problem(Q, b[:8], 1e-6, "identity"), 1, 1)
        for method in ("gd", "sgd"):
            add(method, method, _problem(U, b, 1e-9, "explicit"), 7, 3)
            add(f"{method} orthonormal", method, _problem(Q, b[:8], 1e-12, "identity"), 3, 3)
        exact = {"norm": "exact", "batch_size": 3}
        add("sgd exact", "sgd", _problem(U, b, 1e-9, "explicit", options=exact), 7, 3)
        add("gd matrix-free", "gd", _problem(U, b, 1e-9, "matrix-free"), 7, 3)

        many = _random(400, 12, c, noise=1.0)
        add("cg", "cg", _problem(*_random(120, 16, c), 1e-11), 1, 1)
        add("cg plain", "cg", _problem(*_random(600, 80, c), 1e-6), 2, 2)
        add("cg wide", "cg", _problem(*_random(20, 30, c), 1e-12), 2, 2)
        add("cg many rows", "cg", _problem(*many, 1e-3), 1, 1)
        add("cg operator", "cg", _problem(U, b, 1e-9, "matrix-free"), 2, 2)

        add("minimax", "minimax", _problem(*many, 1e-3), 1, 2)
        add("minimax few rows", "minimax", _problem(*_twice(c), 1e-2), 1, 1)
        add("minimax kernel", "minimax", _problem(*many, 1e-3), 1, 2)
        closely = {"gap": 1e-6}
        problem = _problem(*many, 1.0, target=False, options=closely)
        add("minimax no delta", "minimax", problem, 1, 2)

        growing = _random(17_000, 4, c, noise=1.0)
        add("minimax many rows", "minimax", _problem(*growing, 1.0, target=False), 1, 8)

        low = _random(90, 12, c, rank=2, noise=0.3)
        add("psd symmetric", "psd", _problem(*_random(60, 12, c), 1e-7), 3, 1)
        add("psd nearest", "psd", _problem(*_random(60, 12, c, rank=2), 1e-9), 2, 2)
        add("psd projected", "psd", _problem(*low, 1e-2), 5, 9)
        add("psd interior", "psd", _problem(*low, 0.3), 2, 37 if c else 26)
        add("psd no delta", "bisection", _problem(*low, 1.0, target=False), 5, 3)

        add("conic", "conic", _asked("within", *low, 0.5, C=1.0, psd=True), 2, 2)
        add("conic nearest", "conic", _asked("within", *low, 0.5, alpha=1.0, psd=True), 2, 2)
        add("conic symmetric", "conic", _asked("center", *many, 2.5), 1, 1)
        add("conic few rows", "conic", _asked("within", *_random(20, 8, c), 0.1, alpha=1.0), 1, 2)
        for rows in ("slack_max", "slack_sum", "slack_squares", "squares"):
            add(f"conic {rows}", "conic", _asked(rows, *many, 0.1, psd=rows != "slack_max"), 2, 2)
        noisy = _problem(*_random(90, 6, c, rank=2, noise=0.3), 1.0, target=False)
        b = np.asarray(noisy.b)
        # More unknowns than are found by cuts before the first step.
        wider = _problem(*_random(200, 11 if c else 15, c, rank=2, noise=0.3), 1.0, target=False)
        near = np.asarray(wider.b) - 0.03, np.asarray(wider.b) + 0.03
        add("least_squares", "least_squares", _preferring(wider, "squares"), 5, 3)
        add("least_squares ends", "least_squares", _preferring(wider, "squares", *near), 10, 6)
        wide, finely = (b - 0.75, b + 0.75), replace(noisy, options={"gap": 1e-8})
        add("consensus", "consensus", _preferring(finely, "squares", *wide), 2, 2)
        add(
            "consensus no cone", "consensus", _preferring(finely, "squares", *wide, psd=False), 2, 2
        )
        # As many as take conjugate gradients: fewer are made orthogonal at once.
        few = _problem(*_random(250, 23 if c else 32, c), 1.0, target=False)
        add(
            "least_squares no cone",
            "least_squares",
            _preferring(few, "squares", psd=False, least=1e-12),
            1,
            1,
        )
        far = np.where(b > np.median(b), 1.5 * b, -np.inf), np.where(b > np.median(b), np.inf, b)
        add(
            "least_squares misses", "least_squares", _preferring(noisy, "slack_squares", *far), 1, 4
        )

        add("low_rank", "low_rank", _problem(*_random(120, 12, c, rank=2), 1e-10, rank=2), 1, 2)
        few, thrice = _random(30, 12, c, rank=2), {"max_restarts": 3}
        problem = _problem(*few, 1e-10, rank=1, options=thrice)
        add("factored restarts", "low_rank", problem, 5, 20)
        add("factored grows", "low_rank", _problem(*_random(90, 12, c, rank=3), 1e-6), 2, 5)
        large = _random(3000, 70, c, rank=3)
        add("factored quasi-Newton", "low_rank", _problem(*large, 1e-9, rank=3), 2, 2)
    return out


def started(name):
    """Method, program and first state of a case."""
    method, problem, _, _ = cases()[name]
    solver = Bisection() if method == "bisection" else METHODS[method]()
    program = solver.prepare(problem)
    state = solver.start(program)
    if name.startswith("minimax kernel"):  # where rounding leads on data that few tests have
        state = solver._begin(program, Stage.KERNEL, 1.0, 0)
    return solver, program, state


def strides(solver, program, state, steps, count):
    """That many strides on, in what every stage of a method does."""
    for _ in range(count):
        state = solver.advance(program, state, steps)
    return state
