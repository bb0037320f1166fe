"""The paper's four algorithms as printed, dense A in every iteration, errata applied.

Slow and literal on purpose: nothing here is shared with the package. sinh is taken in extended
precision, whose range (to e^11356) is enough for lambda R = 1e4; only its direction is used.
"""

import numpy as np


def scaled_sinh(x):
    """sinh(x) up to a positive factor."""
    value = np.sinh(np.asarray(x, dtype=np.longdouble))
    largest = np.abs(value).max()
    assert np.isfinite(largest)
    return (value / largest).astype(np.float64) if largest > 0 else np.zeros_like(x)


def measure(U, A):
    return np.array([np.real(u.conj() @ A @ u) for u in U])


def weighted_sum(U, weights):
    return sum(w * np.outer(u, u.conj()) for w, u in zip(weights, U, strict=True))


def gradient_descent(U, b, lam, eps, steps):
    """Algorithm 1; yields A_1, A_2, ..."""
    A = np.max(b) * np.eye(U.shape[1])
    yield A
    for _ in range(steps):
        gradient = weighted_sum(U, scaled_sinh(lam * (measure(U, A) - b)))
        A = A - eps * gradient / np.linalg.norm(gradient)
        yield A


def sgd_orthonormal(U, b, lam, eps, batches):
    """Algorithm 2: full norm from maintained z, z updated on the batch only."""
    m = len(b)
    A = np.max(b) * np.eye(U.shape[1])
    z = measure(U, A) - b
    yield A
    for batch in batches:
        s = scaled_sinh(lam * z)
        norm = np.sqrt(np.sum(s**2))
        gradient = m / len(batch) * weighted_sum(U[batch], s[batch])
        A = A - eps * gradient / norm
        z[batch] = z[batch] - eps * m * s[batch] / (norm * len(batch))
        yield A


def sgd_general(U, b, lam, eps, batches):
    """Algorithm 4, sinh frozen during the update of z (erratum 3)."""
    m = len(b)
    A = np.max(b) * np.eye(U.shape[1])
    z = measure(U, A) - b
    w2 = np.abs(U.conj() @ U.T) ** 2
    yield A
    for batch in batches:
        s = scaled_sinh(lam * z)
        norm = np.sqrt(s @ w2 @ s)
        gradient = m / len(batch) * weighted_sum(U[batch], s[batch])
        A = A - eps * gradient / norm
        for i in range(m):
            for j in batch:
                z[i] = z[i] - eps * m * w2[i, j] * s[j] / (norm * len(batch))
        yield A


def spectral(A_star, A, lam, eps, steps):
    """Algorithm 3 with the update's oracle in the lemma's direction (erratum 2)."""
    values, vectors = np.linalg.eigh(A_star)
    root = (vectors * np.sqrt(values)) @ vectors.conj().T
    inverse = (vectors / np.sqrt(values)) @ vectors.conj().T
    n = len(A_star)
    yield A
    for _ in range(steps):
        X = lam * (np.eye(n) - inverse @ A @ inverse)
        eigenvalues, Q = np.linalg.eigh(X)
        Y = (Q * scaled_sinh(eigenvalues)) @ Q.conj().T
        A = A + eps * root @ Y @ root / np.linalg.norm(Y)
        yield A
