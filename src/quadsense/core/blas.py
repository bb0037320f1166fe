"""BLAS and LAPACK without the interpreter lock: SciPy's own wrappers would run one at a time.

SciPy exports its routines for compiled code as capsules; `ctypes` lets go of the lock in a call.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import cython_blas, cython_lapack

_TRMM_ARGUMENTS = 11  # side, uplo, transa, diag, m, n, alpha, A, lda, B, ldb
_TRSM_ARGUMENTS = 11  # side, uplo, transa, diag, m, n, alpha, A, lda, B, ldb
_POTRF_ARGUMENTS = 5  # uplo, n, A, lda, info
_GEMM_ARGUMENTS = 13  # transa, transb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc
_ONE = {letter: np.ones((), letter) for letter in "fdFD"}
_PREFIX = {"f": "s", "d": "d", "F": "c", "D": "z"}


@cache
def _routine(name: str, arguments: int) -> Any:
    """Return a routine of SciPy's; all its arguments are pointers, as in Fortran."""
    capsule = (cython_blas.__pyx_capi__ | cython_lapack.__pyx_capi__)[name]
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
    steps = [_step(a) for a in arrays]
    alpha = np.array(sign, letter)
    _routine(f"{_PREFIX[letter]}gemm", _GEMM_ARGUMENTS)(
        b"C", b"N", p, q, k, alpha.ctypes.data, X.ctypes.data, steps[1], Y.ctypes.data, steps[2],
        _ONE[letter].ctypes.data, C.ctypes.data, steps[0],
    )  # fmt: skip


def factor_in_place(M: npt.NDArray[Any]) -> int:
    """Replace the upper triangle of M by its Cholesky factor (``potrf``); return LAPACK's `info`.

    Parameters
    ----------
    M : (n, n) array
        Columns contiguous, as in a part of an array in Fortran order.
    """
    info, letter = ctypes.c_int(0), M.dtype.char
    _routine(f"{_PREFIX[letter]}potrf", _POTRF_ARGUMENTS)(
        b"U", ctypes.byref(ctypes.c_int(len(M))), M.ctypes.data, _step(M), ctypes.byref(info)
    )
    return info.value


def divide_by_factor(R: npt.NDArray[Any], X: npt.NDArray[Any]) -> None:
    """Replace X by ``R^-H X``, in place (``trsm``).

    Parameters
    ----------
    R : (k, k) array
        Upper triangular; what is below the diagonal is not read.
    X : (k, q) array
        Of the same dtype; columns of both contiguous.
    """
    letter = X.dtype.char
    k, q = (ctypes.byref(ctypes.c_int(n)) for n in X.shape)
    _routine(f"{_PREFIX[letter]}trsm", _TRSM_ARGUMENTS)(
        b"L", b"U", b"C", b"N", k, q, _ONE[letter].ctypes.data,
        R.ctypes.data, _step(R), X.ctypes.data, _step(X),
    )  # fmt: skip


def _step(a: npt.NDArray[Any]) -> Any:
    """Return the distance between columns of an array, in entries, as Fortran wants it."""
    return ctypes.byref(ctypes.c_int(max(a.strides[1] // a.itemsize, a.shape[0], 1)))
