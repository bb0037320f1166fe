"""
Certified ranges
================

Often A is not what you want to know, but a number that follows from it: an entry, a trace, what it
would read for a new setting. `Result.interval` gives the range of that number over *all* matrices
that fit. If the true matrix fits, and your tolerance says so, the true number is in it: not with
some probability, but by a proof that comes with each end.
"""

import matplotlib.pyplot as plt
import numpy as np

import quadsense

# %%
# The instrument of :doc:`plot_1_first_solve`: readings rounded to whole units.

rng = np.random.default_rng(1)
n, m = 6, 4000
X = rng.standard_normal((n, n))
A_true = X @ X.T / n
U = rng.standard_normal((m, n))
b = np.round(np.einsum("ij,jk,ik->i", U, A_true, U))

result = quadsense.solve(U, b, delta=0.5)
found = result.interval((0, 1))
print(found, "and truly", A_true[0, 1])

# %%
# Both ends are proved, and both are reached: `lower_found` and `upper_found` are values of matrices
# that fit, so the range is too wide by no more than lies between.

print(f"certified [{found.lower:.5f}, {found.upper:.5f}]")
print(f"reached   [{found.lower_found:.5f}, {found.upper_found:.5f}]")
print(found.verify(U, b, delta=0.5))

# %%
# What may be asked
# -----------------
# An entry ``(i, j)``, ``"trace"``, a vector v for ``v* A v`` (what would be read there), any
# symmetric matrix C for ``<C, A>``; a list asks for several at once.

v = np.ones(n)
trace, reading = result.interval(["trace", v])
print("trace", trace, "and truly", np.trace(A_true))
print("reading at (1, ..., 1)", reading, "and truly", v @ A_true @ v)

# %%
# Compared with error bars
# ------------------------
# The usual 95% confidence interval of least squares takes the errors for Gaussian and independent.
# Rounding is neither, so its level is not exact, and it shrinks like ``1/sqrt(m)``. The range of
# all that fits shrinks like ``1/m``: every further reading can only cut something off.

i, j = np.triu_indices(n)
sizes = np.array([60, 125, 250, 500, 1000, 2000, 4000])
certified, usual = [], []
for count in sizes:
    certified.append(
        quadsense.interval(U[:count], b[:count], (0, 1), delta=0.5)
    )
    design = U[:count, i] * U[:count, j] * np.where(i == j, 1.0, 2.0)
    inverse = np.linalg.inv(design.T @ design)
    entries = inverse @ design.T @ b[:count]
    spread = np.sqrt(
        np.sum((design @ entries - b[:count]) ** 2) / (count - len(entries))
    )
    error = (
        1.96 * spread * np.sqrt(np.diag(inverse))[1]
    )  # entry (0, 1) is the second
    usual.append((entries[1] - error, entries[1] + error))
usual = np.array(usual)

# %%
# What cannot be said
# -------------------
# With fewer readings than unknowns an entry may be anything, and the answer says so, with a
# direction in which fits go on for ever as its proof. That A is positive semidefinite bounds it
# again:

few = slice(0, 15)
diagonal = [(k, k) for k in range(n)]
free = quadsense.interval(U[few], b[few], diagonal, delta=0.5)
held = quadsense.interval(U[few], b[few], diagonal, delta=0.5, psd=True)
print(f"15 readings of 21 unknowns: A[0, 0] in {free[0]}")
print(f"and with psd=True:          A[0, 0] in {held[0]}")

print(
    f"least squares, 95%, with 4000: [{usual[-1, 0]:.4f}, {usual[-1, 1]:.4f}]"
)
print(
    f"certified:                     [{certified[-1].lower:.4f}, {certified[-1].upper:.4f}]"
)

figure, (left, right) = plt.subplots(
    1, 2, layout="constrained", figsize=(7.2, 3.3), width_ratios=(1.5, 1)
)
widths = np.array([each.width for each in certified])
left.loglog(
    sizes,
    usual[:, 1] - usual[:, 0],
    "o-",
    color="#c8553d",
    label="least squares, 95%",
)
left.loglog(
    sizes, widths, "o-", color="#1b6ca8", label="certified, all that fits"
)
left.loglog(
    sizes,
    widths[-1] * sizes[-1] / sizes,
    ":",
    color="#6b6b6b",
    lw=1.2,
    label="1/m",
)
left.set_xticks(sizes, sizes)
left.minorticks_off()
left.set(xlabel="readings", ylabel="width of the range of A[0, 1]")
left.set_title("Rounded readings: each cuts something off")
left.legend()
places = np.arange(n)
right.vlines(
    places,
    [each.lower for each in held],
    [each.upper for each in held],
    color="#1b6ca8",
    lw=5,
    label="with psd=True, certified",
)
right.plot(
    places,
    np.diag(A_true),
    "_",
    color="#333333",
    ms=14,
    mew=2,
    label="the truth",
)
right.set_xticks(places, [f"{k},{k}" for k in places])
right.set(xlabel="entry", title="15 readings of 21 unknowns")
right.set_ylim(-0.3, 4.6)
right.legend(loc="upper left", fontsize=8)
plt.show()

# %%
# Which measurement would narrow them most? ``result.next_probe(candidates)`` puts candidates in
# order.
