"""hopper_gemm.cu and hopper_conv.cu: exact products of integers, for every shape and variant."""

from __future__ import annotations

import dataclasses
import random
import shutil
from pathlib import Path

import pytest
from bench import conv, gemm, hopper

import tma_dlpack as tma

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
FAST = hopper.CHOICES[0]

#: m, n, k: one tile, less than one tile, partial tiles, a block of a cluster without work, many
#: tiles.
SHAPES = [
    (128, 256, 64),
    (8, 8, 8),
    (8, 4096, 64),
    (4096, 8, 24),
    (136, 264, 72),
    (384, 512, 8),
    (1000, 1000, 1000),
    (2056, 2040, 520),
    (776, 1544, 4096),
    (4224, 8448, 128),
    (37, 256, 192),
]
RANDOM = random.Random(14)
SHAPES += [tuple(8 * RANDOM.randint(1, 150) for _ in range(3)) for _ in range(12)]


@pytest.fixture
def wgmma(torch):
    """Return torch, or skip the test if the GPU has no wgmma."""
    capability = torch.cuda.get_device_capability()
    if capability != (9, 0):
        pytest.skip(f"wgmma needs compute capability 9.0; the GPU has {capability}")
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield torch
    torch.backends.cuda.matmul.allow_tf32 = allowed


@pytest.fixture
def library(wgmma):
    return hopper.compile_file(NOTEBOOKS / "hopper_gemm.cu")


def integers(torch, *shape, most=3):
    """Integers whose products and sums are exact in float32."""
    return torch.randint(-most, most + 1, shape, device="cuda").to(torch.bfloat16)


def exact(torch, a, b):
    return (a.float() @ b.float().T).to(torch.bfloat16)


def room_for(torch, rows, columns, around=16):
    """Return a matrix inside a larger one of NaNs, and the larger one."""
    room = torch.full(
        (rows + around, columns + 2 * around), float("nan"), dtype=torch.bfloat16, device="cuda"
    )
    return room[:rows, around : around + columns], room


def assert_written_inside_only(matrix, room):
    assert not matrix.isnan().any()
    assert int(room.isnan().sum()) == room.numel() - matrix.numel()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("choice", hopper.CHOICES, ids=lambda choice: choice.kernel)
def test_the_product_is_exact_and_nothing_else_is_written(choice, shape, wgmma, library):
    m, n, k = shape
    a, b = integers(wgmma, m, k), integers(wgmma, n, k)
    c, room = room_for(wgmma, m, n)
    hopper.gemm_launcher(library, choice, a, b, c)()
    assert wgmma.equal(c, exact(wgmma, a, b))
    assert_written_inside_only(c, room)


def test_rows_may_be_further_apart_than_they_are_long(wgmma, library):
    a, b = integers(wgmma, 300, 512)[:, 64:464], integers(wgmma, 520, 448)[:, :400]
    c, room = room_for(wgmma, 300, 520)
    hopper.gemm_launcher(library, FAST, a, b, c)()
    assert wgmma.equal(c, exact(wgmma, a, b))
    assert_written_inside_only(c, room)


def test_a_large_product_is_exact(wgmma, library):
    a, b = integers(wgmma, 8192, 8192), integers(wgmma, 8192, 8192)
    c = wgmma.full_like(a, float("nan"))
    hopper.gemm_launcher(library, FAST, a, b, c)()
    assert wgmma.equal(c, exact(wgmma, a, b))


def test_random_numbers_come_as_near_to_float64_as_torchs_product(wgmma, library):
    a, b = (wgmma.randn(1024, 4096, device="cuda").to(wgmma.bfloat16) for _ in range(2))
    c = wgmma.empty(1024, 1024, dtype=wgmma.bfloat16, device="cuda")
    hopper.gemm_launcher(library, FAST, a, b, c)()
    expected = a.double() @ b.double().T

    def distance(product):
        return float((product.double() - expected).norm() / expected.norm())

    assert distance(c) <= 1.01 * distance(a @ b.T)


def test_the_same_launch_again_after_the_inputs_changed_is_the_new_product(wgmma, library):
    a, b = integers(wgmma, 640, 192), integers(wgmma, 768, 192)
    c = wgmma.empty(640, 768, dtype=wgmma.bfloat16, device="cuda")
    launch = hopper.gemm_launcher(library, FAST, a, b, c)
    for _ in range(20):
        a.copy_(integers(wgmma, 640, 192))
        launch()
        assert wgmma.equal(c, exact(wgmma, a, b))


@pytest.mark.parametrize(("n", "k"), [(512, 12), (12, 512)], ids=["k", "n"])
def test_sizes_that_are_no_multiple_of_8_are_refused_by_the_row_stride(n, k, wgmma, library):
    a, b = integers(wgmma, 256, k), integers(wgmma, n, k)
    c = wgmma.empty(256, n, dtype=wgmma.bfloat16, device="cuda")
    with pytest.raises(tma.TmaPreconditionError, match=r"strides\[0\] is 12 elements, 24 bytes"):
        hopper.gemm_launcher(library, FAST, a, b, c)


def test_maps_with_another_swizzle_than_the_kernels_give_a_wrong_product(wgmma, library):
    a, b = integers(wgmma, 256, 256), integers(wgmma, 256, 256)
    c = wgmma.empty(256, 256, dtype=wgmma.bfloat16, device="cuda")
    unswizzled = dataclasses.replace(FAST, swizzle="none")
    hopper.gemm_launcher(library, unswizzled, a, b, c)()
    assert not wgmma.equal(c, exact(wgmma, a, b))


@pytest.fixture(scope="module")
def extension(tmp_path_factory):
    """Build the PyTorch extension once for these tests."""
    if shutil.which("nvcc") is None or shutil.which("ninja") is None:
        pytest.skip("nvcc and ninja are needed to build an extension")
    cpp_extension = pytest.importorskip("torch.utils.cpp_extension")
    return cpp_extension.load(
        "hopper_gemm",
        [str(NOTEBOOKS / name) for name in ("hopper_gemm.cu", "hopper_gemm_torch.cpp")],
        extra_include_paths=[tma.get_include()],
        extra_cuda_cflags=["-gencode=arch=compute_90a,code=sm_90a"],
        build_directory=str(tmp_path_factory.mktemp("extension")),
    )


@pytest.mark.slow  # builds an extension
@pytest.mark.parametrize("shape", SHAPES[::4], ids=lambda shape: "x".join(map(str, shape)))
def test_the_pytorch_extension_multiplies_with_maps_made_in_python(shape, wgmma, extension):
    m, n, k = shape
    a, b = integers(wgmma, m, k), integers(wgmma, n, k)
    c, room = room_for(wgmma, m, n)
    a_map, b_map, c_map = (t.as_torch() for t in hopper.gemm_maps(FAST, a, b, c))
    extension.gemm_out(c, a_map, b_map, c_map, k)
    assert wgmma.equal(c, exact(wgmma, a, b))
    assert_written_inside_only(c, room)


@pytest.mark.slow  # builds an extension
@pytest.mark.parametrize("shape", SHAPES[::4], ids=lambda shape: "x".join(map(str, shape)))
def test_the_pytorch_extension_multiplies_with_maps_made_in_cpp(shape, wgmma, extension):
    m, n, k = shape
    a, b = integers(wgmma, m, k), integers(wgmma, n, k)
    assert wgmma.equal(extension.gemm(a, b), exact(wgmma, a, b))
    columns = integers(wgmma, m, k + 16)[:, 8 : 8 + k]  # a row stride larger than the row
    assert wgmma.equal(extension.gemm(columns, b), exact(wgmma, columns, b))


@pytest.mark.slow
@pytest.mark.parametrize(("n", "k"), [(512, 12), (12, 512)], ids=["k", "n"])
def test_the_extension_refuses_sizes_that_are_no_multiple_of_8_with_every_argument(
    n, k, wgmma, extension
):
    a, b = integers(wgmma, 256, k), integers(wgmma, n, k)
    with pytest.raises(ValueError, match=r"cuTensorMapEncodeTiled\(.*globalStrides=\{24\}"):
        extension.gemm(a, b)


@pytest.mark.slow
def test_the_extension_refuses_matrices_that_do_not_fit_together(wgmma, extension):
    a, b = integers(wgmma, 64, 128), integers(wgmma, 64, 136)
    with pytest.raises(ValueError, match="a has 128 columns and b has 136"):
        extension.gemm(a, b)
    with pytest.raises(ValueError, match="must be bfloat16, not BFloat16 and Float"):
        extension.gemm(a, a.float())
    with pytest.raises(ValueError, match="a is on cuda:0 and b on cpu"):
        extension.gemm(a, a.cpu())
    with pytest.raises(ValueError, match="the tensor is not on a GPU"):
        extension.gemm(a.cpu(), a.cpu())


# --- The convolution ------------------------------------------------------------------------------


@pytest.fixture
def conv_library(wgmma):
    return hopper.compile_file(NOTEBOOKS / "hopper_conv.cu")


@pytest.mark.parametrize(
    "size",
    [
        (1, 16, 16, 64, 64),
        (2, 7, 9, 8, 16),
        (1, 1, 1, 64, 256),
        (3, 5, 1, 72, 24),
        (1, 3, 200, 136, 264),
        (5, 33, 31, 128, 320),
        (4, 56, 56, 64, 128),
    ],
    ids=lambda size: "N{} H{} W{} C{} K{}".format(*size),
)
def test_the_convolution_is_torchs_exactly(size, wgmma, conv_library):
    images, height, width, channels, kernels = size
    x = integers(wgmma, images, height, width, channels, most=2)
    weights = integers(wgmma, kernels, 3, 3, channels, most=2)
    out = wgmma.full((images, height, width, kernels), float("nan"), dtype=x.dtype, device="cuda")
    hopper.conv_launcher(conv_library, x, weights, out)()
    expected = wgmma.nn.functional.conv2d(
        x.permute(0, 3, 1, 2).double(), weights.permute(0, 3, 1, 2).double(), padding=1
    )
    assert wgmma.equal(out, expected.permute(0, 2, 3, 1).to(wgmma.bfloat16))


# --- The benches ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_bench_gemm_prints_each_kernel_at_each_size(wgmma, capsys):
    assert gemm.main(["--size", "512", "1024", "--rounds", "1"]) == 0
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == ["512"] * 3 + ["1024"] * 3
    for row, choice in zip(rows, hopper.CHOICES * 2, strict=True):
        assert choice.label in row
        assert row.endswith("right")


@pytest.mark.slow
def test_bench_gemm_fails_where_a_product_is_wrong(wgmma, capsys, monkeypatch):
    wrong = dataclasses.replace(FAST, swizzle="none")
    monkeypatch.setattr(gemm, "CHOICES", (FAST, wrong))
    assert gemm.main(["--size", "512", "--rounds", "1"]) == 1
    _, _, first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("right")
    assert second.endswith("WRONG")


def test_bench_conv_prints_each_size(wgmma, capsys):
    assert conv.main(["--rounds", "1"]) == 0
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert len(rows) == len(conv.SIZES)
    assert all(row.endswith("right") for row in rows)
