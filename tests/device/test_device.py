"""NumPy's functions on a device: what torch makes of them is what NumPy makes of them."""

import numpy as np
import pytest
from kinds import DEVICE

torch = pytest.importorskip("torch")

from quadsense.device.array import FUNCTIONS, UFUNCS, DeviceArray  # noqa: E402

pytestmark = pytest.mark.gpu


def there(values):
    return DeviceArray(torch.tensor(np.asarray(values), device=DEVICE))


@pytest.fixture(params=["float64", "complex128", "float32"])
def arrays(request):
    """A matrix, another, a vector, positive numbers and a mask, on the host."""
    rng = np.random.default_rng(0)
    made = [rng.standard_normal(shape) for shape in ((5, 4), (5, 4), (4,))]
    if request.param == "complex128":
        made = [values + 1j * rng.standard_normal(values.shape) for values in made]
    made = [values.astype(request.param) for values in made]
    A, B, x = made
    return {"A": A, "B": B, "x": x, "p": np.abs(x) + 0.5, "mask": rng.random((5, 4)) > 0.5}


SAID = {
    "sums of all kinds": lambda A, B, x, p, mask: (A + B) * 2.0 - A / 3.0 + p * 1.5 - (-A),
    "numbers of NumPy": lambda A, B, x, p, mask: np.float64(2.0) * A + np.int64(3),
    "an array of the host": lambda A, B, x, p, mask: A * np.arange(4.0) + np.ones((5, 4)),
    "in place": lambda A, B, x, p, mask: _in_place(A.copy(), B),
    "in place, of itself": lambda A, B, x, p, mask: _of_itself(A.copy(), p.copy()),
    "where the largest is": lambda A, B, x, p, mask: np.argmax(p) + np.argmax(np.abs(A)),
    "products": lambda A, B, x, p, mask: A @ x + B @ (A.T @ (B @ x)),
    "a real matrix and a complex one": lambda A, B, x, p, mask: A @ np.eye(4) @ A.conj().T,
    "modulus": lambda A, B, x, p, mask: np.sqrt(np.abs(A)) + np.exp(-np.abs(B)) ** 2,
    "powers": lambda A, B, x, p, mask: p**2 + p**0.5 + p**-1.0,
    "sum": lambda A, B, x, p, mask: np.sum(A) + A.sum() + np.mean(A),
    "sum by rows": lambda A, B, x, p, mask: np.sum(A, axis=1) + A.sum(axis=1),
    "largest": lambda A, B, x, p, mask: np.max(np.abs(A), axis=0) + np.abs(A).max() + p.min(),
    "largest of none": lambda A, B, x, p, mask: np.max(p[:0], initial=7.0) + p[p > 9].sum(),
    "largest or 7": lambda A, B, x, p, mask: np.max(p, initial=7.0) + np.min(p, initial=0.0),
    "choices": lambda A, B, x, p, mask: np.where(mask, A, 0.0) + np.where(np.abs(A) > 1, B, A),
    "clipped": lambda A, B, x, p, mask: np.clip(p, 0.7, 1.0) + np.clip(p, None, p[::-1]),
    "inner": lambda A, B, x, p, mask: np.vdot(A, B) + np.dot(x, x) + np.vecdot(A, B).sum(),
    "einsum": lambda A, B, x, p, mask: np.einsum("ij,ij->i", A, B) + np.einsum("ki,kj->k", A, B),
    "trace": lambda A, B, x, p, mask: np.trace(A[:4]) + A[:4].diagonal() + np.diagonal(B[:4]),
    "diagonal matrices": lambda A, B, x, p, mask: np.diag(p) + np.outer(x, x),
    "slices": lambda A, B, x, p, mask: A[1:4, ::2] + A[:3, 1::2],
    "backwards": lambda A, B, x, p, mask: A[::-1, ::-1] + B[:, ::-1] + A[4:None:-1][:5],
    "a row backwards": lambda A, B, x, p, mask: A[2, ::-1] + x[::-1],
    "indices": lambda A, B, x, p, mask: A[np.array([3, 0, 3])] + np.take(B, np.array([1, 2, 4]), 0),
    "a mask": lambda A, B, x, p, mask: A[mask].sum() + A[np.asarray(mask)].sum(),
    "set": lambda A, B, x, p, mask: _set(A.copy(), mask),
    "comparisons": lambda A, B, x, p, mask: ((p < 1.0) | (p >= 1.2)) & ~(p == 2.0) & (p != 0.0),
    "whether": lambda A, B, x, p, mask: np.any(mask, axis=0) & np.all(mask | ~mask, axis=0),
    "counts": lambda A, B, x, p, mask: np.count_nonzero(mask) + int(mask.sum()),
    "joined": lambda A, B, x, p, mask: np.concatenate([x, p]) + np.append(x, x),
    "joined to a list": lambda A, B, x, p, mask: np.concatenate([[0.0], np.cumsum(p)]),
    "stacked": lambda A, B, x, p, mask: np.stack([p, 2.0 * p]) + np.array([[1.0], [-1.0]]) * p,
    "like": lambda A, B, x, p, mask: np.zeros_like(A) + np.ones_like(A) + np.full_like(A, 2.0),
    "like of another shape": lambda A, B, x, p, mask: np.zeros_like(A, shape=(2,)) + p[:2],
    "triangles": lambda A, B, x, p, mask: np.triu(A[:4]) - np.tril(A[:4], -1),
    "norms": lambda A, B, x, p, mask: np.linalg.norm(A) + np.linalg.norm(A, axis=1),
    "eigenvalues": lambda A, B, x, p, mask: np.linalg.eigvalsh(A.conj().T @ A),
    "inverse": lambda A, B, x, p, mask: np.linalg.inv(A.conj().T @ A + np.eye(4)),
    "pairs": lambda A, B, x, p, mask: A.view(A.real.dtype).sum(axis=1),
    "parts": lambda A, B, x, p, mask: A.real + 2.0 * A.imag + np.real(B),
    "types": lambda A, B, x, p, mask: p.astype(np.float32).astype(np.float64, copy=False),
    "of the host": lambda A, B, x, p, mask: np.median(p) + np.ldexp(p, 3) + np.log1p(p),
    "unknown reductions": lambda A, B, x, p, mask: np.add.reduce(p) + np.maximum.accumulate(p),
    "partly": lambda A, B, x, p, mask: np.divide(p, 2.0, out=np.zeros_like(p), where=p > 1.0),
    "partly, to the host": lambda A, B, x, p, mask: np.divide(
        p, 2.0, out=np.zeros(4, np.asarray(p).dtype), where=p > 1.0
    ),
    "largest of some": lambda A, B, x, p, mask: np.max(p, where=p < 1.0, initial=0.0),
    "smallest of some": lambda A, B, x, p, mask: np.min(p, where=p > 1.0, initial=9.0),
    "numbers of entries": lambda A, B, x, p, mask: np.flatnonzero(mask) + np.flatnonzero(mask),
    "numbers that stay": lambda A, B, x, p, mask: (
        A[np.nonzero(mask)] * p[np.nonzero(p > 0.0)[0]][0]
    ),
    "equal": lambda A, B, x, p, mask: np.array_equal(A, A) + 2 * np.array_equal(p, 2.0 * p),
    "hypotenuses": lambda A, B, x, p, mask: np.hypot(p, 2.0 * p) + np.hypot(p, 1.0),
    "the smallest two": lambda A, B, x, p, mask: np.partition(p, 2)[:2].sum(),
    "a Cholesky factor": lambda A, B, x, p, mask: np.linalg.cholesky(A.conj().T @ A),
    "signs": lambda A, B, x, p, mask: np.sign(p - 1.0) + np.maximum(p, 1.0) - np.minimum(1.0, p),
}


def _in_place(A, B):
    A += B
    A *= 0.5
    A[1:3] -= B[1:3]
    np.multiply(A, 2.0, out=A)
    np.add(A[0], 1.0, out=A[0])
    return A


def _of_itself(A, p):
    A[1:] += A[:-1]
    A[:4] -= A[:4].T
    A *= A
    A /= p  # a real one, of no more digits
    A[2] *= p > 0.8
    p -= p[::-1]
    return A + p


def _set(A, mask):
    A[mask] = 0.0
    A[0] = np.arange(4.0)
    A[np.diag_indices(4)] += 1.0
    A[np.array([1, 2]), 0] = A[np.array([2, 1]), 1]
    return A


@pytest.mark.parametrize("said", SAID)
def test_what_is_said_with_numpy_is_done_on_the_device(said, arrays):
    truth = SAID[said](**arrays)
    found = SAID[said](**{name: there(values) for name, values in arrays.items()})
    eps = 1e-5 if arrays["A"].dtype == np.float32 else 1e-12
    np.testing.assert_allclose(np.asarray(found), truth, rtol=eps, atol=eps)
    if said != "numbers of NumPy":
        assert np.asarray(found).dtype == np.asarray(truth).dtype


def test_decompositions_are_decompositions():
    rng = np.random.default_rng(1)
    A = rng.standard_normal((5, 5)) + 1j * rng.standard_normal((5, 5))
    S = there(A + A.conj().T)
    values, vectors = np.linalg.eigh(S)
    again = (vectors * values) @ vectors.conj().T
    np.testing.assert_allclose(np.asarray(again), A + A.conj().T, atol=1e-12)
    Q, R = np.linalg.qr(there(A))
    np.testing.assert_allclose(np.asarray(Q @ R), A, atol=1e-12)
    left, sizes, right = np.linalg.svd(there(A))
    np.testing.assert_allclose(np.asarray((left * sizes) @ right), A, atol=1e-12)


def test_what_cannot_be_decomposed_fails_as_with_numpy():
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.inv(there(np.zeros((3, 3))))


def test_arrays_of_the_host_are_changed_in_place():
    x = np.ones(3)
    held = x
    x *= there(np.arange(3.0))
    assert x is held
    np.testing.assert_array_equal(x, [0.0, 1.0, 2.0])


def test_scalars_are_numbers_where_numbers_are_asked_for():
    x = there(np.array([1.0, 2.0]))
    assert float(x[0]) == 1.0 and bool(x[1] > 1.0) and int(x.sum()) == 3
    assert x.tolist() == [1.0, 2.0] and len(x) == 2 and [float(v) for v in x] == [1.0, 2.0]
    assert np.arange(5)[there(np.array(3))] == 3
    # A mask of one entry is a mask, not the number 0 or 1.
    np.testing.assert_array_equal(np.array([7])[there(np.array([True]))], [7])
    with pytest.raises(TypeError):
        there(np.arange(3.0)).view(np.int64)
    assert "float64" in repr(x)


def test_what_leaves_the_device_is_a_copy():
    x = there(np.zeros(3))
    found = np.asarray(x)
    found += 1.0
    assert float(x.sum()) == 0.0


def test_all_that_is_told_is_known_to_numpy():
    assert all(hasattr(np, name) for name in UFUNCS)
    assert all(callable(function) for function in FUNCTIONS)
