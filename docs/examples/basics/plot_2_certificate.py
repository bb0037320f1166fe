"""
Reading a certificate
=====================

Every answer comes with a claim that anyone who has the data can check: a colleague, a referee,
you in ten years. This page goes through the three kinds of claims, what each of them says, and,
as important, what it does not say.
"""

import matplotlib.pyplot as plt
import numpy as np

import quadsense

# %%
# *Met*: this matrix fits
# -----------------------
# A is of order 12 and has 78 entries, but only 66 readings were taken.

problem = quadsense.datasets.gaussian(n=12, m=66, noise=0.002, seed=3)
U, b = problem.U, problem.b
result = quadsense.solve(U, b, delta=0.01)
print(result.message)

# %%
# In plain NumPy the claim is one line. What `verify` adds is the rounding of that line itself:

print(np.max(np.abs(np.einsum("ij,jk,ik->i", U, result.A, U) - b)))
print(result.certificate.verify(U, b, delta=0.01))

# %%
# `Result.check` tells statement by statement what was recomputed:

print(result.check(U, b, delta=0.01))

# %%
# Change one reading by twice the tolerance and the claim is false of *those* data, which is what
# a check is for:

other = b.copy()
other[7] += 0.02
print(result.verify(U, other, delta=0.01))

# %%
# What *met* does not say: that this is the matrix. The message counts the directions of A that no
# reading sees, and two matrices that fit equally well can be far apart.

another = quadsense.solve(
    U, b, delta=0.01, prefer="nearest", prior=np.diag(np.arange(12) / 12.0)
)
truth = problem.A_star
print("both fit:", result.met, another.met)
print(
    "from each other:",
    np.linalg.norm(result.A - another.A) / np.linalg.norm(truth),
)

# %%
# With readings enough (200 here) the matrix is determined, and the certificate bounds its distance
# from the truth, *without knowing it*: if every error is at most `noise`, then
# ``(1 - d) A* <= A <= (1 + d) A*`` in the order of positive semidefinite matrices.

full = quadsense.datasets.gaussian(n=12, m=200, noise=0.0, seed=3)
rng = np.random.default_rng(0)
readings = full.b + rng.uniform(-1e-3, 1e-3, 200)
determined = quadsense.solve(full.U, readings, delta=1e-3)
bound = determined.certificate.spectral(noise=1e-3)
values = np.linalg.eigvals(np.linalg.solve(full.A_star, determined.A)).real
print(
    f"d = {bound.delta:.3f} is proved; in truth {np.max(np.abs(values - 1.0)):.3f}"
)

# %%
# *Optimal*: no matrix does better
# --------------------------------
# Without a tolerance, ``prefer="minimax"`` finds the smallest worst error. The lower bound comes from
# a vector y, one number per reading: if ``sum_i y_i u_i u_i* = 0``, then ``y . F(A) = 0`` for *every* A, so that
# no A can come closer to all readings than ``y . b / sum |y_i|``.

best = quadsense.solve(full.U, readings, prefer="minimax")
print(best.message)
y = best.certificate.dual
left = np.einsum("i,ij,ik->jk", y, full.U, full.U)
print(
    f"sum y_i u_i u_i* is {np.linalg.norm(left):.0e}, for |y| = {np.linalg.norm(y):.1f}"
)
print(f"lower bound by hand: {y @ readings / np.abs(y).sum():.6f}")
print(f"as certified:        {best.certificate.lower_bound:.6f}")

# %%
# *Infeasible*: no matrix fits
# ----------------------------
# The same vector, with a tolerance in its way: ``|y . b| > sum |y_i| delta_i``.

none = quadsense.solve(full.U, readings, delta=5e-4)
print(none.message)
y = none.certificate.dual
print(
    f"y . b = {y @ readings:.4f} > {np.abs(y).sum() * 5e-4:.4f} = sum |y_i| delta_i"
)

# %%
# :doc:`plot_3_infeasible` goes on from here.

figure, axes = plt.subplots(
    1, 3, layout="constrained", figsize=(7.2, 2.9), sharey=True
)
for ax, found, data, title in (
    (axes[0], result, 0.01, "met"),
    (axes[1], best, best.certificate.upper_bound, "optimal"),
    (axes[2], none, 5e-4, "infeasible"),
):
    sizes = np.sort(np.abs(found.residuals))[::-1] / data
    over = sizes > 1.0 + 1e-9
    rank = np.arange(1, len(sizes) + 1)
    ax.axhspan(0.0, 1.0, color="#1b6ca8", alpha=0.1, lw=0)
    ax.plot(rank, sizes, ".", color="#1b6ca8", ms=4)
    ax.plot(rank[over], sizes[over], ".", color="#c8553d", ms=5)
    ax.set(xlabel="readings, the worst first", title=title, ylim=(0.0, 2.2))
lower = best.certificate.lower_bound / best.certificate.upper_bound
axes[1].axhline(lower, color="#c8553d", lw=1.2, ls="--")
axes[1].annotate(
    "no matrix below this",
    (200, lower),
    (200, lower + 0.18),
    ha="right",
    va="bottom",
    color="#c8553d",
    fontsize=9,
)
axes[2].annotate(
    "no matrix has\nall of them below 1",
    (200, 1.9),
    ha="right",
    va="center",
    color="#c8553d",
    fontsize=9,
)
axes[0].set_ylabel("|residual| / tolerance")
plt.show()
