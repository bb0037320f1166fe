"""
Positions from distances
========================

Radios hear their neighbours, and the strength of the signal gives the distance, to 5%. Ten of 120
know where they are. Where are the others, and which of the distances were reflections?

Stack the positions into X, one row per node: ``A = X X*`` has rank 2, and the squared distance of i
and j is ``(e_i - e_j)* A (e_i - e_j)``: a reading.
"""

import itertools
import time

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import least_squares
from scipy.sparse.csgraph import shortest_path

import quadsense

# %%
# Nodes in the unit square; those within 0.25 of each other hear each other.

rng = np.random.default_rng(4)
nodes, anchors = 120, 10
points = rng.random((nodes, 2))
near = np.array(
    [
        (i, j)
        for i, j in itertools.combinations(range(nodes), 2)
        if np.linalg.norm(points[i] - points[j]) <= 0.25
    ]
)
true = np.linalg.norm(points[near[:, 0]] - points[near[:, 1]], axis=1)
heard = true * (1.0 + 0.05 * rng.uniform(-1.0, 1.0, len(near)))
print(f"{len(near)} distances between {nodes} nodes, {anchors} positions known")

# %%
# Readings are squared distances, with the ends that 5% give; the known positions are readings too,
# of the anchors' lengths and distances, exact to a millionth.

held = [(a, -1) for a in range(anchors)] + list(
    itertools.combinations(range(anchors), 2)
)
U = np.zeros((len(near) + len(held), nodes))
for row, (i, j) in enumerate([*near, *held]):
    U[row, i] = 1.0
    if j >= 0:
        U[row, j] = -1.0
known = np.sum((U[len(near) :] @ points) ** 2, axis=1)
lo = np.concatenate([(heard / 1.05) ** 2, known - 1e-6])
hi = np.concatenate([(heard / 0.95) ** 2, known + 1e-6])

began = time.perf_counter()
result = quadsense.solve(
    U, np.concatenate([heard**2, known]), bounds=(lo, hi), rank=2, rng=0
)
seconds = time.perf_counter() - began
print(result.message)

# %%
# The factor of A holds positions, up to a rotation, which the anchors settle.


def turned(X):
    """Positions, turned so that the anchors lie where they are."""
    left, _, right = np.linalg.svd(X[:anchors].T @ points[:anchors])
    return X @ (left @ right)


def off(X):
    return np.sqrt(np.mean(np.sum((X - points) ** 2, axis=1)))


found = turned(result.matrix.factor)
print(f"off by {off(found):.4f} (root mean square), in {seconds:.2f} s")

# %%
# For comparison, what one would write with SciPy: classical scaling of the shortest paths, then nonlinear
# least squares of the distances from there.

graph = np.zeros((nodes, nodes))
graph[near[:, 0], near[:, 1]] = heard
pairs = np.array(list(itertools.combinations(range(anchors), 2)))
graph[pairs[:, 0], pairs[:, 1]] = np.linalg.norm(
    points[pairs[:, 0]] - points[pairs[:, 1]], axis=1
)
began = time.perf_counter()
squares = shortest_path(graph, directed=False) ** 2
middle = np.eye(nodes) - 1.0 / nodes
values, vectors = np.linalg.eigh(-0.5 * middle @ squares @ middle)
scaled = vectors[:, -2:] * np.sqrt(values[-2:])
to, at = points[:anchors].mean(axis=0), scaled[:anchors].mean(axis=0)
left, _, right = np.linalg.svd(
    (scaled[:anchors] - at).T @ (points[:anchors] - to)
)
scaled = (scaled - at) @ (left @ right) + to


def misses(free):
    X = np.concatenate([points[:anchors], free.reshape(-1, 2)])
    return np.linalg.norm(X[near[:, 0]] - X[near[:, 1]], axis=1) - heard


fit = least_squares(
    misses, scaled[anchors:].ravel(), method="trf", x_scale=0.1, max_nfev=60
)
by_scipy = np.concatenate([points[:anchors], fit.x.reshape(-1, 2)])
spent = time.perf_counter() - began
apart = np.linalg.norm(by_scipy[near[:, 0]] - by_scipy[near[:, 1]], axis=1)
outside = np.sum((apart < heard / 1.05) | (apart > heard / 0.95))
print(f"shortest paths alone: off by {off(scaled):.4f}")
print(f"then least squares:   off by {off(by_scipy):.4f}, in {spent:.2f} s;")
print(
    f"                      {outside} of {len(near)} distances are more than 5% wrong"
)

# %%
# Both find the network. What is added: *every* distance is within its 5%, so that nothing remains
# to be explained.
#
# A reflection
# ------------
# One signal took a longer way, over a wall, and reads 1.6 times its distance. With `psd=True` the
# question is convex, and that no points at all, in any number of dimensions, have these distances
# is proved; the rows that carry the contradiction are named.

cheated = int(np.argmin(np.abs(true - 0.15)))
wrong = heard.copy()
wrong[cheated] *= 1.6
lo[: len(near)], hi[: len(near)] = (wrong / 1.05) ** 2, (wrong / 0.95) ** 2
verdict = quadsense.solve(
    U, bounds=(lo, hi), psd=True, prefer="any", time_limit=20.0
)
print(
    verdict.status, "- rows", verdict.suspects[:6], "- and it was row", cheated
)

figure, (one, two) = plt.subplots(
    1, 2, layout="constrained", figsize=(7.2, 3.7)
)
for ax, places, title in (
    (one, scaled, f"shortest paths: off by {off(scaled):.3f}"),
    (two, found, f"quadsense, rank=2: off by {off(found):.4f}"),
):
    for i, j in near:
        ax.plot(*points[[i, j]].T, color="#ececec", lw=0.6, zorder=1)
    for true_, place in zip(points, places, strict=True):
        ax.plot(*np.array([true_, place]).T, color="#c8553d", lw=1.2, zorder=2)
    ax.plot(*points.T, "o", color="#1b6ca8", ms=3.5, zorder=3)
    ax.plot(*points[:anchors].T, "s", color="#333333", ms=5, zorder=4)
    ax.set_title(title)
    ax.set_aspect("equal")
    ax.set_axis_off()
if verdict.suspects.size:
    row = verdict.suspects[0]
    two.plot(*points[near[row]].T, color="#d39c2f", lw=2.4, zorder=5)
    two.annotate(
        "named first",
        points[near[row]].mean(axis=0),
        (-62, 16),
        textcoords="offset points",
        fontsize=9,
        color="#8a6414",
        zorder=6,
        arrowprops={"arrowstyle": "-", "color": "#8a6414"},
    )
plt.show()

# %%
# Squares are anchors; a red line leads from where a node is to where it was found.
