"""
A network by differences
========================

Twelve sensors hear five beacons, whose positions are known, and each other, to 2%. Where is each
of them for certain: in which box does every arrangement that agrees with all that was heard place
it?

A row is ``e_i - e_j``, which need not be written down: :func:`quadsense.probes.differences` takes
the pairs. With the beacons as offsets, ``|x_i - a|^2`` is a reading too, of the matrix
``[[X X*, X], [X*, I]]``, whose last columns are the positions themselves.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import least_squares

import quadsense

# %%
# Sensors in the unit square, beacons in its corners and its middle. A pair ``(i, -1)`` with an offset
# is the distance from a beacon, a pair ``(i, j)`` with none that of two sensors.

rng = np.random.default_rng(1)
nodes = 12
beacons = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.5, 0.5]])
points = rng.random((nodes, 2))
pairs, offsets = [], []
for i in range(nodes):
    for beacon in beacons:
        if np.linalg.norm(points[i] - beacon) < 0.75:
            pairs.append((i, -1))
            offsets.append(beacon)
    for j in range(i):
        if np.linalg.norm(points[i] - points[j]) < 0.4:
            pairs.append((i, j))
            offsets.append((0.0, 0.0))
pairs, offsets = np.array(pairs), np.array(offsets)
other = np.where(pairs[:, 1:] >= 0, points[pairs[:, 1]], 0.0)
true = np.linalg.norm(points[pairs[:, 0]] - other - offsets, axis=1)
heard = true * (1.0 + 0.02 * rng.uniform(-1.0, 1.0, len(true)))
U = quadsense.probes.differences(pairs, nodes, offsets)
print(
    f"{U.m} distances; a row is of length {U.n}, and two numbers and an offset are kept of it"
)

# %%
# That the last block is the identity is stated, an equality for each of its entries. With
# ``psd=True`` the question is convex: what follows holds of all arrangements, in the plane or not.

identity = []
for p, q in [(0, 0), (0, 1), (1, 1)]:
    C = np.zeros((U.n, U.n))
    C[nodes + p, nodes + q] = C[nodes + q, nodes + p] = 1.0 if p == q else 0.5
    identity.append((C, float(p == q), float(p == q)))

bounds = ((heard / 1.02) ** 2, (heard / 0.98) ** 2)
result = quadsense.solve(
    U, heard**2, bounds=bounds, psd=True, constraints=identity
)
found = result.A[:nodes, nodes:]
print(result.message)
print(f"off by {np.linalg.norm(found - points, axis=1).max():.4f} at most")

# %%
# The box of a sensor: certified ranges of its two coordinates over *all* fits, by weak duality.

began = time.perf_counter()
boxes = []
for i in range(nodes):
    ranges = [result.interval((i, nodes + c)) for c in range(2)]
    boxes.append([(each.lower, each.upper) for each in ranges])
boxes = np.array(boxes)
spent = time.perf_counter() - began
inside = np.all((boxes[:, :, 0] <= points) & (points <= boxes[:, :, 1]))
print(
    f"{2 * nodes} ranges in {spent:.1f} s; the truth is in every box: {inside}"
)

# %%
# For comparison, nonlinear least squares of the distances, from the middle of the square, as one would
# write it with SciPy. It finds the positions, and does not say how far off they may be.


def misses(flat):
    X = flat.reshape(nodes, 2)
    far = np.where(pairs[:, 1:] >= 0, X[pairs[:, 1]], 0.0)
    return np.linalg.norm(X[pairs[:, 0]] - far - offsets, axis=1) - heard


start = 0.5 + 0.1 * rng.standard_normal(2 * nodes)
fit = least_squares(misses, start).x.reshape(nodes, 2)
print(
    f"least squares: off by {np.linalg.norm(fit - points, axis=1).max():.4f} at most"
)
outside = np.sum(
    np.any((fit < boxes[:, :, 0]) | (fit > boxes[:, :, 1]), axis=1)
)
print(f"{outside} of its {nodes} positions are out of their boxes")

figure, ax = plt.subplots(layout="constrained", figsize=(5.2, 5.0))
for (i, j), offset in zip(pairs, offsets, strict=True):
    end = points[j] if j >= 0 else offset
    ax.plot(*np.array([points[i], end]).T, color="#ececec", lw=0.8, zorder=1)
for (left, right), (low, high) in boxes:
    ax.add_patch(
        plt.Rectangle(
            (left, low),
            right - left,
            high - low,
            facecolor="#1b6ca833",
            edgecolor="#1b6ca8",
            zorder=2,
        )
    )
ax.plot(*points.T, "o", color="#1b6ca8", ms=3.5, zorder=4, label="sensors")
ax.plot(*fit.T, "x", color="#c8553d", ms=6, zorder=3, label="least squares")
ax.plot(*beacons.T, "s", color="#333333", ms=6, zorder=4, label="beacons")
ax.set_title("Where each sensor is for certain")
ax.set_aspect("equal")
ax.legend(loc="upper right")
plt.show()

# %%
# A box is as small as the distances make it: a sensor that few hear has a large one.
