"""What a solve gives back: `Result`; to a file and from it."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense import files
from quadsense.arrays import Array, to_numpy
from quadsense.certificate import AGREE, Certificate, agree, evaluate
from quadsense.core.forms import MeasuredForm
from quadsense.core.matrix import SensedMatrix
from quadsense.measurements.oracle import SpectralOracle
from quadsense.measurements.stored import Stored
from quadsense.measurements.validate import checked_rows
from quadsense.typing import is_number, is_whole
from quadsense.verdict import check_verdict, read_verdict
from quadsense.verification import Check, Verification
from quadsense.view import words
from quadsense.vocabulary import History, Status, Verdict

FORMAT = "quadsense-result"
PLAIN_FIELDS = (
    "max_residual", "max_ratio", "n_iter", "timings", "plan",
)  # fmt: skip
CLAIM_FIELDS = (
    "upper_bound", "lower_bound", "rounding", "conjugate", "psd", "rank", "gap", "allowed",
    "condition",
)  # fmt: skip
VERSION = 3
KINDS = {"met": "met", "optimal": "optimal", "infeasible": "infeasible"}
"""The claim that goes with a status; without one nothing is claimed."""


@dataclass(frozen=True)
class Result:
    """The answer to `quadsense.solve`, every field at the same A.

    Attributes
    ----------
    status : Status
    verdict : Verdict
        What was met and what that means, in numbers; `message` says it in a sentence or two.
    matrix : SensedMatrix
        The answer, implicit: ``@``, `quadratic`, `trace`, `norm`, `eigsh`, `to_dense`.
    residuals : array of shape (m,)
        ``u_i* A u_i - b_i``, recomputed from the data; with `bounds` from the middle of the
        interval, and for a row of one end how far that is crossed, else 0.
    max_residual, max_ratio : float
        ``max|z_i|`` and ``max|z_i|/delta_i`` over the rows that are not set aside; the ratio is 1
        at the end of an interval (a row of one end counts only where that is crossed).
    violations : ndarray of int
        Measurements over their tolerance, but for those set aside.
    n_iter : int
        Iterations taken to reach this A.
    history : History
    timings : dict
        Seconds in ``prepare``, ``iterate`` and ``certify``.
    certificate : Certificate
    plan : dict
        Method, form of K and the reasons for both.
    suspects, set_aside : ndarray of int
        Measurements that carry a contradiction; measurements left out on request.
    """

    status: Status
    verdict: Verdict
    matrix: SensedMatrix
    residuals: Array
    max_residual: float
    max_ratio: float
    violations: npt.NDArray[np.int64]
    n_iter: int
    history: History
    timings: dict[str, float]
    certificate: Certificate
    plan: dict[str, Any]
    suspects: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    set_aside: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def success(self) -> bool:
        """Whether the tolerance was met (or the optimum proven)."""
        return self.status.success

    @property
    def message(self) -> str:
        """One or two sentences for people: the verdict, and what it does not say."""
        return words.message(self.verdict)

    @property
    def unique(self) -> bool | None:
        """Whether the measurements determine A; None where that was too costly to find out."""
        return self.verdict.unique

    @property
    def unseen(self) -> int | None:
        """Dimensions of A that no measurement sees; None where `unique` is.

        At least so many, as the message says, where the rank of the map was too costly to find.
        """
        return self.verdict.unseen

    @cached_property
    def A(self) -> Array:
        """Dense answer, made on first use, in the namespace and on the device of U."""
        return self.matrix.to_dense()

    def __repr__(self) -> str:
        """Status and message."""
        return f"<Result {self.status}: {self.message}>"

    def verify(self, U: Any, b: Any = None, *, delta: Any = None, **options: Any) -> bool:
        """Whether all that this result states holds on these data: see `check`.

        Parameters
        ----------
        U, b, delta, **options
            As in `Certificate.verify`.
        """
        return self.check(U, b, delta=delta, **options).true

    def check(self, U: Any, b: Any = None, *, delta: Any = None, **options: Any) -> Verification:
        """Recompute all that this result states, and say what was checked against what.

        Beside the certificate's claim: that the status is what is claimed, and that the matrix,
        residuals, violations and rows set aside are those that the claim is about.

        Parameters
        ----------
        U, b, delta, **options
            As in `Certificate.verify`.

        Returns
        -------
        Verification
            True only if every statement holds; its text has a line for each.
        """
        claim = self.certificate
        found = claim.check(U, b, delta=delta, **dict(options))
        kind = "met" if claim.kind == "spectral" else claim.kind
        agrees = kind == KINDS.get(str(self.status), "none")
        checks = [Check(f"status {self.status}", agrees, f"the claim is {claim.kind!r}")]
        if not isinstance(U, SpectralOracle) and claim.kind != "none" and found.true:
            with np.errstate(over="ignore", under="ignore"):
                checks += self._check_numbers(U, b, dict(options))
        return found + Verification(tuple(checks))

    def _check_numbers(self, U: Any, b: Any, options: dict[str, Any]) -> list[Check]:
        """Residuals, ratios, violations and rows set aside, against the tolerance of the solve."""
        claim = self.certificate
        data = claim.own_data(U, b, options)
        values = evaluate(data, self.matrix, claim.set_aside)
        residuals = to_numpy(self.residuals)
        sized = residuals.shape == values.residuals.shape
        room = 4.0 * values.error + AGREE * np.abs(values.residuals)
        near = sized and bool(np.all(agree(residuals, values.residuals, room)))
        sizes = values.sizes
        largest = bool(agree(self.max_residual, float(sizes.max()), float(room.max())))
        found = float(values.ratios.max())
        with np.errstate(invalid="ignore"):
            rounding = 4.0 * float(np.nan_to_num(values.upper - values.ratios).max())
        close = bool(agree(self.max_ratio, found, rounding + AGREE * abs(found)))
        surely, perhaps = values.missed.copy(), ~values.met
        surely[claim.set_aside] = perhaps[claim.set_aside] = False
        if claim.kind == "optimal":  # nothing is violated where there is no tolerance
            surely[:] = perhaps[:] = False
        listed = np.zeros_like(surely)
        listed[self.violations[(self.violations >= 0) & (self.violations < data.m)]] = True
        violations = (
            not np.any(surely & ~listed)
            and not np.any(listed & ~perhaps)
            and int(listed.sum()) == self.violations.size
        )
        aside = np.array_equal(np.sort(self.set_aside), np.sort(claim.set_aside))
        return [
            Check("residuals", near, "recomputed, to rounding"),
            Check(
                "largest residual",
                largest,
                f"claimed {self.max_residual:.6g}, found {sizes.max():.6g}",
            ),
            Check("largest ratio", close, f"claimed {self.max_ratio:.6g}, found {found:.6g}"),
            Check("violations", violations, f"{self.violations.size} listed"),
            Check("rows set aside", aside, f"{self.set_aside.size} listed"),
            *check_verdict(self.verdict, data, values, claim, self.status),
        ]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result to an ``.npz`` file that `load_result` reads; nothing is pickled.

        The file is self-contained. It holds A as it is held here: dense, by a factor, or by its
        coefficients and U.
        """
        files.check_writable(path)
        arrays: dict[str, Any] = {
            "residuals": to_numpy(self.residuals),
            "tolerance": to_numpy(self.certificate.tolerance),
            "suspects": self.suspects,
            "set_aside": self.set_aside,
            **{f"history_{name}": values for name, values in asdict(self.history).items()},
        }
        for name in ("dual", "lo", "hi"):
            if getattr(self.certificate, name) is not None:
                arrays[name] = getattr(self.certificate, name)
        form = self.matrix.form
        held: dict[str, Any] = {"form": "dense"}
        stored = getattr(getattr(form, "rows", None), "kind", None)
        if isinstance(form, MeasuredForm) and isinstance(stored, Stored):
            rows: Any = form.rows  # as it is: what was certified is what is written
            held = {"form": "measured", "tau": form.tau, "conjugate": rows.conjugate}
            arrays["U"] = stored.U if rows.is_sparse else to_numpy(stored.U)
            arrays["norms"] = to_numpy(rows.norms)
            arrays["c"] = to_numpy(form.c)
            if form.base is not None:
                arrays["base"] = to_numpy(form.base)
        elif self.matrix.factor is not None:
            held = {"form": "factor"}
            arrays["X"] = to_numpy(self.matrix.factor)
        else:
            arrays["A"] = np.asarray(self.matrix)
        metadata = {
            "format": FORMAT,
            "version": VERSION,
            "matrix": held,
            "status": str(self.status),
            "verdict": asdict(self.verdict),
            "kind": self.certificate.kind,
            "certificate": {name: getattr(self.certificate, name) for name in CLAIM_FIELDS},
            **{name: getattr(self, name) for name in PLAIN_FIELDS},
            "violations": self.violations.tolist(),
        }
        files.write_arrays(path, arrays, metadata)


def load_result(path: str | os.PathLike[str]) -> Result:
    """Read a result written by `Result.save`.

    Raises
    ------
    ValueError
        If the file is missing, damaged or not a result.
    """
    arrays = files.read_arrays(path)
    meta = arrays.metadata
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise ValueError(f"{path} is not a quadsense result; it holds {arrays.listing}")
    try:
        return _read(path, arrays, meta)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        if isinstance(error, _Sentence):
            raise ValueError(str(error)) from None
        raise ValueError(f"{path} is a damaged quadsense result ({error!r})") from None


class _Sentence(ValueError):
    """An error whose text is for the user as it stands."""


def _check_meta(meta: dict[str, Any], arrays: files.Arrays) -> None:
    """Raise unless every number is a number and every index one of a measurement."""
    claim, held, m = meta["certificate"], meta["matrix"], arrays["residuals"].size
    numbers = [claim[name] for name in ("upper_bound", "lower_bound", "rounding", "gap")]
    numbers += [meta["max_residual"], meta["max_ratio"], held.get("tau", 0.0)]
    if not all(is_number(number) for number in numbers):
        raise ValueError("a number is not a number")
    wholes = [claim["allowed"], meta["n_iter"], *meta["violations"]]
    if not all(is_whole(number) for number in wholes):
        raise ValueError("a count is not a whole number")
    for name in ("set_aside", "suspects"):
        index = arrays[name]
        if index.dtype.kind not in "iu" or index.ndim != 1 or np.any((index < 0) | (index >= m)):
            raise ValueError(f"{name} names measurements that are not there")
    vectors = [name for name in ("tolerance", "lo", "hi", "c", "norms") if name in arrays]
    if any(arrays[name].dtype.kind not in "fiu" for name in vectors):
        raise ValueError("an array does not hold numbers")
    if not all(isinstance(claim[name], bool) for name in ("conjugate", "psd")):
        raise ValueError("a truth value is none")
    if not isinstance(claim["condition"], str):
        raise ValueError("a text is none")


def _read(path: Any, arrays: files.Arrays, meta: dict[str, Any]) -> Result:
    """The result in these arrays and metadata."""
    if meta["version"] < VERSION:
        raise _Sentence(
            f"{path} was written by an earlier quadsense (format {meta['version']}, this one reads "
            f"{VERSION}): solve again"
        )
    if meta["version"] > VERSION:
        raise _Sentence(
            f"{path} was written by a newer quadsense (format {meta['version']}, this one reads "
            f"up to {VERSION}): upgrade quadsense"
        )
    _check_meta(meta, arrays)
    held = meta["matrix"]
    if held["form"] == "measured":
        rows = checked_rows(arrays["U"], held["conjugate"])
        rows.norms = arrays["norms"]
        matrix = SensedMatrix(MeasuredForm(held["tau"], arrays["c"], rows, arrays.get("base")))
    elif held["form"] == "factor":
        matrix = SensedMatrix.from_factor(arrays["X"])
    else:
        matrix = SensedMatrix.from_dense(arrays["A"])
    history = History(
        **{
            name.removeprefix("history_"): values
            for name, values in arrays.items()
            if name.startswith("history_")
        }
    )
    certificate = Certificate(
        kind=meta["kind"],
        matrix=matrix,
        dual=arrays.get("dual"),
        tolerance=arrays["tolerance"],
        lo=arrays.get("lo"),
        hi=arrays.get("hi"),
        set_aside=arrays["set_aside"],
        **meta["certificate"],
    )
    return Result(
        status=Status(meta["status"]),
        verdict=read_verdict(meta["verdict"]),
        matrix=matrix,
        residuals=arrays["residuals"],
        violations=np.array(meta["violations"], dtype=np.int64),
        history=history,
        certificate=certificate,
        suspects=arrays["suspects"],
        set_aside=arrays["set_aside"],
        **{name: meta[name] for name in PLAIN_FIELDS},
    )
