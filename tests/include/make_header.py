"""The functions of tma_dlpack_make.h, compiled from the header and called through ctypes."""

import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

import tma_dlpack
from tma_dlpack.checks.struct import STRUCT

INCLUDE = Path(tma_dlpack.__file__).parent / "include"
HEADER = INCLUDE / "tma_dlpack_make.h"
TILED, IM2COL, IM2COL_WIDE = range(3)

_Five = ctypes.c_int64 * 5


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
OWN_TYPE = NOT_GIVEN = -1


def _members(struct):
    """Return the members of a struct of the generated tables in ctypes' form."""
    text = (INCLUDE / "tma_dlpack_tables.h").read_text()
    (body,) = re.findall(rf"typedef struct {{([^}}]*)}} {struct};", text)
    kinds = {"int": ctypes.c_int, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64}
    for kind, names in re.findall(r"(\w+) ([^;]+);", re.sub(r"/\*.*?\*/", "", body)):
        for name, of_five in re.findall(r"(\w+)(\[TMA_DLPACK_MAX_RANK\])?(?:, |$)", names):
            yield name, kinds[kind] * 5 if of_five else kinds[kind]


Options = _struct("Options", *_members("TmaDlpackOptions"))
Target = _struct("Target", ("major", _INTS), ("minor", _INTS), ("max_smem_bytes", ctypes.c_int64))
#: TmaDlpackDescribed, made from the table from which the header is generated.
Described = _struct(
    "Described",
    *((name, ctypes.c_int64 * count if count else ctypes.c_int64) for name, count, *_ in STRUCT),
)


@functools.lru_cache(maxsize=1)
def library():
    """Compile the header, with every warning an error; skip without a C compiler."""
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
    """Return a C array of five entries, zeros at its end."""
    return _Five(*values)


def c_target(target):
    """Return a Target as C's."""
    return Target(*target.compute_capability, target.max_smem_bytes)


def c_tensor(view):
    """Return a tensor view as a DLTensor, and the arrays to which the DLTensor points."""
    rank = len(view.shape)
    shape, strides = (ctypes.c_int64 * rank)(*view.shape), (ctypes.c_int64 * rank)(*view.strides)
    tensor = Tensor(
        view.address, *view.device, rank, *view.dtype,
        ctypes.cast(shape, ctypes.c_void_p), ctypes.cast(strides, ctypes.c_void_p), 0,
    )  # fmt: skip
    return tensor, (shape, strides)


def described(view, options, target):
    """Return C's struct of a tensor view and options, and the parts that the struct lacks."""
    tensor, kept = c_tensor(view)
    c = Described()
    of = library().describe
    of.restype = ctypes.c_char_p
    flaw = of(*map(ctypes.byref, (tensor, options, c_target(target), c)))
    del kept
    return c, flaw


def asked(options, target):
    """Return the mask of the rules that C checks."""
    of = library().asked
    of.restype = ctypes.c_uint64
    return of(ctypes.byref(options), ctypes.byref(c_target(target)))


def judged(c, rows):
    """Return the mask of the rules that C finds broken."""
    of = library().judge
    of.restype = ctypes.c_uint64
    return of(ctypes.byref(c), ctypes.c_uint64(rows))


def encoded(c):
    """Return the 128 bytes that C makes from an accepted struct."""
    out = ctypes.create_string_buffer(128)
    library().encode(ctypes.byref(c), out)
    return out.raw
