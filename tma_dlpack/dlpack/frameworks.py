"""`FRAMEWORKS`: a table with one row per framework.

A row describes how to recognise and export the framework's tensors, and how to find their storage
and their stream. A row also has code snippets for the fix in an error message, such as
``x.clone()``, which copies a tensor. This module imports no framework except NumPy. A new framework
needs a new row, and a case in tests/dlpack/test_frameworks.py. The row `OTHER` is for all types
without a row of their own. For these types, every pointer in the capsule is checked.

Source: measured exports of torch 2.4 to 2.13, NumPy 1.26 to 2.4, JAX 0.10, tvm-ffi 0.1, TensorFlow
2.21 and mlx 0.32; the source code of CuPy and Paddle.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tma_dlpack.dlpack import torch_tensor
from tma_dlpack.dlpack.layout import (
    READ_ONLY,
    Export,
    Layout,
    Storage,
    TensorView,
    is_a,
    package_of,
)
from tma_dlpack.tables.coerce import rows
from tma_dlpack.tables.enums import DLDataTypeCode, DLDeviceType


class Words(NamedTuple):
    """The code snippets of one framework, for the fixes in error messages. `x` is the tensor."""

    copy: str = "a copy of x"
    contiguous: str = "a row-major copy of x"
    permute: str = "x with its dimensions in the order ({order})"
    view_as: str = "a view of it as {dtype}"
    pad: str = "allocate rows of {padded} elements, and pass the first {extent} of each"
    widen: str = "copy it to rows of {padded} elements"
    aligned_copy: str = ""  # a copy aligned to 32 bytes, if `copy` aligns only to 16 bytes
    widest_bits: int = 64  # bits of the widest integer type to which `view_as` can convert


NO_WORDS = Words()


class Native(NamedTuple):
    """Functions that read a framework's own tensors, their memory and their stream.

    Attributes
    ----------
    tensor : str
        The class of the tensors. The functions also read instances of subclasses of this class.
    storage : callable (tensor) -> Storage
        Returns the memory around a tensor.
    read : callable (tensor) -> Export or None
        Reads a tensor without calling `__dlpack__`; returns None if `__dlpack__` must be called.
    current_stream : callable (device id) -> CUstream, or None
        Returns the stream on which the framework's kernels run. None means the legacy default
        stream.
    wait : callable (CUstream, device id), or None
        Makes a stream wait until the framework has computed its tensors. None means that
        ``__dlpack__(stream=...)`` makes the stream wait.
    """

    tensor: str
    storage: Callable[[Any], Storage]
    read: Callable[[Any], Export | None] = lambda tensor: None
    current_stream: Callable[[int], int] | None = None
    wait: Callable[[int, int], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """One framework.

    Attributes
    ----------
    name : str
        The framework's name in messages.
    packages : tuple of str
        The Python packages that define the framework's tensors.
    distributions : tuple of str
        The names under which pip installs the framework, for the command `doctor`.
    dlpack : str
        The version of DLPack that ``__dlpack__(max_version=(1, 3))`` exports, for `doctor`.
    words : Words
    native : Native or None
    stream : int
        The stream that is passed to `__dlpack__` for a CUDA tensor. The default is -1, which means
        "do not synchronize", because this package reads no data.
    trusted : bool
        Whether the framework's capsules are known to be valid, so that their pointers need no
        checks.
    immutable : bool
        Whether the framework's tensors are immutable. If True, they are treated as read-only, even
        if their capsules lack the read-only flag.
    variables : tuple of str
        If `immutable` is True: the names of the framework's types that are mutable nevertheless.
    in_c : bool
        Whether the C extension may call `__dlpack__` of the framework's tensors. If False, the code
        in Python reads the tensors. If `in_c` and `immutable` are both True, the tensors must have
        JAX's methods `platform` and `is_deleted`.
    only_cuda : bool
        Whether the framework's tensors are always on a GPU, so that the C extension need not call
        `__dlpack_device__`.
    no_numbers : tuple of str
        Names of data types whose values are not numbers. Exporting a tensor of such a type would
        end the process instead of raising an exception.
    fix : callable (tensor) -> str or None
        Returns the fix for an object that cannot be exported. None means the fix in the table of
        refusals (see layout.py).
    launcher : callable (uint8 array) -> object, or None
        Converts the bytes of maps to the type that the framework's kernels accept as an argument.
    """

    name: str
    packages: tuple[str, ...]
    distributions: tuple[str, ...] = ()
    dlpack: str = ""
    words: Words = NO_WORDS
    native: Native | None = None
    stream: int = -1
    trusted: bool = True
    immutable: bool = False
    variables: tuple[str, ...] = ()
    in_c: bool = False
    only_cuda: bool = False
    no_numbers: tuple[str, ...] = ()
    fix: Callable[[Any], str | None] = lambda tensor: None
    launcher: Callable[[Any], Any] | None = None


# --- NumPy --------------------------------------------------------------------------------------

#: NumPy's dtype.kind -> DLPack's type code.
CODES = {
    "i": DLDataTypeCode.kDLInt,
    "u": DLDataTypeCode.kDLUInt,
    "f": DLDataTypeCode.kDLFloat,
    "c": DLDataTypeCode.kDLComplex,
    "b": DLDataTypeCode.kDLBool,
}
#: NumPy dtype of real numbers -> DLPack's device type and id, type code, bits and lanes.
_NUMPY_TYPES = {
    dtype: (DLDeviceType.kDLCPU.value, 0, CODES[dtype.kind].value, 8 * dtype.itemsize, 1)
    for dtype in map(np.dtype, "?bBhHiIlLqQefd")
}
#: Function that returns the struct in a capsule of `__array_struct__` as an array of 64-bit words.
#: The struct is PyArrayInterface (see "The array interface protocol" in NumPy's manual). The
#: struct's fields are: int two, nd; char typekind; int itemsize, flags; 4 bytes of padding; then
#: the pointers shape, strides and data. The pointer `data` is word 5, counted from 0.
_words_of = ctypes.PYFUNCTYPE(ctypes.POINTER(ctypes.c_size_t), ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_DATA = 5


def read_numpy(array: Any) -> Export | None:
    """Read a ``numpy.ndarray`` of real numbers by its attributes, which is faster than a capsule.

    Return None for an instance of a subclass, for a dtype that is not in `_NUMPY_TYPES`, and for
    strides that are not multiples of the element size. The caller reads such arrays through
    `__dlpack__`.

    >>> read_numpy(np.zeros((4, 8), np.float16)[:, :4]).layout[2:]
    (2, 16, 1, 0, (4, 4), (8, 1))
    """
    known = _NUMPY_TYPES.get(array.dtype) if type(array) is np.ndarray else None
    if known is None:
        return None
    capsule = array.__array_struct__  # owns the struct; the capsule's name is NULL
    address = _words_of(capsule, None)[_DATA]  # twice as fast as `array.ctypes.data`
    flags, strides = array.flags, None
    if not flags.c_contiguous:
        if any(stride % array.itemsize for stride in array.strides):
            return None
        strides = tuple(stride // array.itemsize for stride in array.strides)
    read_only = 0 if flags.writeable else READ_ONLY
    return Export(address, Layout(*known, read_only, array.shape, strides))


def _numpy_storage(array: np.ndarray[Any, Any]) -> Storage:
    """Return the memory of the last array of the chain `array`, `array.base`, `array.base.base`...

    The chain ends before a `base` that is not an array. Such a `base` is for example None, a
    buffer, or the helper object of `as_strided`.
    """
    while isinstance(array.base, np.ndarray):
        array = array.base
    first = array.__array_interface__["data"][0]
    if 0 in array.shape:
        return Storage(first, 0, True)
    if array.flags.c_contiguous:
        return Storage(first, array.nbytes, bool(array.flags.owndata))
    reaches = [(n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)]
    begin = first + sum(min(reach, 0) for reach in reaches)
    size_bytes = sum(map(abs, reaches)) + array.itemsize
    return Storage(begin, size_bytes, bool(array.flags.owndata))


#: Prefixes of names of ml_dtypes' types -> the fix for these types.
_ML_DTYPES = {
    ("bfloat16",): 'pass x.view(numpy.uint16) and data_type="BFLOAT16"',
    ("float8",): "pass x.view(numpy.uint8): a map takes float8 values as bytes",
    ("float6",): "pack four 6-bit values in three bytes (ml_dtypes keeps each in its own) and pass "
    'them as numpy.uint8 with data_type="16U6_ALIGN16B", on sm_100 or later',
    ("int4", "uint4", "float4"): "pack two 4-bit values in a byte (ml_dtypes keeps each in its "
    'own) and pass them as numpy.uint8 with data_type="16U4_ALIGN8B", on sm_100 or later',
}


def numpy_fix(dtype: np.dtype[Any]) -> str | None:
    """Return the fix for a dtype that NumPy does not export; None if NumPy exports the dtype."""
    if dtype.type.__module__ == "ml_dtypes":
        otherwise = f"pass x.view(numpy.uint{8 * dtype.itemsize}): a map copies bits of any meaning"
        fixes = (fix for names, fix in _ML_DTYPES.items() if dtype.name.startswith(names))
        return next(fixes, otherwise)
    if dtype.names is not None:
        return "pass one field, x['name'], or the bytes, x.view(numpy.uint8)"
    if not dtype.isnative:
        return "convert it: x.astype(x.dtype.newbyteorder('='))"
    if dtype.kind not in "biufc" or dtype.char in "gG":  # g, G: long double
        return "convert it to a number type of 8 to 64 bits, or pass a view of its bytes"
    return None


# --- Other frameworks ---------------------------------------------------------------------------


def _cupy_storage(array: Any) -> Storage:
    return Storage(int(array.data.mem.ptr), int(array.data.mem.size), True)


def _cupy_stream(device_id: int) -> int:
    return int(sys.modules["cupy"].cuda.get_current_stream().ptr)


def _jax_fix(tensor: Any) -> str | None:
    if is_a(type(tensor), "jax.core.Tracer"):
        return (
            "make the map outside of the function that jax.jit, jax.vmap or jax.grad traces, of "
            "the array that it is given"
        )
    name = str(getattr(tensor, "dtype", None))
    if name in ("uint4", "uint2"):
        return "pass x.astype(jax.numpy.uint8), one value per byte"
    if name in ("int4", "int2"):
        return 'pass x.astype(jax.numpy.int8), one value per byte, and data_type="UINT8"'
    return None


#: Types of TensorFlow that are not eager tensors -> the fix.
_TENSORFLOW = {
    "SymbolicTensor": "make the map outside of the tf.function, of the tensor that it is given",
    "ResourceVariable": "pass x.value(), a tensor over the same memory",
    "RaggedTensor": "pass x.to_tensor(), or x.flat_values",
    "SparseTensor": "pass tensorflow.sparse.to_dense(x)",
}


# --- The rows -----------------------------------------------------------------------------------


#: Package -> code snippets for fixes. The row of mlx copies a tensor with NumPy, because mlx aligns
#: host memory to only 8 bytes.
_WORDS = {
    package: Words(copy, contiguous, permute, view_as, pad, widen)
    for package, copy, contiguous, permute, view_as, pad, widen in rows("""
torch | x.clone() | x.contiguous() | x.permute({order}) | x.view(torch.{dtype})
    | y = x.new_empty({padded_shape})[..., :{extent}]; y.copy_(x)
    | y = x.new_zeros({padded_shape}); y[..., :{extent}] = x
numpy | x.copy() | numpy.ascontiguousarray(x) | x.transpose({order}) | x.view(numpy.{dtype})
    | y = numpy.empty({padded_shape}, x.dtype)[..., :{extent}]; y[...] = x
    | y = numpy.zeros({padded_shape}, x.dtype); y[..., :{extent}] = x
cupy | x.copy() | cupy.ascontiguousarray(x) | x.transpose({order}) | x.view(cupy.{dtype})
    | y = cupy.empty({padded_shape}, x.dtype)[..., :{extent}]; y[...] = x
    | y = cupy.zeros({padded_shape}, x.dtype); y[..., :{extent}] = x
jax | jax.numpy.array(x) | jax.numpy.array(x) | x.transpose({order}) | x.view(jax.numpy.{dtype})
    | y = jax.numpy.pad(x, {widths}) | y = jax.numpy.pad(x, {widths})
mlx | numpy.array(x) | mlx.core.contiguous(x) | x.transpose({order}) | x.view(mlx.core.{dtype})
    | y = mlx.core.pad(x, {widths}) | copy it to rows of {padded} elements
""")
}
TORCH = Framework(
    name="torch",
    packages=("torch",),
    distributions=("torch",),
    dlpack="1.3 (2.10 and later)",
    words=_WORDS["torch"],
    native=Native(
        tensor="torch.Tensor",
        storage=torch_tensor.torch_storage,
        read=torch_tensor.read_torch,
        current_stream=torch_tensor.torch_stream,
        wait=torch_tensor.wait_for_torch,
    ),
    launcher=torch_tensor.as_torch,
)
FRAMEWORKS = (
    TORCH,
    Framework(
        name="NumPy",
        packages=("numpy",),
        words=_WORDS["numpy"]._replace(
            aligned_copy="y = numpy.empty(x.nbytes + 32, numpy.uint8); y = y[-y.ctypes.data % 32:]"
            "[:x.nbytes]; y = y.view(x.dtype).reshape(x.shape); y[...] = x"
        ),
        native=Native("numpy.ndarray", _numpy_storage, read_numpy),
    ),
    Framework(
        name="JAX",
        packages=("jaxlib", "jax"),
        distributions=("jax",),
        dlpack="legacy",
        words=_WORDS["jax"]._replace(widest_bits=32),
        stream=1,  # the legacy default stream, because JAX would use -1 as a stream handle
        immutable=True,
        in_c=True,
        fix=_jax_fix,
    ),
    Framework(
        name="CuPy",
        packages=("cupy",),
        distributions=("cupy-cuda13x", "cupy-cuda12x"),
        dlpack="1.0",
        words=_WORDS["cupy"],
        native=Native("cupy.ndarray", _cupy_storage, current_stream=_cupy_stream),
        in_c=True,
        only_cuda=True,
    ),
    Framework(
        name="tvm-ffi",
        packages=("tvm_ffi",),
        distributions=("apache-tvm-ffi",),
        dlpack="1.3",
        in_c=True,
    ),
    Framework(
        name="mlx",
        packages=("mlx",),
        words=_WORDS["mlx"],
        in_c=True,
    ),
    Framework(name="Paddle", packages=("paddle",)),
    Framework(
        name="TensorFlow",
        packages=("tensorflow",),
        trusted=False,
        immutable=True,
        variables=("ResourceVariable",),
        no_numbers=("string", "resource", "variant"),
        fix=lambda tensor: _TENSORFLOW.get(type(tensor).__name__),
    ),
    Framework(name="PyArrow", packages=("pyarrow",), trusted=False, immutable=True),
    # The command line describes tensors by options. These tensors have no memory.
    Framework(name="described", packages=("described",), words=TORCH.words, trusted=False),
)
#: The row of every type that no framework of `FRAMEWORKS` defines.
OTHER = Framework(name="other", packages=(), trusted=False)

_BY_PACKAGE = {package: row for row in FRAMEWORKS for package in row.packages}
_NATIVE = tuple(row.native for row in FRAMEWORKS if row.native)


def framework_of(kind: type) -> Framework:
    """Return the row of the framework whose package defines a type."""
    return _BY_PACKAGE.get(package_of(kind), OTHER)


@lru_cache(maxsize=256)
def native_of(kind: type) -> Native | None:
    """Return the `Native` of a tensor type; None if the type's framework has no `Native`.

    >>> native_of(np.ndarray).tensor, native_of(list)
    ('numpy.ndarray', None)
    """
    return next((native for native in _NATIVE if is_a(kind, native.tensor)), None)


def words_of(view: TensorView) -> Words:
    """Return the code snippets of the framework that produced a tensor."""
    return _BY_PACKAGE.get(view.producer.partition(".")[0], OTHER).words


@lru_cache(maxsize=256)
def is_trusted(kind: type) -> bool:
    """Return whether a trusted framework defines a type or the type's `__dlpack__`.

    If the type of a tensor is trusted, a map of the tensor keeps the tensor alive, but not the
    tensor's capsule. If the map kept the capsule, a tensor that has its own map as an attribute
    would be in a reference cycle with the capsule. Python would never free this cycle, because the
    garbage collector does not follow the references of capsules.
    """
    maker = next((base for base in kind.__mro__ if "__dlpack__" in vars(base)), kind)
    return framework_of(kind).trusted or framework_of(maker).trusted


def storage_of(view: TensorView) -> Storage:
    """Return a tensor's storage, or the memory that the tensor spans if no storage is known.

    If the tensor is of a subclass of torch.Tensor, the subclass's methods may raise any exception.

    >>> from tma_dlpack.dlpack import as_tensor_view
    >>> x = np.zeros((4, 8), np.float32)
    >>> storage_of(as_tensor_view(x[1:, :5])).size_bytes  # not 84
    128
    """
    kind: Any = type(view.owner)
    native = native_of(kind)
    if native is not None:
        return native.storage(view.owner)
    return Storage(view.address, view.extent_bytes, is_trusted(kind))
