"""Messages about two memory accesses that are not ordered.

A row of `MEETINGS` has the message for one kind of later access after an earlier access by one kind
of agent (see `order`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tma_dlpack.kernel.core import rows


class Meeting(NamedTuple):
    """Texts of a finding; `{agent}` in `message` stands for the agent of the earlier access."""

    rule: str
    severity: str
    message: str
    fix: str


# Fixes that several rows of `MEETINGS` share.
_FENCE = (
    "write, then fence.proxy.async by every thread that wrote, then the barrier, then the copy "
    "(cuda::ptx::fence_proxy_async, tma::fence_async)"
)
_BARRIER = "order them: __syncthreads, an mbarrier, or a flag with release and acquire"
_WAIT = (
    "wait for the mbarrier and the parity of the phase that the load completes, and let it expect "
    "all bytes of its copies"
)
_GROUP = (
    "cp.async.bulk.commit_group after the store, then cp.async.bulk.wait_group by the thread that "
    "issued it, then a barrier of all others"
)
_GROUP_READ = (
    "cp.async.bulk.commit_group after the store; before the write, cp.async.bulk.wait_group.read "
    "by the thread that issued it, then a barrier of all that write"
)
_RELEASE = (
    "let every thread that reads the stage arrive at its empty barrier after the last read, and "
    "the producer wait for that phase before it loads again"
)
_CP_ASYNC = "cp.async.wait_group (or cp.async.mbarrier.arrive), then a barrier of all that read"

#: "kind of the later access" + " " + "kind of the earlier access's agent" -> texts of the finding.
#: The kind of an agent is the argument `kind` of `Order.add_agent`.
MEETINGS: Final = {
    names: Meeting(rule, severity, message, fix)
    for names, rule, severity, message, fix in rows(f"""
read warp | RACE | error | memory is read that other threads wrote ({{agent}}), and nothing orders
    the read after the write | {_BARRIER}
read same warp | WARP_SYNC | warning | a lane reads what another lane of its warp wrote, without
    __syncwarp between them | __syncwarp() between them
read load | LOAD_WAIT | error | a tile is read before the load that fills it is known to be complete
    ({{agent}}) | {_WAIT}
read store_write | BULK_WAIT | error | global memory is read that a bulk store may not have written
    yet | {_GROUP}
read cp_async | CP_ASYNC_WAIT | error | memory is read that cp.async may not have written yet
    | {_CP_ASYNC}
write warp | RACE | error | two threads write other values to the same memory ({{agent}}), and
    nothing orders them | {_BARRIER}
write same warp | WARP_SYNC | warning | two lanes of a warp write the same memory, without
    __syncwarp between them | __syncwarp() between them
write load | LOAD_WAIT | error | memory is written that a bulk load still fills ({{agent}})
    | {_WAIT}
write store_write | BULK_WAIT | error | global memory is written that a bulk store may still write
    | {_GROUP}
write cp_async | CP_ASYNC_WAIT | error | memory is written that cp.async may still write
    | {_CP_ASYNC}
read tcgen05 | TCGEN05_WAIT | error | an accumulator in tensor memory is read before the tcgen05.mma
    that writes it is known to be complete | tcgen05.commit to an mbarrier after the last
    tcgen05.mma, wait for it, then tcgen05.fence::after_thread_sync
write tcgen05 | TCGEN05_WAIT | error | tensor memory is written that a tcgen05.mma may still write
    | tcgen05.commit to an mbarrier, and wait for it before the write
overwrite warp | RACE | error | memory is written that other threads may still read ({{agent}})
    | {_BARRIER}
overwrite load | LOAD_WAIT | error | global memory is written that a bulk load may still read
    ({{agent}}) | {_WAIT}
overwrite store_read | BULK_WAIT | error | shared memory is written again while a bulk store may
    still read it | {_GROUP_READ}
overwrite wgmma | WGMMA_WAIT | error | shared memory is written again while a wgmma may still read
    it | wgmma.commit_group, then wgmma.wait_group before the write
overwrite tcgen05 | TCGEN05_WAIT | error | shared memory is written again while a tcgen05
    instruction may still read it | tcgen05.commit to an mbarrier, and wait for it before the write
async read warp | RACE | error | an asynchronous operation reads memory that other threads wrote
    ({{agent}}), and nothing orders it after the write | {_FENCE}
async read without fence | PROXY_FENCE | error | memory is written by ordinary stores and read by an
    asynchronous operation without fence.proxy.async between them: it may read what was there before
    | {_FENCE}
async read load | LOAD_WAIT | error | an asynchronous operation reads a tile before the load that
    fills it is known to be complete ({{agent}}) | {_WAIT}
async read store_write | BULK_WAIT | error | a bulk load reads global memory that a bulk store may
    not have written yet | {_GROUP}
async read cp_async | CP_ASYNC_WAIT | error | an asynchronous operation reads memory that cp.async
    may not have written yet | {_CP_ASYNC}, with fence.proxy.async
async write warp | RACE | error | a bulk copy writes memory that other threads may still write
    ({{agent}}) | {_RELEASE}
async write without fence | PROXY_FENCE | warning | memory is written by ordinary stores, then by a
    bulk copy, without fence.proxy.async between them: their order is open | {_FENCE}
async write load | SLOT_REUSED | error | a bulk load writes memory that an earlier load still fills
    ({{agent}}) | {_RELEASE}
async write store_write | RACE | error | two bulk stores write other values to the same global
    memory, and nothing orders them | {_GROUP}
async write cp_async | CP_ASYNC_WAIT | error | a bulk load writes memory that cp.async may still
    write | {_CP_ASYNC}
async overwrite warp | SLOT_REUSED | error | a bulk copy overwrites memory that threads may still
    read ({{agent}}): the slot is used again too early | {_RELEASE}
async overwrite without fence | PROXY_FENCE | warning | shared memory is read by ordinary loads,
    then overwritten by a bulk copy, without fence.proxy.async between them | after the last read,
    fence.proxy.async, then the barrier, then the copy
async overwrite in flight | PROXY_FENCE | error | shared memory is read by ordinary loads, no value
    of which is used before the barrier of the threads, then overwritten by a bulk copy without
    fence.proxy.async between them: the copy overtakes the loads (measured: 8,184 of 8,448 tiles) |
    after the last read, fence.proxy.async, then the barrier, then the copy
async overwrite load | LOAD_WAIT | error | a bulk store overwrites global memory that a bulk load
    may still read ({{agent}}) | {_WAIT}
async overwrite store_read | BULK_WAIT | error | a bulk load overwrites shared memory while a bulk
    store may still read it | cp.async.bulk.wait_group.read N before the load, N being the groups
    committed after that store
async overwrite wgmma | SLOT_REUSED | error | a bulk load overwrites shared memory that a wgmma may
    still read: the slot is used again too early | wgmma.wait_group before the arrival that empties
    the stage
async overwrite tcgen05 | SLOT_REUSED | error | a bulk load overwrites shared memory that a tcgen05
    instruction may still read | tcgen05.commit to the stage's empty barrier
uninitialised | UNINITIALISED_SHARED | error | shared memory is read that nobody has written | write
    it first, or wait for the copy that fills it
uninitialised async | UNINITIALISED_SHARED | error | an asynchronous operation reads shared memory
    that nobody has written | write it first, or store a smaller box
uninitialised product | UNINITIALISED_SHARED | warning | a matrix product reads shared memory that
    nobody has written: its rows or columns there are undefined | load the whole tile, or do not
    store the results of the missing part
map | MAP_FENCE | error | a tensor map in memory is changed and used by a copy without a release and
    an acquire between them | fence.proxy.tensormap::generic.release.gpu after the change,
    fence.proxy.tensormap::generic.acquire.gpu [map], 128 by the thread that issues the copy, before
    it
""")
}
