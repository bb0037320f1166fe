"""The checker: solve a generated case and hold everything that is claimed against the truth."""

from __future__ import annotations

import dis
import math
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import claims
import claims_preferences
import exact
import numpy as np
import truth
from generator import Case, generous
from generator_rows import plain

import quadsense
from quadsense import Status

FAILURES = (
    "wrong verdict", "false number", "crash", "warning", "verify-fresh-false",
    "verify-reloaded-false", "lost", "hang", "truth contradicted", "floating point",
)  # fmt: skip
"""Categories that must not occur at all, the gravest first."""

UNDECIDED = "undecided-but-clear"
PREFERRED = ("preference", "constraints", "equalities", "weights", "b given", "rank", "mix")
OWN_LIMIT = ("gd", "sgd", "cg", "closed_form")
"""Methods that may end undecided where their documentation says so."""

KEPT = (
    "status", "message", "verdict", "n_iter", "max_residual", "max_ratio", "unique", "prefer",
    "objective", "objective_bounds", "optimal",
)  # fmt: skip
"""What a file keeps to the last digit."""

LIMITS = {"max_iter", "time_limit", "callback"}


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
    words : str
        What else is special about the case.
    seconds : float
    """

    seed: int
    category: str
    detail: str
    status: str
    message: str
    findings: tuple[tuple[str, str], ...]
    key: tuple[str, str, str]
    words: str
    seconds: float

    @property
    def failed(self) -> bool:
        return self.category in FAILURES


def key_of(case: Case) -> tuple[str, str, str]:
    tolerance = case.labels["tolerance"]
    kind = f"bounds {case.labels['bounds']}" if tolerance == "bounds" else tolerance
    return case.labels["cone"], case.labels["method"], kind


def words_of(case: Case) -> str:
    """The case in a few words, for the list of failures."""
    labels = case.labels
    preferences = {
        k: v for k, v in labels.items() if k in PREFERRED and v not in ("", "none", "auto")
    }
    parts = [
        f"m={case.m}, n={case.n}, {labels['field']}",
        *(f"{name} {value}" for name, value in preferences.items()),
        labels["storage"] if labels["storage"] != "plain" else "",
        f"{labels['norms']} norms" if labels["norms"] != "ordinary" else "",
        f"{labels['delta']} delta" if labels["delta"] else "",
        f"k={case.allowed}" if case.allowed else "",
        f"start {labels['start']}" if labels["start"] != "None" else "",
        *(note for note in case.notes if not note.startswith("start")),
    ]
    return ", ".join(part for part in parts if part)


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
    size = exact.norm(case.known) ** (2 if case.known_is_factor else 1)
    one = size * np.eye(case.n)
    if case.start[1] == "same" and (case.dense is not None or case.mix is not None):
        U, values = case.U, case.values(one, False)
        given = {k: v for k, v in case.question.items() if k in ("mix", "conjugate")}
    else:
        U = case.rows if case.start[1] == "same" else case.rows[: max(1, len(case.rows) // 2)]
        values, given = exact.quadratic(U, one), {}
    b = np.array([exact.number(x) for x in values])
    most = max(float(np.max(np.abs(b))), 1e-200)
    return quadsense.solve(U, b, delta=most * 10.0, max_iter=3, **given)


def solve(case: Case) -> Any:
    """The result, nothing caught."""
    start = start_of(case)
    with Strict():
        data, b, question = case.data()
        extra = {} if start is None else {"start": start}
        return quadsense.solve(data, b, **question, **extra, **case.options)


def verify(case: Case, result: Any) -> bool:
    """Whether the result, and its certificate alone, are found true on the same data."""
    with Strict():
        data, b, question = case.data()
        question.pop("weights", None)  # the certificate holds them
        whole = bool(result.verify(data, b, **question))
        return whole and bool(result.certificate.verify(data, b, **question))


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
        case.seed,
        category,
        detail,
        status,
        message,
        tuple(findings),
        key_of(case),
        words_of(case),
        seconds,
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
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    assert trace is not None
    code = trace.tb_frame.f_code
    raised = dis.opname[code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"  # not by a call in C
    own = isinstance(error, MemoryError) or (raised and "quadsense" in code.co_filename)
    own &= not isinstance(error, np.linalg.LinAlgError)  # a ValueError, but never about input
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
    if not np.isfinite(np.asarray(result.matrix)).all():
        return [*findings, ("false number", f"{result.status}: the matrix is not finite")]
    status = result.status
    known = truth.of(case)
    if status is Status.MET:
        findings += claims.met(case, result)
        # Equalities hold up to rounding, so what contradicts them by less does not.
        rounded = "equalities" in case.labels and known.lower <= claims.NOTHING
        if known.verdict == "infeasible" and not findings and not rounded:
            findings.append(("truth contradicted", f"met, though infeasible: {known}"))
    elif status is Status.INFEASIBLE:
        findings += claims.infeasible(case, result, known)
    elif status is Status.OPTIMAL:
        findings += claims.optimal(case, result, known)
    elif status in (Status.MAX_ITER, Status.TIME_LIMIT, Status.INTERRUPTED):
        if not LIMITS & case.options.keys() and case.options.get("schedule") != "paper":
            findings.append(("wrong verdict", f"{status} without a limit"))
        findings.append(("limit", str(status)))
    elif str(status) == "local":
        if case.has_target or case.cone != "rank":
            findings.append(("wrong verdict", f"local: {result.message}"))
    else:
        findings.append(undecided(case, result, known))
    if status in (Status.MET, Status.OPTIMAL) and not len(result.set_aside):
        values, room = claims.values_of(case, result.matrix)
        findings += claims_preferences.objective(case, result, values, room)
    return findings + claims.numbers(case, result)


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
    for name in KEPT:
        if repr(getattr(result, name)) != repr(getattr(again, name)):
            return f"{name}: {getattr(result, name)!r} became {getattr(again, name)!r}"
    for name in ("violations", "set_aside", "suspects", "residuals"):
        one, other = plain(getattr(result, name)), plain(getattr(again, name))
        if not np.array_equal(one, other, equal_nan=True):
            return name
    A, B = np.asarray(result.matrix), np.asarray(again.matrix)
    room = 8 * len(A) * claims.EPS * (exact.norm(A) + claims.mass_of(result.matrix))
    off = exact.norm(A - B)
    return "" if off <= room else f"matrix: off by {off:.3g}"


def undecided(case: Case, result: Any, known: truth.Truth) -> tuple[str, str]:
    """UNDECIDED, STALLED: excused or not."""
    said = f"{result.status}: {result.message}"
    limited = bool(LIMITS & case.options.keys())
    method = case.labels["method"]
    if case.options.get("slack") is not None:
        return ("undecided", f"slack | {said}")
    if case.allowed:
        return ("no set found", f"{known.verdict}, {'clear' if known.clear else ''} | {said}")
    if not case.has_target:
        clear = not limited and reachable(case, known)
        return (UNDECIDED if clear else "undecided", f"no delta, {known.slack:.3g} | {said}")
    if not known.clear:
        return ("undecided", f"{known.verdict} | {said}")
    if method in OWN_LIMIT:
        return ("method's own limit", f"{known.verdict} | {said}")
    if limited:
        return ("limit", said)
    rank = case.options.get("rank")
    if rank is not None and known.verdict == "infeasible":
        return ("method's own limit", f"no proof with rank | {said}")
    complex_ = np.iscomplexobj(case.rows)
    if isinstance(rank, int) and not generous(case.m, case.n, complex_, rank):
        return ("undecided", f"few rows for rank {rank} | {said}")
    if "max_restarts" in case.options:
        return ("undecided", f"few restarts | {said}")
    return (UNDECIDED, f"{known.verdict}, slack {known.slack:.3g}, {known.lower:.3g} | {said}")


def reachable(case: Case, known: truth.Truth) -> bool:
    """Whether the gap asked for is far above rounding, where no tolerance was given."""
    gap = case.options.get("gap", 0.01)
    near = abs(known.slack - known.lower) <= 1e-3 * abs(known.slack) + 1e-10
    found = near and math.isfinite(known.norm)
    exact_fit = known.slack <= 1e-10
    # Proofs by exact arithmetic are for plain rows in arrays.
    plain = case.mix is None and case.dense is None
    told = found and gap >= 1e-6 and (exact_fit or known.lower * gap >= (1e-10 if plain else 1e-8))
    if case.mix is not None:  # sums of rows of uneven sizes, and sums that cancel
        told &= known.well_posed and not cancels(case)
    return told and (not case.linear or hard_is_clear(case))


def cancels(case: Case) -> bool:
    """Whether most of a sum over rows cancels: what it reads is known to fewer digits."""
    masses = (exact.number(square) for square in case.squares)
    sizes = (exact.norm(F.dense) for F in case.sums)
    return any(size < 1e-3 * mass for size, mass in zip(sizes, masses, strict=True))


def hard_is_clear(case: Case) -> bool:
    """Whether constraints can be met with 1% to spare, equalities apart, or miss by as much."""
    if truth.of_hard(case)[1] >= truth.CLEAR:
        return True
    return truth.of_hard(case, room=1e-6)[0] <= -truth.CLEAR
