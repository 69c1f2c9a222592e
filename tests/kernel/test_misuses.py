"""Misuses that end a kernel with an error or a hang, and mistakes in a cluster.

The error of each misuse is measured (H200, driver 580.159.04, 2026-11-22).
"""

import json

import numpy as np
import pytest
from ptx_text import (
    CLUSTER_SYNC,
    COMMIT,
    FENCE,
    INIT_FENCE,
    READ,
    READY,
    RESULT,
    STORE,
    SYNC,
    WAIT_READ,
    WAIT_WRITTEN,
    WRITE,
    above,
    arm,
    arrive,
    below,
    init,
    kernel,
    load,
    only,
    wait,
)

import tma_dlpack as tma
from tma_dlpack.kernel import run_kernel
from tma_dlpack.kernel.result import TmaKernelError

TILE = 4 * 32 * 4


def run(*code, grid=1, cluster=0, schedules=3, source=None, goal=None):
    given = np.arange(256, dtype=np.uint32).reshape(8, 32) + 1000
    out, flag = np.zeros((8, 32), np.uint32), np.zeros(256, np.uint32)
    source = source or tma.make_tma_descriptor(given, box_sizes=(4, 32))
    goal = goal or tma.make_tma_descriptor(out, box_sizes=(4, 32))
    text = kernel(*code, cluster=cluster)
    args = (given, out, flag, source, goal)
    return run_kernel(text, grid=grid, block=128, args=args, schedules=schedules), out


def rules(found, severity="error"):
    return {f.rule for f in found.findings if f.severity == severity}


def tile(
    dims="2d",
    coords="0, 0",
    source="%source",
    to="tile",
    bar="bars",
    mode="tile",
    more="",
    blocks="",
):
    return (
        f"cp.async.bulk.tensor.{dims}.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes"
        f"{more} [{to}], [{source}, {{{coords}}}], [{bar}]{blocks};"
    )


def tile_out(coords="0, 0", source="tile", op="cp.async.bulk.tensor.2d", reduction=""):
    return f"{op}.global.shared::cta{reduction}.tile.bulk_group [%goal, {{{coords}}}], [{source}];"


def loaded(instruction, *after):
    return (*READY, only(0, arm(0, TILE), instruction), wait(), *after)


# -- copies that are right -------------------------------------------------------------------------


def test_a_tile_by_a_map_arrives():
    found, out = run(*loaded(tile(coords="0, 4"), READ, RESULT))
    assert found.ok, str(found)
    np.testing.assert_array_equal(out.reshape(-1)[:128], np.arange(128, 256) + 1000)


def test_a_tile_that_leaves_the_tensor_counts_whole_and_is_filled():
    found, out = run(*loaded(tile(coords="0, 6"), READ, RESULT))
    assert found.ok, str(found)
    np.testing.assert_array_equal(out.reshape(-1)[:64], np.arange(192, 256) + 1000)
    np.testing.assert_array_equal(out.reshape(-1)[64:128], 0)


def test_a_tile_is_stored_by_a_map():
    found, out = run(WRITE, FENCE, SYNC, only(0, tile_out("0, 4"), COMMIT, WAIT_WRITTEN))
    assert found.ok, str(found)
    np.testing.assert_array_equal(out.reshape(-1)[128:], np.arange(128))


def test_bulk_reductions_of_two_blocks_do_not_race():
    add = tile_out(op="cp.reduce.async.bulk.tensor.2d", reduction=".add")
    found, out = run(WRITE, FENCE, SYNC, only(0, add, COMMIT, WAIT_WRITTEN), grid=2)
    assert found.ok, str(found)
    np.testing.assert_array_equal(out.reshape(-1)[:128], 2 * np.arange(128))


def test_reductions_of_bytes_add_up():
    add = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%out], [tile], 512;"
    found, out = run(WRITE, FENCE, SYNC, only(0, add, COMMIT, WAIT_WRITTEN), grid=3)
    assert found.ok, str(found)
    np.testing.assert_array_equal(out.reshape(-1)[:128], 3 * np.arange(128))


def test_two_blocks_may_store_the_same_values_and_not_others():
    store = (FENCE, SYNC, only(0, STORE, COMMIT, WAIT_WRITTEN))
    assert run(WRITE, *store, grid=2)[0].ok
    other = ("mov.u32 %r7, %ctaid.x;", "st.shared.u32 [%word], %r7;")
    assert rules(run(*other, *store, grid=2)[0]) == {"RACE"}


def test_bar_red_counts_and_votes():
    found, out = run(
        "setp.lt.u32 %p3, %t, 40;",
        "barrier.cta.red.popc.aligned.u32 %r5, 0, %p3;",
        "barrier.cta.red.and.aligned.pred %p4, 0, %p3;",
        "barrier.cta.red.or.aligned.pred %p5, 0, %p3;",
        "@%p4 add.u32 %r5, %r5, 1000;",
        "@%p5 add.u32 %r5, %r5, 500;",
        RESULT,
    )
    assert found.ok, str(found)
    np.testing.assert_array_equal(out.reshape(-1)[:128], 540)


def test_bar_red_of_two_branches_counts_each_use_by_itself():
    counts = (
        "setp.lt.u32 %p3, %t, 40;",
        "barrier.cta.red.popc.aligned.u32 %r5, 0, %p3;",
        "setp.lt.u32 %p3, %t, 90;",
        "barrier.cta.red.popc.aligned.u32 %r6, 0, %p3;",
    )
    total = ("mul.lo.u32 %r5, %r5, 1000;", "add.u32 %r5, %r5, %r6;", RESULT)
    found, out = run(below(64, *counts), above(64, *counts), *total)
    assert found.ok, str(found)
    np.testing.assert_array_equal(out.reshape(-1)[:128], 40090)


def test_bar_red_counts_the_threads_of_its_own_barrier():
    found, out = run(
        "shr.u32 %r7, %t, 6;",
        "setp.lt.u32 %p3, %t, 40;",
        "barrier.cta.red.popc.aligned.u32 %r5, %r7, 64, %p3;",
        RESULT,
    )
    assert found.ok, str(found)
    np.testing.assert_array_equal(out.reshape(-1)[:128], np.repeat([40, 0], 64))


# -- what ends the kernel --------------------------------------------------------------------------

ZEROS = tma.TensorMap.from_bytes(bytes(128))
FAULTS = {
    "the instruction's rank is not the map's": (loaded(tile("3d", "0, 0, 0")), "MAP_RANK"),
    "an im2col instruction and a tiled map": (
        loaded(tile("3d", "0, 0, 0", mode="im2col", blocks=", {%rs0}")),
        "MAP_KIND",
    ),
    "an inner coordinate off 16 bytes": (loaded(tile(coords="3, 0")), "COORDINATE_16B"),
    "a destination 64 bytes off": (loaded(tile(to="tile+64")), "SMEM_ALIGNED"),
    "a barrier 4 bytes off": (loaded(tile(bar="bars+4")), "BARRIER_ALIGNED"),
    "a barrier never initialised": ((only(0, tile()), SYNC), "BARRIER_INIT"),
    "a destination beyond shared memory": (loaded(tile(to="tile+896")), "SMEM_RANGE"),
    "multicast to a block that is not there": (
        ("mov.b16 %rs0, 2;", *loaded(tile(more=".multicast::cluster", blocks=", %rs0"))),
        "MULTICAST_BLOCK",
    ),
    "a map 32 bytes off": (("add.u64 %source, %source, 32;", *loaded(tile())), "MAP_ALIGNED"),
    "a map in shared memory": (
        (
            "mov.u32 %r7, tile;",
            "cvt.u64.u32 %rd1, %r7;",
            "cvta.shared.u64 %rd1, %rd1;",
            *loaded(tile(source="%rd1")),
        ),
        "MAP_IN_SHARED_MEMORY",
    ),
    "a store at a negative coordinate": (
        (WRITE, FENCE, SYNC, only(0, tile_out("0, -4"))),
        "STORE_NEGATIVE",
    ),
    "a source 16 bytes off": (
        (WRITE, FENCE, SYNC, only(0, tile_out(source="tile+16"))),
        "SMEM_ALIGNED",
    ),
    "a reduction that the type lacks": (
        (
            WRITE,
            FENCE,
            SYNC,
            only(0, tile_out(op="cp.reduce.async.bulk.tensor.2d", reduction=".inc")),
        ),
        None,
    ),
    "an address outside of every array": (
        ("add.u64 %in, %in, 0x100000000;", *loaded(load())),
        "ILLEGAL_ADDRESS",
    ),
    "a line 8 bytes off": (("add.u64 %in, %in, 8;", *loaded(load())), "BULK_ALIGNED"),
    "more bytes than a barrier counts": ((*READY, only(0, arm(0, 1 << 20))), "BARRIER_BYTES"),
    "more arrivals than a phase has": ((*READY, only(0, arm(0), arrive())), "BARRIER_ARRIVALS"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_misuse_ends_the_run_with_the_rule_of_its_error(case):
    code, rule = FAULTS[case]
    found, _ = run(".reg .b16 %rs0;", *code)
    assert (rule is None and found.ok) or rules(found) == {rule}, str(found)


def test_a_map_of_zeros_ends_the_run():
    found, _ = run(*loaded(tile()), source=ZEROS)
    assert rules(found) == {"MAP_OF_ZEROS"}


def test_a_map_of_memory_that_is_no_argument_ends_the_run():
    x = np.zeros((8, 32), np.uint32)
    lost = tma.make_tma_descriptor(x, box_sizes=(4, 32)).with_address(1 << 40)
    found, _ = run(*loaded(tile()), source=lost)
    assert rules(found) == {"TENSOR_ADDRESS"}


# -- hangs -----------------------------------------------------------------------------------------

HANGS = {
    "armed, and no copy": ((*READY, only(0, arm()), wait()), "HANG_NO_COPY", "512 bytes"),
    "more bytes expected than come": (
        (*READY, only(0, arm(0, 1024), load()), wait()),
        "HANG_BYTES",
        "512 are missing",
    ),
    "fewer bytes expected than come": (
        (*READY, only(0, arm(0, 256), load(), wait(), arrive()), wait(0, 1)),
        "HANG_BYTES",
        "256 bytes came",
    ),
    "initialised for two": (
        (only(0, init(0, 2), INIT_FENCE), SYNC, only(0, arm(), load()), wait()),
        "HANG_ARRIVALS",
        "1 of 2 arrivals",
    ),
    "nobody announces": ((*READY, only(0, load()), wait()), "HANG_NOT_ANNOUNCED", "512 bytes came"),
    "nobody arrives": ((*READY, wait()), "HANG_NOBODY_ARRIVED", "nobody has arrived"),
    "the other parity": (
        (*READY, only(0, arm(), load()), wait(), wait(0, 1)),
        "HANG_PARITY",
        "parity 0 has ended",
    ),
    "two barriers wait for each other": (
        (
            only(0, init(0), init(1), INIT_FENCE),
            SYNC,
            below(32, wait(1, 0), only(0, arrive(0))),
            wait(0, 0),
            only(32, arrive(1)),
        ),
        "HANG_CYCLE",
        "a cycle",
    ),
    "half of the threads at a barrier": (
        (below(64, "bar.sync 1, 128;"),),
        "HANG_THREADS",
        "arrived",
    ),
}


@pytest.mark.parametrize("case", HANGS)
def test_a_hang_is_explained(case):
    code, rule, words = HANGS[case]
    found, _ = run(*code)
    assert rule in rules(found), str(found)
    assert any(words in f.message for f in found.findings if f.rule == rule), str(found)


def test_a_hang_shows_its_barrier_and_who_waits():
    found, _ = run(*READY, only(0, arm(0, 1024), load()), wait())
    (barrier,) = found.barriers
    assert (barrier.count, barrier.arrivals, barrier.bytes, barrier.phase) == (1, 0, 512, 0)
    assert (barrier.waiting, barrier.parity, barrier.rule) == (4, 0, "HANG_BYTES")
    assert {row.actor for row in found.timeline if row.end is None} == {
        f"block 0, warp {n}" for n in range(4)
    }


# -- clusters --------------------------------------------------------------------------------------

TO_NEXT = "xor.b32 %r7, %block, 1;\nmov.u32 %r8, bars;\nmapa.shared::cluster.u32 %r8, %r8, %r7;"
ARRIVE_THERE = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r8];"
READY_BOTH = (only(0, init(), INIT_FENCE), CLUSTER_SYNC, TO_NEXT)
MULTICAST = only(0, tile(more=".multicast::cluster", blocks=", %rs0"), of="%block")


def test_multicast_fills_both_blocks():
    code = (
        "mov.b16 %rs0, 3;",
        only(0, init(), INIT_FENCE, arm(0, TILE)),
        CLUSTER_SYNC,
        only(0, MULTICAST),
        wait(),
    )
    rows = (
        "mul.wide.u32 %rd3, %block, 512;",
        "add.u64 %mine, %mine, %rd3;",
        READ,
        RESULT,
        CLUSTER_SYNC,
    )
    found, out = run(".reg .b16 %rs0;", *code, *rows, grid=2, cluster=2)
    assert found.ok, str(found)
    np.testing.assert_array_equal(out.reshape(2, -1), np.tile(np.arange(128) + 1000, (2, 1)))


def test_multicast_before_the_other_block_is_ready_is_an_error():
    code = (
        "mov.b16 %rs0, 3;",
        only(0, init(), INIT_FENCE, arm(0, TILE)),
        SYNC,
        only(0, MULTICAST),
        wait(),
    )
    found, _ = run(".reg .b16 %rs0;", *code, CLUSTER_SYNC, grid=2, cluster=2)
    assert rules(found) == {"BARRIER_INIT"}


def test_an_arrival_at_another_block_orders_what_was_written_there():
    place = "mov.u32 %r9, tile;\nmapa.shared::cluster.u32 %r9, %r9, %r7;"
    write = f"{place}\nst.shared::cluster.u32 [%r9], %t;"
    there = (*READY_BOTH, only(0, write, ARRIVE_THERE), wait(), "ld.shared.u32 %r5, [tile];")
    assert run(*there, CLUSTER_SYNC, grid=2, cluster=2)[0].ok
    relaxed = [piece.replace(".release", ".relaxed") for piece in there]
    assert "RACE" in rules(run(*relaxed, CLUSTER_SYNC, grid=2, cluster=2)[0])


def test_an_arrival_before_the_other_block_is_ready_is_an_error():
    code = (only(0, init(), INIT_FENCE), SYNC, TO_NEXT, only(0, ARRIVE_THERE), wait(), CLUSTER_SYNC)
    assert rules(run(*code, grid=2, cluster=2)[0]) == {"BARRIER_INIT"}


def test_a_block_ends_behind_what_others_do_in_its_memory():
    code = (*READY_BOTH, only(0, ARRIVE_THERE))
    assert run(*code, CLUSTER_SYNC, grid=2, cluster=2)[0].ok
    assert rules(run(*code, grid=2, cluster=2)[0], "warning") == {"BLOCK_ENDED"}


COPY_THERE = (
    "mov.u32 %r9, tile;\nmapa.shared::cluster.u32 %r9, %r9, %r7;\n"
    "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
    "[%r9], [tile+512], 512, [%r8];"
)
SEND_WORD = (
    "mov.u32 %r9, tile;\nmapa.shared::cluster.u32 %r9, %r9, %r7;\n"
    "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r9], %t, [%r8+8];"
)


# Ways in which block 0 learns from block 1 that its copy is complete.
TOLD = {
    "a barrier of the cluster": (CLUSTER_SYNC,),
    "a relaxed barrier of the cluster": (CLUSTER_SYNC.replace("arrive", "arrive.relaxed"),),
    "an arrival": (
        only(1, only(0, ARRIVE_THERE.replace("%r8", "%r8+8")), of="%block"),
        only(0, wait(1), of="%block"),
    ),
    "st.async": (
        only(1, only(0, SEND_WORD), of="%block"),
        only(0, only(0, arm(1, 4)), wait(1), of="%block"),
    ),
}


@pytest.mark.parametrize("way", TOLD)
def test_a_block_ends_behind_its_copy_to_another_block(way):
    code = (
        only(0, init(), init(1), INIT_FENCE, arm()),
        "st.shared.u32 [%word+512], %t;",
        FENCE,
        CLUSTER_SYNC,
        TO_NEXT,
        only(0, only(0, COPY_THERE), of="%block"),
        only(1, wait(), READ, RESULT, of="%block"),
    )
    found, out = run(*code, *TOLD[way], grid=2, cluster=2)
    assert not found.findings, str(found)
    np.testing.assert_array_equal(out.reshape(-1)[:128], np.arange(128))
    found, _ = run(*code, grid=2, cluster=2)
    assert [(f.rule, f.severity) for f in found.findings] == [("BLOCK_ENDED", "warning")]


def test_a_barrier_of_another_cluster_is_an_error():
    found, _ = run(
        *READY, "mov.u32 %r8, bars;", "add.u32 %r8, %r8, 0x1000000;", only(0, ARRIVE_THERE)
    )
    assert rules(found) == {"CLUSTER"}


TILE_THERE = "mov.u32 %r9, tile;\nmapa.shared::cluster.u32 %r9, %r9, %r7;\n"
WORD_THERE = TILE_THERE + "add.u32 %r9, %r9, %r0;\n"
# Ways in which an instruction writes the 512 bytes of `tile`, here or in the other block.
INTO_TILE = {
    "st": (WRITE,),
    "st there": (WORD_THERE + "st.shared::cluster.u32 [%r9], %t;",),
    "atom": ("atom.shared.exch.b32 %r5, [%word], %t;",),
    "stmatrix": (
        below(
            32,
            "shl.b32 %r5, %t, 4;",
            "mov.u32 %r6, tile;",
            "add.u32 %r6, %r6, %r5;",
            "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r6], {%t, %t, %t, %t};",
        ),
    ),
    "cp.async": (
        "add.u64 %rd1, %in, 0;",
        "cp.async.ca.shared.global [%word], [%rd1], 4;",
        "cp.async.wait_all;",
    ),
    "cp.async.bulk": (only(0, arm(), load()), wait()),
    "cp.async.bulk.tensor": (only(0, arm(0, TILE), tile()), wait()),
    "cp.async.bulk there": (
        only(
            0,
            arm(0, 496),
            TILE_THERE + "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
            "[%r9+16], [tile+528], 496, [%r8];",
        ),
        wait(),
    ),
    "st.async": (
        only(0, arm()),
        WORD_THERE + "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 "
        "[%r9], %t, [%r8];",
        wait(),
    ),
}


@pytest.mark.parametrize("way", INTO_TILE)
def test_a_barrier_is_not_used_after_a_write_over_its_bytes(way):
    def at(place):
        return (
            "st.shared.u32 [%word+512], %t;",
            FENCE,
            SYNC,
            only(0, init(), f"mbarrier.init.shared::cta.b64 [tile+{place}], 1;", INIT_FENCE),
            CLUSTER_SYNC,
            TO_NEXT,
            *INTO_TILE[way],
            CLUSTER_SYNC,
            only(0, f"mbarrier.arrive.shared::cta.b64 _, [tile+{place}];"),
        )

    assert run(*at(512), grid=2, cluster=2)[0].ok
    assert rules(run(*at(504), grid=2, cluster=2)[0]) == {"BARRIER_OVERWRITTEN"}


def test_all_uses_of_an_overwritten_barrier_are_one_finding():
    found, _ = run(
        *READY, only(0, "st.shared.u32 [bars], 0;"), SYNC, only(0, arm(), load()), wait()
    )
    [finding] = found.findings
    assert (finding.rule, finding.severity) == ("BARRIER_OVERWRITTEN", "error")
    assert "st.shared.u32" in finding.evidence[0]


# -- maps that the kernel changes ------------------------------------------------------------------

# Copy the map's 128 bytes to %flag, and change the map's address to that of %in + 512.
COPY_MAP = "\n".join(
    f"ld.param.u64 %rd1, [source+{8 * n}];\nst.global.u64 [%flag+{8 * n}], %rd1;" for n in range(16)
)
CHANGE = (
    "add.u64 %rd2, %in, 512;\ntensormap.replace.tile.global_address.global.b1024.b64 [%flag], %rd2;"
)
RELEASE = "fence.proxy.tensormap::generic.release.gpu;"
ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%flag], 128;"
ALIGNED = "add.u64 %flag, %flag, 127;\nand.b64 %flag, %flag, -128;"


def changed(*fences):
    return (
        ALIGNED,
        *READY,
        only(0, COPY_MAP, CHANGE, *fences, arm(0, TILE), tile(source="%flag")),
        wait(),
        READ,
        RESULT,
    )


def test_a_changed_map_is_used_behind_a_release_and_an_acquire():
    found, out = run(*changed(RELEASE, ACQUIRE))
    assert found.ok, str(found)
    np.testing.assert_array_equal(out.reshape(-1)[:128], np.arange(128, 256) + 1000)


@pytest.mark.parametrize("fences", [(), (RELEASE,), (ACQUIRE,), (ACQUIRE, RELEASE)], ids=len)
def test_a_changed_map_without_both_fences_is_an_error(fences):
    assert rules(run(*changed(*fences))[0]) == {"MAP_FENCE"}


# -- the result ------------------------------------------------------------------------------------


def test_a_right_run_reads_well():
    found, _ = run(*loaded(tile(), READ, RESULT))
    assert str(found) == f"kernel: no mistake was found ({found.steps:,} steps)"
    found.raise_if_wrong()
    assert {row.kind for row in found.timeline} == {"copy", "wait"}
    assert "no mistake" in found._repr_html_()


def test_a_wrong_run_raises_with_its_findings():
    found, _ = run(WRITE, SYNC, only(0, STORE, COMMIT, WAIT_READ))
    with pytest.raises(TmaKernelError, match="PROXY_FENCE"):
        found.raise_if_wrong()
    (finding,) = found.findings
    assert (finding.block, finding.thread, finding.kernel) == ((0, 0, 0), (0, 0, 0), "kernel")
    data = json.loads(found.to_json())
    assert data["findings"][0]["rule"] == "PROXY_FENCE"
    assert not data["ok"]
    assert data["schedule"] == "late"


def test_st_async_arrives_with_its_bytes_at_the_other_block():
    map_tile = "mov.u32 %r9, tile;\nmapa.shared::cluster.u32 %r9, %r9, %r7;\nadd.u32 %r9, %r9, %r0;"
    send = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r9], %r10, [%r8];"
    code = (
        only(0, init(), INIT_FENCE, arm()),
        CLUSTER_SYNC,
        TO_NEXT,
        map_tile,
        "mad.lo.u32 %r10, %block, 1000, %t;",
        send,
    )
    rows = ("mul.wide.u32 %rd3, %block, 512;", "add.u64 %mine, %mine, %rd3;")
    found, out = run(*code, wait(), READ, *rows, RESULT, CLUSTER_SYNC, grid=2, cluster=2)
    assert found.ok, str(found)
    np.testing.assert_array_equal(out.reshape(2, -1), [np.arange(128) + 1000, np.arange(128)])
    unwaited, _ = run(*code, READ, CLUSTER_SYNC, grid=2, cluster=2)
    assert "LOAD_WAIT" in rules(unwaited)


ADD_THERE = {
    "red.async": "add.u32 %r9, %r9, %r0;\nred.async.relaxed.cluster.shared::cluster"
    ".mbarrier::complete_tx::bytes.add.u32 [%r9], %t, [%r8];",
    "cp.reduce": only(
        0,
        "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 "
        "[%r9], [tile+512], 512, [%r8];",
    ),
}


@pytest.mark.parametrize("way", ADD_THERE)
def test_an_asynchronous_sum_at_another_block_begins_with_what_that_wrote(way):
    zero = "st.shared.u32 [%word], 5;"
    there = "mov.u32 %r9, tile;\nmapa.shared::cluster.u32 %r9, %r9, %r7;"
    code = (
        only(0, init(), INIT_FENCE, arm()),
        zero,
        "st.shared.u32 [%word+512], %t;",
        FENCE,
        CLUSTER_SYNC,
        TO_NEXT,
        there,
        ADD_THERE[way],
        wait(),
        READ,
        RESULT,
        CLUSTER_SYNC,
    )
    found, out = run(*code, grid=2, cluster=2)
    assert found.ok, str(found)
    np.testing.assert_array_equal(out.reshape(-1)[:128], np.arange(128) + 5)
    without = [piece for piece in code if piece is not zero]
    assert rules(run(*without, grid=2, cluster=2)[0]) == {"UNINITIALISED_SHARED"}
