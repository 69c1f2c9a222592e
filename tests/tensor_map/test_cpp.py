"""The C++ code of a map has the right calls, and nvcc compiles the code."""

import shutil
import subprocess

import numpy as np
import pytest
from strategies import tiled, view

import tma_dlpack as tma
from tma_dlpack.make.build import make_view

ZEROED = tma.TensorMap.from_bytes(bytes(128))
EVERY_FIELD = {
    "global_address": 0x7F00_0000_0000,
    "rank": 5,
    "box_dim": dict.fromkeys(range(5), 8),
    "global_dim": dict.fromkeys(range(5), 64),
    "global_stride": {i: 1024 << i for i in range(4)},
    "element_stride": dict.fromkeys(range(5), 1),
    "elemtype": "BFLOAT16",
    "interleave_layout": "none",
    "swizzle_mode": "bytes128",
    "fill_mode": "nan",
}

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")


def compile_cuda(folder, code, *options):
    source = folder / "map.cu"
    source.write_text(code)
    done = subprocess.run(
        [
            "nvcc", "-std=c++17", "-gencode=arch=compute_90a,code=sm_90a", "-c",
            str(source), "-o", str(folder / "map.o"), *options,
        ],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


def images_map(**options):
    images = np.zeros((2, 9, 9, 64), np.float16)
    return tma.make_im2col_descriptor(images, (-1, -2), (-1, 0), 64, 128, **options)


def wide_map():
    images = np.zeros((2, 9, 9, 64), np.float16)
    return tma.make_im2col_wide_descriptor(images, -1, -1, 64, 128, target="sm_100")


def tiled_map(elem_strides=(2, 1), **options):
    x = np.zeros((64, 96), np.float32)
    return tma.make_tma_descriptor(x, (16, 32), elem_strides, **options)


def operand_map(box=(64, 64), swizzle="bytes128", dtype=np.float16, elem_strides=None):
    x = np.zeros((256, 512), dtype)
    return tma.make_tma_descriptor(x, box, elem_strides, swizzle=swizzle)


def slowly(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@needs_nvcc
@pytest.mark.parametrize(
    ("box", "swizzle", "value"),
    [
        ((64, 64), "bytes128", 1 << 62 | 64 << 32 | 1 << 16),
        slowly((64, 32), "bytes64", 2 << 62 | 32 << 32 | 1 << 16),
        slowly((8, 16), "bytes32", 3 << 62 | 16 << 32 | 1 << 16),
        slowly((128, 8), "none", 8 << 32 | 128 << 16),
    ],
)
def test_the_descriptor_that_the_code_has_for_wgmma_is_the_measured_one(
    box, swizzle, value, tmp_path
):
    code = operand_map(box, swizzle).cpp()
    _, _, block = code.partition("#ifdef TMA_DLPACK_H")
    block, _, _ = block.partition("#endif")
    checked = f"{block}static_assert(tile_descriptor == {value}ull);"
    status, said = compile_cuda(
        tmp_path, f"#include <tma_dlpack.h>\n{checked}", f"-I{tma.get_include()}"
    )
    assert status == 0, said


@pytest.mark.parametrize(
    "tensor_map",
    [
        operand_map((64, 32)),
        operand_map((64, 64), "none"),
        operand_map((12, 64)),
        operand_map(elem_strides=(2, 1)),
        operand_map((64, 32), dtype=np.float32),
        images_map(swizzle="bytes128"),
    ],
    ids=["half a span", "no swizzle", "12 rows", "every other row", "float32", "im2col"],
)
def test_a_tile_that_wgmma_cannot_read_gets_no_descriptor(tensor_map):
    assert "tile_descriptor" not in tensor_map.cpp()


def test_a_plain_tiled_map_is_made_by_libcudacxx():
    code = tiled_map(swizzle="bytes128", oobfill="nan").cpp()
    assert "cuda::make_tma_descriptor(" in code
    assert "std::int64_t shape[] = {64, 96};" in code
    assert "std::int64_t strides[] = {96, 1};" in code
    assert "const int box_sizes[] = {16, 32};" in code
    assert "const int elem_strides[] = {2, 1};" in code
    assert "tensor.dtype.code = kDLFloat;" in code
    assert "cuda::tma_swizzle::bytes128" in code
    assert "cuda::tma_oob_fill::nan" in code


@pytest.mark.parametrize(
    ("tm", "call"),
    [
        (tiled_map(data_type="TFLOAT32"), "cuTensorMapEncodeTiled"),
        (tiled_map(rules="driver").replace(box_dim={1: 100}), "cuTensorMapEncodeTiled"),
        (tiled_map(rules="driver", elem_strides=(1, 2)), "cuTensorMapEncodeTiled"),
        (ZEROED, "cuTensorMapEncodeTiled"),
        (images_map(), "cuTensorMapEncodeIm2col"),
        (wide_map(), "cuTensorMapEncodeIm2colWide"),
    ],
    ids=["other data type", "changed", "innermost stride", "decoded", "im2col", "im2col-wide"],
)
def test_what_libcudacxx_cannot_express_is_made_by_the_driver(tm, call):
    code = tm.cpp()
    assert f'cudaGetDriverEntryPointByVersion("{call}"' in code
    assert "make_tma_descriptor(" not in code


def test_the_driver_variant_gives_arrays_innermost_first():
    code = tiled_map(data_type="TFLOAT32").cpp()
    assert "global_dim[] = {96, 64};" in code
    assert "global_strides[] = {384};" in code
    assert "box_dim[] = {32, 16};" in code
    assert "element_strides[] = {1, 2};" in code
    assert "CU_TENSOR_MAP_DATA_TYPE_TFLOAT32" in code
    corners = images_map().cpp()
    assert "lower_corner[] = {-2, -1};" in corners
    assert "upper_corner[] = {0, -1};" in corners


def test_replace_cuda_changes_just_the_named_fields_in_ptx():
    code = tiled_map().replace_cuda(rank=2, global_stride={0: 512}, swizzle_mode=3)
    changes = [line.strip() for line in code.splitlines() if "tensormap.replace.tile" in line]
    assert changes == [
        'asm volatile("tensormap.replace.tile.rank.shared::cta.b1024.b32 [%0], %1;"'
        ' :: "r"(at), "r"(rank) : "memory");',
        'asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], 0, %1;"'
        ' :: "r"(at), "l"(global_stride_0) : "memory");',
        'asm volatile("tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%0], 3;"'
        ' :: "r"(at) : "memory");  // bytes128',
    ]
    assert "const std::uint32_t rank = 1u;" in code
    assert "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu" in code


def test_replace_cuda_writes_element_strides_by_the_right_instruction():
    code = tiled_map().replace_cuda(element_stride={1: 2}, elemtype="TFLOAT32")
    assert "tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 1, %1;" in code
    assert "tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%0], 11;" in code


def test_replace_cuda_refuses_what_replace_refuses():
    with pytest.raises(tma.TmaPreconditionError, match="rank is 6"):
        tiled_map().replace_cuda(rank=6)


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize(
    "code",
    [
        tiled_map(data_type="TFLOAT32").cpp(),
        images_map(swizzle="bytes128").cpp(),
        wide_map().cpp(),
        ZEROED.cpp(),
        ZEROED.replace_cuda(**EVERY_FIELD),
        ZEROED.replace_cuda(fill_mode=0),
    ],
    ids=["tiled", "im2col", "im2col-wide", "rank 1", "every field", "one field"],
)
def test_nvcc_compiles_the_code(code, tmp_path):
    assert compile_cuda(tmp_path, code, "-DTMA_DLPACK_MAIN", "-Werror", "all-warnings") == (0, "")


@needs_nvcc
def test_nvcc_compiles_the_libcudacxx_variant_where_its_headers_are(tmp_path):
    headers = "#include <cuda/tma>\n#include <dlpack/dlpack.h>\n"
    if compile_cuda(tmp_path, headers)[0]:
        pytest.skip("cuda/tma (CCCL 3.2) or dlpack/dlpack.h is not on nvcc's path")
    assert compile_cuda(tmp_path, tiled_map().cpp(), "-DTMA_DLPACK_MAIN") == (0, "")


@pytest.mark.parametrize("lanes", [1, 2, 16])
def test_4_bit_values_are_described_to_libcudacxx_in_16_lanes_and_in_values(lanes):
    x = view((64, 128 // lanes), (17, 4, lanes))
    options = tiled((16, 64), target="sm_100")
    code = make_view("tiled", x, options).cpp()
    assert "cuda::make_tma_descriptor(" in code
    assert "shape[] = {64, 128};" in code
    assert "strides[] = {128, 1};" in code
    assert "tensor.dtype.code = kDLFloat4_e2m1fn;" in code
    assert "tensor.dtype.bits = 4;" in code
    assert "tensor.dtype.lanes = 16;" in code


@pytest.mark.parametrize("code", [0, 1])
def test_packed_values_in_bytes_are_encoded_by_the_drivers_own_call(code):
    x = view((64, 128), (code, 8))
    options = tiled((16, 128), data_type="16U4_ALIGN16B", swizzle="bytes128", target="sm_100")
    tm = make_view("tiled", x, options)
    assert (tm.shape, tm.strides, tm.tx_bytes) == ((64, 256), (256, 1), 16 * 64)
    assert "CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B" in tm.cpp()
