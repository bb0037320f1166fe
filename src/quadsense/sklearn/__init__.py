"""Estimators for scikit-learn; needs the extra ``sklearn``.

>>> from quadsense.sklearn import QuadraticRegressor
>>> X = [[0.0], [1.0], [2.0], [3.0]]
>>> QuadraticRegressor(alpha=0.0).fit(X, [1.0, 2.0, 5.0, 10.0]).predict([[4.0]]).round(6)
array([17.])
"""

try:
    import sklearn  # noqa: F401
except ImportError:
    raise ImportError(
        "quadsense.sklearn needs scikit-learn: pip install 'quadsense[sklearn]'"
    ) from None

from quadsense.sklearn.fits import InfeasibleWarning
from quadsense.sklearn.mahalanobis import MahalanobisLearner_Supervised
from quadsense.sklearn.metric import MahalanobisLearner
from quadsense.sklearn.regressor import QuadraticRegressor

__all__ = [
    "InfeasibleWarning",
    "MahalanobisLearner",
    "MahalanobisLearner_Supervised",
    "QuadraticRegressor",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
