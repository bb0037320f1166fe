"""The answers to many problems: `ManyResults`, in memory and in files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from quadsense import files
from quadsense.arrays import is_array, is_tensor, placed, to_numpy
from quadsense.core.records import cached_property
from quadsense.many.batch import Answers
from quadsense.many.normal import unpacked
from quadsense.typing import check_path
from quadsense.vocabulary import Status

if TYPE_CHECKING:
    from quadsense.many.batch import Batch
    from quadsense.result.result import Result

STATUSES = tuple(Status)
"""What the numbers in `Answers.status` stand for."""

BARS = " ▁▂▃▄▅▆▇█"
"""Heights of the bars of a histogram."""

RATIO_EDGES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, np.inf)
"""Edges of the histogram of the largest ratios to the tolerance."""


ENDS = ("lo", "hi")
"""Names of the ends of bounds."""

ASKED = ("delta", "weights", "covariates")
"""Arguments that may be arrays."""

FORMAT = "quadsense-many"
VERSION = 1  # rises when programs of before cannot read what is written


@dataclass(frozen=True)
class ManyResults:
    """The answers to `quadsense.solve_many`: arrays of one entry per problem.

    Where B is a torch tensor, these are tensors on its device.

    Attributes
    ----------
    answers : Answers
        The arrays that the properties show.
    n : int
        Order of A.
    is_complex : bool
    target : bool
        Whether there was a tolerance.
    asked : dict
        The arguments of the call, apart from U, B and its limits.
    batch : Batch or None
        What was asked, with the data; None for results read from a file.
    seconds : float
        From the call to the last answer.
    """

    answers: Answers
    n: int
    is_complex: bool
    target: bool
    asked: dict[str, Any] = field(repr=False)
    batch: Batch | None = field(default=None, compare=False)
    seconds: float = 0.0

    def __len__(self) -> int:
        """Return the number of problems."""
        return len(self.answers.status)

    @cached_property
    def status(self) -> npt.NDArray[Any]:
        """The `Status` of each problem; compare it with a status or its name."""
        return np.array(STATUSES, dtype=object)[self.answers.status]

    def _placed(self, values: Any) -> Any:
        """Return some of the answers where B is."""
        B = None if self.batch is None else self.batch.readings.B
        return placed(values, B) if is_tensor(B) else values

    @cached_property
    def A(self) -> npt.NDArray[Any]:
        """The matrices, (k, n, n)."""
        return self._placed(unpacked(self.answers.packed, self.n, self.is_complex))

    @property
    def packed(self) -> npt.NDArray[np.float64]:
        """The matrices as vectors of the same norm, (k, N): the diagonal, then the entries above
        it times sqrt(2), for complex A their real parts and then their imaginary ones."""
        return self._placed(self.answers.packed)

    @property
    def coef(self) -> npt.NDArray[np.float64]:
        """Coefficients of the covariates, (k, p)."""
        return self._placed(self.answers.coef)

    @property
    def met(self) -> npt.NDArray[np.bool_]:
        """Whether every reading is verified to be within its interval."""
        return self._placed(self.answers.met)

    @property
    def success(self) -> npt.NDArray[np.bool_]:
        """Whether the status is MET or OPTIMAL."""
        good = np.array([status.success for status in STATUSES])
        return self._placed(good[self.answers.status])

    @property
    def max_ratio(self) -> npt.NDArray[np.float64]:
        """Largest error over its tolerance; without a tolerance the largest error."""
        return self._placed(self.answers.max_ratio)

    @property
    def worst_row(self) -> npt.NDArray[np.int32]:
        """The row of U with that ratio."""
        return self._placed(self.answers.worst_row)

    @property
    def lower_bound(self) -> npt.NDArray[np.float64]:
        """Where INFEASIBLE, a proved lower bound on the `max_ratio` of every A; otherwise 0."""
        return self._placed(self.answers.lower_bound)

    @property
    def objective(self) -> npt.NDArray[np.float64]:
        """The weighted sum of squares."""
        return self._placed(self.answers.objective)

    @property
    def objective_lower(self) -> npt.NDArray[np.float64]:
        """A proved lower bound on the best one."""
        return self._placed(self.answers.objective_lower)

    @property
    def corrected(self) -> npt.NDArray[np.bool_]:
        """Whether the cone or the intervals change the answer: it is not plain least squares."""
        return self._placed(self.answers.corrected)

    def __getitem__(self, number: Any) -> Result:
        """Return the ordinary `Result` of a problem, with its certificate.

        With covariates it is about the readings minus the fitted covariates. A problem that was not
        decided is solved now.
        """
        k = len(self)
        if not isinstance(number, int | np.integer) or not -k <= number < k:
            raise IndexError(f"index must be a whole number from {-k} to {k - 1}, got {number!r}")
        found: Result = _fallback().certified(self.asked_batch, self.answers, int(number) % k)
        return found

    def __iter__(self) -> Iterator[Result]:
        """Yield the results in turn."""
        return (self[number] for number in range(len(self)))

    @property
    def asked_batch(self) -> Batch:
        """What was asked, with the data, or a ValueError."""
        if self.batch is None:
            raise ValueError(
                "these results were read from a file, without the data: give them, "
                "results.with_data(U, B)"
            )
        return self.batch

    def with_data(self, U: Any, B: Any) -> ManyResults:
        """Return the same answers with other data: after reading them from a file, their own.

        Parameters
        ----------
        U, B : array_like
            As in `solve_many`; tolerances, weights and all else are those of the call.
        """
        batch = import_module("quadsense.many.solve").make_batch(U, B, **self.asked)
        sizes = batch.readings.k, batch.features.size
        if sizes != self.answers.packed.shape:
            raise ValueError(
                f"the results are {len(self)} of order {self.n}, but the data are {sizes[0]} of "
                f"order {batch.features.n}"
            )
        return replace(self, batch=batch)

    def verify(self, U: Any = None, B: Any = None) -> npt.NDArray[np.bool_]:
        """Recompute every claim from the data.

        Parameters
        ----------
        U, B : array_like, optional
            As in `solve_many`, to be checked against; by default those of the call.

        Returns
        -------
        ndarray of bool, shape (k,)
            Whether what is claimed of a problem holds on these data; False where nothing is.
        """
        check = import_module("quadsense.many.verify").verified
        whole = self if U is None and B is None else self.with_data(U, B)
        found: npt.NDArray[np.bool_] = check(whole)
        return found

    def counts(self) -> dict[str, int]:
        """Return how many problems ended in each status, those that occur."""
        numbers = np.bincount(self.answers.status, minlength=len(STATUSES))
        return {
            str(status): int(count)
            for status, count in zip(STATUSES, numbers, strict=True)
            if count
        }

    def to_dataframe(self) -> Any:
        """Return a pandas table of one row per problem; A is in the columns ``A[j,k]``."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_dataframe needs pandas: pip install pandas") from None
        a = self.answers
        columns: dict[str, Any] = {
            "status": [str(status) for status in self.status], "met": a.met,
            "max_ratio": a.max_ratio, "worst_row": a.worst_row, "lower_bound": a.lower_bound,
            "objective": a.objective, "objective_lower": a.objective_lower,
            "corrected": a.corrected,
        }  # fmt: skip
        for j in range(a.coef.shape[1]):
            columns[f"coef[{j}]"] = a.coef[:, j]
        A = unpacked(a.packed, self.n, self.is_complex)
        for j in range(self.n):
            for k in range(j, self.n):
                columns[f"A[{j},{k}]"] = A[:, j, k]
        return pandas.DataFrame(columns)

    def save(self, path: Any) -> None:
        """Write the answers, without the data, to a ``.npz`` file, which holds no pickles.

        `quadsense.load_many` reads it.
        """
        _save(path, self)

    def __repr__(self) -> str:
        """Return counts by status and a histogram of the largest ratios."""
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counts().items())
        kind = "Hermitian" if self.is_complex else "symmetric"
        kind += " positive semidefinite" if self.asked.get("psd") else ""
        lines = [
            f"{len(self):,} problems, {kind} A of order {self.n}, in {self.seconds:.3g} s",
            f"status      {counts}",
        ]
        share = float(np.mean(self.answers.corrected)) if len(self) else 0.0
        lines.append(f"corrected   {share:.1%} by the cone or the intervals")
        ratios = self.answers.max_ratio[np.isfinite(self.answers.max_ratio)]
        if self.target and ratios.size:
            numbers = np.histogram(ratios, RATIO_EDGES)[0]
            most = max(int(numbers.max()), 1)
            bars = "".join(BARS[-(-int(count) * (len(BARS) - 1) // most)] for count in numbers)
            edges = " ".join(f"{edge:g}" for edge in RATIO_EDGES[:-1])
            lines.append(f"max_ratio   [{bars}] from {edges}; largest {ratios.max():.3g}")
        elif ratios.size:
            lines.append(f"max |error| median {np.median(ratios):.3g}, largest {ratios.max():.3g}")
        return "\n".join(lines)


def _fallback() -> Any:
    return import_module("quadsense.many.fallback")


def _save(path: str | os.PathLike[str], results: ManyResults) -> None:
    """Write the answers: see `ManyResults.save`."""
    files.check_writable(path)
    arrays = {name.name: getattr(results.answers, name.name) for name in fields(Answers)}
    asked: dict[str, Any] = {}
    for name, value in results.asked.items():
        if name == "bounds" and value is not None:
            arrays |= {
                f"asked_{end}": np.asarray(each) for end, each in zip(ENDS, value, strict=True)
            }
        elif value is None or isinstance(value, bool | int | float | str | tuple):
            asked[name] = value
        else:
            arrays[f"asked_{name}"] = to_numpy(value) if is_array(value) else np.asarray(value)
    plain = {
        "format": FORMAT, "version": VERSION, "n": results.n, "is_complex": results.is_complex,
        "target": results.target, "seconds": results.seconds,
        "asked": {name: list(v) if isinstance(v, tuple) else v for name, v in asked.items()},
        "statuses": [str(status) for status in STATUSES],
    }  # fmt: skip
    files.write_arrays(path, arrays, plain)


def load_many(path: str | os.PathLike[str]) -> ManyResults:
    """Read answers written by `ManyResults.save`.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    ManyResults
        Without the data: `verify` takes them.

    Raises
    ------
    ValueError
        If the file is missing, damaged or holds something else.
    """
    check_path("path", path)
    found = files.read_arrays(path)
    meta: Any = found.metadata
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise ValueError(f"{path} holds no answers to many problems; it holds {found.listing}")
    if meta.get("version") != VERSION:
        raise ValueError(f"{path} was written by another quadsense: solve again")
    try:
        names = [str(name) for name in meta["statuses"]]
        n, is_complex = int(meta["n"]), bool(meta["is_complex"])
        arrays = {name.name: np.asarray(found[name.name]) for name in fields(Answers)}
        k = len(arrays["status"])
        size = n * n if is_complex else n * (n + 1) // 2
        kinds = {"status": "i", "worst_row": "i", "met": "b", "corrected": "b", "closed": "b"}
        for name, values in arrays.items():
            matrix = name in ("packed", "coef")
            if (
                values.ndim != 1 + matrix
                or len(values) != k
                or values.dtype.kind != kinds.get(name, "f")
            ):
                raise ValueError(f"{name} has shape {values.shape}")
        if arrays["packed"].shape[1] != size or names != [str(status) for status in STATUSES]:
            raise ValueError("sizes or statuses do not go together")
        if k and not (arrays["status"].min() >= 0 and arrays["status"].max() < len(STATUSES)):
            raise ValueError("a status that does not exist")
        asked = dict(meta["asked"])
        if isinstance(asked.get("trace"), list):
            asked["trace"] = tuple(asked["trace"])
        for name in ASKED:
            if f"asked_{name}" in found:
                asked[name] = found[f"asked_{name}"]
        if "asked_lo" in found:
            asked["bounds"] = (found["asked_lo"], found["asked_hi"])
        return ManyResults(
            Answers(**arrays), n, is_complex, bool(meta["target"]), asked,
            seconds=float(meta["seconds"]),
        )  # fmt: skip
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} holds damaged answers ({error!r})") from None
