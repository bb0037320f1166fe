"""What a solve gives back: `Result`; to a file and from it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from quadsense import files
from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.core.records import LATER, Lazy, cached_property
from quadsense.measurements import Measurements
from quadsense.measurements.column_scaling import condition_inside
from quadsense.measurements.oracle import SpectralOracle
from quadsense.proofs.definite import inertia_of, is_positive, rank_of
from quadsense.proofs.infeasible import Conflict, check_infeasible
from quadsense.result import words
from quadsense.result.certificate import AGREE, Certificate
from quadsense.result.facts import RunFacts, Verdict, check_facts, verdict_of
from quadsense.result.values import (
    Comparison,
    Objective,
    agree,
    check_objective,
    evaluate,
    is_admitted,
    is_sound,
)
from quadsense.system.threads import with_one_blas_thread
from quadsense.typing import DEFAULT_GAP
from quadsense.vocabulary import Check, History, Status, Verification

if TYPE_CHECKING:  # of what stands above results: for editors
    from quadsense.next_probe import NextProbe
    from quadsense.ranges import Interval
    from quadsense.report import Report
    from quadsense.typing import MatrixLike, RealOrVector

KINDS = {"met": "met", "optimal": "optimal", "infeasible": "infeasible"}
"""The claim that goes with a status; without one nothing is claimed."""


@dataclass(frozen=True)
class Result(Lazy):
    """The answer of `quadsense.solve`; all fields belong to the same A.

    `facts`, `history` and `plan`, and with them the message, are made when they are first read.

    Attributes
    ----------
    status : Status
    matrix : SensedMatrix
        The answer, implicit: ``@``, `quadratic`, `trace`, `norm`, `eigsh`, `to_dense`.
    residuals : array of shape (m,)
        ``u_i* A u_i - b_i``, recomputed from the data. With `bounds`, b_i is the middle of the
        interval; for a one-sided interval it is by how much that is missed, or 0.
    max_ratio : float
        ``max|z_i|/delta_i`` over the rows that are not set aside: 1 where a residual is as large as
        its tolerance. One-sided intervals count only where they are missed.
    violations : ndarray of int
        Measurements over their tolerance, those set aside not included.
    n_iter : int
        Iterations taken to reach this A.
    history : History
    timings : dict
        Seconds by part, which add up to those of the solve: ``prepare``, ``K``, each method by
        name, ``outliers``, ``certify``, ``proofs``, ``answer``; those that there were.
    certificate : Certificate
    plan : dict
        The methods, what they were predicted to take, and the reasons for the choice.
    facts : RunFacts
        What else is known of the run; `verdict` is computed from it.
    fit : Objective or None
        Where nothing fits: the objective of A, which is then the least-squares fit without the
        tolerances, and bounds on it; ``certificate.matrix`` is the matrix with the smallest worst
        miss. None where `matrix` is that one, and wherever something fits.
    conflict : Conflict or None
        Where nothing fits: few rows and constraints that contradict each other by themselves, with
        the proof of that. None where none were found.
    """

    status: Status
    matrix: SensedMatrix
    residuals: Array
    max_ratio: float
    violations: npt.NDArray[np.int64]
    n_iter: int
    history: History
    timings: dict[str, float]
    certificate: Certificate
    plan: dict[str, Any]
    facts: RunFacts
    fit: Objective | None = None
    # A default in place of its factory would be found before `Lazy` is asked.
    conflict: Conflict | None = field(default_factory=lambda: None, metadata=LATER)

    @property
    def success(self) -> bool:
        """Whether the tolerance was met (or the optimum proven)."""
        return self.status.success

    @cached_property
    def verdict(self) -> Verdict:
        """What was met and what that means, in numbers; `message` says it in a sentence or two."""
        return verdict_of(self)

    @property
    def max_residual(self) -> float:
        """``max|z_i|`` over the rows that are not set aside."""
        sizes = np.abs(to_numpy(self.residuals))
        sizes[self.set_aside] = 0.0
        return float(sizes.max())

    @property
    def suspects(self) -> npt.NDArray[np.int64]:
        """Measurements that contradict each other or carry most of a contradiction.

        The heaviest come first. Constraints among them are named in ``verdict.blamed``.
        """
        return np.array(self.facts.suspects, np.int64)

    @property
    def set_aside(self) -> npt.NDArray[np.int64]:
        """Measurements that were set aside, at most `allow_violations`."""
        return self.certificate.set_aside

    @property
    def message(self) -> str:
        """Short sentences: verdict, which A, how far it is determined, what to do next."""
        return words.message(self.verdict)

    @property
    def unique(self) -> bool | None:
        """Whether the measurements determine A, computed now where it was not before.

        With `psd`: among positive semidefinite matrices. With `rank`: near this A among matrices
        of that rank, to first order. None where it takes more memory than there may be, or the data
        are not available (a result that was read from a file).
        """
        settle = self.__dict__.pop("_settled", None)
        if self.facts.determined.unique is None and settle is not None:
            self.__dict__["facts"] = replace(self.facts, determined=settle())
            self.__dict__.pop("verdict", None)
        return self.facts.determined.unique

    @property
    def unseen(self) -> int | None:
        """Dimensions of A that no measurement sees; None where that was not computed.

        A lower bound, as the message says, where the rank of the map was not computed. Among
        matrices of a given rank: the free directions near this A.
        """
        return self.facts.determined.unseen

    @property
    def met(self) -> bool:
        """Whether every reading is verified to be within its interval."""
        return self.status is Status.MET

    @property
    def prefer(self) -> str:
        """Which A was sought: a value of `prefer`, or "slack_max", "slack_sum", "slack_squares".

        Where nothing can be said of the preference it is what the claim alone says.
        """
        claim = self.certificate
        if claim.objective is not None:
            return claim.objective.preference.name
        if claim.kind in ("met", "optimal"):
            return "minimax" if self.facts.asked == "least" else "any"
        return self.facts.sought

    @property
    def objective(self) -> float | None:
        """What A costs by the preference; None where any fit was wanted.

        Where the columns of U were scaled, the pull and a determinant are those of the scaled
        unknown: see `Certificate.columns`.
        """
        if self._least_error:
            return self.certificate.upper_bound
        claim = self.certificate.objective
        return None if claim is None else claim.value

    @property
    def objective_bounds(self) -> tuple[float, float] | None:
        """Proven bounds on the best value of the objective; None where any fit was wanted."""
        if self._least_error:
            return self.certificate.lower_bound, self.certificate.upper_bound
        claim = self.certificate.objective
        return None if claim is None else (claim.lower, claim.upper)

    @property
    def optimal(self) -> bool | None:
        """Whether the preference is certified within `gap`; None where none was looked into."""
        if self._least_error:
            return self.status is Status.OPTIMAL
        claim = self.certificate.objective
        return None if claim is None else claim.closed

    @property
    def dual(self) -> Vector | None:
        """Dual values of the readings by the preference, in the user's units.

        The y of the certified bound (docs/theory.md): where a reading is at an end of its
        interval, how much the objective falls for every unit that the end moves out, positive at
        an upper end and negative at a lower one. Least squares adds ``2 w_i (v_i - b_i)``; of
        "nearest" it belongs to the squared distance, of "center" the sum of logarithms rises.
        """
        claim = self.certificate.objective
        if claim is None or claim.dual is None:
            return None
        return claim.dual[: claim.dual.size - len(self.certificate.constraints)]

    @property
    def constraint_duals(self) -> dict[str, float]:
        """The same of the linear constraints, by name."""
        claim, constraints = self.certificate.objective, self.certificate.constraints
        if claim is None or claim.dual is None:
            return {}
        values = claim.dual[claim.dual.size - len(constraints) :]
        return {each.name: float(y) for each, y in zip(constraints, values, strict=True)}

    @property
    def _least_error(self) -> bool:
        return self.certificate.objective is None and self.prefer == "minimax"

    @overload
    def interval(
        self,
        C: list[Any],
        *,
        data: Measurements | None = None,
        gap: float = DEFAULT_GAP,
        **limits: Any,
    ) -> list[Interval]: ...

    @overload
    def interval(
        self,
        C: Any = "trace",
        *,
        data: Measurements | None = None,
        gap: float = DEFAULT_GAP,
        **limits: Any,
    ) -> Interval: ...

    def interval(
        self, C: Any = "trace", *, data: Measurements | None = None, gap: float = DEFAULT_GAP,
        **limits: Any,
    ) -> Interval | list[Interval]:  # fmt: skip
        """Return the certified range of ``<C, A>`` over all A that fit.

        Parameters
        ----------
        C : array of shape (n, n) or (n,), (i, j), "trace", or a list of these
            As in `quadsense.interval`.
        data : Measurements, optional
            Those of the solve: needed where the result was read from a file.
        gap : float, default=0.01
            Share of its width by which an interval may be too wide.
        **limits
            `time_limit`, `callback` and `progress`, as in `quadsense.interval`.

        Returns
        -------
        Interval, or list of Interval for a list

        Examples
        --------
        >>> import numpy as np, quadsense
        >>> U = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> quadsense.solve(U, [1.0, 2.0, 3.0], delta=0.1).interval((0, 1))
        <Interval [-0.15, 0.15]>
        """
        # By name: it stands above results, for it solves where it must.
        interval_of = import_module("quadsense.interval").interval_of
        found: Interval | list[Interval] = interval_of(self, C, data=data, gap=gap, **limits)
        return found

    def next_probe(
        self,
        candidates: MatrixLike,
        *,
        data: Measurements | None = None,
        delta: RealOrVector | None = None,
        top: int = 10,
    ) -> NextProbe:
        """Return which further measurement tells most about A: see `quadsense.next_probe`.

        Parameters
        ----------
        candidates : array_like of shape (k, n)
            The probes to choose from, a row each, given as the rows of U were.
        data : Measurements, optional
            Those of the solve: needed where the result was read from a file.
        delta : float or array_like of shape (k,), optional
            Tolerance with which a candidate would be read; by default the median one of the solve.
        top : int, default=10
            At most this many candidates get a certified interval.

        Examples
        --------
        >>> import numpy as np, quadsense
        >>> U = np.array([[1.0, 0.0], [0.0, 1.0]])
        >>> result = quadsense.solve(U, [1.0, 2.0], delta=0.1)
        >>> result.next_probe([[2.0, 0.0], [1.0, 1.0]]).message[:50]
        'candidate 1 would tell most: 70.7% of it is unseen'
        """
        choose = import_module("quadsense.next_probe").next_probe
        found: NextProbe = choose(self, candidates, data=data, delta=delta, top=top)
        return found

    def report(
        self,
        data: Measurements | SpectralOracle | str | os.PathLike[str] | None = None,
        path: str | os.PathLike[str] | None = None,
        *,
        intervals: Any = None,
        title: str | None = None,
        check: bool = True,
        names: tuple[str, str] = ("data.npz", "result.npz"),
    ) -> Report:
        """Return all that there is to say of this result as one HTML file, to look at or to mail.

        The file needs no network and no other file. A short script in it sorts the table of rows
        and shows the value under the pointer; without scripts the page says the same.

        Parameters
        ----------
        data : Measurements or SpectralOracle, optional
            Those of the solve: at hand unless the result was read from a file. Without them the
            report says what is known without. A path here is taken for `path`.
        path : path-like, optional
            Where to write the file, too.
        intervals : Interval, list of Interval, or dict of str to Interval, optional
            Certified ranges to be drawn too.
        title : str, optional
            Above the verdict.
        check : bool, default=True
            Whether to check all that the result states against the data, and show that.
        names : (str, str), optional
            Files of the data and of this result, for the lines that ask the same again.

        Returns
        -------
        Report
            ``.html()``, ``.write_html(path)``, ``.open()``; shown as it is in a notebook.

        Examples
        --------
        >>> import numpy as np, quadsense
        >>> result = quadsense.solve(np.eye(2), [1.0, 2.0], delta=0.1)
        >>> result.report().html()[:15]
        '<!DOCTYPE html>'
        """
        make = import_module("quadsense.report").Report
        if isinstance(data, str | os.PathLike) and path is None:
            data, path = None, data
        found: Report = make(self, data, intervals=intervals, title=title, check=check, names=names)
        if path is not None:
            found.write_html(path)
        return found

    def _repr_html_(self) -> str:
        """Return what notebooks show: the verdict and the numbers that matter."""
        return str(import_module("quadsense.view.html").result_html(self))

    @cached_property
    def A(self) -> Array:
        """Dense answer, made on first use, in the namespace and on the device of U."""
        return self.matrix.to_dense()

    def __bool__(self) -> bool:
        """Return whether `success`."""
        return self.success

    def __repr__(self) -> str:
        """Return the status and the verdict in one line."""
        return f"<Result {words.head(self.verdict)}>"

    def __str__(self) -> str:
        """Return a summary: verdict, which A, how far it is determined, checks, next step."""
        return words.summary(self.verdict)

    def verify(self, U: Any, b: Any = None, *, delta: Any = None, **options: Any) -> bool:
        """Return whether all that this result states holds on these data: see `check`.

        Parameters
        ----------
        U, b, delta, **options
            As in `Certificate.verify`.
        """
        return self.check(U, b, delta=delta, **options).true

    @with_one_blas_thread
    def check(self, U: Any, b: Any = None, *, delta: Any = None, **options: Any) -> Verification:
        """Recompute all that this result states, and say what was checked against what.

        In addition to the certificate's claim: that the status is what is claimed, and that the
        matrix, residuals, violations and rows set aside are those that the claim is about.

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
        found, known = claim.checked(U, b, delta, dict(options))
        kind = "met" if claim.kind == "spectral" else claim.kind
        agrees = kind == KINDS.get(str(self.status), "none")
        checks = [Check(f"status {self.status}", agrees, f"the claim is {claim.kind!r}")]
        if not isinstance(U, SpectralOracle) and claim.kind != "none" and found.true:
            with np.errstate(over="ignore", under="ignore"):
                known = known if self.matrix is claim.matrix else None
                checks += self._check_numbers(U, b, dict(options), known)
        return found + Verification(tuple(checks))

    def _check_numbers(
        self, U: Any, b: Any, options: dict[str, Any], known: tuple[Measurements, Comparison] | None
    ) -> list[Check]:
        """Check residuals, ratios and violations against the tolerance of the solve.

        `known` is what the check of the claim has read of the matrix, with that tolerance.
        """
        claim = self.certificate
        columns = claim.columns
        matrix = self.matrix if columns is None else self.matrix.stretched(-columns)
        if known is None:
            data = claim.own_data(U, b, options)
            known = data, evaluate(data, matrix, claim.set_aside)
        data, values = known
        own = slice(data.measured)  # the constraints have checks of their own
        residuals, reads = to_numpy(self.residuals), values.residuals[own]
        sized = residuals.shape == reads.shape
        room = 4.0 * values.error[own] + AGREE * np.abs(reads)
        near = sized and bool(np.all(agree(residuals, reads, room)))
        ratios = values.ratios[own]
        found = float(ratios.max())
        with np.errstate(invalid="ignore"):
            rounding = 4.0 * float(np.nan_to_num(values.upper[own] - ratios).max())
        close = bool(agree(self.max_ratio, found, rounding + AGREE * abs(found)))
        surely, perhaps = values.missed[own].copy(), ~values.met[own]
        surely[claim.set_aside] = perhaps[claim.set_aside] = False
        if (claim.kind == "optimal" or claim.hard) and self.facts.asked == "least":
            surely[:] = perhaps[:] = False  # nothing is violated where there is no tolerance
        listed = np.zeros_like(surely)
        listed[self.violations[(self.violations >= 0) & (self.violations < listed.size)]] = True
        fit = [] if self.fit is None else self._check_fit(data, values, matrix)
        violations = (
            not np.any(surely & ~listed)
            and not np.any(listed & ~perhaps)
            and int(listed.sum()) == self.violations.size
        )
        return [
            Check("residuals", near, "recomputed, to rounding"),
            Check("largest ratio", close, f"claimed {self.max_ratio:.6g}, found {found:.6g}"),
            Check("violations", violations, f"{self.violations.size} listed"),
            Check("which A it is", self.fit is not None or self._is_of_the_claim()),
            *fit,
            *self._check_conflict(data),
            *check_facts(self, data, values),
        ]

    def _is_of_the_claim(self) -> bool:
        """Return whether A is the matrix of the claim: it is unless a fit comes with a proof."""
        A, claimed = self.matrix, self.certificate.matrix
        return A is claimed or np.array_equal(np.asarray(A), np.asarray(claimed))

    def _check_conflict(self, data: Measurements) -> list[Check]:
        """Check that the rows and constraints of `conflict` contradict each other by themselves.

        That each of them is needed is not checked.
        """
        claim, found = self.certificate.inside, self.conflict
        if found is None:
            return []
        members = found.members
        sound = (
            claim.kind == "infeasible"
            and members.size > 0
            and members.shape == found.dual.shape
            and np.unique(members).size == members.size
            and bool(np.all((members >= 0) & (members < data.m)))
            and bool(np.isfinite(found.dual).all())
        )
        proved = (
            sound
            and check_infeasible(
                data, found.spread(data.m), claim.psd, alone=True, conditional=bool(claim.condition)
            ).proved
        )
        text = f"{members.size} rows and constraints, by themselves"
        return [Check("conflict", proved, text)]

    def _check_fit(
        self, data: Measurements, values: Comparison, matrix: SensedMatrix
    ) -> list[Check]:
        """Check what is stated of a fit that comes with a proof that nothing fits."""
        claim, fit = self.certificate.inside, self.fit
        assert fit is not None
        fit = replace(fit, condition=condition_inside(fit.condition))
        preference = fit.preference
        sound = (
            claim.kind == "infeasible"
            and not claim.hard
            and preference.name == "least_squares"
            and not preference.target
            and preference.psd == claim.psd
            and is_sound(fit, data.m, data.measured, data.n)
        )
        checks = [Check("claim: a least-squares fit", sound)]
        if not sound:
            return checks
        if claim.psd:
            checks.append(Check("positive semidefinite", is_positive(matrix)))
        if claim.rank is not None:
            checks.append(Check("rank", rank_of(matrix) <= claim.rank))
        if claim.signs:
            pairs = zip(inertia_of(matrix), claim.signs, strict=False)
            checks.append(Check("eigenvalues", all(found <= most for found, most in pairs)))
        plain, reads, error = data.without_tolerance(), values.reads, values.error
        held = is_admitted(preference, values.met, claim.set_aside, data.measured)
        return checks + list(check_objective(plain, fit, matrix, reads, error, held))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result to an ``.npz`` file that `load_result` reads; nothing is pickled.

        The file is self-contained. It holds A as it is held here: dense, by a factor, or by its
        coefficients and U.
        """
        import_module("quadsense.result.stored").save_result(path, self)

    def save_certificate(
        self,
        path: str | os.PathLike[str],
        data: Measurements | None = None,
        *,
        objective: bool = False,
    ) -> None:
        """Write the claim to a JSON file that ``quadsense_check.py`` checks without this package.

        Parameters
        ----------
        path : path-like
        data : Measurements, optional
            Those of the solve: needed where the result was read from a file.
        objective : bool, default=False
            Whether the bounds on what was preferred are the claim, rather than that A meets all.

        Raises
        ------
        ValueError
            Where there is no such claim, or exact arithmetic does not show it: nothing is written.
        """
        make = import_module("quadsense.certificates")
        make.write(path, make.fields_of(self.certificate, data, objective))

    def save_matrix(self, path: str | os.PathLike[str]) -> None:
        """Write A, dense, in the format that the name promises.

        ``.npy``, ``.npz``, ``.mat``, ``.h5``, ``.zarr``, ``.parquet`` or ``.csv``; where there are
        names, it is called A. In tables complex columns are pairs, ``a1_re`` and ``a1_im``.
        """
        files.writer_of(path, "A", several=False)
        files.write(path, {"A": np.asarray(self.matrix)}, {})
