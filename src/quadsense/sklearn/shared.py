"""What all estimators share: what they were given, checked; calls of `quadsense.solve` under them.

scikit-learn has callbacks from 1.9 on; before, an estimator has no `set_callbacks` and nothing is
called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from sklearn.utils import check_random_state

from quadsense.arrays import as_numbers
from quadsense.preferences import PREFERENCES, kind_named
from quadsense.query.query import check_rank
from quadsense.result.result import Result
from quadsense.sklearn.closed_form import LARGEST, Coefficients, Matrix, Vector
from quadsense.typing import check_flag, is_number


def check_parameters(estimator: Any) -> None:
    """Refuse what no data could make sense of."""
    for name in ("psd", "fit_linear", "fit_intercept"):
        check_flag(name, getattr(estimator, name))
    alpha, tol, prefer = estimator.alpha, estimator.tol, estimator.prefer
    if not (isinstance(alpha, str) and alpha == "cv"):
        _check_number("alpha", alpha, "'cv' or ")
    if estimator.delta is not None:
        _check_number("delta", estimator.delta, "None or ")
    penalty = estimator.linear_penalty
    if not (isinstance(penalty, str) and penalty == "scale"):
        _check_number("linear_penalty", penalty, "'scale' or ", positive=True)
    _check_number("tol", tol, positive=True)
    if estimator.time_limit is not None:
        _check_number("time_limit", estimator.time_limit, "None or ")
    known = ("auto", *(name for name in PREFERENCES if name != "entropy"))  # alpha is the pull
    if not (isinstance(prefer, str) and prefer in known):
        raise ValueError(f"prefer must be one of {', '.join(known)}, got {prefer!r}")
    if estimator.alphas is not None:
        alphas = as_numbers("alphas", estimator.alphas, "positive numbers")
        usable = alphas.ndim == 1 and alphas.size and alphas.dtype.kind in "iuf"
        if not (usable and np.all(np.isfinite(alphas)) and np.all(alphas > 0)):
            raise ValueError(f"alphas must be positive numbers, got {estimator.alphas!r}")


def check_question(estimator: Any, tolerance: bool, n: int) -> None:
    """Refuse combinations that mean nothing."""
    rank, prefer, psd = estimator.rank, estimator.prefer, estimator.psd
    check_rank(rank, n)
    pair = isinstance(rank, tuple | list)
    free = estimator.fit_linear or estimator.fit_intercept
    if pair and psd:
        raise ValueError(f"rank={tuple(rank)} asks for signs, psd=True for none that is minus")
    if rank is not None and not kind_named(prefer).takes_rank:
        raise ValueError(f"prefer={prefer!r} cannot go with rank: 'any' and 'least_squares' can")
    if rank == "auto" and not tolerance:
        raise ValueError("rank='auto' needs delta: the rank grows until that is met")
    if kind_named(prefer).needs_tolerance and not tolerance:
        raise ValueError(f"prefer={prefer!r} needs delta")
    if prefer == "min_trace" and (free or not psd):
        raise ValueError(
            "prefer='min_trace' needs psd=True, fit_linear=False and fit_intercept=False"
        )
    if prefer == "center" and psd and free:
        raise ValueError(
            "prefer='center' with psd=True needs fit_linear=False and fit_intercept=False"
        )


def _check_number(name: str, value: Any, other: str = "", positive: bool = False) -> None:
    least = "positive" if positive else "not negative"
    known = is_number(value) and np.isfinite(value)
    if not known or value < 0 or (positive and value == 0):
        raise ValueError(f"{name} must be {other}a number, {least}, got {value!r}")


def to_weights(sample_weight: Any, m: int) -> Vector:
    """Return weights, one per sample."""
    weights = _one_per_sample("sample_weight", 1.0 if sample_weight is None else sample_weight, m)
    if not np.all(np.isfinite(weights)):
        raise ValueError("sample_weight must be finite")
    if not np.any(weights > 0.0):
        raise ValueError("sample_weight is zero for every sample: nothing is left to fit")
    return weights


def to_delta(delta: Any, sample_delta: Any, m: int) -> Vector | None:
    """Return tolerances, one per sample, or None."""
    if sample_delta is None and delta is None:
        return None
    return _one_per_sample("sample_delta", delta if sample_delta is None else sample_delta, m)


def _one_per_sample(name: str, given: Any, m: int) -> Vector:
    values = np.asarray(given, dtype=np.float64)
    if values.ndim == 0:
        values = np.full(m, float(values))
    if values.shape != (m,):
        raise ValueError(f"{name}.shape == {values.shape}, expected {(m,)}!")
    if not np.all(values >= 0.0):
        row = int(np.flatnonzero(~(values >= 0.0))[0])
        raise ValueError(f"{name} must not be negative, got {values[row]} for sample {row}")
    return values


def to_linear_penalty(given: Any, X: Matrix, weights: Vector) -> float:
    """Return the penalty of w relative to that of A."""
    if given != "scale":
        return float(given)
    largest = float(np.max(np.abs(X), initial=0.0))
    if largest == 0.0:
        return 1.0
    scaled = X / largest
    square = float(weights / weights.sum() @ np.einsum("ij,ij->i", scaled, scaled))
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        return float(np.clip(np.divide(0.5, square) / largest / largest, 1.0 / LARGEST, LARGEST))


def to_seed(random_state: Any) -> int:
    """Return a seed for `solve`."""
    return int(to_random_state(random_state).randint(np.iinfo(np.int32).max))


def to_random_state(random_state: Any) -> Any:
    """Return NumPy's generator of scikit-learn's kind for a seed, or raise a ValueError."""
    try:
        return check_random_state(random_state)
    except (ValueError, TypeError):
        raise ValueError(
            "random_state must be None, a whole number from 0 to 2**32 - 1 or a "
            f"numpy.random.RandomState, got {random_state!r}"
        ) from None


# --- calls of solve, with the estimator's limits and callbacks ----------------------------------


try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing: this scikit-learn has no callbacks."""

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method as it is."""
        return method


class Solve(Protocol):
    """`quadsense.solve` on probes and readings; `parted` makes A, w and c of its matrix."""

    def __call__(
        self, U: Matrix, b: Vector, *, parted: Callable[[Matrix], Coefficients], **asked: Any
    ) -> Result:
        """Solve."""


class Strides:
    """The fit of an estimator as a task, and every stride of a solve as one of its subtasks.

    Parameters
    ----------
    estimator : estimator
    X, y : the data of the fit
    metadata : dict
        Of the fit: weights and the like, those that were given.
    """

    def __init__(self, estimator: Any, X: Any, y: Any, metadata: dict[str, Any]) -> None:
        self.estimator = estimator
        self.shown = {"X": X, "y": y, "metadata": metadata or None}
        self.context: Any = None
        if getattr(estimator, "_skl_callbacks", None):
            self.context = estimator._init_callback_context(max_subtasks=None)
            self.context.call_on_fit_task_begin(estimator=estimator, **self.shown)

    def callback(self, attributes: Callable[[Matrix], dict[str, Any]]) -> Any:
        """Return a callback of `solve`; None where no callback is set."""
        if self.context is None:
            return None

        def after(intermediate: Any) -> None:
            task = self.context.subcontext(task_name="stride")
            task.call_on_fit_task_begin(estimator=self.estimator, **self.shown)
            stop = task.call_on_fit_task_end(
                estimator=self.estimator,
                **self.shown,
                reconstruction_attributes=lambda: attributes(np.asarray(intermediate.matrix)),
            )
            if stop:
                raise StopIteration

        return after

    def end(self, attributes: dict[str, Any]) -> None:
        """Say that the fit is over."""
        if self.context is not None:
            self.context.call_on_fit_task_end(
                estimator=self.estimator, **self.shown, reconstruction_attributes=attributes
            )


__all__ = ["CallbackSupportMixin", "Solve", "Strides", "with_callbacks"]
