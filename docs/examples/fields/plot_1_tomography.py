"""
A quantum state from counts
===========================

Three qubits were prepared in a GHZ state, not quite perfectly, and measured in each of the 27 Pauli
bases, 1000 shots each. Two questions: what is the state, and is it *certainly* entangled?

An outcome ``u`` of a basis comes with probability ``u* rho u``, so the counts are readings of the
density matrix, which is positive semidefinite and has trace 1.
"""

import itertools
import time

import matplotlib.pyplot as plt
import numpy as np

import quadsense

# %%
# The experiment: a GHZ state with 8% of white noise and a small phase error.

n, shots = 8, 1000
ghz = np.zeros(n, complex)
ghz[[0, -1]] = np.sqrt(0.5)
prepared = np.zeros(n, complex)
prepared[0], prepared[-1] = np.sqrt(0.5), np.sqrt(0.5) * np.exp(0.15j)
rho_true = 0.92 * np.outer(prepared, prepared.conj()) + 0.08 * np.eye(n) / n

s = np.sqrt(0.5)
pauli = {
    "Z": np.eye(2, dtype=complex),
    "X": np.array([[s, s], [s, -s]], dtype=complex),
    "Y": np.array([[s, 1j * s], [s, -1j * s]]),
}
rng = np.random.default_rng(0)
U, counts = [], []
for names in itertools.product("ZXY", repeat=3):
    basis = np.kron(np.kron(pauli[names[0]], pauli[names[1]]), pauli[names[2]])
    likely = np.einsum("ij,jk,ik->i", basis.conj(), rho_true, basis).real.clip(
        0.0
    )
    counts.append(rng.multinomial(shots, likely / likely.sum()))
    U.append(basis)
U, counts = np.concatenate(U), np.concatenate(counts)
print(f"{len(counts)} outcomes of {counts.sum():,} shots")

# %%
# The state
# ---------
# `bounds_from_counts` makes joint Clopper-Pearson intervals of them: with 95% confidence *all* 216
# probabilities are inside. Of the states within, the default is that of least squares about the
# frequencies.

frequencies = counts / shots
bounds = quadsense.bounds_from_counts(counts, shots)
began = time.perf_counter()
state = quadsense.solve(U, frequencies, bounds=bounds, psd=True, trace=1)
seconds = time.perf_counter() - began
print(state.message)


# %%
# For comparison, the two methods in use: linear inversion, which is quick and as a rule no state, and
# maximum likelihood by the iteration ``rho <- R rho R``.


def fidelity(sigma):
    """With what was prepared: ``(tr sqrt(sqrt(rho) sigma sqrt(rho)))^2``."""
    values, vectors = np.linalg.eigh(rho_true)
    root = (vectors * np.sqrt(values.clip(0.0))) @ vectors.conj().T
    return (
        np.sum(np.sqrt(np.linalg.eigvalsh(root @ sigma @ root).clip(0.0))) ** 2
    )


def maximum_likelihood(steps=2000):
    sigma = np.eye(n, dtype=complex) / n
    for _ in range(steps):
        likely = np.einsum("ij,jk,ik->i", U.conj(), sigma, U).real
        share = np.divide(
            frequencies,
            likely,
            out=np.zeros_like(likely),
            where=frequencies > 0,
        )
        R = np.einsum("i,ij,ik->jk", share, U, U.conj()) / 27
        sigma = R @ sigma @ R
        sigma /= np.trace(sigma).real
    return sigma


design = np.einsum("ij,ik->ijk", U.conj(), U).reshape(len(U), -1)
inverse = np.linalg.lstsq(design, frequencies)[0].reshape(n, n)
inverse = (inverse + inverse.conj().T) / 2
began = time.perf_counter()
likeliest = maximum_likelihood()
waited = time.perf_counter() - began

print(
    f"solve:              fidelity {fidelity(state.A):.4f} in {seconds:.2f} s"
)
print(
    f"maximum likelihood: fidelity {fidelity(likeliest):.4f} in {waited:.2f} s"
)
print(
    f"linear inversion:   least eigenvalue {np.linalg.eigvalsh(inverse)[0]:.3f}: no state"
)

# %%
# Is it certainly entangled?
# --------------------------
# No separable state has a GHZ fidelity over 1/2. An estimate over 1/2 is no proof; a range over
# *all* states that fit is, at the confidence of the intervals:

found = state.interval(ghz)
print(
    f"GHZ fidelity {np.vdot(ghz, state.A @ ghz).real:.3f}, certainly in {found}"
)
print(f"truly {np.vdot(ghz, rho_true @ ghz).real:.3f}")
assert found.lower > 0.5

# %%
# The estimates are about equally good. What no estimate gives is that range.
#
# Now for states that are worse: how much white noise could there be, for 1000 shots still to
# show entanglement? The range, not the guess, decides.

levels = np.linspace(0.0, 0.7, 8)
ranges, guesses, truths = [], [], []
for level in levels:
    rho = (1 - level) * np.outer(ghz, ghz) + level * np.eye(n) / n
    likely = (
        np.einsum("ij,jk,ik->i", U.conj(), rho, U).real.clip(0.0).reshape(27, n)
    )
    k = np.concatenate(
        [rng.multinomial(shots, each / each.sum()) for each in likely]
    )
    lo, hi = quadsense.bounds_from_counts(k, shots)
    guess = quadsense.solve(U, k / shots, bounds=(lo, hi), psd=True, trace=1)
    ranges.append(tuple(guess.interval(ghz)))
    guesses.append(np.vdot(ghz, guess.A @ ghz).real)
    truths.append(np.vdot(ghz, rho @ ghz).real)
ranges = np.array(ranges)

figure = plt.figure(layout="constrained", figsize=(7.2, 3.2))
one, two, three = figure.subplots(1, 3, width_ratios=(1, 1, 1.6))
for ax, matrix, title in (
    (one, rho_true, "prepared, real part"),
    (two, state.A, "found"),
):
    picture = ax.imshow(matrix.real, vmin=-0.5, vmax=0.5, cmap="RdBu_r")
    ax.set_title(title)
    ax.set_xticks([0, 7], ["000", "111"])
    ax.set_yticks([0, 7], ["000", "111"])
    ax.grid(visible=False)
figure.colorbar(picture, ax=(one, two), location="bottom", shrink=0.6)
sure = ranges[:, 0] > 0.5
shades = (
    (sure, "#1b6ca8", "certainly entangled"),
    (~sure, "#9a9a9a", "cannot be told"),
)
for keep, color, name in shades:
    three.vlines(levels[keep], *ranges[keep].T, color=color, lw=4, label=name)
three.plot(
    levels, guesses, "_", color="#c8553d", ms=12, mew=2, label="estimate"
)
three.plot(levels, truths, ".", color="#333333", ms=5, label="truth")
three.axhline(0.5, color="#333333", lw=0.8, ls="--")
three.set(xlabel="white noise", ylabel="GHZ fidelity", ylim=(0.25, 1.26))
three.legend(
    fontsize=8,
    ncols=2,
    loc="upper center",
    columnspacing=1.0,
    handletextpad=0.4,
)
three.set_title("All that fits 27,000 shots")
plt.show()
