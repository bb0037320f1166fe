"""
A quantum state from counts
===========================

Three qubits were prepared in a GHZ state, not quite perfectly, and measured in each of the 27 Pauli
settings, 1000 shots each. Three questions: what is the state, is it *certainly* entangled, and do
the counts come from one state at all?
"""

import itertools
import time

import matplotlib.pyplot as plt
import numpy as np

import quadsense
from quadsense.tomography import fit_state

# %%
# The experiment: a GHZ state with 8% of white noise and a small phase error. Its result is what a
# control system writes down: per setting, how often each bitstring came.

n, shots = 8, 1000
ghz = np.zeros(n, complex)
ghz[[0, -1]] = np.sqrt(0.5)
prepared = np.zeros(n, complex)
prepared[0], prepared[-1] = np.sqrt(0.5), np.sqrt(0.5) * np.exp(0.15j)
rho_true = 0.92 * np.outer(prepared, prepared.conj()) + 0.08 * np.eye(n) / n

settings = ["".join(each) for each in itertools.product("XYZ", repeat=3)]
outcomes = ["".join(each) for each in itertools.product("01", repeat=3)]
U = quadsense.probes.product_povm(["pauli"] * 3)
rng = np.random.default_rng(0)


def measured(rho):
    """Simulate the experiment."""
    likely = U.forward(rho).clip(0.0).reshape(27, n)
    table = rng.multinomial(shots, likely / likely.sum(axis=1, keepdims=True))
    return {
        setting: {
            key: int(k) for key, k in zip(outcomes, row, strict=True) if k
        }
        for setting, row in zip(settings, table, strict=True)
    }


counts = measured(rho_true)
print("XXX:", counts["XXX"])

# %%
# The state
# ---------
# `fit_state` finds the state under which these counts are likeliest. The target is named before the
# counts are looked at, which makes the interval of its fidelity narrower.

state = fit_state(counts, target=ghz)
print(state)

# %%
# For comparison, two methods in use: linear inversion, which is quick and as a rule no state, and
# the iteration ``rho <- R rho R`` for maximum likelihood. Both end in a number without an interval.

table = state.counts.table.ravel()


def iterated(steps=2000):
    sigma = np.eye(n, dtype=complex) / n
    for _ in range(steps):
        likely = U.forward(sigma)
        R = U.adjoint(np.where(table > 0, table / likely, 0.0))
        sigma = R @ sigma @ R
        sigma /= np.trace(sigma).real
    return sigma


began = time.perf_counter()
likeliest = iterated()
print(f"R rho R: {time.perf_counter() - began:.2f} s")
normal = U.normal_diagonal(np.ones(U.m))
inverse = normal.back(normal.into(U.adjoint(table / shots)) / normal.values)
print(
    f"largest difference from fit_state: {abs(likeliest - state.rho).max():.4f}"
)
print(
    f"least eigenvalue of linear inversion: {np.linalg.eigvalsh(inverse)[0]:.3f}"
)

# %%
# Is it certainly entangled?
# --------------------------
# No separable state has a GHZ fidelity over 1/2. An estimate over 1/2 is no proof; an interval that
# holds the fidelity of the true state with 95% confidence is, at that confidence:

fidelity = state.fidelity()
print(f"GHZ fidelity {fidelity}, truly {np.vdot(ghz, rho_true @ ghz).real:.4f}")
assert fidelity.lower > 0.5

# %%
# What was measured, and what the estimate says of it:

state.plot()

# %%
# Do the counts come from one state?
# ----------------------------------
# Between two settings the source drifted: the setting ZZZ was measured last, when the first qubit
# had lost half of its excitation. No state gives all of these counts, and that is proved, not
# guessed from a large deviance:

drifted = dict(counts)
drifted["ZZZ"] = {**counts["ZZZ"]}
moved = drifted["ZZZ"]["111"] // 2
drifted["ZZZ"]["111"] -= moved
drifted["ZZZ"]["011"] = drifted["ZZZ"].get("011", 0) + moved
print(fit_state(drifted, target=ghz))

# %%
# How much noise could there be, for 1000 shots still to show entanglement? The interval, not the
# estimate, decides.

levels = np.linspace(0.0, 0.7, 8)
ends, guesses, truths = [], [], []
for level in levels:
    rho = (1 - level) * np.outer(ghz, ghz) + level * np.eye(n) / n
    found = fit_state(measured(rho), target=ghz).fidelity()
    ends.append((found.lower, found.upper))
    guesses.append(found.value)
    truths.append(np.vdot(ghz, rho @ ghz).real)
ends = np.array(ends)
sure = ends[:, 0] > 0.5
figure, axes = plt.subplots(layout="constrained", figsize=(6.4, 3.2))
for keep, color, name in (
    (sure, "#1b6ca8", "certainly entangled"),
    (~sure, "#9a9a9a", "cannot be told"),
):
    axes.vlines(levels[keep], *ends[keep].T, color=color, lw=4, label=name)
axes.plot(levels, guesses, "_", color="#c8553d", ms=12, mew=2, label="estimate")
axes.plot(levels, truths, ".", color="#333333", ms=5, label="truth")
axes.axhline(0.5, color="#333333", lw=0.8, ls="--")
axes.set(xlabel="white noise", ylabel="GHZ fidelity", ylim=(0.25, 1.05))
axes.legend(fontsize=8, ncols=2)
plt.show()
