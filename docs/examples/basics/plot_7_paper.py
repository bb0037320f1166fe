"""
The paper's algorithms and their bounds
=======================================

Qin, Song and Zhang ("A General Algorithm for Solving Rank-one Matrix Sensing", AISTATS 2024) bound
the *worst* residual by a potential, ``Phi(A) = sum_i cosh(lambda z_i)``: one term is at most the
sum, so a small potential makes every residual small. All four of their algorithms are here, with
the constants that the lemmas need, and this page draws what they promise and what they do.
"""

import matplotlib.pyplot as plt
import numpy as np

import quadsense
from quadsense import theory

# %%
# Algorithm 1: gradient descent
# -----------------------------
# Orthonormal probes, the setting of the main theorem. ``schedule="paper"`` takes the lemma's
# sharpness lambda, step and number of steps; ``schedule="continuation"`` (the default) sharpens the
# potential in stages and takes the longest steps that still descend.

problem = quadsense.datasets.orthonormal(n=100, m=100, seed=0)
U, b, delta = problem.U, problem.b, 0.03
paper = quadsense.solve(U, b, delta=delta, method="gd", schedule="paper")
quick = quadsense.solve(U, b, delta=delta, method="gd")
exact = quadsense.solve(U, b, delta=delta, prefer="any")

radius = np.max(
    np.abs(np.max(b) - b)
)  # the paper starts at the largest reading times I
promised = theory.schedule(m=100, radius=float(radius), delta=delta)
print(f"the lemmas allow {promised.iterations:,} steps ({promised.lemma})")
print(f"gd, schedule='paper':        {paper.n_iter:>6,} steps, {paper.status}")
print(f"gd, schedule='continuation': {quick.n_iter:>6,} steps, {quick.status}")
print(
    f"{exact.plan['method']}:                 {exact.n_iter:>6,} step, {exact.status}"
)

# %%
# With orthonormal rows no iteration is needed at all (erratum 7 in :doc:`/theory`): what the
# algorithms are for is the guarantee, and the proof that it comes at that rate.
#
# Algorithms 2 and 4: stochastic descent
# --------------------------------------
# A batch of B rows per step. The lemma's bound is then one on the *expectation* of the potential, and
# single runs scatter about it.

runs = [
    quadsense.solve(
        U,
        b,
        delta=delta,
        method="sgd",
        schedule="paper",
        batch_size=25,
        rng=seed,
    )
    for seed in range(5)
]
print(
    "sgd, batches of 25:",
    ", ".join(f"{each.n_iter:,}" for each in runs),
    "steps",
)

# %%
# Algorithm 3: a spectral guarantee
# ---------------------------------
# With an oracle of A* the same descent bounds all *eigenvalues* of the error:
# ``(1 - accuracy) A* <= A <= (1 + accuracy) A*``.

truth = quadsense.datasets.orthonormal(n=40, m=40, condition=3.0, seed=1).A_star
oracle = quadsense.SpectralOracle(truth)
start = 1.5 * np.eye(40)
spectral = quadsense.solve_spectral(
    oracle, start, accuracy=0.1, schedule="paper"
)
print(spectral.message)


# %%
# What was promised, and what came
# --------------------------------
# The bound follows from the lemmas alone, from the potential at the start:
# ``Phi_t <= (1 - q)^t Phi_1 + m/0.9``, ``q = 0.9 lambda eps / sqrt(m)``.


def promise(result, m):
    past = result.history
    steps = np.linspace(0.0, past.iteration[-1], 200)
    lam, step = float(past.lam[0]), float(past.step[0])
    first = float(past.log_potential[0])
    return steps, theory.potential_bound(
        steps, log_potential=first, m=m, lam=lam, step=step
    )


figure, axes = plt.subplots(1, 3, layout="constrained", figsize=(7.4, 3.1))
titles = ("1: descent", "2 and 4: stochastic descent", "3: with an oracle")
for ax, group, m, title in zip(
    axes, ([paper], runs, [spectral]), (100, 100, 40), titles, strict=True
):
    for each in group:
        ax.plot(
            each.history.iteration / 1e3,
            each.history.log_potential,
            color="#1b6ca8",
            lw=1.6 if len(group) == 1 else 0.9,
            label="log potential",
        )
    longest = max(group, key=lambda each: each.n_iter)
    steps, bound = promise(longest, m)
    name = "bound" if len(group) == 1 else "bound, in expectation"
    ax.plot(steps / 1e3, bound, color="#6b6b6b", lw=1.2, label=name)
    ends = np.log(2.2 * m / (0.1 if len(group) > 1 else 1.0))
    ax.axhline(ends, color="#c8553d", lw=1.0, ls="--", label="certifies delta")
    ax.set(xlabel="thousand steps", title=title, ylim=(0.0, None))
    handles, labels = ax.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    ax.legend(once.values(), once.keys(), fontsize=7.5)
axes[0].set_ylabel("log Phi")
plt.show()

# %%
# The worst residual itself, for which all this is done. ``quadsense.plot.history(result)`` draws
# such a picture of any run. (Continuation starts at the multiple of I that fits best, the
# paper's schedule at the largest reading times I, which its lemmas ask for.)

figure, ax = plt.subplots(layout="constrained", figsize=(7.2, 3.2))
for each, name, color in (
    (paper, "gd, the paper's schedule", "#1b6ca8"),
    (runs[0], "sgd, the paper's schedule", "#8a63a8"),
    (quick, "gd, continuation", "#2e8b57"),
):
    ax.plot(
        np.maximum(each.history.iteration, 0.7),
        each.history.max_ratio,
        ".-",
        ms=3,
        lw=1.4,
        color=color,
        label=f"{name}: {each.n_iter:,} steps",
    )
ax.axhline(1.0, color="#333333", lw=0.9, ls="--")
ax.annotate("delta", (50.0, 0.97), va="top", fontsize=9)
ax.set(
    xscale="log", yscale="log", xlabel="step", ylabel="worst residual / delta"
)
ax.set_yticks([1, 2, 3, 5], ["1", "2", "3", "5"])
ax.minorticks_off()
ax.set_ylim(0.8, 7.0)
ax.legend(loc="lower center", bbox_to_anchor=(0.48, 0.15))
plt.show()
