"""The checker: solve a generated case and hold everything that is claimed against the truth."""

from __future__ import annotations

import math
import re
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import exact
import numpy as np
import truth
from generator import Case

import quadsense
from quadsense import Status
from quadsense.core.forms import FactorForm, MeasuredForm

FAILURES = (
    "wrong verdict", "false number", "crash", "warning", "verify-fresh-false",
    "verify-reloaded-false", "lost", "hang", "truth contradicted", "floating point",
)  # fmt: skip
"""Categories that must not occur at all, the gravest first."""

UNDECIDED = "undecided-but-clear"
OWN_LIMIT = ("gd", "sgd", "cg", "closed_form")
"""Methods that may end undecided where their documentation says so."""

EPS = 2.0**-52


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes
    ----------
    seed : int
    category : str
        The gravest finding, or "ok", "limit", "refused", "undecided", "undecided-but-clear",
        "method's own limit", "no set found".
    detail : str
    status : str
        Of the result; empty where there is none.
    message : str
    findings : tuple of (str, str)
        All findings: category and detail.
    key : tuple of str
        Cone, method and kind of tolerance, for the table.
    seconds : float
    """

    seed: int
    category: str
    detail: str
    status: str
    message: str
    findings: tuple[tuple[str, str], ...]
    key: tuple[str, str, str]
    seconds: float

    @property
    def failed(self) -> bool:
        return self.category in FAILURES


def key_of(case: Case) -> tuple[str, str, str]:
    tolerance = case.labels["tolerance"]
    kind = f"bounds {case.labels['bounds']}" if tolerance == "bounds" else tolerance
    return case.labels["cone"], case.labels["method"], kind


LEVELS = ({"all": "raise"}, {"all": "raise", "under": "ignore"}, {"all": "ignore"})
"""How strictly floating-point errors are taken: where the first raises, what comes after it is
still looked at by the next."""


class Strict:
    """Floating-point errors (as the level says) and warnings are exceptions inside."""

    level = 0

    def __enter__(self) -> None:
        self._caught = warnings.catch_warnings()
        self._caught.__enter__()
        warnings.simplefilter("error")
        self._state = np.errstate(**LEVELS[Strict.level])  # type: ignore[arg-type]
        self._state.__enter__()

    def __exit__(self, *raised: Any) -> None:
        self._state.__exit__(*raised)
        self._caught.__exit__(*raised)


def start_of(case: Case) -> Any:
    """The start as it is handed over; an earlier result is made here."""
    if not isinstance(case.start, tuple):
        return case.start
    U = case.rows if case.start[1] == "same" else case.rows[: max(1, case.m // 2)]
    b = np.array([exact.number(x) for x in exact.quadratic(U, np.eye(case.n))])
    return quadsense.solve(U, b, delta=max(float(np.max(b)), 1e-200) * 10.0, max_iter=3)


def solve(case: Case) -> Any:
    """The result, nothing caught."""
    start = start_of(case)
    with Strict():
        data, b, question = case.data()
        extra = {} if start is None else {"start": start}
        return quadsense.solve(data, b, **question, **extra, **case.options)


def verify(case: Case, result: Any) -> bool:
    """Whether the result checks itself to be true on the same data."""
    with Strict():
        data, b, question = case.data()
        check = getattr(result, "verify", None) or result.certificate.verify
        return bool(check(data, b, **question)) and bool(
            result.certificate.verify(data, b, **question)
        )


def check(case: Case) -> Outcome:
    """Solve the case and sort what comes of it."""
    begin = time.perf_counter()
    findings: list[tuple[str, str]] = []
    status = message = ""
    for level in range(len(LEVELS)):
        Strict.level = level
        result, new = attempt(case)
        findings += [finding for finding in new if finding not in findings]
        if result is not None:
            status, message = str(result.status), result.message
        if not any("FloatingPointError" in detail for _, detail in new):
            break
    Strict.level = 0
    order = [*FAILURES, UNDECIDED]
    findings.sort(key=lambda f: order.index(f[0]) if f[0] in order else len(order))
    category, detail = findings[0] if findings else ("ok", "")
    seconds = time.perf_counter() - begin
    return Outcome(
        case.seed, category, detail, status, message, tuple(findings), key_of(case), seconds
    )


def attempt(case: Case) -> tuple[Any, list[tuple[str, str]]]:
    """The result, or None, and findings."""
    try:
        result = solve(case)
    except (ValueError, TypeError, MemoryError) as error:
        return None, [_refusal(error)]
    except Warning as error:
        return None, [("warning", _where(error))]
    except Exception as error:
        return None, [(_kind(error), _where(error))]
    return result, judge(case, result)


def _kind(error: Exception) -> str:
    return "floating point" if isinstance(error, FloatingPointError) else "crash"


def _refusal(error: Exception) -> tuple[str, str]:
    """A refusal is fine where it is the package's own; from a library's inside it is a crash."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    raised = "quadsense" in last.filename and (last.line or "").startswith("raise")
    own = isinstance(error, MemoryError) or raised
    return ("refused", str(error)) if own else ("crash", _where(error))


def _where(error: BaseException) -> str:
    """The exception, and the package's line that it passed last."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "quadsense" in f.filename]
    place = ""
    if frames:
        name = frames[-1].filename.split("quadsense/")[-1]
        place = f" at {name}:{frames[-1].lineno}"
    return f"{type(error).__name__}: {error}{place}"


def judge(case: Case, result: Any) -> list[tuple[str, str]]:
    """Findings on a result; none where all is well."""
    findings = checks(case, result)
    status = result.status
    known = truth.of(case)
    if status is Status.MET:
        findings += met(case, result)
        if known.verdict == "infeasible" and not findings:
            findings.append(("truth contradicted", f"met, though infeasible: {known}"))
    elif status is Status.INFEASIBLE:
        findings += infeasible(case, result, known)
    elif status is Status.OPTIMAL:
        findings += optimal(case, result, known)
    elif status in (Status.MAX_ITER, Status.TIME_LIMIT):
        if (
            not {"max_iter", "time_limit"} & case.options.keys()
            and case.options.get("schedule") != "paper"
        ):
            findings.append(("wrong verdict", f"{status} without a limit"))
        findings.append(("limit", str(status)))
    else:
        findings.append(undecided(case, result, known))
    return findings


def checks(case: Case, result: Any) -> list[tuple[str, str]]:
    """Verification fresh and reloaded, and what a file loses."""
    findings = []
    claimed = result.status in (Status.MET, Status.OPTIMAL, Status.INFEASIBLE)
    try:
        if claimed and not verify(case, result):
            findings.append(("verify-fresh-false", f"{result.status}: {result.message}"))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "r.npz"
            with Strict():
                result.save(path)
                again = quadsense.load_result(path)
        if claimed and not verify(case, again):
            findings.append(("verify-reloaded-false", f"{result.status}: {result.message}"))
        lost = what_is_lost(result, again)
        if lost:
            findings.append(("lost", lost))
    except Warning as error:
        findings.append(("warning", "in save, load or verify: " + _where(error)))
    except Exception as error:
        findings.append((_kind(error), "in save, load or verify: " + _where(error)))
    return findings


def what_is_lost(result: Any, again: Any) -> str:
    """What differs after saving and loading, beyond rounding; empty where nothing does."""
    for name in ("status", "message", "n_iter", "max_residual", "max_ratio", "unique", "unseen"):
        if getattr(result, name) != getattr(again, name):
            return f"{name}: {getattr(result, name)!r} became {getattr(again, name)!r}"
    for name in ("violations", "set_aside", "suspects", "residuals"):
        if not np.array_equal(getattr(result, name), getattr(again, name)):
            return name
    A, B = np.asarray(result.matrix), np.asarray(again.matrix)
    room = 8 * len(A) * EPS * (exact.norm(A) + mass_of(result.matrix))
    off = exact.norm(A - B)
    return "" if off <= room else f"matrix: off by {off:.3g}"


def mass_of(matrix: Any) -> float:
    """Size of the terms that cancel in an implicit matrix."""
    form = matrix.form
    if not isinstance(form, MeasuredForm):
        return 0.0
    base = 0.0 if form.base is None else exact.norm(form.base)
    return abs(form.tau) + float(np.sum(np.abs(form.c))) + base


def values_of(case: Case, matrix: Any) -> tuple[list[Any], list[float]]:
    """``u_i* A u_i`` exactly, and what may be wrong because A was rounded to be dense."""
    if isinstance(matrix.form, FactorForm):
        return exact.factor_quadratic(case.rows, matrix.factor), [0.0] * case.m
    A = np.asarray(matrix)
    values = exact.quadratic(case.rows, A)
    if not isinstance(matrix.form, MeasuredForm):
        return values, [0.0] * case.m
    squares = [exact.number(value) for value in exact.squared_norms(case.rows)]
    room = 8 * (case.n + case.m) * EPS * (exact.norm(A) + mass_of(matrix))
    return values, [room * square for square in squares]


def met(case: Case, result: Any) -> list[tuple[str, str]]:
    """MET: every interval not set aside holds exactly, the cone is kept."""
    findings = []
    aside = {int(i) for i in result.set_aside}
    if not case.has_target:
        findings.append(("wrong verdict", "met without a tolerance"))
    if len(aside) > case.allowed:
        findings.append(("wrong verdict", f"{len(aside)} set aside, {case.allowed} allowed"))
    lo, hi = case.intervals
    values, room = values_of(case, result.matrix)
    for i in range(case.m):
        if i in aside:
            continue
        over = max(
            -math.inf if lo[i] is None else exact.number(lo[i] - values[i]),
            -math.inf if hi[i] is None else exact.number(values[i] - hi[i]),
        )
        if over > room[i]:
            findings.append(("wrong verdict", f"met, but row {i} is out by {over:.3g}"))
            break
    findings += cone_kept(case, result.matrix)
    findings += numbers(case, result, values, room)
    return findings


def cone_kept(case: Case, matrix: Any) -> list[tuple[str, str]]:
    """Whether the matrix is positive and of the rank asked for."""
    if case.cone == "symmetric":
        return []
    A = np.asarray(matrix)
    size = float(np.max(np.abs(A)))
    eigenvalues = np.linalg.eigvalsh(A / size) if size > 0 else np.zeros(case.n)
    tiny = 64 * case.n * EPS
    findings = []
    if matrix.factor is None and eigenvalues[0] < -tiny:
        findings.append(("wrong verdict", f"met, with an eigenvalue of {eigenvalues[0]:.3g}"))
    rank = case.options.get("rank")
    held = case.n if matrix.factor is None else matrix.factor.shape[1]
    found = min(held, int(np.sum(eigenvalues > tiny)))
    if isinstance(rank, int) and found > rank:
        findings.append(("wrong verdict", f"met with rank {found}, where {rank} was asked for"))
    return findings


def numbers(case: Case, result: Any, values: list[Any], room: list[float]) -> list[tuple[str, str]]:
    """Residuals of rows with a reading, as stated, against exact ones."""
    if case.b is None or len(result.set_aside):
        return []
    size = exact.norm(np.asarray(result.matrix))
    squares = [exact.number(value) for value in exact.squared_norms(case.rows)]
    for i in range(case.m):
        true = exact.number(values[i] - case.readings[i])
        slack = room[i] + 64 * case.n * EPS * (
            size * squares[i] + abs(exact.number(case.readings[i]))
        )
        stated = float(result.residuals[i])
        if not abs(stated - true) <= slack + 1e-300:
            return [("false number", f"residual {i} is {true:.6g}, stated {stated:.6g}")]
    return []


def _norm_bound(result: Any) -> float:
    """The norm up to which a conditional claim holds; infinite where it is unconditional."""
    condition = result.certificate.condition
    if not condition:
        return math.inf
    found = re.findall(r"up to ([-+0-9.e]+)", condition)
    return float(found[0].rstrip(".")) if found else 0.0


def infeasible(case: Case, result: Any, known: truth.Truth) -> list[tuple[str, str]]:
    """INFEASIBLE: there is a tolerance, and no fit within the condition stated."""
    if not case.has_target:
        return [("wrong verdict", "infeasible without a tolerance")]
    if known.verdict == "feasible" and known.norm <= _norm_bound(result):
        return [("wrong verdict", f"infeasible, but a fit exists ({known.why}, slack "
                 f"{known.slack:.3g}): {result.message[:120]}")]  # fmt: skip
    return []


def optimal(case: Case, result: Any, known: truth.Truth) -> list[tuple[str, str]]:
    """OPTIMAL: both bounds hold for exactly evaluated matrices, and are as near as claimed."""
    if case.has_target:
        return [("wrong verdict", "optimal where a tolerance was given")]
    certificate, findings = result.certificate, cone_kept(case, result.matrix)
    unit = exact.number(truth.largest_reading(case))
    values, room = values_of(case, result.matrix)
    errors = [abs(exact.number(v - b)) for v, b in zip(values, case.readings, strict=True)]
    reached = max(e - r for e, r in zip(errors, room, strict=True))
    upper, lower = certificate.upper_bound, certificate.lower_bound
    if reached > upper * (1.0 + 4 * EPS):
        findings.append(("wrong verdict", f"worst error {reached:.6g} above upper {upper:.6g}"))
    best = known.slack * unit
    if lower > best * (1.0 + 1e-12) and known.norm <= _norm_bound(result):
        findings.append(("wrong verdict", f"lower bound {lower:.9g} above a fit's {best:.9g}"))
    near = upper - lower <= 1.01 * certificate.gap * upper or upper <= 1.01e-8 * unit
    if not near or certificate.gap > case.options.get("gap", 0.01):
        findings.append(("wrong verdict", f"optimal with bounds {lower:.6g}, {upper:.6g}"))
    return findings + numbers(case, result, values, room)


def undecided(case: Case, result: Any, known: truth.Truth) -> tuple[str, str]:
    """UNDECIDED, STALLED: excused or not."""
    said = f"{result.status}: {result.message}"
    limited = "max_iter" in case.options or "time_limit" in case.options
    method = case.labels["method"]
    if case.allowed:
        return ("no set found", f"{known.verdict}, {'clear' if known.clear else ''} | {said}")
    if not case.has_target:
        clear = case.options.get("gap", 0.01) >= 1e-8 and case.labels["norms"] != "extreme"
        return (UNDECIDED if clear and not limited else "undecided", f"no delta | {said}")
    if not known.clear:
        return ("undecided", f"{known.verdict} | {said}")
    if method in OWN_LIMIT:
        return ("method's own limit", f"{known.verdict} | {said}")
    if limited:
        return ("limit", said)
    rank = case.options.get("rank")
    if rank is not None and known.verdict == "infeasible":
        return ("method's own limit", f"no proof with rank | {said}")
    if isinstance(rank, int):
        freedom = case.n * rank * (2 if np.iscomplexobj(case.rows) else 1)
        if case.m < 3 * freedom:
            return ("undecided", f"few rows for rank {rank} | {said}")
    return (UNDECIDED, f"{known.verdict}, slack {known.slack:.3g}, {known.lower:.3g} | {said}")
