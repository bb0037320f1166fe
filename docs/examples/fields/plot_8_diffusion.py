"""
Diffusion tensors
=================

The brain volume that DIPY ships: 1000 voxels, 64 directions, one tensor per voxel. The weighted
least squares of most laboratories finds negative eigenvalues in thin fibers and in noise, and cuts
them off afterwards. :func:`quadsense.solve_many` finds the positive semidefinite tensor of the
least weighted sum of squares, with ``ln S0`` free, proves it, and says which voxels that concerns.
In DIPY it is a fit method.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from dipy.core.gradients import gradient_table
from dipy.data import get_fnames
from dipy.io.gradients import read_bvals_bvecs
from dipy.io.image import load_nifti_data
from dipy.reconst.dti import TensorModel

import quadsense
from quadsense.diffusion import dipy_fitter

# %%
# Nothing is downloaded: the files come with DIPY.

image, values, vectors = get_fnames(name="small_64D")
data = load_nifti_data(image).astype(float)
b, g = read_bvals_bvecs(values, vectors)
g = np.nan_to_num(g)  # that of b = 0 has no direction
g[1:] /= np.linalg.norm(g[1:], axis=1, keepdims=True)
table = gradient_table(b, bvecs=g)

model = TensorModel(table, fit_method=dipy_fitter)
plain = TensorModel(table, fit_method="WLS")
model.fit(data[:1])  # loads the compiled loops
spent = []
for each in (model, plain):
    began = time.process_time()
    for _ in range(20):
        each.fit(data)
    spent.append(time.process_time() - began)
fit = model.fit(data)
results = dipy_fitter.results
print(results)
print(f"all claims verified: {results.verify().all()}")
print(f"{spent[1] / spent[0]:.1f} times as fast as DIPY's WLS")

# %%
# Where WLS is positive definite both agree. Elsewhere DIPY cuts the negative eigenvalue off and
# leaves the others as they were, although these belong to a tensor that no tissue has.

touched = results.corrected.reshape(data.shape[:3])
apart = fit.fa - plain.fit(data).fa
print(f"{touched.sum()} of {touched.size} voxels are corrected")
print(f"anisotropy, corrected voxels: {apart[touched].mean():+.3f} on average")
print(f"anisotropy, the others: {np.abs(apart[~touched]).max():.0e} at most")

# %%
# The noise of the signals is what the fit leaves over. A reading that is four times as far from
# the fit is suspect: a patient who moved, a spike.

noise = np.sqrt(np.median(results.objective) / (len(b) - 7))
suspect = model.extra["suspect"]
print(f"noise {noise:.1f}; suspect are {suspect.sum()} of {suspect.size}")

# %%
# How far do the readings alone determine the mean diffusivity? The range is over *all* positive
# semidefinite tensors and *all* S0 that agree with every signal to four times its noise. Signals
# are divided by more than any S0: then ``-ln S0`` is a fourth diagonal entry, not negative, that
# every probe sees as 1. The entries between it and the tensor are zero.

rows = np.column_stack([np.sqrt(b / 1000)[:, None] * g, np.ones(len(b))])
zero = []
for j in range(3):
    C = np.zeros((4, 4))
    C[j, 3] = C[3, j] = 1.0
    zero.append((C, 0.0, 0.0))
mean = np.diag([1.0, 1.0, 1.0, 0.0]) / 3
signals = data / (10 * data.max())
room = 4 * noise / (10 * data.max())
with np.errstate(divide="ignore"):
    low = -np.log(signals + room)
    high = -np.log(np.maximum(signals - room, 0.0))

for place in ((0, 6, 5), (0, 2, 2), (8, 0, 8)):
    one = quadsense.solve(
        rows, bounds=(low[place], high[place]), psd=True, constraints=zero
    )
    found = one.interval(mean)
    print(
        f"voxel {place}: fitted {1e3 * fit.md[place]:.3f}, certified "
        f"{found.lower:.3f} to {found.upper:.3f} um^2/ms"
    )

# %%
# The ten slices, next to each other.


def slices(volume):
    """Return the slices of a volume in two rows of five."""
    parts = [volume[:, :, k].T for k in range(volume.shape[2])]
    parts = [
        np.pad(part.astype(float), 1, constant_values=np.nan) for part in parts
    ]
    return np.vstack([np.hstack(parts[:5]), np.hstack(parts[5:])])


figure, axes = plt.subplots(3, 1, figsize=(5.4, 7.2), layout="constrained")
pictures = (
    (fit.fa, "fractional anisotropy", "gray", 1.0),
    (touched, "voxels corrected by the cone", "Blues", 1.5),
    (suspect.sum(axis=3), "suspect directions", "Reds", 3.0),
)
for axis, (volume, title, colors, most) in zip(axes, pictures, strict=True):
    drawn = axis.imshow(
        slices(volume), cmap=colors, vmin=0.0, vmax=most, origin="lower"
    )
    axis.set_title(title)
    axis.set_facecolor("0.6")
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_visible(False)
plt.show()
