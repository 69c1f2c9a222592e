"""Maps that no driver makes end the kernel with an error, as the refusals state.

Each map runs in a separate process, and has a neighbour, one step away, that works.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

ILLEGAL, MISALIGNED = "CUDA_ERROR_ILLEGAL_INSTRUCTION", "CUDA_ERROR_MISALIGNED_ADDRESS"

#: Copies a tile through a map of given fields, past the checks of this package.
PROGRAM = """
import sys
import numpy as np
import tma_dlpack as tma
from tma_dlpack import geometry
from tma_dlpack.copies import cuda, request
from tma_dlpack.copies.launch import DeviceBytes
from tma_dlpack.tables import bits
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.enums import *

request.plan_of = lambda tensor_map: geometry.plan(tensor_map.arguments)
data_type, dims, strides, box, interleave, swizzle, fill, start, verb = eval(sys.argv[1])
args = EncodeArguments(
    "tiled", TensorMapDataType[data_type], dims, strides, (1,) * len(dims), box,
    interleave=TmaInterleaveLayout(interleave), swizzle=TmaSwizzle(swizzle),
    oob_fill=TmaOobFill(fill),
)
with DeviceBytes(16384) as room:
    room.put(np.zeros(16384, np.uint8))
    tensor_map = tma.TensorMap.from_bytes(bits.encode(args, room.address + start))
    origin = (0,) * len(dims)
    if verb == "load":
        cuda.CudaBackend().load_tile(tensor_map, origin, memory=room)
    else:
        data = bytes(tensor_map.smem_bytes)
        cuda.CudaBackend().store_tile(tensor_map, origin, data, memory=room)
print("copied")
"""

MATRIX, UNITS = ((64, 16), (256,)), ((5, 3, 2), (160, 480))
CASES = {
    "16 bytes": ("FLOAT32", *MATRIX, (4, 4), 0, 0, 0, 0, "load"),
    "12 bytes": ("FLOAT32", *MATRIX, (3, 4), 0, 0, 0, 0, "load", ILLEGAL),
    "12 bytes stored": ("FLOAT32", *MATRIX, (3, 4), 0, 0, 0, 0, "store", ILLEGAL),
    "32 bytes in 32": ("FLOAT32", *MATRIX, (8, 4), 0, 1, 0, 0, "load"),
    "48 bytes in 32": ("FLOAT32", *MATRIX, (12, 4), 0, 1, 0, 0, "load", ILLEGAL),
    "NaN in float32": ("FLOAT32", *MATRIX, (16, 4), 0, 0, 1, 0, "load"),
    "NaN in int32": ("INT32", *MATRIX, (16, 4), 0, 0, 1, 0, "load", ILLEGAL),
    "units of 32 bytes": ("UINT8", *UNITS, (32, 1, 2), 2, 1, 0, 0, "load"),
    "units, any box": ("UINT8", *UNITS, (3, 1, 2), 2, 1, 0, 0, "load"),
    "units, stride": ("UINT8", (5, 3, 2), (176, 480), (32, 1, 2), 2, 1, 0, 0, "load", ILLEGAL),
    "units, address": ("UINT8", *UNITS, (32, 1, 2), 2, 1, 0, 16, "load", MISALIGNED),
}


@pytest.mark.parametrize("name", CASES)
def test_a_map_is_copied_through_or_fatal_as_the_refusals_say(name):
    fields = CASES[name]
    fatal = fields[9] if len(fields) > 9 else None
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, repr(fields[:9])],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if fatal is None:
        assert (done.stdout, done.returncode) == ("copied\n", 0), done.stderr
    else:
        assert fatal in done.stderr
        assert done.stdout == ""
