"""The checks behind `verify`: those of `solve`, and rounding never in their favour."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from helpers import gaussian_rows

import quadsense
from quadsense import Measurements, Status
from quadsense.proofs.infeasible import check_infeasible


@pytest.mark.slow
def test_without_a_tolerance_nothing_is_infeasible():
    p = quadsense.datasets.gaussian(n=40, m=1500, seed=0, noise=0.5)
    result = quadsense.solve(p.U, 100 * p.b, gap=1e-13)
    assert result.status in (Status.OPTIMAL, Status.UNDECIDED)
    assert result.certificate.kind in ("optimal", "none")
    assert "delta" not in result.message.split(". ")[0]


def test_a_row_of_zeros_without_a_tolerance_is_no_contradiction():
    U = np.vstack([np.eye(2), np.zeros((1, 2))])
    result = quadsense.solve(U, [1.0, 2.0, 5.0], prefer="minimax")
    assert result.status is Status.OPTIMAL
    assert result.certificate.lower_bound == pytest.approx(5.0)


@pytest.mark.parametrize("method", ["gd", "sgd", "cg", "minimax", "psd", "auto"])
@pytest.mark.parametrize("m", [12, 60])
def test_met_and_verify_agree_at_every_delta(method, m):
    p = quadsense.datasets.gaussian(n=6, m=m, seed=m)
    for exponent in range(-15, 1):
        delta = 10.0**exponent * float(p.b.max())
        result = quadsense.solve(
            p.U, p.b, delta=delta, method=method, rng=0, max_iter=3000, time_limit=5.0
        )
        assert result.verify(p.U, p.b) == (result.status is Status.MET), (method, exponent)
        if exponent >= -8 and method != "sgd":
            assert result.status is Status.MET


def test_a_dense_start_does_not_inflate_the_rounding_bound():
    p = quadsense.datasets.gaussian(n=400, m=50, seed=0)
    result = quadsense.solve(p.U, p.b, delta=1e-6, start=np.ones((400, 400)))
    assert result.status is Status.MET
    assert result.certificate.rounding < 1e-3
    assert result.verify(p.U, p.b)


def test_rows_that_differ_in_the_last_bit_do_not_prove_a_contradiction():
    """Unit rows coincide as computed; an exact fit exists: nothing may be proved."""
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(2000):
        u = rng.standard_normal(2)
        v = u.copy()
        v[0] = np.nextafter(v[0], np.inf)
        unit = [w / np.linalg.norm(w) for w in (u, v)]
        if not np.array_equal(*unit):
            continue
        found += 1
        U = np.array([u, v])
        # A = diag(1e6, 0) reads both exactly, to the rounding of the readings themselves.
        exact = [Fraction(float(w[0])) ** 2 * 10**6 for w in (u, v)]
        b = np.array([float(x) for x in exact])
        delta = [abs(Fraction(float(x)) - y) for x, y in zip(b, exact, strict=True)]
        delta = np.array([np.nextafter(float(d), 1.0) for d in delta]) + 1e-300
        data = Measurements(U, b, delta=delta)
        for sign in (1.0, -1.0):
            for scale in (1.0, *np.linspace(0.999999, 1.000001, 5)):
                dual = sign * np.array([1.0, -scale])
                proof = check_infeasible(data, dual, False)
                assert not (proof.proved and proof.unconditional)
                largest = 1e6 * 1.01
                assert not proof.proved or float(proof.condition.split()[-1]) < largest
    assert found > 20


def test_the_data_s_own_tolerance_counts_too(tmp_path):
    p = quadsense.datasets.gaussian(5, 20, seed=0)
    wide = quadsense.solve(p.U, p.b, delta=0.5, start="zero", method="gd")
    assert wide.verify(p.U, p.b)
    strict = Measurements(p.U, p.b, delta=1e-6)
    assert not wide.verify(strict)
    report = str(wide.check(strict))
    assert "the result's own tolerance, delta 0.5" in report
    assert "the data's tolerance, which differs, delta 1e-06" in report


def test_a_result_of_zero_with_an_enormous_tolerance_is_false_for_the_file(tmp_path):
    from click.testing import CliRunner

    from quadsense import cli

    p = quadsense.datasets.gaussian(5, 20, seed=0)
    Measurements(p.U, p.b, delta=1e-6).save(tmp_path / "d.npz")
    lazy = quadsense.solve(p.U, p.b, delta=1e9, start="zero", prefer="any")
    lazy.save(tmp_path / "r.npz")
    out = CliRunner().invoke(
        cli.cli, ["verify", str(tmp_path / "d.npz"), str(tmp_path / "r.npz")],
        standalone_mode=False,
    )  # fmt: skip
    assert out.return_value == 3
    assert out.output.startswith("FALSE")


def test_a_status_that_is_not_the_claim_is_false(tmp_path):
    p = quadsense.datasets.gaussian(5, 20, seed=0)
    met = quadsense.solve(p.U, p.b, delta=0.1)
    assert met.verify(p.U, p.b)
    lie = dataclasses.replace(met, status=Status.INFEASIBLE)
    assert not lie.verify(p.U, p.b)


def test_a_condition_left_out_is_a_lie():
    rng = np.random.default_rng(0)
    U = gaussian_rows(rng, 3, 4, False)
    U = np.vstack([U, U[:1]])
    b = np.array([1.0, 2.0, 3.0, 1.5])
    result = quadsense.solve(U, b, delta=0.1)
    assert result.status is Status.INFEASIBLE and result.certificate.condition
    assert result.verify(U, b)
    bare = dataclasses.replace(result.certificate, condition="")
    assert not bare.verify(U, b)


# --- spectral --------------------------------------------------------------------------------


def test_the_spectral_bound_knows_no_invented_readings():
    rng = np.random.default_rng(0)
    U = rng.standard_normal((40, 3))
    lo = np.einsum("ij,ij->i", U, U)  # A* = I and A* = 10 I are both allowed
    result = quadsense.solve(U, bounds=(lo, np.inf))
    assert result.status is Status.MET
    found = result.certificate.spectral()
    assert not np.isfinite(found.delta)


def test_the_spectral_bound_of_intervals_covers_their_width():
    rng = np.random.default_rng(0)
    U = rng.standard_normal((60, 3))
    truth = np.diag([1.0, 2.0, 3.0])
    b = np.einsum("ij,jk,ik->i", U, truth, U)
    shift = 0.05 * rng.uniform(-1, 1, 60)  # the middles are off by up to this
    result = quadsense.solve(U, bounds=(b + shift - 0.05, b + shift + 0.05))
    found = result.certificate.spectral()
    A = result.A
    root = np.linalg.inv(np.linalg.cholesky(truth))
    off = np.abs(np.linalg.eigvalsh(root @ A @ root.T) - 1.0).max()
    assert found.delta >= off


def test_the_spectral_bound_leaves_out_what_was_set_aside():
    p = quadsense.datasets.gaussian(4, 40, seed=0)
    b = p.b.copy()
    b[7] += 5.0
    result = quadsense.solve(p.U, b, delta=1e-6, allow_violations=1)
    assert result.set_aside.tolist() == [7]
    assert result.certificate.spectral(noise=1e-6).delta < 1e-2
