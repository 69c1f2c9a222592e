"""tma_dlpack.h on the GPU: the kernels of header_kernels.cu, compared with simulator and NumPy.

The plain loads, stores and reductions of every rank are the CUDA backend's: copies.cu is written
with the same header, so test_recorded_copies.py and `verify` hold them to the recorded answers.
"""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from pathlib import Path

import kernels
import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack.copies import launch
from tma_dlpack.include import get_include

SMEM_BYTES = 100_000
SHAPES = {1: (96,), 2: (12, 64), 3: (5, 12, 64), 4: (3, 5, 12, 64), 5: (2, 3, 5, 12, 64)}
BOXES = {1: (32,), 2: (8, 32), 3: (2, 8, 32), 4: (2, 2, 8, 32), 5: (2, 2, 2, 8, 32)}
COORDS = {1: (80,), 2: (-3, 48), 3: (4, 5, 8), 4: (1, 4, 5, 8), 5: (0, 2, 4, 5, 8)}
TAPS = {3: (1,), 4: (2, 1), 5: (1, 2, 1)}  # row-major, with the sizes in header_kernels.cu


@pytest.fixture(scope="module")
def library():
    source = Path(__file__).with_name("header_kernels.cu").read_text(encoding="utf-8")
    return kernels.compile_here(source, "header_kernels.cu")


@pytest.fixture
def run(torch, library):
    """Launch one cluster of a kernel. Maps and integers are passed by value, tensors by address."""

    def argument(given):
        if isinstance(given, tma.TensorMap):
            return launch.by_value(bytes(given))
        if isinstance(given, tuple):  # row-major coordinates
            coords = given[::-1]
            return launch.by_value(struct.pack("<5i", *coords, *(0,) * (5 - len(coords))))
        if isinstance(given, int):
            return ctypes.c_uint32(given)
        return ctypes.c_uint64(given.data_ptr())

    def run(name, blocks, *arguments, threads=128):
        torch.cuda.synchronize()
        given = [argument(a) for a in arguments]
        launch.launch(library.kernel(name, 0), blocks, threads, SMEM_BYTES, 0, given)
        torch.cuda.synchronize()

    return run


def numbers(*shape):
    return (np.arange(np.prod(shape), dtype=np.float32) % 1021).reshape(shape)


def poisoned(torch, size_bytes):
    return torch.full((size_bytes,), 0x5A, dtype=torch.uint8, device="cuda")


def on_both(torch, array, make):
    """Return the same map of an array on the GPU and of the array itself."""
    return make(torch.from_numpy(array).cuda()), make(array)


@pytest.mark.parametrize("rank", SHAPES)
def test_multicast_brings_the_tile_to_both_blocks_of_the_cluster(rank, torch, run):
    there, here = on_both(
        torch, numbers(*SHAPES[rank]), lambda t: tma.make_tma_descriptor(t, BOXES[rank])
    )
    out = poisoned(torch, 2 * there.tx_bytes)
    run(f"multicast_{rank}", 2, there, COORDS[rank], there.tx_bytes, out)
    expected = tma.load_tile(here, COORDS[rank]).smem
    np.testing.assert_array_equal(out.cpu().numpy().reshape(2, -1), [expected, expected])


def test_multicast_with_a_policy_for_l2_copies_the_same(torch, run):
    there, here = on_both(
        torch,
        numbers(*SHAPES[2]),
        lambda t: tma.make_tma_descriptor(t, BOXES[2], swizzle="bytes128"),
    )
    out = poisoned(torch, 2 * there.tx_bytes)
    run("multicast_policy", 2, there, COORDS[2], there.tx_bytes, out)
    expected = tma.load_tile(here, COORDS[2]).smem
    np.testing.assert_array_equal(out.cpu().numpy().reshape(2, -1), [expected, expected])


def test_multicast_leaves_a_block_alone_whose_bit_is_not_set(torch, run):
    there, here = on_both(
        torch, numbers(*SHAPES[2]), lambda t: tma.make_tma_descriptor(t, BOXES[2])
    )
    out = poisoned(torch, 2 * there.tx_bytes)
    run("multicast_to_one", 2, there, COORDS[2], there.tx_bytes, out)
    first, second = out.cpu().numpy().reshape(2, -1)
    assert (first == 0xEE).all()
    np.testing.assert_array_equal(second, tma.load_tile(here, COORDS[2]).smem)


@pytest.mark.parametrize("rank", TAPS)
def test_im2col_multicast_brings_the_pixels_of_a_tap_to_both_blocks(rank, torch, run):
    spatial = rank - 2
    images = numbers(2, *(5, 6, 7)[-spatial:], 8)
    lower, upper = tma.im2col_corners((3,) * spatial, padding=1)
    there, here = on_both(
        torch, images, lambda t: tma.make_im2col_descriptor(t, lower, upper, 8, 24)
    )
    coords = (0, *(-1,) * spatial, 0)
    out = poisoned(torch, 2 * there.tx_bytes)
    run(f"im2col_{rank}", 2, there, coords, there.tx_bytes, out)
    expected = tma.load_tile(here, coords, im2col_offsets=TAPS[rank]).smem
    np.testing.assert_array_equal(out.cpu().numpy().reshape(2, -1), [expected, expected])


@pytest.mark.parametrize("rank", SHAPES)
def test_copies_and_sums_with_a_policy_for_l2_are_right(rank, torch, run):
    values = numbers(*SHAPES[rank])
    coords = tuple(abs(c) for c in COORDS[rank])  # a store accepts no coordinate below 0
    source, copy, total = (
        torch.from_numpy(values).cuda(),
        torch.full(SHAPES[rank], -1.0, device="cuda"),
        torch.full(SHAPES[rank], 0.5, device="cuda"),
    )
    maps = [tma.make_tma_descriptor(t, BOXES[rank]) for t in (source, copy, total)]
    run(f"policies_{rank}", 1, *maps, coords, maps[0].tx_bytes)
    inside = tuple(slice(c, c + box) for c, box in zip(coords, BOXES[rank], strict=True))
    copied, summed = np.full_like(values, -1), np.full_like(values, 0.5)
    copied[inside], summed[inside] = values[inside], values[inside] + 0.5
    np.testing.assert_array_equal(copy.cpu().numpy(), copied)
    np.testing.assert_array_equal(total.cpu().numpy(), summed)


def test_who_waits_for_remote_arrivals_sees_what_was_written_before_them(torch, run):
    words, out = (torch.zeros(128, dtype=torch.int32, device="cuda") for _ in range(2))
    run("arrive_at_the_other_block", 2, words, out)
    assert out.tolist() == [1000 + i for i in reversed(range(128))]


def test_two_warps_meet_at_a_barrier_of_their_own(torch, run):
    out = torch.zeros(128, dtype=torch.int32, device="cuda")
    run("two_warps_meet", 1, out)
    assert out.tolist() == [77] * 64 + [0] * 64


@pytest.mark.parametrize(
    ("dtype", "swizzle"),
    [
        ("uint8", "bytes32"),
        ("uint16", "bytes32"),
        ("uint32", "bytes64"),
        ("uint16", "bytes64"),
        ("uint8", "bytes128"),
        ("uint16", "bytes128"),
        ("uint32", "bytes128"),
        ("uint64", "bytes128"),
    ],
)
def test_swizzled_index_finds_every_element_of_a_tile(dtype, swizzle, torch, run):
    columns = int(swizzle.removeprefix("bytes")) // np.dtype(dtype).itemsize
    matrix = (np.arange(40 * columns) * 2654435761 % 251).astype(dtype).reshape(40, columns)
    room = torch.from_numpy(matrix.view(np.uint8)).cuda()
    names = {"uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64"}
    shape = columns, 40
    tensor_map = tma.driver_encode_tiled(
        names[dtype], 2, room.data_ptr(), shape, matrix.strides[:1], shape, (1, 1), swizzle=swizzle
    )
    out = poisoned(torch, matrix.nbytes)
    run(f"unswizzle_{dtype}_{swizzle}", 1, tensor_map, out, 40)
    np.testing.assert_array_equal(out.cpu().numpy().view(dtype).reshape(40, columns), matrix)


@pytest.mark.parametrize("major", ["K", "MN"])
@pytest.mark.parametrize("swizzle", ["none", "bytes32", "bytes64", "bytes128"])
def test_wgmma_reads_a_loaded_tile_by_the_constexpr_descriptor(swizzle, major, torch, run):
    span = {"none": 8, "bytes32": 16, "bytes64": 32, "bytes128": 64}[swizzle]
    generator = torch.Generator("cuda").manual_seed(0)
    a, b = (
        torch.randint(-8, 9, (rows, 64), generator=generator, device="cuda").to(torch.bfloat16)
        for rows in (64, 8)
    )
    maps = [tma.make_tma_descriptor(t, (len(t), span), swizzle=swizzle) for t in (a, b)]
    c = torch.full((64, 8), float("nan"), device="cuda")
    if major == "K":
        run(f"multiply_{swizzle}", 1, *maps, c)
        assert torch.equal(c, a.float() @ b.float().T)
    else:
        run(f"multiply_transposed_{swizzle}", 1, *maps, c)
        assert torch.equal(c, a.float().T @ b.float().T)


def test_wgmma_with_the_descriptor_of_another_swizzle_gives_another_product(torch, run):
    a, b = (torch.randn(rows, 64, device="cuda").to(torch.bfloat16) for rows in (64, 8))
    maps = [tma.make_tma_descriptor(t, (len(t), 64)) for t in (a, b)]  # not swizzled
    c = torch.full((64, 8), float("nan"), device="cuda")
    run("multiply_bytes128", 1, *maps, c)
    assert not torch.allclose(c, a.float() @ b.float().T, rtol=0.1, atol=0.1)


# --- The verbs of 0.4 -----------------------------------------------------------------------------


def test_one_thread_of_each_warp_is_elected_and_the_same_one_again(torch, run):
    out = torch.zeros(64, dtype=torch.int32, device="cuda")
    run("elections", 1, out, threads=256)
    counts, lanes = out.cpu().numpy().reshape(2, 32)
    assert counts.tolist() == [2] * 8 + [0] * 24
    assert set(lanes[:8].tolist()) <= set(range(1, 33))


def test_bytes_expected_without_an_arrival_do_not_end_the_phase(torch, run):
    there, here = on_both(
        torch, numbers(*SHAPES[2]), lambda t: tma.make_tma_descriptor(t, BOXES[2])
    )
    out, flags = poisoned(torch, there.tx_bytes), torch.full((3,), 9, device="cuda").int()
    run("expected_without_an_arrival", 1, there, COORDS[2], there.tx_bytes, out, flags)
    assert flags.tolist() == [0, 1, 1]
    np.testing.assert_array_equal(out.cpu().numpy(), tma.load_tile(here, COORDS[2]).smem)


@pytest.mark.parametrize("size_bytes", [16, 48, 4096, 65536])
@pytest.mark.parametrize("name", ["bulk", "bulk_policy"])
def test_bytes_in_a_row_are_copied_and_none_beyond(name, size_bytes, torch, run):
    source = torch.randint(0, 256, (size_bytes + 64,), device="cuda").to(torch.uint8)
    out = poisoned(torch, size_bytes + 64)
    run(name, 1, source[16:], out[32:], size_bytes)
    expected = poisoned(torch, size_bytes + 64)
    expected[32 : 32 + size_bytes] = source[16 : 16 + size_bytes]
    assert torch.equal(out, expected)


@pytest.mark.parametrize("rank", SHAPES)
def test_a_prefetched_tile_is_loaded_by_a_map_of_known_rank(rank, torch, run):
    there, here = on_both(
        torch, numbers(*SHAPES[rank]), lambda t: tma.make_tma_descriptor(t, BOXES[rank])
    )
    out = poisoned(torch, there.tx_bytes)
    run(f"prefetch_{rank}", 1, there, COORDS[rank], there.tx_bytes, out)
    np.testing.assert_array_equal(out.cpu().numpy(), tma.load_tile(here, COORDS[rank]).smem)


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("tiles", [1, 7, 64])
def test_a_ring_of_any_number_of_stages_brings_every_tile_once(stages, tiles, torch, run):
    matrix = torch.from_numpy(numbers(8 * tiles, 32)).cuda()
    out = torch.full((tiles, 32), -1.0, device="cuda")
    run(f"ring_{stages}", 1, tma.make_tma_descriptor(matrix, (8, 32)), tiles, out, threads=64)
    assert torch.equal(out, matrix.reshape(tiles, 8, 32).sum(1))


def test_a_state_advanced_by_so_many_stages_is_one_advanced_as_often(torch, run):
    out = torch.zeros(24, dtype=torch.int32, device="cuda")
    run("states", 1, out, threads=1)
    one, two = out.cpu().numpy().reshape(12, 2).T
    steps = np.cumsum([0, *(1 + i % 5 for i in range(11))])
    expected = steps % 3 * 2 + (1 ^ steps // 3 % 2)
    np.testing.assert_array_equal(one, expected)
    np.testing.assert_array_equal(two, expected)


def test_a_kernel_that_starts_early_reads_what_the_one_before_it_wrote(torch, tmp_path):
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is needed: the launch has an attribute")
    source, program = Path(__file__).with_name("dependents.cu"), str(tmp_path / "dependents")
    major, minor = torch.cuda.get_device_capability()
    target = f"-gencode=arch=compute_{major}{minor}a,code=sm_{major}{minor}a"
    command = ["nvcc", "-std=c++17", target, f"-I{get_include()}", "-o", program, str(source)]
    subprocess.run(command, check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("right, started ")  # early or late
