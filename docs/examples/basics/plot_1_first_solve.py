"""
A first solve
=============

An instrument shows the energy ``u* A u`` of the setting ``u`` that you choose, rounded to whole
units. You turn it to 1000 settings and want the matrix A behind them.

The rounding tells you something exact: no reading is off by more than half a unit. That is a
tolerance, and a matrix that does not respect it *in every reading* is not the one you measured.
"""

# %%
# The data: each row of `U` is a setting, `b` has what was shown.

import time

import matplotlib.pyplot as plt
import numpy as np

import quadsense

rng = np.random.default_rng(1)
n, m = 6, 1000
X = rng.standard_normal((n, n))
A_true = X @ X.T / n
U = rng.standard_normal((m, n))
b = np.round(np.einsum("ij,jk,ik->i", U, A_true, U))

# %%
# One call. Nothing is assumed of A except that it is symmetric; `delta` is what you know of the
# errors. Of all matrices within it you get the one of least squares, with a weak pull towards the
# multiple of the identity that fits best.

began = time.perf_counter()
result = quadsense.solve(U, b, delta=0.5)
print(f"{time.perf_counter() - began:.2f} s")
print(result.message)

# %%
# A notebook shows it so:

result

# %%
# *met* is a claim about every single reading, and it was recomputed from the data, with a bound on
# what rounding in the computer itself can have done, before it was made. You need not believe it:

print(result.verify(U, b, delta=0.5))

# %%
# Compared with plain least squares
# ---------------------------------
# What most people would do here is linear least squares: the reading is linear in the 21 entries
# of A.

i, j = np.triu_indices(n)
design = U[:, i] * U[:, j] * np.where(i == j, 1.0, 2.0)
A_squares = np.zeros((n, n))
A_squares[i, j] = A_squares[j, i] = np.linalg.lstsq(design, b)[0]

off_squares = np.einsum("ij,jk,ik->i", U, A_squares, U) - b
off = result.residuals
print(
    f"least squares: {np.sum(np.abs(off_squares) > 0.5)} of {m} readings are more than half off"
)
print(f"quadsense:     {np.sum(np.abs(off) > 0.5)}")


# %%
# It contradicts some readings, which no rounding can explain. Does that matter? Here is the error
# of A itself, and that of the center of all matrices that fit (`prefer="center"`):


def error(A):
    return np.linalg.norm(A - A_true) / np.linalg.norm(A_true)


center = quadsense.solve(U, b, delta=0.5, prefer="center")
print(
    f"error of A: {error(A_squares):.2%} by least squares, {error(result.A):.2%} by solve, "
)
print(f"            {error(center.A):.2%} by solve(prefer='center')")

# %%
# Errors that are bounded, rather than Gaussian, are worth more than their sum of squares.

figure, (left, right) = plt.subplots(
    1,
    2,
    width_ratios=(2.4, 1),
    sharey=True,
    layout="constrained",
    figsize=(7.2, 3.4),
)
left.axhspan(-0.5, 0.5, color="#1b6ca8", alpha=0.1, lw=0)
left.plot(off, ".", color="#1b6ca8", ms=3, label="quadsense.solve")
outside = np.abs(off_squares) > 0.5
rows = np.arange(m)
left.plot(
    rows[outside],
    off_squares[outside],
    "x",
    color="#c8553d",
    ms=6,
    mew=1.6,
    label="least squares, where it is outside",
)
left.set(
    xlabel="reading",
    ylabel="residual, in units of the display",
    ylim=(-0.75, 0.75),
)
left.set_title("The band is what rounding allows")
left.legend(loc="upper center", ncols=2, fontsize=8)
right.hist(
    [off_squares, off],
    bins=np.linspace(-0.7, 0.7, 29),
    orientation="horizontal",
    color=["#c8553d", "#1b6ca8"],
    histtype="step",
    lw=1.6,
)
right.set(xlabel="readings")
right.set_title("How often")
plt.show()

# %%
# What next
# ---------
# * ``result.report().open()`` shows all of it in a browser, and ``.write_html(path)`` makes a file to
#   mail; ``quadsense.plot`` has pictures of residuals, matrices and ranges.
# * ``result.matrix`` is a SciPy ``LinearOperator``; ``result.A`` is the array.
# * ``quadsense.solve(U, b)`` without `delta` is least squares and says which delta it meets;
#   ``prefer="minimax"`` finds the smallest worst error that is possible, with a lower bound.
# * ``psd=True``, ``rank=r``, ``trace=1`` say more of A, `bounds` gives intervals instead of one
#   `delta`: :doc:`/how_to_choose` has the whole list.
