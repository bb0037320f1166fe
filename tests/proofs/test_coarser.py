"""In coarser arithmetic every claim is weaker: each count of roundings is on the right side.

The constants and functions that bound rounding are made larger, one at a time, where a module has
them; the claims of the functions that use them must become weaker, whichever way a claim points.
"""

from __future__ import annotations

from types import CodeType

import numpy as np
import pytest
from helpers import gaussian_rows, hermitian

from quadsense.core import row_terms, smooth_terms, sums
from quadsense.core.intervals import Intervals
from quadsense.core.matrix import DenseForm, FactorForm, MeasuredForm, SensedMatrix
from quadsense.core.question import Question
from quadsense.measurements.mixed import Mixed
from quadsense.measurements.sensing import Sensing
from quadsense.proofs import (
    costs,
    definite,
    objective,
    positive,
    rays,
    rounding,
    spectral,
    symmetric,
)

COARSE = 1e-7

COARSER = {
    "UNIT": COARSE,
    "EPS": COARSE,
    "ROUNDINGS": COARSE,
    "UP": 1.0 + COARSE,
    "DOWN": 1.0 - COARSE,
    "LIFT_ROUNDINGS": COARSE,
    "LIFT_UP": 1.0 + COARSE,
    "LIFT_DOWN": 1.0 - COARSE,
    "UNDERFLOW": COARSE,
    "PRODUCT_UNDERFLOW": COARSE,
    "COMPLEX": 1e9,
    "OF_NORMS": 1.5,
    "OF_ERRORS": 1.5,
    "OUTER": 5.0,
    "ABOVE_ROOT_2": 3.0,
    "SUM_ROUNDINGS": 3e9,
    "SPARE": 10**9,
    "SPARE_OF_NESTED": 10**9,
    "READING_ROUNDINGS": 10**9,
    "MAX_SQUARED_NORM": 8.0,
    "FEATURE_ROUNDINGS": 10**9,
    "ROUNDED_PARTS": 1e9,
    "gamma": lambda k: COARSE * k,
    "sum_error": lambda k: 1e-5 * (k + 8),
    "factorisation_error": lambda order, trace, unit=1.0: COARSE * order * max(trace, 0.0),
}

RNG = np.random.default_rng(5)
V = gaussian_rows(RNG, 9, 3, True)
V /= np.linalg.norm(V, axis=1, keepdims=True)
FEW = V[:2]
F, REAL = Sensing.of(V), Sensing.of(np.abs(V))
W = RNG.standard_normal((5, 9))
SUMS = Mixed(F, W, np.ones(5), np.ones(5))
A = hermitian(RNG, 3, True)
LAM = np.array([1.0, 2.0])
X = gaussian_rows(RNG, 3, 3, True)
Y, Y5 = RNG.standard_normal(9), RNG.standard_normal(5)
POSITIVE = np.abs(Y) + 0.5
DENSE = SensedMatrix(DenseForm(A))
B = RNG.standard_normal(9)
BORDER = np.append(np.linspace(-1.01, 2.01, 7), [-0.99, 1.99])
OWN = MeasuredForm(0.3, 1.0 + np.abs(Y), F)
SHARED = Mixed(Sensing.of(V[:4]), np.eye(4)[:3] + 0.25, np.ones(3), np.ones(3))
ENDS = Intervals.around(B, np.full(9, 0.1))
SAME = Sensing.of(np.full((2, 1), 0.6))
APART = Intervals.between(np.array([0.0, 2.0]), np.array([1.0, 3.0]))
NEGATIVE = Intervals.between(np.array([-3.0]), np.array([-1.0]))
LAPPED = Intervals.between(np.array([0.0, 0.8]), np.array([1.0, 3.0]))
NEAR = np.array([-1.0, 1.0 + 1e-4])


def question(rows="within", m=9, **more):
    ones = np.ones(m)
    given = {"lo": -ones, "hi": 2.0 * ones, "weights": 3.0 * ones, "reading": 0.3 * ones,
             "hard": ones < 0.0}  # fmt: skip
    return Question(rows, **(given | more))


def asked(q, y, F=F):
    return objective.Asked(F, q, y, 0.25, np.ones(F.n, bool), 0)


def conjugate(rows, y, **more):
    def value():
        q, total = question(rows, m=y.size, **more), sums.ExactSum()
        q.term.add_conjugate(total, q, y, q.term.priced(q))
        return total.above()

    return value


def enclosed(rows, v, e, **more):
    def value():
        q = question(rows, m=v.size, **more)
        return q.term.enclosed(q, v, e).error

    return value


def spectral_claim():
    found = spectral.spectral_certificate(V[:, :2], readings(V[:, :2], np.diag([1.0, 2.0])),
                                          np.diag([1.1, 2.0]), 1e-3)  # fmt: skip
    return found.delta


def readings(U, M):
    return np.einsum("ij,jk,ik->i", U.conj(), M, U).real


def lifted(F, q, y, e):
    return float(np.abs(next(positive.lifted(F, q, y, e)) - y).sum())


# Function, what it claims, and the sign with which larger is weaker; names that change nothing.
CLAIMS = {
    "dense_error": (rounding, lambda: rounding.dense_error(F, 2.0, 3), 1, ""),
    "reading_error": (rounding, lambda: rounding.reading_error(B).sum(), 1, ""),
    "factor_size": (rounding, lambda: rounding.factor_size(FactorForm(X), 1e-3), 1, ""),
    "squared_length": (rounding, lambda: rounding.squared_length(F, Y)[1], 1, "SPARE"),
    "measured_enclosure": (
        rounding, lambda: rounding.measured_enclosure(
            MeasuredForm(0.3, POSITIVE, VAGUE), B, B, B * B, 4).error.sum(), 1, "",
    ),
    "enclosure": (
        rounding, lambda: rounding.enclosure(SensedMatrix(DenseForm(A)), F, B).error.sum(), 1, ""
    ),
    "_mixed_enclosure": (
        rounding, lambda: rounding.enclosure(SensedMatrix(DenseForm(A)), SUMS, B[:5]).error.sum(),
        1, "",
    ),
    "adjoint_norm": (rounding, lambda: rounding.adjoint_norm(F, Y), 1, ""),
    "adjoint_matrix": (rounding, lambda: rounding.adjoint_matrix(F, Y, A)[1], 1, ""),
    "_summed": (
        rounding, lambda: rounding._summed(F, Y, np.arange(9), 0 * A, 0, slice(0, 3))[1], 1, ""
    ),
    "add": (
        rounding,
        lambda: rounding._summed(REAL, Y, np.arange(9), 0 * A.real, 0, slice(0, 3))[1], 1, "",
    ),
    "plain_adjoint": (rounding, lambda: rounding.plain_adjoint(F, Y)[1], 1, ""),
    "entries_error": (rounding, lambda: rounding.entries_error(VAGUE, Y), 1, ""),
    "unmixing_error": (rounding, lambda: rounding.unmixing_error(SUMS, Y5), 1, ""),
    "spectrum": (definite, lambda: definite.spectrum(A).error, 1, ""),
    "norm_within": (symmetric, lambda: symmetric.norm_within(F, POSITIVE), 1, ""),
    "norm_within far": (
        symmetric, lambda: symmetric.norm_within(F, np.where(Y > 1.0, 1e6, 1.0)), 1, ""
    ),
    "_smallest": (symmetric, lambda: symmetric.smallest_singular_value(F), -1,
                  "OUTER SPARE sum_error"),
    "_smallest sums": (
        symmetric, lambda: symmetric.smallest_singular_value(LONG), -1, "OUTER sum_error"
    ),
    "_smallest vague": (symmetric, lambda: symmetric._smallest(F, 1e-6, None), -1, "SPARE"),
    "smallest_of_gram": (symmetric, lambda: symmetric.smallest_of_gram(Sensing.of(V[:4])), -1,
                         "gamma"),
    "smallest_of_gram pattern": (
        symmetric, lambda: symmetric.smallest_of_gram(Sensing.of(FEW), ~np.eye(3, dtype=bool)),
        -1, "gamma",
    ),
    "smallest_of_gram sums": (symmetric, lambda: symmetric.smallest_of_gram(SHARED), -1, ""),
    "_dot_below": (symmetric, lambda: symmetric._dot_below(B, Y), -1, ""),
    "_mass_above": (symmetric, lambda: symmetric._mass_above(Y, POSITIVE), 1, ""),
    "_margin_below": (symmetric, lambda: symmetric._margin_below(ENDS, Y), -1, ""),
    "lower_bound": (
        symmetric, lambda: symmetric.lower_bound(3.0 * Y, POSITIVE, Y, 0.1, 0.1), -1, ""
    ),
    "check_proof": (
        symmetric, lambda: symmetric.check_proof(SAME, APART, NEAR).ratio, -1, ""
    ),
    "check_proof norm": (
        symmetric, lambda: symmetric.check_proof(SAME, APART, NEAR).norm_needed, -1,
        "ROUNDINGS UNDERFLOW UP",
    ),
    "check_proof below 1": (
        symmetric, lambda: symmetric.check_proof(SAME, LAPPED, np.array([-1.0, 1.0])).ratio,
        -1, "UP",
    ),
    "_root_sum_of_squares": (symmetric, lambda: symmetric._root_sum_of_squares(Y), 1, ""),
    "norm_bound": (
        symmetric, lambda: symmetric.norm_bound(Sensing.of(FEW), question(m=2), np.inf), 1, ""
    ),
    "smallest_eigenvalue_bound": (
        positive, lambda: positive.smallest_eigenvalue_bound(F, Y), -1, ""
    ),
    "_within_span": (
        positive, lambda: positive.smallest_eigenvalue_bound(WIDE, np.array([1.0, -1.0])), -1,
        "sum_error",
    ),
    "floor_within_span": (
        positive, lambda: positive.floor_within_span(WIDE, np.ones(2), np.ones(2)), -1, ""
    ),
    "certify": (
        positive, lambda: positive.certify(SAME, APART, -NEAR).lower_bound, -1,
        "DOWN LIFT_ROUNDINGS",
    ),
    "certify plain": (
        positive, lambda: positive.certify(Sensing.of(np.eye(1)), NEGATIVE, np.ones(1)).lower_bound,
        -1, "DOWN LIFT_ROUNDINGS LIFT_UP",
    ),
    "certify trace": (
        positive, lambda: positive.certify(SAME, APART, -NEAR, lift=False).trace_bound, -1,
        "LIFT_UP LIFT_ROUNDINGS ROUNDINGS sum_error",
    ),
    "certify sums": (
        positive, lambda: -positive.certify(TWICE, APART, -NEAR, floor=0.5).y.sum(), -1,
        "DOWN ROUNDINGS sum_error",
    ),
    "_along": (
        positive, lambda: lifted(F, question(), Y, 9.0), 1, "UNIT"
    ),
    "lifted": (
        positive, lambda: lifted(F, question(C=2.0), Y, 9.0), 1, "sum_error"
    ),
    "_down": (objective, lambda: objective._down(1.5, 2.0), -1, ""),
    "rows_above": (
        objective, lambda: asked(question("squares"), Y).rows_above(Y), 1, ""
    ),
    "_quick_bound": (
        objective, lambda: objective._quick_bound(asked(question(alpha=1.0, C=A), Y), 1.0, 0), -1,
        "COMPLEX ROUNDED_PARTS SPARE_OF_NESTED sum_error",
    ),
    "_quick_bound long": (
        objective, lambda: objective._quick_bound(asked(question(
            m=2, alpha=1.0, prior=0.5), Y[:2], Sensing.of(FEW)), 1.0, 0), -1, "UNIT COMPLEX",
    ),
    "_quick_bound vague": (
        objective, lambda: objective._quick_bound(asked(question(
            m=2, alpha=1.0, prior=0.5), Y[:2], vague(FEW)), 1.0, 0), -1, "UNIT",
    ),
    "_symmetric": (
        objective, lambda: objective._symmetric(asked(question(), Y), 1.0, 0.5, 1.0, np.inf, {})
        .value, -1, "",
    ),
    "_positive": (
        objective, lambda: objective._positive(changed_asked(), 1.0, 0.5, 1.0).value, -1, ""
    ),
    "_infimum": (
        objective, lambda: objective._infimum(question(alpha=1.0, prior=A), F, A, 0.1, 0), -1,
        "UNIT EPS COMPLEX ROUNDINGS factorisation_error",
    ),
    "_infimum psd": (
        objective, lambda: objective._infimum(
            question(alpha=1.0, prior=-A, psd=True), F, A, 0.1, 0),
        -1, "UNIT EPS COMPLEX factorisation_error",
    ),
    "_infimum log det": (
        objective, lambda: objective._infimum(
            question(alpha=1.0, prior=-A, psd=True, log_det=True), F, A, 0.1, 0),
        -1, "EPS COMPLEX OF_ERRORS ROUNDED_PARTS factorisation_error",
    ),
    "_determinant_part": (
        objective, lambda: objective._determinant_part(POSITIVE, 0.5), -1, ""
    ),
    "_determinant_part alone": (
        objective, lambda: objective._determinant_part(POSITIVE, 0.0), -1, ""
    ),
    "objective_value": (
        costs, lambda: costs.objective_value(question("squares"), DENSE, Y, B * B).error, 1, "",
    ),
    "matrix_value": (
        costs, lambda: costs.matrix_value(question(C=2.0), DENSE).error, 1,
        "UNIT",
    ),
    "matrix_value C": (
        costs, lambda: costs.matrix_value(question(C=A), DENSE).error, 1,
        "UNIT",
    ),
    "matrix_value alpha": (
        costs, lambda: costs.matrix_value(question(alpha=2.0, prior=1.0), DENSE)
        .error, 1, "",
    ),
    "matrix_value long": (
        costs, lambda: costs.matrix_value(question(alpha=2.0, prior=1.0), SensedMatrix(
            MeasuredForm(0.5, np.ones(2), Sensing.of(FEW)))).error, 1, "UNIT SPARE",
    ),
    "_logarithms": (
        costs, lambda: costs._logarithms(definite.Spectrum(POSITIVE, 0.01), 0.01).error, 1, ""
    ),
    "_squared_distance": (
        costs, lambda: costs._squared_distance(
            MeasuredForm(0.5, np.ones(2), Sensing.of(FEW)), 0.25).error, 1, "",
    ),
    "_dense_error": (
        costs, lambda: costs._dense_error(SensedMatrix(OWN)), 1, "",
    ),
    "_dense_error of factors": (
        costs, lambda: costs._dense_error(SensedMatrix(FactorForm(X))), 1, "SPARE",
    ),
    "summed": (sums, lambda: sums.summed(Y, B * B).error, 1, ""),
    "above": (sums, conjugate("squares", Y), 1, ""),
    "Squares.enclosed": (smooth_terms, enclosed("squares", Y, B * B), 1, ""),
    "Likelihood.enclosed": (
        smooth_terms, enclosed("likelihood", POSITIVE, 0.01 * B * B, slope=POSITIVE), 1, ""
    ),
    "Center.enclosed": (row_terms, enclosed("center", 0.1 * Y, 0.01 * B * B), 1, ""),
    "SlackSum._missed": (row_terms, enclosed("slack_sum", BORDER, np.full(9, 0.02)), 1, ""),
    "SlackMax.enclosed": (row_terms, enclosed("slack_max", 5.0 * Y, 0.01 * B * B), 1, ""),
    "SlackMax._used": (
        row_terms, lambda: row_terms.SlackMax().excess(question("slack_max"), 9.0 * Y), 1, ""
    ),
    "SlackSum._used": (
        row_terms, lambda: row_terms.SlackSum().excess(question("slack_sum"), 9.0 * Y), 1, ""
    ),
    "widened": (
        row_terms, lambda: float(np.subtract(*row_terms.widened(
            Y > 0, POSITIVE, B, B + 1.0)[::-1])[Y > 0].sum()), 1, "",
    ),
    "_correction": (
        rays, lambda: rays._correction(Sensing.of(FEW), np.ones(2, bool), Y[:2], B[:2] ** 2,
                                       np.ones((3, 3), bool)), 1, "",
    ),
    "_smallest_singular_value": (rays, lambda: rays._smallest_singular_value(FEW), -1, ""),
    "spectral_certificate": (spectral, spectral_claim, 1, ""),
    "_bounded": (spectral, spectral_claim, 1, ""),
    "__init__": (
        spectral, lambda: spectral._Whitened(V[:, :2], LAM, B, POSITIVE).slip, 1, ""
    ),
    "__init__ weights": (
        spectral, lambda: -spectral._Whitened(V[:, :2], LAM, B, POSITIVE)
        .weight.sum(), 1, "SPARE_OF_NESTED factorisation_error",
    ),
}  # fmt: skip


def vague(rows):
    """Return rows that are computed, not held."""
    F = Sensing.of(rows)
    F.kind.rounding = F.kind.row_rounding = 1e-9
    return F


def changed_asked():
    return objective.Asked(F, question(psd=True), Y, 0.25, np.ones(3, bool), 0, conditional=True)


VAGUE = vague(V)
LONG = Mixed(F, np.vstack([W, W[::-1] ** 2]), np.ones(10), np.ones(10))
WIDE = Sensing.of(gaussian_rows(RNG, 2, 9, True))
TWICE = Mixed(Sensing.of(np.eye(2)), np.full((2, 2), 0.36), np.ones(2), np.ones(2))


def names_in(code):
    """Return the names that a function uses, and functions in it."""
    found = set(code.co_names)
    for each in code.co_consts:
        if isinstance(each, CodeType):
            found |= names_in(each)
    return found


def uses():
    """Return claims and what is made coarser in the modules of their functions."""
    found = []
    for label, (module, _, _, idle) in CLAIMS.items():
        owner, _, name = label.split()[0].rpartition(".")
        classes = [
            each
            for each in vars(module).values()
            if isinstance(each, type) and each.__module__ == module.__name__
        ]
        holders = [each for each in classes if owner in ("", each.__name__)]
        holders += [module] if not owner else []
        codes = [
            getattr(vars(each)[name], "__code__", None) for each in holders if name in vars(each)
        ]
        used = {each for code in codes if isinstance(code, CodeType) for each in names_in(code)}
        assert codes, label
        for coarse in sorted(used & set(COARSER)):
            idles = coarse in idle.split()
            found.append(pytest.param(label, coarse, idles, id=f"{label}-{coarse}"))
    return found


@pytest.mark.parametrize(("label", "name", "idle"), uses())
def test_a_claim_is_weaker_in_coarser_arithmetic(monkeypatch, label, name, idle):
    module, claim, sign, _ = CLAIMS[label]
    with np.errstate(all="ignore"):
        before = sign * float(claim())
        monkeypatch.setattr(module, name, COARSER[name])
        after = sign * float(claim())
    assert np.isfinite(before)
    assert after >= before if idle else after > before


# --- units -----------------------------------------------------------------------------------


def rows_times(s, rows=V):
    return Sensing.of(s * rows)


def squares_of(s):
    """Readings, and what they cost, in units of s."""
    return {"lo": -s * np.ones(9), "hi": 2.0 * s * np.ones(9), "reading": 0.3 * s * np.ones(9)}


# Function of a unit, and the power of it that the claim is proportional to.
IN_UNITS = {
    "dense_error": (lambda s: rounding.dense_error(F, 2.0 * s, 3), 1),
    "reading_error": (lambda s: rounding.reading_error(s * B).sum(), 1),
    "factor_size": (lambda s: rounding.factor_size(FactorForm(s * X), 1e-3), 2),
    "squared_length": (lambda s: rounding.squared_length(F, s * Y)[1], 2),
    "measured_enclosure": (
        lambda s: rounding.measured_enclosure(
            MeasuredForm(0.3 * s, s * Y, VAGUE, s * A), s * B, s * B, s * B * B, 4).error.sum(), 1,
    ),
    "enclosure of a factor": (
        lambda s: rounding.enclosure(SensedMatrix(FactorForm(s * X)), F, s * s * B).error.sum(), 2
    ),
    "enclosure of other rows": (
        lambda s: rounding.enclosure(
            SensedMatrix(MeasuredForm(0.3 * s, s * Y, VAGUE, s * A)), F, s * B).error.sum(), 1,
    ),
    "enclosure of sums": (
        lambda s: rounding.enclosure(SensedMatrix(DenseForm(s * A)), SUMS, s * B[:5]).error.sum(), 1
    ),
    "adjoint_norm": (lambda s: rounding.adjoint_norm(F, s * Y), 1),
    "adjoint_norm of rows": (lambda s: rounding.adjoint_norm(rows_times(s), Y), 2),
    "adjoint_norm of sums": (lambda s: rounding.adjoint_norm(SUMS, s * Y5), 1),
    "adjoint_matrix": (lambda s: rounding.adjoint_matrix(F, s * Y, s * A)[1], 1),
    "adjoint_matrix of rows": (
        lambda s: rounding.adjoint_matrix(rows_times(s), Y, s * s * A)[1], 2
    ),
    "plain_adjoint": (lambda s: rounding.plain_adjoint(rows_times(s), Y)[1], 2),
    "entries_error": (lambda s: rounding.entries_error(VAGUE, s * Y), 1),
    "spectrum": (lambda s: definite.spectrum(s * A).error, 1),
    "norm_within": (lambda s: symmetric.norm_within(F, s * POSITIVE), 1),
    "norm_within of rows": (lambda s: symmetric.norm_within(rows_times(s), POSITIVE), -2),
    "norm_within far": (
        lambda s: symmetric.norm_within(F, s * np.where(Y > 1.0, 1e6, 1.0)), 1
    ),
    "sigma of sums": (
        lambda s: symmetric.smallest_singular_value(
            Mixed(F, s * LONG.weights, np.ones(10), np.ones(10))), 1,
    ),
    "smallest_of_gram": (lambda s: symmetric.smallest_of_gram(rows_times(s, V[:4])), 2),
    "smallest_of_gram pattern": (
        lambda s: symmetric.smallest_of_gram(rows_times(s, FEW), ~np.eye(3, dtype=bool)), 2
    ),
    "norm_limit": (
        lambda s: symmetric.norm_limit(F, Intervals.around(s * B, np.full(9, 0.1 * s))), 1
    ),
    "norm_limit of rows": (lambda s: symmetric.norm_limit(rows_times(s), ENDS), -2),
    "norm_bound": (
        lambda s: symmetric.norm_bound(
            Sensing.of(FEW), question(m=2, lo=-s * np.ones(2), hi=s * np.ones(2)), np.inf), 1,
    ),
    "lower_bound": (
        lambda s: symmetric.lower_bound(3.0 * s * Y, s * POSITIVE, Y, 0.1, 0.1 * s), 0
    ),
    "lower_bound of y": (
        lambda s: symmetric.lower_bound(3.0 * Y, POSITIVE, s * Y, 0.1 * s, 0.1), 0
    ),
    "check_proof": (
        lambda s: symmetric.check_proof(SAME, APART.each(lambda x: s * x), NEAR).ratio, 0
    ),
    "check_proof norm": (
        lambda s: symmetric.check_proof(SAME, APART.each(lambda x: s * x), NEAR).norm_needed, 1
    ),
    "smallest_eigenvalue_bound": (lambda s: positive.smallest_eigenvalue_bound(F, s * Y), 1),
    "_within_span": (
        lambda s: positive.smallest_eigenvalue_bound(
            rows_times(s, WIDE.rows()), np.array([1.0, -1.0])), 2,
    ),
    "floor_within_span": (
        lambda s: positive.floor_within_span(
            rows_times(s, WIDE.rows()), np.ones(2), np.ones(2)), 2,
    ),
    "certify": (
        lambda s: positive.certify(SAME, APART.each(lambda x: s * x), -NEAR).lower_bound, 0
    ),
    "certify trace": (
        lambda s: positive.certify(
            SAME, APART.each(lambda x: s * x), -NEAR, lift=False).trace_bound, 1,
    ),
    "_along": (lambda s: lifted(F, question(), s * Y, 9.0 * s), 1),
    "lifted": (lambda s: lifted(F, question(C=2.0 * s), s * Y, 9.0 * s), 1),
    "_infimum": (
        lambda s: objective._infimum(question(alpha=s, prior=A), F, s * A, 0.1 * s, 0), 1
    ),
    "_infimum psd": (
        lambda s: objective._infimum(
            question(alpha=1.0, prior=-s * A, psd=True), F, s * A, 0.1 * s, 0), 2,
    ),
    "_quick_bound long": (
        lambda s: objective._quick_bound(asked(question(
            m=2, alpha=1.0, prior=0.5 * s), s * Y[:2], vague(FEW)), s * s, 0), 2,
    ),
    "_quick_bound": (
        lambda s: objective._quick_bound(asked(question(
            alpha=1.0, prior=0.5 * s, C=s * A), s * Y), s * s, 0), 2,
    ),
    "_symmetric": (
        lambda s: objective._symmetric(asked(question(
            lo=-s * np.ones(9), hi=s * np.ones(9)), Y), s, 0.5, s, np.inf, {}).value, 1,
    ),
    "matrix_value": (
        lambda s: costs.matrix_value(
            question(C=2.0 * s, alpha=2.0, prior=s), SensedMatrix(DenseForm(s * A))).error, 2,
    ),
    "matrix_value C": (
        lambda s: costs.matrix_value(question(C=A), SensedMatrix(
            MeasuredForm(0.3 * s, s * Y, VAGUE, s * A))).error, 1,
    ),
    "matrix_value of a factor": (
        lambda s: costs.matrix_value(question(C=A), SensedMatrix(FactorForm(s * X))).error, 2
    ),
    "_squared_distance": (
        lambda s: costs._squared_distance(
            MeasuredForm(0.5 * s, s * np.ones(2), Sensing.of(FEW)), 0.25 * s).error, 2,
    ),
    "objective_value": (
        lambda s: costs.objective_value(
            question("squares", **squares_of(s)), DENSE, s * Y, s * B * B).error, 2,
    ),
    "summed": (lambda s: sums.summed(s * Y, s * B * B).error, 1),
    "squares": (lambda s: conjugate("squares", s * Y, **squares_of(s))(), 2),
    "squares of weights": (lambda s: conjugate("squares", s * Y, weights=3.0 * s * ONES)(), 1),
    "slack_squares": (lambda s: conjugate("slack_squares", s * Y, **squares_of(s))(), 2),
    "slack_sum": (
        lambda s: enclosed("slack_sum", s * BORDER, np.full(9, 0.02 * s), **squares_of(s))(), 1
    ),
    "slack_max": (
        lambda s: enclosed("slack_max", s * BORDER, np.full(9, 0.02 * s), **squares_of(s))(), 1
    ),
    "enclosed slack_squares": (
        lambda s: enclosed("slack_squares", s * BORDER, np.full(9, 0.02 * s), **squares_of(s))(), 2
    ),
    "_correction": (
        lambda s: rays._correction(
            Sensing.of(FEW), np.ones(2, bool), s * Y[:2], s * B[:2] ** 2, np.ones((3, 3), bool)), 1,
    ),
    "_smallest_singular_value": (lambda s: rays._smallest_singular_value(s * FEW), 1),
}  # fmt: skip

ONES = np.ones(9)


@pytest.mark.parametrize("label", IN_UNITS)
@pytest.mark.parametrize("unit", [2.0**9, 2.0**-9])
def test_a_claim_is_the_same_in_other_units(label, unit):
    """By powers of two: nothing rounds otherwise, so that sums of unlike quantities show."""
    claim, power = IN_UNITS[label]
    with np.errstate(all="ignore"):
        one, other = float(claim(1.0)), float(claim(unit))
    assert np.isfinite(one) and one != 0.0
    assert other == pytest.approx(one * unit**power, rel=1e-9)
