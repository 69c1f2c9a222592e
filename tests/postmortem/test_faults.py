"""`postmortem` names each fatal misuse of dying.cu from its dump, without a GPU."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from slim import slim

import tma_dlpack as tma
from tma_dlpack.debug import Fault
from tma_dlpack.debug.names import demangled, short_name
from tma_dlpack.debug.postmortem import causes as table
from tma_dlpack.debug.postmortem import faults, results
from tma_dlpack.debug.postmortem.dump import Dump
from tma_dlpack.debug.postmortem.memory import Word

SOURCE = Path(__file__).with_name("dying.cu").read_text().splitlines()

#: Case -> instruction, rule, words that the message must contain.
FAULTS = {
    "rank": ("UTMALDG.3D", "MAP_RANK", "has 3 coordinates, and the map's rank is 2"),
    "im2col_on_tiled": (
        "UTMALDG.3D.IM2COL",
        "MAP_KIND",
        "copies by im2col maps, and this is a til",
    ),
    "tile_on_im2col": ("UTMALDG.3D", "MAP_KIND", "copies by tiled maps, and this is an im2col map"),
    "map_off_32": ("UTMALDG.2D", "MAP_ALIGNED", "not at a multiple of 64 bytes"),
    "zeros": ("UTMALDG.2D", "MAP_OF_ZEROS", "the map's 128 bytes are zero"),
    "nowhere": ("UTMALDG.2D", "TENSOR_ADDRESS", "is at 0x7a0000000000, or at the coordinates"),
    "host": ("UTMALDG.2D", "TENSOR_ADDRESS", "an address of the host"),
    "freed": ("UTMALDG.2D", "TENSOR_ADDRESS", "memory that was freed"),
    "store_nowhere": ("UTMASTG.2D", "TENSOR_ADDRESS", "is at 0x7a0000000000"),
    "to_off_16": ("UTMALDG.2D", "SMEM_ALIGNED", "0x810 is 16 bytes past a multiple of 128"),
    "to_off_64": ("UTMALDG.2D", "SMEM_ALIGNED", "0x840 is 64 bytes past a multiple of 128"),
    "store_off_64": ("UTMASTG.2D", "SMEM_ALIGNED", "the source 0x440 is 64 bytes past"),
    "to_beyond": ("UTMALDG.2D", "SMEM_RANGE", "0x5800..0x7800 (8,192 bytes); the block has 0x6c00"),
    "no_dynamic": ("UTMALDG.2D", "SMEM_RANGE", "the block has 0x800 (2,048 bytes)"),
    "coordinate": ("UTMALDG.2D", "COORDINATE_16B", "the innermost coordinate is 3, 6 bytes"),
    "store_negative": ("UTMASTG.2D", "STORE_NEGATIVE", "a store at (0, -8)"),
    "store_rank": ("UTMASTG.3D", "MAP_RANK", "the map's rank is 2"),
    "reduce_type": ("UTMAREDG.2D.ADD", "REDUCTION_TYPE", "no add for UINT16"),
    "prefetch_rank": ("UTMAPF.L2.3D", "MAP_RANK", "the map's rank is 2"),
    "im2col_start": ("UTMALDG.3D.IM2COL", "IM2COL_START", "starts at 200, outside of"),
    "multicast": ("UTMALDG.2D.MULTICAST", "MULTICAST_BLOCK", "so block 1 is not there"),
    "local": ("UTMALDG.2D", "MAP_IN_LOCAL_MEMORY", "the thread's own local memory"),
    "shared": ("UTMALDG.2D", "MAP_IN_SHARED_MEMORY", "which is shared memory"),
    "copy_barrier_off": ("UTMALDG.2D", "BARRIER_ALIGNED", "0x404 is not at a multiple of 8"),
    "barrier_off_4": ("SYNCS.EXCH.64", "BARRIER_ALIGNED", "0x404 is not at a multiple of 8"),
    "bulk_bytes": ("UBLKCP.S.G", "BARRIER_ALIGNED", "0x404 is not at a multiple of 8"),
    "bulk_address": ("UBLKCP.S.G", "BULK_ALIGNED", "is not at a multiple of 16 bytes"),
    "never_initialised": ("SYNCS.ARRIVE.TRANS64", "BARRIER_INIT", "0x400 was never initialised"),
    "bytes": ("SYNCS.ARRIVE.TRANS64", "BARRIER_BYTES", "1,056,768 bytes are announced"),
    "arrivals": (
        "SYNCS.ARRIVE.TRANS64.ART0",
        "BARRIER_ARRIVALS",
        "3 arrivals at the barrier 0x400",
    ),
    "two_arrivals": ("SYNCS.ARRIVE.TRANS64.A1T0", "BARRIER_ARRIVALS", "waits for 0 more"),
    "global_map_rank_kept": ("UTMALDG.3D", "MAP_RANK", "the map's rank is 2"),
}


def line_of(case: str) -> str:
    """Return the line of dying.cu at which a case begins, with the file name in the dump."""
    begins = re.compile(rf"^(WITH|KERNEL|STORE|PIPELINE)\({case}\b|^__global__ void {case}\b")
    return f"/tmp/dying/dying.cu:{next(n for n, t in enumerate(SOURCE, 1) if begins.match(t))}"


def fault_of(dumps: Path, case: str) -> Fault:
    (fault,) = tma.postmortem(dumps / f"fault_{case}.core").faults
    return fault


@pytest.mark.parametrize("case", FAULTS)
def test_a_misuse_is_named(dumps, case):
    fault = fault_of(dumps, case)
    instruction, rule, said = FAULTS[case]
    assert (fault.instruction, fault.rule) == (instruction, rule)
    assert said in fault.message
    assert fault.fix
    assert (fault.block, fault.alike) == ((0, 0, 0), 1)
    assert fault.causes[0].is_sure


def test_every_fault_of_the_dumps_is_in_the_table(dumps):
    names = {path.stem.removeprefix("fault_") for path in dumps.glob("fault_*.core")}
    assert names - {*FAULTS} == {"trap", "global_map_rank"}


def test_every_cause_is_in_the_table_but_those_that_need_other_maps():
    rules = {row.rule for row in (*table.CAUSES, table._LAST)}
    seen = {rule for _, rule, _ in FAULTS.values()}
    assert rules - seen == {
        "MAP_BYTES", "IM2COL_STORE_CORNERS", "BARRIER_RANGE", "BARRIER_INIT_LATE",
    }  # fmt: skip


WITHOUT_START = {"local", "shared", "never_initialised", "barrier_off_4", "global_map_rank_kept"}


@pytest.mark.parametrize("case", sorted({*FAULTS} - WITHOUT_START))
def test_the_line_of_the_helper_and_of_its_caller_are_named(dumps, case):
    lines = fault_of(dumps, case).lines
    assert lines[-1] == line_of(f"fault_{case}")
    assert len(lines) == 2
    helpers_end = SOURCE.index("// ---- the cases ----")
    assert "asm volatile" in "".join(SOURCE[:helpers_end][int(lines[0].split(":")[1]) - 4 :][:6])


def test_operands_are_those_of_the_moment_though_the_registers_were_written_since(dumps):
    fault = fault_of(dumps, "coordinate")
    assert (fault.destination, fault.barrier, fault.coordinates) == (0x800, 0x400, (3, 8))
    assert (fault.map.offset, fault.map.shape, fault.map.tx_bytes) == (0x70, (64, 64), 8192)
    assert str(fault.map).startswith("parameter +0x70 of fault_coordinate<...>: tiled UINT16 64x64")


def test_a_negative_coordinate_is_negative(dumps):
    assert fault_of(dumps, "store_negative").coordinates == (0, -8)


def test_of_several_causes_all_are_listed(dumps):
    causes = fault_of(dumps, "im2col_on_tiled").causes
    assert [cause.rule for cause in causes] == ["MAP_KIND", "MAP_RANK"]


def test_a_map_in_global_memory_needs_a_dump_with_it(dumps):
    fault = fault_of(dumps, "global_map_rank")
    assert (fault.rule, fault.message) == ("UNKNOWN", "no cause that is known holds")
    (note,) = fault.notes
    assert "is in global memory, which this file lacks" in note
    assert "--global" in note
    kept = fault_of(dumps, "global_map_rank_kept")
    assert (kept.rule, kept.notes, kept.map.shape) == ("MAP_RANK", (), (64, 64))


def test_a_kernel_that_triton_made_is_named_with_its_python_line(unpack):
    (fault,) = tma.postmortem(unpack("triton_host")).faults
    assert (fault.kernel, fault.alike) == ("copy", 4)
    assert fault.lines == ("/tmp/triton_kernels/triton_fault.py:6",)
    assert (fault.instruction, fault.rule) == ("UTMALDG.2D", "TENSOR_ADDRESS")
    assert (fault.destination, fault.barrier, fault.coordinates) == (0x400, 0x2400, (0, 0))
    assert (fault.map.offset, fault.map.global_address) == (0x30, 0x7A0000000000)


def test_a_map_that_triton_made_on_the_device_is_in_global_memory(unpack):
    (fault,) = tma.postmortem(unpack("triton_made")).faults
    assert (fault.kernel, fault.rule, fault.map) == ("copy_made", "UNKNOWN", None)
    assert fault.coordinates == (0, 0)
    assert "is in global memory, which this file lacks" in fault.notes[0]


def test_a_wrong_column_in_the_grouped_gemm_is_named_with_its_lines(unpack):
    found = tma.postmortem(unpack("gemm_coordinate"))
    (fault,) = found.faults
    assert (fault.kernel, fault.instruction, fault.alike) == ("grouped_gemm", "UTMALDG.2D", 2)
    assert fault.lines[2] == "/tmp/kernels/grouped_gemm.cu:131"  # the header's, then the caller's
    header, kernel = "/tmp/kernels/tma_dlpack.h", "/tmp/kernels/grouped_gemm.cu"
    assert f"\n    {header}:718, called at {kernel}:499\n" in str(found)  # not the whole path
    assert (fault.rule, fault.coordinates) == ("COORDINATE_16B", (4, 0))
    assert (fault.map.offset, fault.map.box_dim, fault.map.tx_bytes) == (0x70, (64, 64), 8192)
    assert [m.offset for m in found.maps] == [0x70, 0x170]
    assert len(found.barriers) == 8  # four stages: full and empty
    assert [(row.what, row.warps) for row in found.kernels[0].standing] == [
        ("at the wait of an mbarrier", 16),  # the consumers: their first try has not answered yet
        ("at a barrier of the cluster (cluster_sync, barrier.cluster.wait)", 6),
        ("at the wait of an mbarrier", 2),
        ("where the threads of a warp meet (WARPSYNC, BSYNC)", 2),
    ]


def test_after_a_fault_nothing_follows_from_barriers(dumps):
    found = tma.postmortem(dumps / "fault_nowhere.core")
    (barrier,) = found.barriers
    # it looks complete, because the copy that faulted counts as a copy that arrived
    assert (barrier.arrivals, barrier.bytes, barrier.phase, barrier.rule) == (1, 0, 1, "")
    found = tma.postmortem(dumps / "fault_rank.core")
    assert all(barrier.rule == "" for barrier in found.barriers)
    assert any(barrier.waiting for barrier in found.barriers)
    assert "say nothing" in found.notes[0]


def test_a_trap_is_no_hang(dumps):
    found = tma.postmortem(dumps / "fault_trap.core")
    assert found.ok
    assert found.notes == ("warps stand at a trap: it ended the kernel, and others wait in vain",)


def test_json_has_the_names_of_the_contract(dumps):
    plain = json.loads(tma.postmortem(dumps / "fault_rank.core").to_json())
    assert {"faults", "barriers", "maps", "kernels"} <= {*plain}
    (fault,) = plain["faults"]
    assert fault["kernel"] == "fault_rank<...>"
    assert fault["lines"] == ["/tmp/dying/dying.cu:69", line_of("fault_rank")]
    assert (fault["block"], fault["thread"], fault["alike"]) == ([0, 0, 0], [0, 0, 0], 1)
    assert fault["instruction"] == "UTMALDG.3D"
    assert (fault["destination"], fault["barrier"]) == (0x800, 0x400)
    assert fault["coordinates"] == [0, 16, 0]
    assert fault["map"] == {
        "kind": "tiled",
        "rank": 2,
        "data_type": "UINT16",
        "global_dim": [64, 64],
        "box_dim": [64, 64],
        "tx_bytes": 8192,
        "kernel": "fault_rank<...>",
        "offset": 0x70,
    }
    assert [found["tx_bytes"] for found in plain["maps"]] == [8192, 4096]


def test_the_text_says_each_finding_once(dumps):
    text = str(tma.postmortem(dumps / "fault_rank.core"))
    assert "1 kind of fault, 1 warp" in text
    assert text.count("MAP_RANK") == 1
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.skipif(demangled(["_Z1fv"])["_Z1fv"] == "_Z1fv", reason="no libstdc++ here")
def test_the_text_has_a_templates_arguments_once(dumps):
    text = str(tma.postmortem(dumps / "fault_rank.core"))
    assert text.count("\n  void fault_rank<void>(CUtensorMap_st, CUtensorMap_st, ") == 1


def test_a_barrier_of_another_block_of_the_cluster_is_read_there(dumps):
    dump = Dump.open(dumps / "hang_cluster.core")
    first, second = sorted(dump.blocks, key=lambda block: block.index)
    (waited,) = {b.address for b in tma.postmortem(dumps / "hang_cluster.core").barriers if b.rule}
    warp = next(dump.warps(first))
    words = [Word.at(block.shared, waited) for block in (first, second)]
    assert words[0] != words[1]
    assert [faults._word_at(warp, rank << 24 | waited) for rank in (0, 1, 2)] == [*words, None]


def test_an_address_in_another_block_names_block_and_offset(dumps):
    fault = replace(fault_of(dumps, "rank"), barrier=0x1000400, destination=0x800)
    assert "destination 0x800, barrier 0x400 of the cluster's block 1, coord" in fault_text(fault)


def fault_text(fault: Fault) -> str:
    return "\n".join(results.fault_lines(fault))


@pytest.mark.parametrize("case", ["fault_coordinate", "fault_nowhere", "hang_bytes"])
def test_each_cause_and_each_barrier_that_hangs_is_a_finding(dumps, case):
    found = tma.postmortem(dumps / f"{case}.core")
    causes = [(c.rule, f.kernel, f.alike) for f in found.faults for c in f.causes]
    hung = [(b.rule, b.kernel, b.waiting) for b in found.barriers if b.rule]
    assert [(f.rule, f.kernel, f.sites) for f in found.findings] == causes + hung
    assert {f.severity for f in found.findings} == {"error"}
    assert all(f"{f.rule}: " in str(found) for f in found.findings)


def test_html_shows_the_finding_the_barriers_and_the_tile(dumps):
    page = tma.postmortem(dumps / "fault_nowhere.core")._repr_html_()
    assert "TENSOR_ADDRESS" in page
    assert "barriers of a block of fault_nowhere" in page
    assert "tensor (64, 64) UINT16, box (64, 64) at (64, 0)" in page


def test_html_shows_the_box_at_a_column_where_no_copy_can_begin(dumps):
    page = tma.postmortem(dumps / "fault_coordinate.core")._repr_html_()
    assert "tensor (64, 64) UINT16, box (64, 64) at (8, 3)" in page
    assert "Nothing was copied: the innermost coordinate is 3, 6 bytes" in page
    assert "box 3..66, 3 of 64 out of bounds" in page
    assert "become zero" not in page  # nothing was copied


def test_html_shows_the_machine_code_as_it_is(dumps, monkeypatch):
    lines = ("  0x01e0  ELECT", "> 0x01f0  UTMALDG.2D [UR4], [UR8]")
    monkeypatch.setattr("tma_dlpack.debug.postmortem.faults.listing", lambda *_: lines)
    page = tma.postmortem(dumps / "fault_coordinate.core")._repr_html_()
    assert "<pre>  0x01e0  ELECT\n&gt; 0x01f0  UTMALDG.2D [UR4], [UR8]</pre>" in page


@pytest.mark.parametrize(("case", "end"), [("rank", "destination"), ("store_negative", "source")])
def test_the_text_names_the_end_in_shared_memory(dumps, case, end):
    assert f"\n  {end} 0x" in str(tma.postmortem(dumps / f"fault_{case}.core"))


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_ZN4gemm6kernelILi128EEEv14CUtensorMap_st", "gemm::kernel<...>"),
        ("_Z4waitjj", "wait"),
        ("_ZN12_GLOBAL__N_16kernelEv", "kernel"),
        ("matmul_kernel", "matmul_kernel"),
        ("_Z9999short", "_Z9999short"),
        ("_Z", "_Z"),
        ("k" * 5000, "k" * 120 + "..."),
    ],
)
def test_names_are_readable_and_bounded(mangled, name):
    assert short_name(mangled) == name


def test_what_the_reader_never_looks_at_can_be_left_out(dumps, tmp_path):
    whole = dumps / "fault_rank.core"
    path = tmp_path / whole.name
    path.write_bytes(slim(whole.read_bytes()))
    assert str(tma.postmortem(path)) == str(tma.postmortem(whole))
    assert path.stat().st_size < whole.stat().st_size / 3


def test_machine_code_is_listed_where_nvdisasm_is_installed(dumps, tmp_path, monkeypatch):
    tool = tmp_path / "nvdisasm"
    tool.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "assert sys.argv[1:5] == ['--binary', 'SM90a', '--base-address', '0x1b0'], sys.argv\n"
        "assert len(open(sys.argv[5], 'rb').read()) == 7 * 16\n"
        "print('  /*01e0*/   @P0 ELECT P1, URZ, PT ;')\n"
        "print('  /*01f0*/   UTMALDG.3D [UR8], [UR6] ;')\n"
    )
    tool.chmod(0o755)
    monkeypatch.setattr("tma_dlpack.driver.tool", lambda _: str(tool))
    found = tma.postmortem(dumps / "fault_rank.core")
    assert found.faults[0].listing == (
        "  0x01e0  @P0 ELECT P1, URZ, PT",
        "> 0x01f0  UTMALDG.3D [UR8], [UR6]",
    )
    assert "\n    > 0x01f0  UTMALDG.3D [UR8], [UR6]\n" in str(found)
    monkeypatch.setattr("tma_dlpack.driver.tool", lambda _: None)
    assert tma.postmortem(dumps / "fault_rank.core").faults[0].listing == ()
