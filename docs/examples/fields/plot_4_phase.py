"""
Phase retrieval of an image
===========================

A detector sees intensities: of the light behind an object, ``|F (mask x)|^2`` and not its phase.
With a few known masks in the way, the object can still be found: each pixel of the detector reads
``|u* x|^2 = u* (x x*) u``, a quadratic form of the matrix ``A = x x*`` of rank one.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

import quadsense

# %%
# The object: a photograph, 32 by 32 pixels, which also delays the light (a phase that follows the
# colour).

side = 32
photo = load_sample_image("flower.jpg")[40:424, 200:584] / 255.0
blocks = photo.reshape(side, 384 // side, side, 384 // side, 3).mean(
    axis=(1, 3)
)
grey = blocks.mean(axis=2)
x = (0.15 + grey) * np.exp(1.5j * (blocks[..., 0] - blocks[..., 2]))
x = x.ravel()
n = x.size

# %%
# Four random masks of the phases 1, i, -1, -i; the detector is right to 1e-3 of its largest
# reading.

rng = np.random.default_rng(0)
masks = rng.choice([1, 1j, -1, -1j], (4, side, side))
fourier = np.fft.fft(np.eye(side), norm="ortho")
transform = np.kron(fourier, fourier)
U = np.concatenate([transform * mask.ravel() for mask in masks])
b = np.abs(U @ x) ** 2
delta = 1e-3 * b.max()
b = b + delta * rng.uniform(-1.0, 1.0, b.size)
print(f"{b.size} intensities of {n} complex pixels")

# %%
# Rows are given as ``u*`` here, as one has them from a transform: ``conjugate=True``.

began = time.perf_counter()
result = quadsense.solve(U, b, delta=delta, rank=1, conjugate=True, rng=0)
seconds = time.perf_counter() - began
print(result.message)


# %%
# The factor of A is the image, up to one phase for all of it, which no intensity sees.


def aligned(guess):
    return guess * np.exp(-1j * np.angle(np.vdot(x, guess)))


def error(guess):
    return np.linalg.norm(aligned(guess) - x) / np.linalg.norm(x)


image = result.matrix.factor[:, 0]
print(f"error {error(image):.4f} in {seconds:.1f} s")

# %%
# Beside it the classic, alternating projections (Gerchberg and Saxton, 1972): put the measured
# amplitudes in, transform back, average over the masks, repeat, from a random start.

amplitude = np.sqrt(b.clip(0.0)).reshape(4, side, side)
guess = rng.standard_normal((side, side)) + 1j * rng.standard_normal(
    (side, side)
)
began, sweeps = time.perf_counter(), 1500
for _ in range(sweeps):
    field = np.fft.fft2(masks * guess, norm="ortho")
    field = amplitude * np.exp(1j * np.angle(field))
    guess = np.mean(masks.conj() * np.fft.ifft2(field, norm="ortho"), axis=0)
classic = guess.ravel()
spent = time.perf_counter() - began
print(
    f"alternating projections, {sweeps} sweeps in {spent:.1f} s: error {error(classic):.4f}"
)
readings = np.abs(U @ classic) ** 2
print(
    f"intensities beyond the detector's error: {np.mean(np.abs(readings - b) > delta):.0%}"
)

# %%
# It has come to rest at a point where the amplitudes disagree, as it does from other starts too;
# with six masks it finds the image. What tells is not how good a picture looks but whether it
# explains what was seen, and for that *met* counts every pixel of the detector.
#
# A transform by FFT is much quicker than a product with U, and alternating projections use that;
# here U is an array like any other, and could have been any optics. (A kind of probes that applies
# an FFT is a class with two products: :doc:`/contributing`.)

figure, axes = plt.subplots(2, 4, layout="constrained", figsize=(7.4, 3.9))
intensity = b.reshape(4, side, side)[0]
shown = [
    ("the object", x),
    ("alternating projections", aligned(classic)),
    ("quadsense", aligned(image)),
]
for column, (name, values) in enumerate(shown):
    values = values.reshape(side, side)
    title = (
        name if column == 0 else f"{name}\nerror {error(values.ravel()):.2g}"
    )
    axes[0, column].imshow(
        np.abs(values), cmap="gray", vmin=0.0, vmax=np.abs(x).max()
    )
    axes[0, column].set_title(title, fontsize=9)
    axes[1, column].imshow(
        np.angle(values), cmap="twilight_shifted", vmin=-2.0, vmax=2.0
    )
axes[0, 0].set_ylabel("amplitude")
axes[1, 0].set_ylabel("phase")
axes[0, 3].imshow(np.log10(intensity.clip(delta)), cmap="magma")
axes[0, 3].set_title("what was seen:\none of four", fontsize=9)
axes[1, 3].hist(result.residuals / delta, bins=40, color="#1b6ca8")
axes[1, 3].set_xlabel("residual / tolerance", fontsize=9)
for ax in axes.flat:
    ax.grid(visible=False)
    ax.set_yticks([])
    if ax is not axes[1, 3]:
        ax.set_xticks([])
plt.show()
