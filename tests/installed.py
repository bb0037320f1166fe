"""The package as users get it: built, installed where nothing else is, and tried.

``python tests/installed.py dist`` makes an environment in a temporary folder, installs the wheel
with what it depends on and nothing more, and runs the command. The source archive must hold what
the wheel is made of.
"""

import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

HEAVY = (
    "torch", "dask", "matplotlib", "sklearn", "numba", "h5py", "zarr", "pandas", "pyarrow",
    "cvxpy", "IPython",
)  # fmt: skip
"""What `import quadsense` must not import, installed or not."""

IMPORTS = f"""
import sys
import quadsense
found = [name for name in {HEAVY!r} if name in sys.modules]
assert not found, f"import quadsense imports {{found}}"
import quadsense.cli
found = [name for name in {HEAVY!r} if name in sys.modules]
assert not found, f"the command imports {{found}}"
"""

USE = """
import numpy as np, quadsense
p = quadsense.datasets.gaussian(n=5, m=12, seed=0)
for name in ("d.npz", "d.mat", "d.csv"):
    quadsense.Measurements(p.U, p.b, delta=0.1).save(name)
result = quadsense.solve(quadsense.Measurements.open("d.mat"))
assert result.success and result.verify(p.U, p.b)
"""


def main(folder: str) -> None:
    (wheel,) = Path(folder).glob("*.whl")
    (archive,) = Path(folder).glob("*.tar.gz")
    check_contents(wheel, archive)
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        venv.create(home / "env", with_pip=True)
        programs = home / "env" / ("Scripts" if sys.platform == "win32" else "bin")
        run([programs / "python", "-m", "pip", "install", "--quiet", wheel.resolve()], home)
        run([programs / "python", "-m", "pip", "check"], home)
        run([programs / "python", "-W", "error", "-c", IMPORTS], home)
        run([programs / "python", "-c", USE], home)
        run([programs / "quadsense", "demo"], home)
        run([programs / "python", "-m", "quadsense", "inspect", "d.csv"], home)
        run([programs / "quadsense", "schema", "solve"], home)
        done = subprocess.run(
            [programs / "quadsense", "solve", "d.csv", "--dense", "A.h5"],
            cwd=home,
            capture_output=True,
            text=True,
        )
        said = "which needs the package h5py: pip install 'quadsense[files]'"
        assert done.returncode == 2 and said in done.stderr, done
    print(f"{wheel.name}: installed by itself, imported, used")


def check_contents(wheel: Path, archive: Path) -> None:
    """Everything of the package is in both, and of the wheel nothing else."""
    source = Path(__file__).resolve().parents[1] / "src"
    kept = [path for path in source.rglob("*") if path.suffix in (".py", ".json", ".typed")]
    wanted = {str(path.relative_to(source)) for path in kept if "__pycache__" not in path.parts}
    names = set(zipfile.ZipFile(wheel).namelist())
    assert wanted <= names, wanted - names
    others = {name for name in names if not name.startswith("quadsense")}
    assert not others, others
    with tarfile.open(archive) as held:
        packed = {name.partition("/")[2] for name in held.getnames()}
    missing = {f"src/{name}" for name in wanted} - packed
    assert not missing, missing


def run(words: list, home: Path) -> None:
    """Run a program in that folder; what it says is shown where it fails."""
    done = subprocess.run(words, cwd=home, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{words} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")


if __name__ == "__main__":
    main(sys.argv[1])
