"""
Phase retrieval of an image by FFT masks
========================================

A detector sees intensities: of the light behind an object, ``|fft2(mask * x)|^2`` and not its
phase. With a few known masks in the way, the object can still be found: each pixel of the detector
reads ``|u* x|^2 = u* (x x*) u``, a quadratic form of the matrix ``A = x x*`` of rank one. As an
array, the rows of five masks of 192 by 192 pixels would take 109 gigabytes; they are never formed.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

import quadsense
from quadsense.probes import masked_fft

# %%
# The object: a photograph, 192 by 192 pixels, which also delays the light (a phase that follows
# the colour).

side = 192
photo = load_sample_image("flower.jpg")[40:424, 200:584] / 255.0
blocks = photo.reshape(side, 384 // side, side, 384 // side, 3).mean(
    axis=(1, 3)
)
grey = blocks.mean(axis=2)
x = (0.15 + grey) * np.exp(1.5j * (blocks[..., 0] - blocks[..., 2]))

# %%
# Five random masks of the phases 1, i, -1, -i; the detector is right to 1e-3 of its largest
# reading.

rng = np.random.default_rng(0)
masks = rng.choice([1, 1j, -1, -1j], (5, side, side))
b = np.abs(np.fft.fft2(masks * x)).ravel() ** 2
delta = 1e-3 * b.max()
b = b + delta * rng.uniform(-1.0, 1.0, b.size)
print(f"{b.size} intensities of {x.size} complex pixels")

# %%
# :func:`~quadsense.probes.masked_fft` stands for the array U with ``U @ x`` the transform of every
# masked image, one after the other. Intensities are ``|U @ x|^2``: ``conjugate=True``.

U = masked_fft(masks, x.shape)
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


image = result.matrix.factor[:, 0].reshape(x.shape)
print(f"error {error(image):.4f} in {seconds:.1f} s")

# %%
# Anyone with the masks and the intensities can check the claim: that every pixel of the detector
# is explained, rounding of the transforms included.

print("verified:", result.verify(masked_fft(masks, x.shape), b))

# %%
# For comparison, the classic method, alternating projections (Gerchberg and Saxton, 1972): put the measured
# amplitudes in, transform back, average over the masks, repeat, from a random start.

amplitude = np.sqrt(b.clip(0.0)).reshape(masks.shape)
classic = rng.standard_normal(x.shape) + 1j * rng.standard_normal(x.shape)
began, sweeps = time.perf_counter(), 300
for _ in range(sweeps):
    field = np.fft.fft2(masks * classic)
    field = amplitude * np.exp(1j * np.angle(field))
    classic = np.mean(masks.conj() * np.fft.ifft2(field), axis=0)
spent = time.perf_counter() - began
readings = np.abs(np.fft.fft2(masks * classic)).ravel() ** 2
print(
    f"alternating projections, {sweeps} sweeps in {spent:.1f} s: error {error(classic):.4f}, "
    f"{np.mean(np.abs(readings - b) > delta):.0%} of the intensities beyond the detector's error"
)

# %%
# It creeps, and may rest for good at a point where amplitudes disagree. What tells is not how good
# a picture looks but whether it explains what was seen, and for that *met* counts every pixel of
# the detector.
#
# Where the light is a known spot that is moved over the object (ptychography), the spot is the mask,
# in a window of its own, and ``offsets`` are the places where it was put.

figure, axes = plt.subplots(2, 4, layout="constrained", figsize=(7.4, 3.9))
intensity = b.reshape(masks.shape)[0]
shown = [
    ("the object", x),
    ("alternating projections", aligned(classic)),
    ("quadsense", aligned(image)),
]
for column, (name, values) in enumerate(shown):
    title = name if column == 0 else f"{name}\nerror {error(values):.2g}"
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
axes[0, 3].set_title("what was seen:\none of five", fontsize=9)
axes[1, 3].hist(result.residuals / delta, bins=40, color="#1b6ca8")
axes[1, 3].set_xlabel("residual / tolerance", fontsize=9)
for ax in axes.flat:
    ax.grid(visible=False)
    ax.set_yticks([])
    if ax is not axes[1, 3]:
        ax.set_xticks([])
plt.show()
