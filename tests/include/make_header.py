"""tma_dlpack_make.h, compiled as it is and called through ctypes."""

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

import tma_dlpack

INCLUDE = Path(tma_dlpack.__file__).parent / "include"
HEADER = INCLUDE / "tma_dlpack_make.h"
TILED, IM2COL, IM2COL_WIDE = range(3)
DEFAULT, DRIVER, BARE = range(3)
SM_90_SMEM_BYTES = 232_448

_Five, _Four = ctypes.c_int64 * 5, ctypes.c_int64 * 4


def _struct(name, *fields):
    return type(name, (ctypes.Structure,), {"_fields_": list(fields)})


Tensor = _struct(
    "Tensor",
    ("data", ctypes.c_uint64),
    ("device_type", ctypes.c_int32),
    ("device_id", ctypes.c_int32),
    ("ndim", ctypes.c_int32),
    ("code", ctypes.c_uint8),
    ("bits", ctypes.c_uint8),
    ("lanes", ctypes.c_uint16),
    ("shape", ctypes.c_void_p),
    ("strides", ctypes.c_void_p),
    ("byte_offset", ctypes.c_uint64),
)
_INTS = ctypes.c_int
Options = _struct(
    "Options",
    *((name, _INTS) for name in ("kind", "rules", "asked_type", "interleave", "swizzle")),
    *((name, _INTS) for name in ("l2_promotion", "oob_fill", "box_count", "elem_stride_count")),
    *((name, _INTS) for name in ("lower_count", "upper_count")),
    *((name, _Five) for name in ("box_sizes", "elem_strides", "lower", "upper")),
    ("channels", ctypes.c_int64),
    ("pixels", ctypes.c_int64),
    ("mode", _INTS),
)
Arguments = _struct(
    "Arguments",
    *((name, _INTS) for name in ("kind", "data_type", "rank", "interleave", "swizzle")),
    *((name, _INTS) for name in ("l2_promotion", "oob_fill", "mode")),
    ("address", ctypes.c_uint64),
    ("dims", _Five),
    ("strides_bytes", _Four),
    *((name, _Five) for name in ("box", "elem_strides", "lower", "upper")),
    ("channels", ctypes.c_int64),
    ("pixels", ctypes.c_int64),
    ("flaw", ctypes.c_char_p),
)


@functools.lru_cache(maxsize=1)
def library():
    """Compile the header, with every warning an error; skip where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler")
    out = Path(tempfile.mkdtemp()) / "make_header.so"
    warnings = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
    source = Path(__file__).with_name("make_header.c")
    subprocess.run(
        [compiler, "-std=c11", *warnings, "-O1", "-fPIC", "-shared", f"-I{INCLUDE}", source,
         "-o", out],
        check=True,
    )  # fmt: skip
    return ctypes.CDLL(str(out))


def five(values):
    """Give a C array of five entries, zeros at its end."""
    return _Five(*values)


def judged(arguments, rules, max_smem_bytes=SM_90_SMEM_BYTES):
    """Say whether the header accepts the driver's arguments."""
    lib = library()
    return bool(lib.judge(ctypes.byref(arguments), rules, ctypes.c_int64(max_smem_bytes)))


def encoded(arguments):
    """Give the 128 bytes that the header makes of accepted arguments."""
    out = ctypes.create_string_buffer(128)
    library().encode(ctypes.byref(arguments), out)
    return out.raw


def described(view, options):
    """Give the driver's arguments of a tensor view and options."""
    rank = len(view.shape)
    shape = (ctypes.c_int64 * rank)(*view.shape)
    strides = (ctypes.c_int64 * rank)(*view.strides)
    tensor = Tensor(
        view.address, *view.device, rank, *view.dtype,
        ctypes.cast(shape, ctypes.c_void_p), ctypes.cast(strides, ctypes.c_void_p), 0,
    )  # fmt: skip
    arguments = Arguments()
    library().describe(ctypes.byref(tensor), ctypes.byref(options), ctypes.byref(arguments))
    return arguments
