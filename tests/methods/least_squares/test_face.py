"""The public face: names, short representations, and an import that is quick."""

import importlib
import subprocess
import sys

import numpy as np
import pytest

import quadsense
from quadsense.methods import METHODS
from quadsense.query.plan import Shape, make_plan


def test_public_names_are_there():
    for name in quadsense.__all__:
        assert getattr(quadsense, name) is not None


def test_dir_shows_public_names_only():
    shown = {name for name in dir(quadsense) if not name.startswith("__")}
    assert shown == {*quadsense.__all__, "plot"} - {"__version__"}
    assert "__version__" in dir(quadsense)
    for name in dir(quadsense):
        getattr(quadsense, name)


@pytest.mark.parametrize("name", ["datasets", "plot", "probes", "report", "sklearn"])
def test_dir_of_a_module_shows_its_public_names_only(name):
    module = importlib.import_module(f"quadsense.{name}")
    assert dir(module) == sorted(module.__all__)
    for each in dir(module):
        assert not each.startswith("_")
        assert getattr(module, each).__module__.startswith("quadsense.")


HEAVY = ("numba", "scipy.stats", "scipy.special", "scipy.optimize", "click", "tqdm",
         "threadpoolctl", "matplotlib", "asyncio")  # fmt: skip


def loaded_after(program):
    """Which of the slow modules a fresh process has imported after a program."""
    probe = f"{program}\nimport sys\nprint(*[n for n in {HEAVY!r} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.slow
def test_import_leaves_what_is_seldom_needed_alone():
    assert loaded_after("import quadsense") == []


@pytest.mark.slow
def test_numba_is_imported_by_the_first_descent_only():
    first = "import quadsense, numpy as np\nU = np.eye(3) + 0.1\n"
    assert "numba" not in loaded_after(first + "quadsense.solve(U, [1, 2, 3], delta=0.1)")
    descent = "quadsense.solve(U, [1, 2, 3], delta=0.1, method='gd')"
    assert "numba" in loaded_after(first + descent)


def problem():
    return quadsense.datasets.gaussian(n=20, m=60, rank=3, noise=0.01, seed=0)


def answer():
    return quadsense.solve(problem().measurements, delta=0.5)


SHOWN = {
    "Dataset(gaussian, m=60, n=20, rank=3, real, noise=0.01)": problem,
    "Measurements(m=60, n=20, dense, real)": lambda: problem().measurements,
    "SpectralOracle(n=2, condition=4)": lambda: quadsense.SpectralOracle(np.diag([1.0, 4.0])),
    "SpectralOracle(condition=1)": lambda: quadsense.SpectralOracle(whiten=abs, color=abs),
    "<20x20 SensedMatrix with dtype=float64>": lambda: answer().matrix,
    "<Result met: ": answer,
    "Plan(cg then minimax, ": lambda: make_plan(Shape(m=60, n=20)),
}


@pytest.mark.parametrize("start", SHOWN)
def test_representations_are_one_short_line_without_arrays(start):
    text = repr(SHOWN[start]())
    assert text.startswith(start)
    assert "\n" not in text
    assert "array" not in text
    assert len(text) <= 200


def test_every_method_is_found_under_its_name():
    for name, kind in METHODS.items():
        assert kind.name == name
    with pytest.raises(KeyError):
        METHODS["newton"]


@pytest.mark.slow
def test_the_first_descents_may_come_from_several_threads_at_once():
    program = """
import threading, numpy as np, quadsense
found = []
def work():
    U = np.eye(3) + 0.1
    found.append(quadsense.solve(U, [1, 2, 3], delta=0.1, method="gd").A)
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(found) == 4 and all((A == found[0]).all() for A in found)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
