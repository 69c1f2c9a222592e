"""Right kernels have no finding. For each, a variant with a mistake has a finding."""

import numpy as np
import pytest
from ptx_text import (
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

from tma_dlpack import make_tma_descriptor
from tma_dlpack.kernel import run_kernel

THREADS = 128


def run(*code, grid=1, cluster=0, block=THREADS, schedules=3):
    given = np.arange(256, dtype=np.uint32) + 1000
    out, flag = np.zeros(256, np.uint32), np.zeros(4, np.uint32)
    source, goal = (make_tma_descriptor(a.reshape(8, 32), box_sizes=(4, 32)) for a in (given, out))
    args = (given, out, flag, source, goal)
    text = kernel(*code, cluster=cluster)
    return run_kernel(text, grid=grid, block=block, args=args, schedules=schedules), out


def rules(found, severity="error"):
    return {f.rule for f in found.findings if f.severity == severity}


LOADED = (*READY, only(0, arm(), load()))
STORED = (WRITE, FENCE, SYNC, only(0, STORE, COMMIT, WAIT_READ))
RELEASE_TO_ASYNC = "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;"
OTHER = "st.shared.u32 [%word], 7;"
AGAIN = (SYNC, OTHER)
INVALIDATE = "mbarrier.inval.shared::cta.b64 [bars];"
# The memory of a barrier contains other data after the last use of the barrier.
OTHER_DATA = (*LOADED, wait(), READ, FENCE, SYNC, only(0, "st.shared.u32 [bars+4], 7;"), SYNC)
GIVEN = np.arange(128) + 1000
TID = np.arange(128)
FLAG = "ld.{how}.gpu.global.u32 %r6, [%flag];"


def flagged(release, acquire, number="mov.u32 %r9, %ctaid.x;", leader="%t"):
    """Block 0 writes and publishes a flag. Block 1 waits for the flag and reads."""
    return (
        number,
        f"mov.u32 %r10, {leader};",
        only(
            0,
            only(0, "st.global.u32 [%out], %t;", "st.global.u32 [%out+4], 7;", release, of="%r9"),
            only(
                1, acquire, "ld.global.u32 %r5, [%out+4];", "st.global.u32 [%out+8], %r5;", of="%r9"
            ),
            of="%r10",
        ),
    )


def flagged_in_block(release, acquire):
    """Warp 0 writes and publishes a flag. Warp 1 of the same block waits and reads."""
    return flagged(release, acquire, "shr.u32 %r9, %t, 5;", "%laneid")


def fenced(written, read=None, flag="gpu"):
    """Return a relaxed flag of scope `flag` with a fence before its write and after its read."""
    return (
        f"{written}\nst.relaxed.{flag}.global.u32 [%flag], 1;",
        spin(f"relaxed.{flag}") + f"\n{read or written}",
    )


def spin(how):
    return f"$SPIN:\nld.{how}.global.u32 %r6, [%flag];\nsetp.eq.u32 %p3, %r6, 0;\n@%p3 bra $SPIN;"


def ring(release, wait_empty):
    """A producer, thread 0, loads twice into one slot; three warps read it."""
    return (
        only(0, init(0), init(1, 96), init(2), INIT_FENCE),
        SYNC,
        only(0, arm(0), load(0), wait_empty, arm(2), load(2)),
        above(32, wait(0), READ, release, wait(2), READ, RESULT),
    )


def in_tile(code):
    """Put a barrier into the last bytes of the tile."""
    return code.replace("bars+0", "tile+504")


RIGHT = {
    "a tile is read after its wait": ((*LOADED, wait(), READ, RESULT), GIVEN),
    "every writer fences": ((*STORED,), TID),
    "the issuer fences after the barrier": (
        (WRITE, SYNC, only(0, FENCE, STORE, COMMIT, WAIT_READ)),
        TID,
    ),
    "a fence of shared memory is enough": (
        (WRITE, "fence.proxy.async.shared::cta;", SYNC, only(0, STORE, COMMIT, WAIT_READ)),
        TID,
    ),
    "a one-way fence of shared memory is enough": (
        (WRITE, RELEASE_TO_ASYNC, SYNC, only(0, STORE, COMMIT, WAIT_READ)),
        TID,
    ),
    "a slot is written again after wait_group.read": ((*STORED, *AGAIN), TID),
    "global memory is read after wait_group": (
        (
            WRITE,
            FENCE,
            SYNC,
            only(0, STORE, COMMIT, WAIT_WRITTEN),
            SYNC,
            "ld.global.u32 %r5, [%mine];",
            "st.global.u32 [%mine], %r5;",
        ),
        TID,
    ),
    "a slot is loaded again after an arrival": (ring(arrive(1), wait(1, 0)), None),
    "a relaxed arrival releases what was read": (ring(arrive(1, ".relaxed.cta"), wait(1, 0)), None),
    "a barrier orders warps": (
        (WRITE, SYNC, "ld.shared.u32 %r5, [%next];", RESULT),
        (TID + 32) % 128,
    ),
    "bar.arrive and bar.sync with a count": (
        (
            below(64, WRITE, "bar.arrive 1, 128;"),
            above(
                64,
                "bar.sync 1, 128;",
                "sub.u32 %r7, %word, 256;",
                "ld.shared.u32 %r5, [%r7];",
                RESULT,
            ),
        ),
        np.where(TID < 64, 0, TID - 64),
    ),
    "named barriers of two halves": (
        (
            WRITE,
            "shr.u32 %r7, %t, 6;",
            "add.u32 %r7, %r7, 1;",
            "bar.sync %r7, 64;",
            "xor.b32 %r8, %word, 128;",
            "ld.shared.u32 %r5, [%r8];",
            RESULT,
        ),
        TID ^ 32,
    ),
    "a named barrier that each warp completes": (
        (WRITE, "bar.sync 1, 32;", "ld.shared.u32 %r5, [%mate];", RESULT),
        TID ^ 1,
    ),
    "a named barrier that two halves use one after the other": (
        (
            WRITE,
            "xor.b32 %r8, %word, 128;",
            below(64, "bar.sync 1, 64;", "ld.shared.u32 %r5, [%r8];"),
            SYNC,
            above(64, "bar.sync 1, 64;", "ld.shared.u32 %r5, [%r8];"),
            RESULT,
        ),
        TID ^ 32,
    ),
    "two halves that take turns": (
        (
            "shr.u32 %r7, %t, 6;",
            "add.u32 %r7, %r7, 1;",
            above(64, "bar.arrive 1, 128;"),
            WRITE,
            "bar.sync %r7, 128;",
            below(64, "bar.arrive 2, 128;"),
            "and.b32 %r8, %word, -257;",
            "ld.shared.u32 %r5, [%r8];",
            RESULT,
        ),
        TID % 64,
    ),
    "a flag with release and acquire": (
        flagged("st.release.gpu.global.u32 [%flag], 1;", spin("acquire.gpu")),
        None,
    ),
    "a relaxed flag with fences": (
        flagged(
            "fence.acq_rel.gpu;\nst.relaxed.gpu.global.u32 [%flag], 1;",
            spin("relaxed.gpu") + "\nfence.acq_rel.gpu;",
        ),
        None,
    ),
    "a volatile flag with membar": (
        flagged(
            "membar.gl;\nst.volatile.global.u32 [%flag], 1;", spin("volatile") + "\nmembar.gl;"
        ),
        None,
    ),
    "a release of a warp at cta scope": (
        flagged_in_block("st.release.cta.global.u32 [%flag], 1;", spin("acquire.cta")),
        None,
    ),
    "a release of a warp at gpu scope for a reader at cta scope": (
        flagged_in_block("st.release.gpu.global.u32 [%flag], 1;", spin("acquire.cta")),
        None,
    ),
    "a fence of a warp at cta scope": (flagged_in_block(*fenced("membar.cta;")), None),
    "a fence of a warp at gpu scope for a reader at cta scope": (
        flagged_in_block(*fenced("fence.acq_rel.gpu;", "fence.acq_rel.cta;", flag="cta")),
        None,
    ),
    "a flag in a cluster at cluster scope": (
        flagged("st.release.cluster.global.u32 [%flag], 1;", spin("acquire.cluster")),
        None,
    ),
    "a relaxed flag in a cluster with fences at cluster scope": (
        flagged(*fenced("fence.acq_rel.cluster;")),
        None,
    ),
    "a relaxed flag with wide fences before narrow fences": (
        flagged(
            *fenced(
                "fence.acq_rel.gpu;\nfence.acq_rel.cta;",
                "fence.acq_rel.cta;\nfence.acq_rel.gpu;",
            )
        ),
        None,
    ),
    "an atomic flag with fences": (
        flagged(
            "membar.gl;\natom.global.add.u32 %r6, [%flag], 1;",
            "$SPIN:\natom.global.or.b32 %r6, [%flag], 0;\n"
            "setp.eq.u32 %p3, %r6, 0;\n@%p3 bra $SPIN;\n"
            "membar.gl;",
        ),
        None,
    ),
    "atomics of all threads at one word": (("atom.global.add.u32 %r5, [%flag], 1;",), None),
    "a sum in shared memory that is zero first": (
        (
            only(0, "st.shared.u32 [tile], 0;"),
            SYNC,
            "red.shared.add.u32 [tile], 1;",
            SYNC,
            "ld.shared.u32 %r5, [tile];",
            RESULT,
        ),
        np.full(128, 128),
    ),
    "a sum in shared memory that an exchange makes zero": (
        (
            only(0, "atom.shared.exch.b32 %r6, [tile], 0;"),
            SYNC,
            "atom.shared.add.u32 %r6, [tile], 1;",
            SYNC,
            "ld.shared.u32 %r5, [tile];",
            RESULT,
        ),
        np.full(128, 128),
    ),
    "threads that store the same value": (
        ("st.shared.u32 [tile], 5;", SYNC, "ld.shared.u32 %r5, [tile];", RESULT),
        np.full(128, 5),
    ),
    "lanes with __syncwarp": (
        (WRITE, "bar.warp.sync -1;", "ld.shared.u32 %r5, [%mate];", RESULT),
        TID ^ 1,
    ),
    "a store is not waited for where the same values are written": (
        (WRITE, FENCE, SYNC, only(0, STORE, COMMIT), SYNC, WRITE),
        TID,
    ),
    "a barrier that is initialised, fenced and published": ((*READY, arrive()), None),
    "the memory of a barrier is used again": (
        (*OTHER_DATA, "ld.shared.u32 %r5, [bars+4];", RESULT),
        np.full(128, 7),
    ),
    "the memory of a barrier is used again, then for a new barrier": (
        (*OTHER_DATA, *READY, only(0, arm(), load()), wait()),
        None,
    ),
    "a barrier is invalidated, and its memory is used again": (
        (*READY, arrive(), SYNC, only(0, INVALIDATE, "st.shared.u32 [bars+4], 7;")),
        None,
    ),
    "a barrier is invalidated after its memory is used again": (
        (*OTHER_DATA, only(0, INVALIDATE)),
        None,
    ),
    "mbarrier.init published by a relaxed arrival of the cluster": (
        (
            only(0, init(), INIT_FENCE),
            "barrier.cluster.arrive.relaxed;",
            "barrier.cluster.wait;",
            arrive(),
        ),
        None,
    ),
    "cp.async after its wait and a barrier": (
        (
            "mul.wide.u32 %rd1, %t, 4;",
            "add.u64 %rd1, %in, %rd1;",
            "cp.async.ca.shared.global [%word], [%rd1], 4;",
            "cp.async.commit_group;",
            "cp.async.wait_group 0;",
            SYNC,
            "ld.shared.u32 %r5, [%next];",
            RESULT,
        ),
        (TID + 32) % 128 + 1000,
    ),
    "cp.async after an mbarrier": (
        (
            only(0, init(0, 128), INIT_FENCE),
            SYNC,
            "mul.wide.u32 %rd1, %t, 4;",
            "add.u64 %rd1, %in, %rd1;",
            "cp.async.ca.shared.global [%word], [%rd1], 4;",
            "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [bars];",
            wait(),
            "ld.shared.u32 %r5, [%next];",
            RESULT,
        ),
        (TID + 32) % 128 + 1000,
    ),
}

WRONG = {
    "a tile is read without a wait": ((*LOADED, READ, RESULT), "LOAD_WAIT"),
    "a wait for the other parity": ((*LOADED, wait(0, 1), READ, RESULT), "LOAD_WAIT"),
    "half of the bytes are expected": (
        (*READY, only(0, arm(0, 256), load()), wait(), READ, RESULT),
        "LOAD_WAIT",
    ),
    "nobody fences": ((WRITE, SYNC, only(0, STORE, COMMIT, WAIT_READ)), "PROXY_FENCE"),
    "the issuer alone fences, before the barrier": (
        (WRITE, only(0, FENCE), SYNC, only(0, STORE, COMMIT, WAIT_READ)),
        "PROXY_FENCE",
    ),
    "a fence of global memory alone": (
        (WRITE, "fence.proxy.async.global;", SYNC, only(0, STORE, COMMIT, WAIT_READ)),
        "PROXY_FENCE",
    ),
    "a fence of another proxy": (
        (WRITE, "fence.proxy.alias;", SYNC, only(0, STORE, COMMIT, WAIT_READ)),
        "PROXY_FENCE",
    ),
    "a store is not waited for": (
        (WRITE, FENCE, SYNC, only(0, STORE, COMMIT), *AGAIN),
        "BULK_WAIT",
    ),
    "a store is waited for by its thread alone": ((*STORED, OTHER), "BULK_WAIT"),
    "a store is not committed": (
        (WRITE, FENCE, SYNC, only(0, STORE, WAIT_READ), *AGAIN),
        "BULK_WAIT",
    ),
    "global memory is read after wait_group.read": (
        (
            WRITE,
            FENCE,
            SYNC,
            only(0, STORE, COMMIT, WAIT_READ),
            SYNC,
            "ld.global.u32 %r5, [%mine];",
        ),
        "BULK_WAIT",
    ),
    "a slot is loaded again without a wait": (ring(arrive(1), ""), "SLOT_REUSED"),
    "a slot is loaded again after a wait for the other parity": (
        ring(arrive(1), wait(1, 1)),
        "SLOT_REUSED",
    ),
    "no barrier between warps": ((WRITE, "ld.shared.u32 %r5, [%next];"), "RACE"),
    "bar.arrive before the write": (
        (
            below(64, "bar.arrive 1, 128;", WRITE),
            above(64, "bar.sync 1, 128;", "sub.u32 %r7, %word, 256;", "ld.shared.u32 %r5, [%r7];"),
        ),
        "RACE",
    ),
    "named barriers of the wrong halves": (
        (
            WRITE,
            "shr.u32 %r7, %t, 6;",
            "add.u32 %r7, %r7, 1;",
            "bar.sync %r7, 64;",
            "xor.b32 %r8, %word, 256;",
            "ld.shared.u32 %r5, [%r8];",
        ),
        "RACE",
    ),
    "a named barrier that each warp completes": (
        (WRITE, "bar.sync 1, 32;", "ld.shared.u32 %r5, [%next];"),
        "RACE",
    ),
    "a named barrier that neighbouring pairs of warps share": (
        (WRITE, "bar.sync 1, 64;", "xor.b32 %r8, %word, 128;", "ld.shared.u32 %r5, [%r8];"),
        "RACE",
    ),
    "a named barrier that pairs of warps share after barriers of their own": (
        (
            "shr.u32 %r7, %t, 6;",
            "add.u32 %r7, %r7, 1;",
            "bar.sync %r7, 64;",
            WRITE,
            "bar.sync 1, 64;",
            "xor.b32 %r8, %word, 128;",
            "ld.shared.u32 %r5, [%r8];",
        ),
        "RACE",
    ),
    "a named barrier that half of the warps complete": (
        (WRITE, "bar.sync 1, 64;", "xor.b32 %r8, %word, 256;", "ld.shared.u32 %r5, [%r8];"),
        "RACE",
    ),
    "a relaxed flag without fences": (
        flagged("st.relaxed.gpu.global.u32 [%flag], 1;", spin("relaxed.gpu")),
        "RACE",
    ),
    "a relaxed flag without the reader's fence": (
        flagged("fence.acq_rel.gpu;\nst.relaxed.gpu.global.u32 [%flag], 1;", spin("relaxed.gpu")),
        "RACE",
    ),
    "an acquire of a flag that is not released": (
        flagged("st.relaxed.gpu.global.u32 [%flag], 1;", spin("acquire.gpu")),
        "RACE",
    ),
    "a flag that is released at cta scope": (
        flagged("st.release.cta.global.u32 [%flag], 1;", spin("acquire.gpu")),
        "RACE",
    ),
    "a flag that is acquired at cta scope": (
        flagged("st.release.gpu.global.u32 [%flag], 1;", spin("acquire.cta")),
        "RACE",
    ),
    "a flag that is released at cluster scope for another cluster": (
        flagged("st.release.cluster.global.u32 [%flag], 1;", spin("acquire.gpu")),
        "RACE",
    ),
    "a flag in a cluster at cta scope": (
        flagged("st.release.cta.global.u32 [%flag], 1;", spin("acquire.cta")),
        "RACE",
    ),
    "a relaxed flag with the writer's fence at cta scope": (
        flagged(*fenced("fence.acq_rel.cta;", "fence.acq_rel.gpu;")),
        "RACE",
    ),
    "a relaxed flag with the reader's fence at cta scope": (
        flagged(*fenced("fence.acq_rel.gpu;", "fence.acq_rel.cta;")),
        "RACE",
    ),
    "a relaxed flag at cta scope with fences": (
        flagged(*fenced("fence.acq_rel.gpu;", flag="cta")),
        "RACE",
    ),
    "an atomic flag at cta scope with fences": (
        flagged(
            "membar.gl;\natom.relaxed.cta.global.add.u32 %r6, [%flag], 1;",
            spin("relaxed.gpu") + "\nmembar.gl;",
        ),
        "RACE",
    ),
    "a volatile flag with membar.cta": (
        flagged(
            "membar.cta;\nst.volatile.global.u32 [%flag], 1;", spin("volatile") + "\nmembar.cta;"
        ),
        "RACE",
    ),
    "sums without atomics": (
        ("ld.global.u32 %r5, [%flag];", "add.u32 %r5, %r5, 1;", "st.global.u32 [%flag], %t;"),
        "RACE",
    ),
    "threads that store different values": (
        (
            "shr.u32 %r5, %t, 5;",
            below(32, "st.shared.u32 [tile], 5;"),
            above(96, "st.shared.u32 [tile], 6;"),
        ),
        "RACE",
    ),
    "a barrier that nobody published": ((only(0, init(), INIT_FENCE), arrive()), "BARRIER_INIT"),
    "a barrier that is never initialised": ((arrive(),), "BARRIER_INIT"),
    "a barrier is used after its memory is used for other data": (
        (*OTHER_DATA, only(0, arrive())),
        "BARRIER_OVERWRITTEN",
    ),
    "a load overwrites the barrier on which it completes": (
        (only(0, *(in_tile(piece) for piece in (init(), INIT_FENCE, arm(), load()))),),
        "BARRIER_OVERWRITTEN",
    ),
    "cp.async without a wait": (
        (
            "mul.wide.u32 %rd1, %t, 4;",
            "add.u64 %rd1, %in, %rd1;",
            "cp.async.ca.shared.global [%word], [%rd1], 4;",
            "cp.async.commit_group;",
            SYNC,
            "ld.shared.u32 %r5, [%next];",
        ),
        "CP_ASYNC_WAIT",
    ),
    "cp.async without a barrier": (
        (
            "mul.wide.u32 %rd1, %t, 4;",
            "add.u64 %rd1, %in, %rd1;",
            "cp.async.ca.shared.global [%word], [%rd1], 4;",
            "cp.async.commit_group;",
            "cp.async.wait_group 0;",
            "ld.shared.u32 %r5, [%next];",
        ),
        "CP_ASYNC_WAIT",
    ),
    "more arrivals after cp.async than a phase has": (
        (
            only(0, init(0, 2), INIT_FENCE, "mbarrier.expect_tx.shared::cta.b64 [bars], 512;"),
            SYNC,
            "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [bars];",
        ),
        "BARRIER_ARRIVALS",
    ),
    "shared memory that nobody wrote": ((READ,), "UNINITIALISED_SHARED"),
    "a sum in shared memory that nobody wrote": (
        ("red.shared.add.u32 [tile], 1;",),
        "UNINITIALISED_SHARED",
    ),
    "a lock in shared memory that nobody wrote": (
        (only(0, "st.shared.u32 [tile+4], 0;", "atom.shared.cas.b32 %r6, [tile], 0, 1;"),),
        "UNINITIALISED_SHARED",
    ),
    "a load overtakes reads at the block's barrier": (
        (*LOADED, wait(), READ, SYNC, only(0, arm(), load()), wait(0, 1), RESULT),
        "PROXY_FENCE",
    ),
    "a load overtakes the reads of its own thread": (
        (*LOADED, wait(), only(0, READ, arm(), load()), wait(0, 1), RESULT),
        "PROXY_FENCE",
    ),
}

WARNED = {
    "lanes without __syncwarp": ((WRITE, "ld.shared.u32 %r5, [%mate];", RESULT), "WARP_SYNC"),
    "read, arrival, load again, without a fence": (ring(arrive(1), wait(1, 0)), "PROXY_FENCE"),
    "read, use, the block's barrier, load again, without a fence": (
        (*LOADED, wait(), READ, RESULT, SYNC, only(0, arm(), load()), wait(0, 1)),
        "PROXY_FENCE",
    ),
    "a block ends before its store is read": (
        (WRITE, FENCE, SYNC, only(0, STORE, COMMIT)),
        "BULK_WAIT",
    ),
    "a barrier that a copy uses without a fence": (
        (only(0, init()), SYNC, only(0, arm(), load()), wait(), READ),
        "BARRIER_INIT",
    ),
}


def test_a_barrier_without_a_fence_is_one_finding_for_all_copies():
    found, _ = run(only(0, init()), SYNC, only(0, arm(0, 1024), load(), load()), wait(), READ)
    [finding] = [f for f in found.findings if f.rule == "BARRIER_INIT"]
    assert finding.sites == 2


def launch(case):
    """Return the arguments of a launch: a case of a flag has two blocks, or a cluster of two."""
    if "flag in a cluster" in case:
        return {"grid": 2, "cluster": 2}
    return {"grid": 2 if "flag" in case else 1}


@pytest.mark.parametrize("case", RIGHT)
def test_a_right_kernel_has_no_error(case):
    code, expected = RIGHT[case]
    found, out = run(*code, **launch(case))
    assert found.ok, str(found)
    if expected is not None:
        np.testing.assert_array_equal(out[:128], expected)


@pytest.mark.parametrize("case", WRONG)
def test_its_broken_twin_has_the_error(case):
    code, rule = WRONG[case]
    found, _ = run(*code, **launch(case))
    assert rule in rules(found), str(found)


@pytest.mark.parametrize("case", WARNED)
def test_what_works_in_practice_is_a_warning(case):
    code, rule = WARNED[case]
    found, _ = run(*code)
    assert found.ok, str(found)
    assert rule in rules(found, "warning"), str(found)


def test_blocks_that_run_one_after_the_other_race_too():
    block = "mov.u32 %r9, %ctaid.x;"
    found, _ = run(block, "st.global.u32 [%mine], %r9;", grid=3)
    assert rules(found) == {"RACE"}
    found, _ = run("st.global.u32 [%mine], %t;", grid=3)
    assert found.ok, str(found)
    apart = ("mul.wide.u32 %rd1, %r9, 512;", "add.u64 %mine, %mine, %rd1;")
    found, _ = run(block, *apart, "st.global.u32 [%mine], %r9;", grid=2)
    assert found.ok, str(found)
