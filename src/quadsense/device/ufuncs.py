"""Universal functions of NumPy's by torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from quadsense.device.array import FUNCTIONS, UFUNCS, DeviceArray, beside, both, first, torch_module


def _matmul(a: Any, b: Any) -> DeviceArray:
    left, right = both(a, b)
    return DeviceArray(left @ right if left.ndim and right.ndim else left * right)


def _elementwise(name: str) -> Callable[..., DeviceArray]:
    """A function of one or two operands that torch has under this name."""

    def apply(*operands: Any) -> DeviceArray:
        torch, tensor = torch_module(), first(*operands)
        return DeviceArray(getattr(torch, name)(*(beside(each, tensor) for each in operands)))

    return apply


def _operands(name: str) -> Callable[..., DeviceArray]:
    """The same where torch wants tensors only, of one type."""

    def apply(a: Any, b: Any) -> DeviceArray:
        left, right = both(a, b)
        return DeviceArray(getattr(torch_module(), name)(left, right))

    return apply


def _reciprocal_of(power: Callable[..., DeviceArray]) -> Callable[..., DeviceArray]:
    """Powers: torch has no whole numbers to negative ones, and squares are quicker as products."""

    def apply(a: Any, b: Any) -> DeviceArray:
        if isinstance(b, int | float) and b == 2:
            return DeviceArray(a.tensor * a.tensor)
        return power(a, b)

    return apply


def _vecdot(a: Any, b: Any) -> DeviceArray:
    left, right = both(a, b)
    return DeviceArray(torch_module().linalg.vecdot(left, right, dim=-1))


# Those of two arrays give no warnings, as with `errstate`.
UFUNCS |= {
    "add": _elementwise("add"),
    "subtract": _operands("subtract"),
    "multiply": _elementwise("mul"),
    "divide": _operands("true_divide"),
    "power": _reciprocal_of(_operands("pow")),
    "matmul": _matmul,
    "vecdot": _vecdot,
    "negative": _elementwise("neg"),
    "positive": lambda a: a,
    "absolute": _elementwise("abs"),
    "fabs": _elementwise("abs"),
    "sqrt": _elementwise("sqrt"),
    "square": _elementwise("square"),
    "exp": _elementwise("exp"),
    "log": _elementwise("log"),
    "sign": _elementwise("sign"),
    "conjugate": lambda a: a.conj(),
    "isfinite": _elementwise("isfinite"),
    "isnan": _elementwise("isnan"),
    "maximum": _operands("maximum"),
    "minimum": _operands("minimum"),
    "less": _operands("less"),
    "less_equal": _operands("less_equal"),
    "greater": _operands("greater"),
    "greater_equal": _operands("greater_equal"),
    "equal": _operands("eq"),
    "not_equal": _operands("ne"),
    "logical_and": _operands("logical_and"),
    "logical_or": _operands("logical_or"),
    "logical_not": _elementwise("logical_not"),
    "bitwise_and": _operands("bitwise_and"),
    "bitwise_or": _operands("bitwise_or"),
    "bitwise_xor": _operands("bitwise_xor"),
    "invert": _elementwise("bitwise_not"),
    "copysign": _operands("copysign"),
    "hypot": _operands("hypot"),
    "clip": lambda a, low, high: FUNCTIONS[np.clip](a, low, high),
}
