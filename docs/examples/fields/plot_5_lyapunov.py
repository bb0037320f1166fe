"""
A Lyapunov matrix with certified ranges
=======================================

Let a damped structure go from a state x and count the energy that its dampers take up until it
rests: that is ``x* P x``, with the P of Lyapunov's equation ``F* P F - P + Q = 0``. With a model at
hand, SciPy solves that equation. Here there is no model, only 40 ring-downs and an energy meter
that is right to 3%; and the question is how much energy the *worst* unit push can bring in, with a
guarantee.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.linalg import expm, solve_discrete_lyapunov

import quadsense

# %%
# The structure, which only the simulation knows: three masses between walls, with springs and
# dampers; the state is three positions and three speeds.

K = np.array([[2.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.5]])
D = 0.15 * K + 0.05 * np.eye(3)
rate = np.block([[np.zeros((3, 3)), np.eye(3)], [-K, -D]])
step = 0.1
F = expm(step * rate)
Q = step * np.block(
    [[np.zeros((3, 3)), np.zeros((3, 3))], [np.zeros((3, 3)), D]]
)
Q[:3, :3] = 1e-3 * np.eye(3)  # friction at the supports
P_true = solve_discrete_lyapunov(F.T, Q)

# %%
# The experiments: a random state, and the sum of ``x_t* Q x_t`` over the ring-down, each within 3%.

rng = np.random.default_rng(0)
n, m, meter = 6, 40, 0.03
U = rng.standard_normal((m, n))
x, energy = U.copy(), np.zeros(m)
for _ in range(2000):
    energy += np.einsum("ij,jk,ik->i", x, Q, x)
    x = x @ F.T
b = energy * (1.0 + meter * rng.uniform(-1.0, 1.0, m))
bounds = b / (1.0 + meter), b / (1.0 - meter)

result = quadsense.solve(U, b, bounds=bounds, psd=True)
print(result.message)

# %%
# A guess of P is good to some percent:

print(f"error {np.linalg.norm(result.A - P_true) / np.linalg.norm(P_true):.1%}")

# %%
# The worst push
# --------------
# The guess's largest eigenvalue is a guess. What is certain is that every P that fits the meter's
# readings has ``v* P v`` in this range, in whatever direction v:

values, vectors = np.linalg.eigh(result.A)
pushes = list(vectors.T)
found = result.interval(pushes)
for value, each, v in zip(values, found, pushes, strict=True):
    true = v @ P_true @ v
    print(
        f"guess {value:6.3f}, certainly {each.lower:6.3f} to {each.upper:6.3f}, truly {true:.3f}"
    )

# %%
# That is for six directions. For *all* of them: in the basis of these vectors, every entry of P has
# a certified range, middle and half-width, so that ``P = M + E`` with ``|E| <= R`` entry by entry,
# and no eigenvalue of P is over ``lambda_max(M) + ||R||``.


def worst_push(result):
    """What no unit push exceeds, for any P that fits."""
    Z = np.linalg.eigh(result.A)[1]
    i, j = np.triu_indices(n)
    asked = [np.outer(Z[:, a], Z[:, c]) for a, c in zip(i, j, strict=True)]
    asked = [(C + C.T) / 2 for C in asked]
    M, R = np.zeros((n, n)), np.zeros((n, n))
    for a, c, each in zip(i, j, result.interval(asked), strict=True):
        M[a, c] = M[c, a] = (each.lower + each.upper) / 2
        R[a, c] = R[c, a] = (each.upper - each.lower) / 2
    return np.linalg.eigvalsh(M)[-1] + np.linalg.norm(R, 2)


truly = np.linalg.eigvalsh(P_true)[-1]
bound = worst_push(result)
print(
    f"the worst push brings in {values[-1]:.3f} by the guess, at most {bound:.3f} for certain,"
)
print(f"and truly {truly:.3f}")

# %%
# More ring-downs narrow it, with the same 3% meter:

counts = [25, 50, 100]
more = rng.standard_normal((counts[-1], n))
more[:m] = U
exact = np.einsum("ij,jk,ik->i", more, P_true, more)
shown = exact * (1.0 + meter * rng.uniform(-1.0, 1.0, counts[-1]))
certain, guesses = [], []
for count in counts:
    ends = shown[:count] / (1.0 + meter), shown[:count] / (1.0 - meter)
    each = quadsense.solve(more[:count], shown[:count], bounds=ends, psd=True)
    certain.append(worst_push(each))
    guesses.append(np.linalg.eigvalsh(each.A)[-1])

figure, (left, right) = plt.subplots(
    1, 2, layout="constrained", figsize=(7.2, 3.3)
)
place = np.arange(1, n + 1)
left.vlines(
    place,
    [each.lower for each in found],
    [each.upper for each in found],
    color="#1b6ca8",
    lw=6,
    alpha=0.45,
    label="certified",
)
left.plot(place, values, "_", color="#1b6ca8", ms=14, mew=2, label="guess")
left.plot(
    place,
    [v @ P_true @ v for v in pushes],
    ".",
    color="#333333",
    ms=6,
    label="truth",
)
left.set(
    xlabel="direction of the push", ylabel="energy of a unit push", xticks=place
)
left.set_title("40 ring-downs, a meter of 3%")
left.legend(loc="upper left")
right.semilogx(
    counts, certain, "o-", color="#1b6ca8", label="no push brings in more"
)
right.semilogx(
    counts, guesses, "_", color="#c8553d", ms=12, mew=2, label="guess"
)
right.axhline(truly, color="#333333", lw=1.0, label="truth")
right.set_xticks(counts, counts)
right.minorticks_off()
right.set(xlabel="ring-downs", title="The worst push")
right.legend()
plt.show()

# %%
# Whether the structure is stable at all need not be assumed: a P that is positive definite and
# falls along what was seen is itself the proof. ``mix=W`` takes such differences,
# ``x_t* P x_t - x_(t+1)* P x_(t+1) >= 0``, as readings with one end.
