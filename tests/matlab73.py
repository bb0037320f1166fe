"""Files laid out as MATLAB's ``save -v7.3`` lays them out, for tests that read them.

HDF5 after a header of 512 bytes; axes reversed; complex numbers as (real, imag); sparse arrays by
columns in a group of `data`, `ir` and `jc`, `data` and `ir` left out where nothing is stored;
arrays without entries as their shape; text as uint16; structs as groups.
"""

import h5py
import numpy as np
import scipy.sparse as sp

CLASSES = {"float64": "double", "complex128": "double", "float32": "single", "bool": "logical"}


def write_matlab73(path, values):
    with h5py.File(path, "w", userblock_size=512) as root:
        for name, held in values.items():
            _put(root, name, held)
    head = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Mon Jan  1 00:00:00 2024 HDF5"
    with open(path, "r+b") as stream:
        stream.write(head.ljust(124) + b"\x00\x02IM")


def _put(root, name, held):
    if isinstance(held, dict):
        group = root.create_group(name)
        group.attrs["MATLAB_class"] = np.bytes_("struct")
        for key, value in held.items():
            _put(group, key, value)
        return
    if isinstance(held, str):
        codes = np.array([[ord(letter)] for letter in held], dtype=np.uint16)
        root.create_dataset(name, data=codes).attrs["MATLAB_class"] = np.bytes_("char")
        return
    if sp.issparse(held):
        columns, group = sp.csc_array(held), root.create_group(name)
        group.attrs["MATLAB_class"] = np.bytes_("double")
        group.attrs["MATLAB_sparse"] = np.uint64(columns.shape[0])
        if columns.nnz:
            group.create_dataset("data", data=_compound(columns.data))
            group.create_dataset("ir", data=columns.indices.astype(np.uint64))
        group.create_dataset("jc", data=columns.indptr.astype(np.uint64))
        return
    array = np.atleast_2d(held)
    if array.size == 0:
        made = root.create_dataset(name, data=np.array(array.shape, dtype=np.uint64))
        made.attrs["MATLAB_empty"] = np.uint8(1)
    else:
        made = root.create_dataset(name, data=_compound(array.T))
    made.attrs["MATLAB_class"] = np.bytes_(CLASSES.get(array.dtype.name, array.dtype.name))


def _compound(values):
    if not np.iscomplexobj(values):
        return values
    made = np.empty(values.shape, dtype=[("real", "f8"), ("imag", "f8")])
    made["real"], made["imag"] = values.real, values.imag
    return made
