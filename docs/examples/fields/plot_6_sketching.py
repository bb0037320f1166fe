"""
A covariance from sketches
==========================

A receiver with 16 antennas cannot store its samples. It forms one weighted sum at a time and keeps
the mean power of it: ``u* A u``, A the covariance of the antennas. After 200 such sketches of 256
unknowns, from which directions do signals come, and is the faint one real?
"""

import matplotlib.pyplot as plt
import numpy as np

import quadsense

# %%
# Two strong sources and a faint one, in noise of power 1. A source at angle a reaches the antennas
# with the phases ``exp(i pi k sin a)``.

rng = np.random.default_rng(0)
n, m, samples = 16, 200, 20_000


def steering(degrees):
    return np.exp(
        1j * np.pi * np.outer(np.sin(np.radians(degrees)), np.arange(n))
    ) / np.sqrt(n)


angles, powers = np.array([-36.0, 9.0, 45.0]), np.array([40.0, 25.0, 8.0])
S = steering(angles)
truth = np.eye(n) + (S.T * powers) @ S.conj()

# %%
# Each sketch is the mean power of 20,000 samples of its own, along a random direction.

U = (rng.standard_normal((m, n)) + 1j * rng.standard_normal((m, n))) / np.sqrt(
    2 * n
)
power = np.einsum("ij,jk,ik->i", U.conj(), truth, U).real
b = power * rng.chisquare(2 * samples, m) / (2 * samples)
bounds = quadsense.bounds_from_averages(
    b, dof=2 * samples
)  # complex samples count twice

result = quadsense.solve(U, b, bounds=bounds, psd=True)
print(result.message)
print("because", result.plan["reasons"][0])


# %%
# For comparison what is commonly done: the least-squares matrix of least norm, negative eigenvalues cut
# off.


def error(A):
    return np.linalg.norm(A - truth) / np.linalg.norm(truth)


design = np.einsum("ij,ik->ijk", U.conj(), U).reshape(m, -1)
plain = np.linalg.lstsq(design, b)[0].reshape(n, n)
values, vectors = np.linalg.eigh((plain + plain.conj().T) / 2)
cut = (vectors * values.clip(0.0)) @ vectors.conj().T
print(
    f"error: least squares, cut off {error(cut):.2f}; quadsense {error(result.A):.2f}"
)

# %%
# The spectrum over angles, with the range of each value over *all* covariances that fit. What lies
# under the band is there, in every one of them.

grid = np.arange(-60.0, 61.0, 3.0)
V = steering(grid)
band = np.array([tuple(each) for each in result.interval(list(V), gap=0.05)])


def spectrum(A):
    return np.einsum("ij,jk,ik->i", V.conj(), A, V).real


inside = np.all(
    (band[:, 0] <= spectrum(truth)) & (spectrum(truth) <= band[:, 1])
)
print("the true spectrum is within the band:", inside)
at = int(np.argmin(np.abs(grid - 45.0)))
print(
    f"power at 45 degrees: between {band[at, 0]:.1f} and {band[at, 1]:.1f}; noise alone has 1"
)

figure, ax = plt.subplots(layout="constrained", figsize=(7.2, 3.6))
ax.fill_between(
    grid,
    *band.T,
    color="#1b6ca8",
    alpha=0.2,
    lw=0,
    label="all that fits, certified",
)
ax.plot(grid, spectrum(truth), color="#333333", lw=1.4, label="truth")
ax.plot(grid, spectrum(result.A), color="#1b6ca8", lw=1.6, label="quadsense")
ax.plot(
    grid,
    spectrum(cut).clip(0.05),
    color="#c8553d",
    lw=1.3,
    ls="--",
    label="least squares, cut off",
)
for angle in angles:
    ax.axvline(angle, color="#9a9a9a", lw=0.8, ls=":")
ax.axhline(1.0, color="#9a9a9a", lw=0.8)
ax.annotate("noise", (59.0, 1.08), ha="right", fontsize=9, color="#6b6b6b")
ax.set(
    yscale="log", xlabel="angle in degrees", ylabel="power", ylim=(0.08, 120.0)
)
ax.legend(ncols=2, loc="lower center", fontsize=8.5)
plt.show()
