"""What to pass instead of an object that no tensor map can be made of, framework by framework."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

JAX = frozenset({"jax", "jaxlib"})

#: Objects of TensorFlow that are no eager tensors [measured, TensorFlow 2.21]: type -> the fix.
_TENSORFLOW = {
    "SymbolicTensor": "make the map outside of the tf.function, of the tensor that it is given",
    "ResourceVariable": "pass x.value(), a tensor over the same memory",
    "RaggedTensor": "pass x.to_tensor(), or x.flat_values",
    "SparseTensor": "pass tensorflow.sparse.to_dense(x)",
}


def package_of(kind: type) -> str:
    """Name the package that defines a type."""
    return str(kind.__module__).partition(".")[0]


def fix_of(tensor: Any) -> str | None:
    """Give the fix for what a framework refused to export; None where nothing special is known."""
    kind = type(tensor)
    tracer = getattr(sys.modules.get("jax.core"), "Tracer", None)
    if isinstance(tracer, type) and issubclass(kind, tracer):
        return (
            "make the map outside of the function that jax.jit, jax.vmap or jax.grad traces, of "
            "the array that it is given"
        )
    package = package_of(kind)
    if package in JAX:
        return _jax_fix(tensor)
    if package == "tensorflow":
        return _TENSORFLOW.get(kind.__name__)
    return None


def _jax_fix(tensor: Any) -> str | None:
    """Give the fix for JAX's integers smaller than a byte; None for anything else."""
    name = str(getattr(tensor, "dtype", None))
    if name in ("uint4", "uint2"):
        return "pass x.astype(jax.numpy.uint8), one value per byte"
    if name in ("int4", "int2"):
        return 'pass x.astype(jax.numpy.int8), one value per byte, and data_type="UINT8"'
    return None


def numpy_fix(dtype: np.dtype[Any]) -> str | None:
    """Give the fix for a dtype that NumPy does not export; None for others."""
    if dtype.type.__module__ == "ml_dtypes":
        if dtype.name == "bfloat16":
            return 'pass x.view(numpy.uint16) and data_type="BFLOAT16"'
        if dtype.name.startswith("float8"):
            return "pass x.view(numpy.uint8): a map takes float8 values as bytes"
        if dtype.name.startswith("float6"):
            return (
                "pack four 6-bit values in three bytes (ml_dtypes keeps each in its own) and pass "
                'them as numpy.uint8 with data_type="16U6_ALIGN16B", on sm_100 or later'
            )
        if dtype.name in ("int4", "uint4") or dtype.name.startswith("float4"):
            return (
                "pack two 4-bit values in a byte (ml_dtypes keeps each in its own) and pass them "
                'as numpy.uint8 with data_type="16U4_ALIGN8B", on sm_100 or later'
            )
        return f"pass x.view(numpy.uint{8 * dtype.itemsize}): a map copies bits of any meaning"
    if dtype.names is not None:
        return "pass one field, x['name'], or the bytes, x.view(numpy.uint8)"
    if not dtype.isnative:
        return "convert it: x.astype(x.dtype.newbyteorder('='))"
    if dtype.kind not in "biufc" or dtype.char in "gG":  # g, G: long double
        return "convert it to a number type of 8 to 64 bits, or pass a view of its bytes"
    return None
