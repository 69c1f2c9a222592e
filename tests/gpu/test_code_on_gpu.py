"""The C++ code of maps, compiled by nvcc and run, makes the 128 bytes of the map."""

import shutil
import subprocess

import numpy as np
import pytest
from laws import slow_if

import tma_dlpack as tma
from tma_dlpack import driver

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not driver.is_available(), reason=driver.status().reason or ""),
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed"),
]

ZEROED = tma.TensorMap.from_bytes(bytes(128))
TEMPLATE = tma.driver_encode_tiled(
    "FLOAT16", 3, 1 << 40, (64, 32, 8), (128, 4096), (64, 8, 1), (1, 1, 1), swizzle=3,
    l2_promotion=2, encoder="model",
)  # fmt: skip
EVERY_FIELD = {
    "global_address": 0x7F00_0000_0040,
    "rank": 5,
    "box_dim": {0: 32, 1: 2, 2: 3, 3: 4, 4: 1},
    "global_dim": {0: 100, 1: 200, 2: (1 << 32) - 1, 3: 7, 4: 1},
    "global_stride": {0: 256, 1: 65536, 2: (1 << 40) - 16, 3: 0},
    "element_stride": {0: 1, 1: 2, 2: 8, 3: 1, 4: 3},
    "swizzle_mode": "bytes64",
    "interleave_layout": "none",
    "fill_mode": "nan",
}

RUN = """
#include <cstdio>
int main() {{
  alignas(128) CUtensorMap map;
  const unsigned char bytes[128] = {{{bytes}}};
  for (int i = 0; i < 128; ++i) reinterpret_cast<unsigned char*>(&map)[i] = bytes[i];
  CUtensorMap* out;
  cudaMalloc(&out, sizeof map);
  replace_tensor_map<<<1, 32>>>(map, out);
  cudaMemcpy(&map, out, sizeof map, cudaMemcpyDeviceToHost);
  if (cudaGetLastError() != cudaSuccess) return 1;
  for (int i = 0; i < 128; ++i) std::printf("%02x", reinterpret_cast<unsigned char*>(&map)[i]);
}}
"""


def run_cuda(folder, code, *options):
    (folder / "map.cu").write_text(code)
    command = ["nvcc", "-std=c++17", "-gencode=arch=compute_90a,code=sm_90a"]
    program = str(folder / "map")
    subprocess.run([*command, str(folder / "map.cu"), "-o", program, *options], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return bytes.fromhex(printed)


@pytest.mark.parametrize(
    ("template", "change"),
    [
        (ZEROED, EVERY_FIELD | {"elemtype": "BFLOAT16"}),
        slow_if(True, TEMPLATE, EVERY_FIELD | {"elemtype": "TFLOAT32"}),
        slow_if(True, TEMPLATE, {"elemtype": "TFLOAT32_FTZ", "interleave_layout": "bytes16"}),
        slow_if(True, TEMPLATE, {"global_address": 1 << 41, "global_dim": {1: 31}}),
        slow_if(True, TEMPLATE, {"rank": 1}),
    ],
    ids=["from zero", "every field", "immediates", "address and one extent", "rank"],
)
def test_the_replace_kernel_gives_the_bytes_of_replace(template, change, tmp_path):
    code = template.replace_cuda(**change) + RUN.format(bytes=",".join(map(str, bytes(template))))
    assert run_cuda(tmp_path, code) == bytes(template.replace(**change))


def tiled_map():
    x = np.zeros((64, 96), np.float32)
    return tma.make_tma_descriptor(x, (16, 32), (2, 1), "none", "bytes128", data_type="TFLOAT32")


def im2col_map():
    images = np.zeros((2, 9, 9, 9, 64), np.float16)
    corners = (-1, -2, 0), (-1, 0, 1)
    return tma.make_im2col_descriptor(images, *corners, 64, 128, (1, 2, 1, 3, 1), swizzle=3)


def wide_map():
    return tma.driver_encode_im2col_wide(
        "FLOAT16", 4, 1 << 40, (64, 14, 14, 2), (128, 1792, 25088), -1, -1, 64, 64, (1, 1, 1, 1),
        encoder="model",
    )  # fmt: skip


@pytest.mark.parametrize(
    "map_of",
    [slow_if(map_of is not im2col_map, map_of) for map_of in (tiled_map, im2col_map, wide_map)],
)
def test_the_cpp_program_prints_the_bytes_of_the_map(map_of, tmp_path):
    tm = map_of()
    assert run_cuda(tmp_path, tm.cpp(), "-DTMA_DLPACK_MAIN") == bytes(tm)
