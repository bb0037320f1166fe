"""
Which A?
========

With fewer readings than unknowns, infinitely many matrices fit. Which of them do you get? One
rule decides, `prefer` names others, and the choice can matter more than the noise.

Here a covariance of order 20 (210 unknowns) is known through 147 sketches, the mean squares of
10,000 samples along random directions.
"""

import matplotlib.pyplot as plt
import numpy as np

import quadsense

rng = np.random.default_rng(0)
n, m, samples = 20, 147, 10_000
truth = 0.8 ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
X = rng.standard_normal((samples, n)) @ np.linalg.cholesky(truth).T
U = rng.standard_normal((m, n)) / np.sqrt(n)
b = np.mean((X @ U.T) ** 2, axis=0)

# %%
# How far such a mean of squares can be from its expectation follows from their number:
# `bounds_from_averages` gives intervals that hold for all of them together with 95% confidence.

bounds = quadsense.bounds_from_averages(b, dof=samples)
print(
    f"intervals from {bounds[0][0] / b[0] - 1:+.1%} to {bounds[1][0] / b[0] - 1:+.1%}"
)

# %%
# The same data with six preferences. All of these matrices fit, each is certified to be what was
# asked for, and they differ:

prefer = ["any", "nearest", "min_trace", "least_squares", "center", "entropy"]
found = {}
for name in prefer:
    found[name] = quadsense.solve(U, b, bounds=bounds, psd=True, prefer=name)
    error = np.linalg.norm(found[name].A - truth) / np.linalg.norm(truth)
    print(
        f"{name:>13}: {found[name].status}, certified: {found[name].optimal}, error {error:.1%}"
    )

# %%
# (``optimal`` is None for "any", which prefers nothing.) By default `solve` returns that of entropy
# here, and says so:

chosen = quadsense.solve(U, b, bounds=bounds, psd=True)
print(chosen.plan["reasons"][0])

# %%
# *Any* and *nearest* stay close to a multiple of the identity, where they begin, and what no reading
# sees becomes singular. *The least trace* is for matrices of low rank, which this one is not. The sum
# of squares is almost zero for many matrices here, so that the pull decides: in the Frobenius norm
# (*least squares*) it leads to singular matrices too. *Entropy* measures it by ``tr A/tau - log det A``,
# which keeps away from them, as *the center* does, the matrix as far from every bound as possible.

figure, axes = plt.subplots(2, 4, layout="constrained", figsize=(7.2, 4.3))
shown = [("the truth", truth)] + [(name, found[name].A) for name in prefer]
for ax, (name, A) in zip(axes.flat, shown, strict=False):
    error = np.linalg.norm(A - truth) / np.linalg.norm(truth)
    picture = ax.imshow(A, vmin=-1.0, vmax=1.0, cmap="RdBu_r")
    ax.set_title(
        name if name == "the truth" else f"{name}\n{error:.0%} off",
        fontsize=9.5,
    )
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
spectrum = axes.flat[-1]
for name, color in (
    ("truth", "#333333"),
    ("any", "#c8553d"),
    ("entropy", "#1b6ca8"),
):
    values = np.linalg.eigvalsh(truth if name == "truth" else found[name].A)[
        ::-1
    ]
    spectrum.semilogy(
        np.arange(1, n + 1),
        values.clip(1e-3),
        ".-",
        color=color,
        ms=4,
        lw=1.2,
        label=name,
    )
spectrum.set_title("eigenvalues\n(0 drawn at .001)", fontsize=9.5)
spectrum.legend(fontsize=8, handlelength=1.2)
figure.colorbar(picture, ax=axes[:, -1], shrink=0.6, label="entry of A")
plt.show()

# %%
# With more readings, from 1.5 times the unknowns on, the default is least squares without a pull,
# which averages the noise out. :doc:`/how_to_choose` has both tables, measured over seeds.
#
# Something else may be known of A: ``prior=`` a matrix to be pulled towards, ``trace=``, ``rank=``, or any
# linear ``constraints=``. And where the question is not about A but about a number that follows
# from it, ask for its range over *all* that fit: :doc:`plot_6_intervals`.
