"""
When nothing fits
=================

A table of distances between eight cities was typed in by hand. Somewhere a digit went wrong. Is
there a mistake, and where?

Points have a Gram matrix A, positive semidefinite, and the squared distance between i and j is
``(e_i - e_j)* A (e_i - e_j)``. So a table of distances is a set of readings, and a table that no
points have is a set of readings that no A fits. (A alone leaves open where the points lie; so the
first city is put at the origin, and has no row and column of its own.)
"""

import itertools

import matplotlib.pyplot as plt
import numpy as np

import quadsense

# %%
# The table. Straight lines through the Earth, in kilometres, and one wrong digit.

cities = {
    "Lisbon": (38.7, -9.1),
    "Madrid": (40.4, -3.7),
    "Paris": (48.9, 2.4),
    "Rome": (41.9, 12.5),
    "Berlin": (52.5, 13.4),
    "Vienna": (48.2, 16.4),
    "Oslo": (59.9, 10.8),
    "Athens": (38.0, 23.7),
}
names = list(cities)
latitude, longitude = np.radians(list(cities.values())).T
points = 6371.0 * np.column_stack(
    [
        np.cos(latitude) * np.cos(longitude),
        np.cos(latitude) * np.sin(longitude),
        np.sin(latitude),
    ]
)
pairs = list(itertools.combinations(range(8), 2))
distance = np.array(
    [np.linalg.norm(points[i] - points[j]) for i, j in pairs]
).round()
typo = pairs.index((2, 4))
print(
    f"Paris - Berlin: {distance[typo]:.0f} km, typed as {distance[typo] + 1000:.0f}"
)
distance[typo] += 1000.0

# %%
# Each distance is right to half a kilometre, so each square lies between these:

U = np.zeros((len(pairs), 8))
for row, (i, j) in enumerate(pairs):
    U[row, i], U[row, j] = 1.0, -1.0
U = U[:, 1:]
bounds = (distance - 0.5) ** 2, (distance + 0.5) ** 2

result = quadsense.solve(U, distance**2, bounds=bounds, psd=True)
print(result.status)
print(result.message)

# %%
# It names rows. As the user of a table wants to hear it:

for row in result.suspects:
    i, j = pairs[row]
    print(f"{names[i]:>7} - {names[j]:<7} {distance[row]:6.0f} km")

# %%
# And it is a proof, which fits on a postcard: a vector y with ``sum y_i u_i u_i*`` positive
# semidefinite, so that ``sum y_i (u_i* A u_i)`` is not negative for any such A, and
# ``sum y_i b_i`` negative, by more than the tolerances can make up for.

y = result.certificate.dual
y = y / np.abs(y).max()
lowest = np.linalg.eigvalsh(np.einsum("i,ij,ik->jk", y, U, U))[0]
most = np.sum(np.where(y > 0, y * bounds[1], y * bounds[0]))
print(f"least eigenvalue {lowest:.1e}; the sum is at most {most:.3g}")

# %%
# The row with the negative sign is the one that is too long for the others.
#
# What can be done
# ----------------
# *Set readings aside.* How many must go, and which? One is enough, and it is the right one:

kept = quadsense.solve(
    U, distance**2, bounds=bounds, psd=True, allow_violations=1
)
row = kept.set_aside[0]
print(f"{kept.status}: without {names[pairs[row][0]]} - {names[pairs[row][1]]}")

# %%
# *Ask what it should have been.* With that row left out, the certified range of the distance over
# all sets of points that fit the other 27:

asked = U[row]
others = np.delete(np.arange(len(pairs)), row)
lo, hi = (end[others] for end in bounds)
found = quadsense.interval(U[others], C=asked, bounds=(lo, hi), psd=True)
print(
    f"between {np.sqrt(max(found.lower, 0)):.1f} and {np.sqrt(found.upper):.1f} km"
)

# %%
# *Miss all of them a little.* `slack="max"` finds points whose worst miss is smallest, and proves
# that no points have a smaller one. That spreads the mistake over the table, which is what one
# wants of many small errors and not of one typing error:

soft = quadsense.solve(U, bounds=bounds, psd=True, slack="max")
least, reached = soft.objective_bounds
print(
    f"{soft.status}: worst miss {reached:,.0f} km^2, and no points have less than {least:,.0f}"
)

# %%
# The picture: the table as a map, its lines as thick as their share in the contradiction.

flat = np.degrees(
    np.column_stack([longitude * np.cos(np.radians(48.0)), latitude])
)
figure, (left, right) = plt.subplots(
    1, 2, layout="constrained", figsize=(7.2, 3.6)
)
for share, (i, j) in zip(y, pairs, strict=True):
    color = "#c8553d" if share < 0 else "#1b6ca8"
    left.plot(*flat[[i, j]].T, color="#d0d0d0", lw=0.7, zorder=1)
    left.plot(
        *flat[[i, j]].T,
        color=color,
        lw=5 * np.sqrt(abs(share)),
        zorder=2,
        solid_capstyle="round",
        alpha=min(1.0, 0.15 + abs(share)),
    )
left.plot(*flat.T, "o", color="#333333", ms=5, zorder=3)
for name, place in zip(names, flat, strict=True):
    left.annotate(
        name, place, (4, 5), textcoords="offset points", fontsize=9, zorder=4
    )
left.set_aspect("equal")
left.margins(0.14)
left.set_axis_off()
left.set_title("Who contradicts whom")

order = np.argsort(-np.abs(y))[:9][::-1]
labels = [f"{names[pairs[k][0]]} - {names[pairs[k][1]]}" for k in order]
colors = ["#c8553d" if y[k] < 0 else "#1b6ca8" for k in order]
right.barh(labels, y[order], color=colors, height=0.65)
right.axvline(0.0, color="#4d4d4d", lw=0.8)
right.grid(axis="y", visible=False)
right.set(xlabel="y, its share in the proof")
right.set_title("Too long for the others (red)")
plt.show()
