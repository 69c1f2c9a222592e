"""The checked build names the mistake of a kernel. Each misuse runs in a separate process.

Every misuse is compiled twice. The first column has the result without TMA_DLPACK_CHECK.
"""

# ruff: noqa: E501 - a row of the table is a line of output

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from laws import slow_if

from tma_dlpack.include import get_include

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")

MISUSES = Path(__file__).with_name("misuses.cu")
LIMIT_S = 20
HANG_S = 3  # kernels that hang never end
ADDRESS, ALIGNMENT = "cudaErrorIllegalAddress", "cudaErrorMisalignedAddress"
INSTRUCTION, LAUNCH = "cudaErrorIllegalInstruction", "cudaErrorLaunchFailure"
HANGS = "hangs"

#: misuse: (result without the check, message of the check: verb, found; limit).
CASES = {
    "map_off_32": (ALIGNMENT, "load: the map is at 0x*20, 32 bytes past a multiple of 128; align it"),
    "map_of_zeros": (INSTRUCTION, "load: the map at 0x* is all zeros; copy the bytes"),
    "dimension_over_2_31": (INSTRUCTION, "load: dimension 1 of the map is 4294967296; a copy takes"),
    "tile_off_16": (ALIGNMENT, "load: the tile is at shared address 0x*10, 16 bytes past a multiple"),
    "tile_off_64": (ALIGNMENT, "load: the tile is at shared address 0x*40, 64 bytes past a multiple"),
    "tile_beyond_shared_memory": (ADDRESS, "load: the tile ends at shared address 0x*; the block's"),
    "no_dynamic_shared_memory": (ADDRESS, "load: the tile ends at shared address 0x*; the block's"),
    "wrong_rank": (INSTRUCTION, "load: 3 coordinates; the map has rank 2"),
    "wrong_kind": (INSTRUCTION, "load_im2col: the map is a tiled map; this verb takes im2col maps"),
    "coordinate_off_16_bytes": (INSTRUCTION, "load: the innermost coordinate 3 is at byte 6 of the row"),
    "multicast_to_no_block": (INSTRUCTION, "load_multicast: the block mask is 0x2; the cluster has 1"),
    "too_many_bytes_expected": (LAUNCH, "arrive_expect_tx: 1056768 bytes are expected; a barrier counts at"),
    "two_arrivals_of_one": (LAUNCH, "arrive: this is arrival 2 in phase 0 of the barrier at*; it was"),
    "armed_without_a_load": (HANGS, "wait: after 2 s phase 0 of the barrier at shared address 0x* is not "
                             "over: 1 of 1 arrivals, 8192 bytes expected, loads of 0 bytes issued;"),
    "expects_more_than_comes": (HANGS, "wait: after 2 s phase 0 of the barrier at shared address 0x* is "
                                "not over: 1 of 1 arrivals, 10240 bytes expected, loads of 8192 bytes"),
    "expects_half": ("", "load: phase 0 of the barrier at shared address 0x* expects 4096 bytes, and its loads have 8192 bytes; arrive_expect_tx()"),
    "expects_nothing": ("", "load: phase 1 of the barrier at shared address 0x* expects 0 bytes, and its loads have 8192 bytes; arrive_expect_tx()"),
    "expects_one_load_of_two": ("", "load: phase * of the barrier at shared address 0x* expects * bytes, and its loads have * bytes;"),
    "one_arrival_of_two": (HANGS, "wait: after 2 s phase 0 of the barrier at shared address 0x* is not "
                           "over: 1 of 2 arrivals, 8192 bytes expected, loads of 8192 bytes issued"),
    "other_parity": ("", "wait: the parity is 1, and the barrier at shared address 0x* is in phase 0"),
    "parity_not_flipped": ("", "wait: * phase"),  # a race decides which
    "barrier_never_initialised": (LAUNCH, "*: the barrier at shared address 0x* was never"),
    "barrier_off_4": (ALIGNMENT, "init: the barrier is at 0x*; it must be in shared memory, aligned to 8"),
    "map_not_a_grid_constant": (ADDRESS, "load: the map at 0x* is in local memory; declare the"),
    "map_in_shared_memory": (ADDRESS, "load: the map at 0x* is in shared memory; publish() it"),
    "tile_off_the_swizzle": ("wrong", "indexed_from_start: the tile is at shared address 0x*80, 128 bytes"),
    "store_off_64": (ALIGNMENT, "store: the tile is at shared address 0x*40, 64 bytes past a multiple"),
    "store_at_a_negative_coordinate": (INSTRUCTION, "store: coordinate 1 is -8; a store takes no"),
    "reduction_without_that_type": (INSTRUCTION, "reduce: the map's element type is 1; the operation"),
    "two_threads_arrive_expect_tx": (LAUNCH, "arrive_expect_tx: this is arrival 2 in phase 0 of the barrier at*; it was initialised for 1"),
    "expected_without_an_arrival": (HANGS, "wait: after 2 s phase 0 of the barrier at shared address 0x* is not over: 0 of 1 arrivals, 8192 bytes expected, loads of 8192 bytes issued;"),
    "prefetch_of_the_wrong_rank": (INSTRUCTION, "prefetch_tile: 3 coordinates; the map has rank 2"),
    "bulk_of_24_bytes": (HANGS, "load_bulk: 24 bytes; pass a multiple of 16"),
    "bulk_from_8_bytes_off": (ALIGNMENT, "load_bulk: the global address is 0x*8; pass one in global memory, a multiple of 16"),
    "bulk_to_8_bytes_off": (ALIGNMENT, "load_bulk: the bytes are at shared address 0x*8, 8 bytes past a multiple of 16; align"),
    "bulk_beyond_shared_memory": (ADDRESS, "load_bulk: 64 bytes from shared address 0x* on are copied; the block's shared memory ends"),
    "bulk_from_shared_memory": (ADDRESS, "load_bulk: the global address is 0x*; pass one in global memory"),
    "bulk_of_more_bytes_than_expected": ("wrong", "load_bulk: phase 0 of the barrier at shared address 0x* expects 64 bytes, and its loads have 128 bytes; arrive_expect_tx()"),
    "bulk_store_of_24_bytes": ("wrong", "store_bulk: 24 bytes; pass a multiple of 16"),
    "bulk_store_8_bytes_off": (ALIGNMENT, "store_bulk: the global address is 0x*8; pass one in global memory, a multiple of 16"),
    "state_advanced_twice": (HANGS, "advance: stage 1, phase 0 was advanced past without a use; call advance() once"),
    "state_of_a_reader_for_the_producer": (HANGS, "wait: after 2 s phase 0 of the barrier at shared address 0x* is not over: 0 of 1 arrivals, 0 bytes expected"),
    "halo_to_the_left": (INSTRUCTION, "load: the innermost coordinate -1 is at byte -2 of the row; it must be a multiple of 16 bytes: of 8 elements"),
    "an_arrive_that_counts_two": ("", "arrive: this is arrival 2 in phase 0 of the barrier at*; it was initialised for 1"),
    "bulk_multicast_to_no_block": ("", "load_bulk_multicast: the block mask is 0x2; the cluster has 1"),
    "bulk_reduction_of_24_bytes": ("", "reduce_bulk: 24 bytes; pass a multiple of 16"),
    "wgmma_by_tcgen05s_descriptor": ("", "wgmma: the matrix descriptor is 0x*, whose bit 46 is 1; make it by k_major_descriptor()"),
    "a_parameter_is_changed": ("", "replace_global_dim: the map at 0x* is in neither shared nor global"),
}  # fmt: skip
#: One misuse of each verb. The others are slow, because each runs in a separate process.
QUICK = {says.split(":")[0]: name for name, (_, says) in reversed(CASES.items())}.values()


@functools.cache
def program(folder: Path, *options: str) -> Path:
    out = folder / ("checked" if options else "plain")
    target = "-gencode=arch=compute_90a,code=sm_90a"
    command = ["nvcc", "-std=c++17", target, f"-I{get_include()}", *options, "-o", str(out)]
    subprocess.run([*command, str(MISUSES)], check=True)
    return out


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a function that runs a misuse, and returns its output or HANGS."""
    folder = tmp_path_factory.mktemp("misuses")

    def run(name, *options, limit_s=LIMIT_S):
        command = [str(program(folder, *options)), name]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired:
            return HANGS
        return done.stdout

    return run


CHECKED = "-DTMA_DLPACK_CHECK=1"


@pytest.mark.parametrize("name", [slow_if(name not in QUICK, name) for name in CASES])
def test_a_misuse_is_named_by_one_line_with_its_place(name, run):
    _, says = CASES[name]
    *lines, end = run(name, CHECKED).splitlines()
    assert end == LAUNCH
    (line,) = lines
    place = r"tma_dlpack check: \S*misuses\.cu:\d+, block \(0, 0, 0\), thread \(\d+, 0, 0\), "
    says = re.escape(says).replace(r"\*", ".*")
    assert re.match(place + says, line), line


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_without_the_check_a_misuse_is_what_it_was(name, run):
    seen, _ = CASES[name]
    found = run(name, limit_s=HANG_S if seen == HANGS else LIMIT_S).strip()
    assert seen in found, found


@pytest.mark.parametrize(
    "name",
    [
        *("nothing_wrong", "map_in_global_memory", "bulk_right", "state_advanced_once"),
        "state_that_one_thread_uses",
    ],
)
@pytest.mark.parametrize("options", [(), (CHECKED,)], ids=["plain", "checked"])
def test_what_is_right_is_right_with_and_without(name, options, run):
    assert run(name, *options) == "right\n"
