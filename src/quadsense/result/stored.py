"""Results in files: written as they are, read from this format and the two before it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense import files
from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.matrix import FramedForm, MeasuredForm, SensedMatrix
from quadsense.core.records import LATER
from quadsense.measurements.arrays import Stored
from quadsense.measurements.column_scaling import can_be_columns
from quadsense.measurements.constraints import Constraint
from quadsense.measurements.validate import checked_rows
from quadsense.measurements.views import Framed
from quadsense.preferences import Preference
from quadsense.proofs.infeasible import Conflict
from quadsense.result import words
from quadsense.result.certificate import Certificate
from quadsense.result.facts import Advice, Determined, Row, RunFacts
from quadsense.result.result import Result
from quadsense.result.values import Objective
from quadsense.typing import SupportsSparse, check_path, is_whole
from quadsense.vocabulary import History, Reason, Status, because

FORMAT = "quadsense-result"
VERSION = 7  # rises when programs of before cannot read what is written
EARLIEST = 5
"""The first version that is read."""


def save_result(path: str | os.PathLike[str], result: Result) -> None:
    """Write a result: see `Result.save`."""
    from quadsense.files.codec import encode

    files.check_writable(path)
    nothing: Any = None
    claim = replace(result.certificate, matrix=nothing, data=None)
    bare = replace(result, matrix=nothing, certificate=claim)
    whole: dict[str, Any] = {"result": bare, "matrix": _held(result.matrix)}
    if result.certificate.matrix is not result.matrix:
        whole["claimed"] = _held(result.certificate.matrix)
    arrays, plain = encode(whole)
    files.write_arrays(path, arrays, {"format": FORMAT, "version": VERSION, "whole": plain})


@dataclass(frozen=True)
class Held:
    """A as it is held: dense, by a factor, or by its coefficients (see `MeasuredForm`) and U.

    With `columns` the coefficients are those of rows whose columns are scaled (see `FramedForm`).
    """

    A: Array | None = None
    factor: Array | None = None
    signs: Vector | None = None
    tau: float = 0.0
    c: Vector | None = None
    base: Array | None = None
    U: Array | SupportsSparse | None = None
    norms: Vector | None = None
    conjugate: bool = False
    columns: npt.NDArray[np.int64] | None = field(default=None, metadata=LATER)


def _held(matrix: SensedMatrix) -> Held:
    """Return the matrix in the form in which it was certified.

    Coefficients stay coefficients also where the rows are not held in an array: where they cancel,
    a dense A has fewer digits than the certificate relies on.
    """
    form: Any = matrix.form
    columns = form.columns if isinstance(form, FramedForm) else None
    form = form if columns is None else form.inner
    if isinstance(form, MeasuredForm):
        rows: Any = form.rows
        kind = rows.kind
        if columns is not None and isinstance(kind, Framed):
            kind = kind.kind if np.array_equal(kind.columns, columns) else kind
        base = None if form.base is None else to_numpy(form.base)
        held = Held(tau=form.tau, c=to_numpy(form.c), base=base, columns=columns)
        if isinstance(kind, Stored):
            U = kind.U if rows.is_sparse else to_numpy(kind.U)
            return replace(held, U=U, norms=to_numpy(rows.norms), conjugate=rows.conjugate)
        if rows.prefers_gram and columns is None:
            return replace(held, U=to_numpy(rows.rows()), norms=to_numpy(rows.nonzero))
    if matrix.factor is not None:
        return Held(factor=to_numpy(matrix.factor), signs=matrix.signs)
    return Held(np.asarray(matrix))


def _matrix(held: Held) -> SensedMatrix:
    """Return the matrix that is held so."""
    if held.c is not None:
        rows = checked_rows(held.U, held.conjugate)
        if held.norms is None or not (rows.m,) == held.norms.shape == held.c.shape:
            raise ValueError("coefficients and rows do not go together")
        if held.columns is not None:
            if not can_be_columns(held.columns, rows.n):
                raise ValueError("columns are scaled by what cannot be")
            rows = rows.framed(held.columns)
        rows.norms = held.norms
        matrix = SensedMatrix(MeasuredForm(held.tau, held.c, rows, held.base))
        return matrix if held.columns is None else matrix.stretched(held.columns)
    if held.factor is not None:
        return SensedMatrix.from_factor(held.factor, held.signs)
    return SensedMatrix.from_dense(held.A)


SAVED = (
    Result, Certificate, Objective, Preference, Constraint, History, RunFacts, Determined, Row,
    Reason, Advice, Status, Held, Conflict,
)  # fmt: skip
"""What a file may hold, in addition to arrays and plain data."""


def load_result(path: str | os.PathLike[str]) -> Result:
    """Read a result written by `Result.save`.

    Raises
    ------
    ValueError
        If the file is missing, damaged or not a result.
    """
    check_path("path", path)
    arrays = files.read_arrays(path)
    meta = arrays.metadata
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise ValueError(f"{path} is not a quadsense result; it holds {arrays.listing}")
    version: Any = meta.get("version")
    if is_whole(version) and not EARLIEST <= version <= VERSION:
        age, advice = "an earlier", "solve again"
        if version > VERSION:
            age, advice = "a newer", "upgrade quadsense"
        raise ValueError(
            f"{path} was written by {age} quadsense (format {version}, this one reads {EARLIEST} "
            f"to {VERSION}): {advice}"
        )
    from quadsense.files.codec import decode

    try:
        if not is_whole(version):
            raise ValueError("its format is no number")
        plain = meta["whole"]
        if version < VERSION:
            plain = _upgraded(plain, arrays)
        if version == 5:
            plain = _without_one_sided_squares(plain, arrays)
        whole = decode(arrays, plain, lambda values: values, SAVED)
        matrix = _matrix(whole["matrix"])
        claimed = _matrix(whole["claimed"]) if "claimed" in whole else matrix
        return _whole(whole["result"], matrix, claimed)
    except (LookupError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
        raise ValueError(f"{path} is a damaged quadsense result ({error!r})") from None


def _whole(result: Result, matrix: SensedMatrix, claimed: SensedMatrix) -> Result:
    """Return the result with its matrix and that of its claim; raise where a part cannot be."""
    claim, m = result.certificate, len(result.residuals)
    for index in (claim.set_aside, result.suspects):
        if np.any((index < 0) | (index >= m)):
            raise ValueError("measurements are named that are not there")
    words.message(result.verdict)  # one that cannot be said is damaged
    return replace(result, matrix=matrix, certificate=replace(claim, matrix=claimed))


def _upgraded(whole: Any, arrays: Any) -> Any:
    """Return what formats 5 and 6 hold in the form of this one.

    They have a verdict, which is now computed: of it the facts alone are kept. Fields that came
    with format 6 have the values that say nothing.
    """
    result = dict(whole["dict"]["result"]["fields"])
    verdict = result.pop("verdict")["fields"]
    unseen = {
        name: verdict[name]
        for name in ("unseen", "unknowns", "exact", "directions", "rank_seconds")
        if name in verdict
    }
    names = {entry.name for entry in fields(RunFacts)} & verdict.keys()
    facts = {name: verdict[name] for name in names}
    facts["determined"] = {"kind": "Determined", "fields": unseen}
    facts["sought"] = verdict["prefer"]
    facts["wanted"] = verdict["wanted"] or verdict["prefer"]
    claim = result["certificate"]["fields"]
    if claim["lo"] is not None:
        lo, hi = (arrays[claim[name]["array"]] for name in ("lo", "hi"))
        facts["unmeasured"] = int(np.count_nonzero((lo == -np.inf) & (hi == np.inf)))
    if result["set_aside"] != claim["set_aside"]:
        raise ValueError("two opinions on which measurements were set aside")
    for name in ("max_residual", "suspects", "set_aside"):  # which are computed, or facts
        del result[name]
    result["facts"] = {"kind": "RunFacts", "fields": facts}
    return {"dict": {**whole["dict"], "result": {"kind": "Result", "fields": result}}}


def _without_one_sided_squares(whole: Any, arrays: Any) -> Any:
    """Return the same without a sum of squares that has, or may have, readings of one-sided rows.

    Where b was given with bounds, format 5 counted these without any weight. Now they count only
    with one, so that what was claimed of the sum cannot be checked.
    """
    result = whole["dict"]["result"]
    claim = result["fields"]["certificate"]["fields"]
    if claim["objective"] is None or claim["lo"] is None:
        return whole
    preference = claim["objective"]["fields"]["preference"]["fields"]
    ends = (arrays[claim[name]["array"]] for name in ("lo", "hi"))
    if preference["name"] != "least_squares" or preference["weights"] is not None:
        return whole
    if all(np.isfinite(each).all() for each in ends):
        return whole
    from quadsense.files.codec import encode

    said = because("said", text="format 5 counted readings of one-sided rows in the sum of squares")
    reason = encode(said)[1]
    facts = {**result["fields"]["facts"]["fields"], "reason": reason}
    fields = {
        **result["fields"],
        "certificate": {"kind": "Certificate", "fields": {**claim, "objective": None}},
        "facts": {"kind": "RunFacts", "fields": facts},
    }
    return {"dict": {**whole["dict"], "result": {"kind": "Result", "fields": fields}}}
