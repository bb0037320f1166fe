"""
Choosing delta
==============

`delta` is the largest error that you accept in one reading. Sometimes it is known exactly, as of a
display that rounds. Sometimes only the noise is known, or not even that. This page goes from the
one to the other.
"""

import math

import matplotlib.pyplot as plt
import numpy as np

import quadsense

# %%
# Sigma is known
# --------------
# Gaussian errors have no largest one. But m of them together are within some delta with 95%
# probability, and that delta grows with m, slowly. "Three sigma" is right for 20 readings, not for
# 500:

sigma, m = 0.01, 500
for count in (20, 500, 100_000):
    print(
        f"{count:>7} readings: {quadsense.delta_from_sigma(sigma, count) / sigma:.2f} sigma"
    )

# %%
# To see what follows, 100 experiments with the same matrix: with each delta, how often is the
# truth among the matrices that fit, and how often is a contradiction found where there is none?

problem = quadsense.datasets.gaussian(n=8, m=m, seed=1)
rng = np.random.default_rng(2)
noise = sigma * rng.standard_normal((100, m))
worst = (
    np.sort(np.abs(noise).max(axis=1)) / sigma
)  # delta must be at least this
deltas = np.linspace(2.2, 4.8, 27)
truth_fits = [np.mean(worst <= d) for d in deltas]
nothing_fits = []
for d in deltas[deltas < 3.6]:
    seen = [
        quadsense.solve(problem.U, problem.b + e, delta=d * sigma, prefer="any")
        for e in noise[:20]
    ]
    nothing_fits.append(
        np.mean([str(each.status) == "infeasible" for each in seen])
    )

# %%
# Too small a delta is noticed: it ends in INFEASIBLE, with a proof. But there is a range, from 2.5
# to 3.4 sigma here, in which *something* fits and the truth does not; a fit alone is no sign that
# delta was large enough. `delta_from_sigma` is.

chosen = quadsense.delta_from_sigma(sigma, m)
figure, ax = plt.subplots(layout="constrained", figsize=(7.2, 3.3))
exact = [math.erf(d / math.sqrt(2.0)) ** m for d in deltas]
ax.plot(deltas, exact, color="#1b6ca8", label="the truth fits: probability")
ax.plot(
    deltas,
    truth_fits,
    "o",
    color="#1b6ca8",
    mfc="white",
    label="the truth fits: 100 trials",
)
ax.plot(
    deltas[deltas < 3.6],
    nothing_fits,
    "s-",
    color="#c8553d",
    ms=3.5,
    label="nothing fits, proved: 20 trials",
)
ax.axvline(3.0, color="#6b6b6b", lw=1.0, ls=":")
ax.annotate(
    "three sigma",
    (3.0, 0.62),
    (-4, 0),
    textcoords="offset points",
    rotation=90,
    ha="right",
    va="center",
    color="#6b6b6b",
    fontsize=9,
)
ax.axvline(chosen / sigma, color="#1b6ca8", lw=1.0, ls="--")
ax.annotate(
    "delta_from_sigma(sigma, 500)",
    (chosen / sigma, 0.38),
    (-4, 0),
    rotation=90,
    textcoords="offset points",
    ha="right",
    va="center",
    color="#1b6ca8",
    fontsize=9,
)
ax.set(
    xlabel="delta / sigma", ylabel="share of experiments", ylim=(-0.03, 1.05)
)
ax.legend(loc="center right")
plt.show()

# %%
# Sigma is not known
# ------------------
# With more readings than unknowns, the residuals of least squares tell it. The number of degrees of
# freedom goes with it, since an estimate is not the truth either:

b = problem.b + noise[0]
s = quadsense.estimate_sigma(problem.U, b)
print(f"sigma = {s.sigma:.5f} (truly {sigma}), {s.dof} degrees of freedom")
result = quadsense.solve(
    problem.U, b, delta=quadsense.delta_from_sigma(s.sigma, m, dof=s.dof)
)
print(result.status)

# %%
# Nothing is known
# ----------------
# Without a tolerance A is the least-squares fit, and the message says which delta it meets. The
# smallest delta that any matrix meets comes with a lower bound:

print(quadsense.solve(problem.U, b).message)
least = quadsense.solve(problem.U, b, prefer="minimax")
low, high = least.certificate.lower_bound, least.certificate.upper_bound
print(f"met with {high:.5f}; with less than {low:.5f} no matrix fits")
print(f"the largest error there truly was: {np.abs(noise[0]).max():.5f}")

# %%
# It is smaller than the largest error: of all matrices the one with the smallest worst residual is
# not the truth. Do not use it as a tolerance when you want ranges that contain the truth.
#
# Counts, averages, percentages
# -----------------------------
# * counts of outcomes: ``bounds_from_counts(k, shots)``,
#   see :doc:`/gallery/fields/plot_1_tomography`
# * averages of N squares: ``bounds_from_averages(b, dof=N)``,
#   see :doc:`/gallery/fields/plot_6_sketching`
# * an instrument that is right to 2% and 0.01: ``solve(U, b, delta=0.01, rtol=0.02)``
# * one delta per reading, or intervals: ``delta=`` an array, ``bounds=(lo, hi)``; an end may be
#   infinite
