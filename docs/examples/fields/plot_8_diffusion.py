"""
Diffusion tensors
=================

A slice of 80 by 80 voxels, 64 directions, two fiber bundles and a cyst: one tensor per voxel, of
which none may have a negative eigenvalue. A few readings are spoiled, as by a patient who moves.

Weighted least squares, the method of most laboratories, cuts negative eigenvalues off afterwards.
:func:`quadsense.solve_many` finds the positive semidefinite tensor of the least weighted sum of
squares, with ``ln S0`` free, and says which voxels that concerns. In DIPY it is a fit method:
``TensorModel(gtab, fit_method=quadsense.diffusion.dipy_fitter)``.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

import quadsense
from quadsense.diffusion import DipyFitter

# %%
# Directions at b = 1000 s/mm^2, in the order in which DIPY writes its design matrix, and tensors:
# a ring, a straight bundle of thin fibers, water in between.

rng = np.random.default_rng(0)
size, count = 80, 65
g = rng.standard_normal((count, 3))
g /= np.linalg.norm(g, axis=1, keepdims=True)
b = np.where(np.arange(count) == 0, 0.0, 1000.0)
pairs = ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))
columns = [g[:, j] * g[:, k] * (1 + (j != k)) * b for j, k in pairs]
design = -np.stack([*columns, np.ones(count)], axis=1)

x, y = np.meshgrid(np.linspace(-1, 1, size), np.linspace(-1, 1, size))
radius = np.hypot(x, y)
along = (
    np.stack([-y, x, np.zeros_like(x)], axis=-1)
    / np.maximum(radius, 1e-9)[..., None]
)
ring, bar = np.abs(radius - 0.7) < 0.15, np.abs(x - y) < 0.15
along[bar & ~ring] = np.array([1.0, 1.0, 0.0]) / np.sqrt(2)
fiber = ring | (bar & (radius < 0.6))
D = np.full((size, size, 3, 3), 0.0)
D[...] = 1.0e-3 * np.eye(3)
D[fiber] = (
    0.04e-3 * np.eye(3)
    + 1.7e-3 * along[fiber][:, :, None] * along[fiber][:, None, :]
)
clean = 100.0 * np.exp(
    -np.einsum("i,ia,xyab,ib->xyi", b, g, D, g, optimize=True)
)
noise = 4.0 * rng.standard_normal((2, *clean.shape))
S = np.hypot(clean + noise[0], noise[1])
S[30:36, 20:60, 17] *= 0.4  # one direction, while the patient moved

# %%
# The fit, and weighted least squares for comparison.

fitter = DipyFitter()
fitter(design, S[:2])  # loads the compiled loops
began = time.process_time()
(parameters, S0), extra = fitter(design, S, return_S0_hat=True)
spent = time.process_time() - began
results = fitter.results
print(results)
print(f"{size * size / spent:,.0f} tensors per second of one core")
print(f"all claims verified: {results.verify().all()}")

logs = np.log(S.reshape(-1, count))
w = np.exp(logs @ np.linalg.pinv(design).T @ design.T)
scaled = design * w[:, :, None]
plain = np.einsum("kij,kj->ki", np.linalg.pinv(scaled), w * logs)
other = np.empty((size * size, 3, 3))
for column, (j, k) in enumerate(pairs):
    other[:, j, k] = other[:, k, j] = plain[:, column]
values, vectors = np.linalg.eigh(other)
other = (vectors * np.maximum(values, 0.0)[:, None]) @ vectors.swapaxes(1, 2)


def anisotropy(values):
    """Return the fractional anisotropy of eigenvalues."""
    away = values - values.mean(axis=-1, keepdims=True)
    squares = np.maximum((values**2).sum(axis=-1), 1e-30)
    return np.sqrt(1.5 * (away**2).sum(axis=-1) / squares)


touched = results.corrected.reshape(size, size)
truth = D.reshape(-1, 3, 3)
for name, found in (("psd", results.A), ("cut off", other)):
    error = np.linalg.norm(found - truth, axis=(1, 2))[touched.ravel()].mean()
    print(f"{name:>8}: tensor error {error:.3g} mm^2/s where the cone counts")

# %%
# The certified range of the mean diffusivity of a few voxels, over *all* positive semidefinite
# tensors that agree with every reading to five times its noise, given the fitted S0.

for place in ((40, 40), (10, 40), (60, 5)):
    number = place[0] * size + place[1]
    rows = np.sqrt(b)[:, None] * g
    signals, start = S[place], results.coef[number, 0]
    low, high = (
        -np.log(signals + 20.0),
        -np.log(np.maximum(signals - 20.0, 1e-3)),
    )
    one = quadsense.solve(rows, bounds=(low + start, high + start), psd=True)
    if one.success:
        trace = one.interval("trace")
        print(
            f"voxel {place}: mean diffusivity {trace.lower / 3e-3:.3f} to {trace.upper / 3e-3:.3f}"
            f" um^2/ms, truth {np.trace(D[place]) / 3e-3:.3f}"
        )

# %%
# Directions that do not go with the others are marked voxel by voxel.

figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
suspects = extra["suspect"].sum(axis=2)
pictures = (
    (anisotropy(parameters[..., :3]), "fractional anisotropy", "gray"),
    (touched, "corrected by the cone", "Greys"),
    (np.minimum(suspects, 2), "suspect readings", "Reds"),
)
for axis, (picture, title, colors) in zip(axes, pictures, strict=True):
    axis.imshow(picture, origin="lower", cmap=colors)
    axis.set_title(title)
    axis.axis("off")
plt.show()
