"""BLAS without the interpreter lock: what SciPy's own wrappers would run one at a time.

SciPy exports its BLAS for compiled code as capsules; `ctypes` lets go of the lock in a call.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import cython_blas

_TRMM_ARGUMENTS = 11  # side, uplo, transa, diag, m, n, alpha, A, lda, B, ldb
_GEMM_ARGUMENTS = 13  # transa, transb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc
_ONE = {letter: np.ones((), letter) for letter in "fdFD"}
_PREFIX = {"f": "s", "d": "d", "F": "c", "D": "z"}


@cache
def _routine(name: str, arguments: int) -> Any:
    """A routine of SciPy's BLAS; all its arguments are pointers, as in Fortran."""
    capsule = cython_blas.__pyx_capi__[name]
    python = ctypes.pythonapi
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", python))
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", python)
    )
    address = pointer_of(capsule, name_of(capsule))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(address)


def multiply_triangle(T: npt.NDArray[Any], rows: npt.NDArray[Any]) -> None:
    """Replace every row u by ``T u``, in place (``trmm``).

    Parameters
    ----------
    T : (n, n) array
        Upper triangular, Fortran order; what is below the diagonal is not read.
    rows : (k, n) array
        Of the same dtype, C order.
    """
    k, n = rows.shape
    if not (T.flags.f_contiguous and rows.flags.c_contiguous and T.dtype == rows.dtype):
        raise ValueError("T must be in Fortran order, rows in C order, both of one dtype")
    letter = T.dtype.char
    order, count = ctypes.byref(ctypes.c_int(n)), ctypes.byref(ctypes.c_int(k))
    _routine(f"{_PREFIX[letter]}trmm", _TRMM_ARGUMENTS)(
        b"L", b"U", b"N", b"N", order, count, _ONE[letter].ctypes.data,
        T.ctypes.data, order, rows.ctypes.data, order,
    )  # fmt: skip


def add_product(C: npt.NDArray[Any], X: npt.NDArray[Any], Y: npt.NDArray[Any], sign: float) -> None:
    """Add ``sign X^H Y`` to C, in place (``gemm``): parts of larger arrays are not copied.

    Parameters
    ----------
    C : (p, q) array
    X, Y : (k, p), (k, q) array
        All of one dtype; columns of each contiguous.
    sign : float
    """
    arrays = (C, X, Y)
    size = C.itemsize
    if (
        any(a.strides[0] != size and a.shape[0] > 1 for a in arrays)
        or len({a.dtype for a in arrays}) > 1
    ):
        raise ValueError("columns must be contiguous, and all of one dtype")
    letter = C.dtype.char
    p, q, k = (ctypes.byref(ctypes.c_int(n)) for n in (*C.shape, len(X)))
    steps = [ctypes.byref(ctypes.c_int(max(a.strides[1] // size, a.shape[0], 1))) for a in arrays]
    alpha = np.array(sign, letter)
    _routine(f"{_PREFIX[letter]}gemm", _GEMM_ARGUMENTS)(
        b"C", b"N", p, q, k, alpha.ctypes.data, X.ctypes.data, steps[1], Y.ctypes.data, steps[2],
        _ONE[letter].ctypes.data, C.ctypes.data, steps[0],
    )  # fmt: skip
