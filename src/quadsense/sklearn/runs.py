"""Calls of `quadsense.solve` under an estimator: its limits, its seed, its callbacks.

scikit-learn has callbacks from 1.9 on; before, an estimator has no `set_callbacks` and nothing is
called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from quadsense.result.result import Result
from quadsense.sklearn.model import Coefficients, Matrix, Vector
from quadsense.solve import solve

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing: this scikit-learn has no callbacks."""

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
        """The method as it is."""
        return method


class Solve(Protocol):
    """`quadsense.solve` on probes and readings; `parted` makes A, w and c of its matrix."""

    def __call__(
        self, U: Matrix, b: Vector, *, parted: Callable[[Matrix], Coefficients], **asked: Any
    ) -> Result:
        """Solve."""


def plainly(
    U: Matrix, b: Vector, *, parted: Callable[[Matrix], Coefficients] | None = None, **asked: Any
) -> Result:
    """`quadsense.solve`."""
    return solve(U, b, **asked)


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
        """The fit is over."""
        if self.context is not None:
            self.context.call_on_fit_task_end(
                estimator=self.estimator, **self.shown, reconstruction_attributes=attributes
            )


__all__ = ["CallbackSupportMixin", "Solve", "Strides", "plainly", "with_callbacks"]
