"""Small kernels in PTX: pieces of code, and the kernel around them.

A kernel has `%t` (the thread), `%block` (number of the block in its cluster), `%word` (shared
address of the thread's own word of `tile`), `%next` (that of the same lane of the next warp),
`%mate` (that of the next lane), `%in`, `%out` and `%flag` (global addresses), `bars` and `tile` in
shared memory.
"""

import itertools

TILE_BYTES = 512  # 128 threads, a word each
_labels = itertools.count()

HEAD = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 in, .param .u64 out, .param .u64 flag,
  .param .align 64 .b8 source[128], .param .align 64 .b8 goal[128]) {cluster}
{{
  .reg .pred %p<9>;
  .reg .b32 %t, %block, %word, %next, %mate, %r<20>;
  .reg .b64 %in, %out, %flag, %source, %goal, %mine, %rd<20>;
  .shared .align 128 .b8 tile[1024];
  .shared .align 8 .b8 bars[64];
  mov.u32 %t, %tid.x;
  mov.u32 %block, %cluster_ctarank;
  mov.u32 %word, tile;
  mov.u32 %next, %word;
  mov.u32 %mate, %word;
  shl.b32 %r0, %t, 2;
  add.u32 %word, %word, %r0;
  add.u32 %r1, %r0, 128;
  and.b32 %r1, %r1, 511;
  add.u32 %next, %next, %r1;
  xor.b32 %r1, %r0, 4;
  add.u32 %mate, %mate, %r1;
  ld.param.u64 %in, [in];
  ld.param.u64 %out, [out];
  ld.param.u64 %flag, [flag];
  mov.b64 %source, source;
  mov.b64 %goal, goal;
  cvta.param.u64 %source, %source;
  cvta.param.u64 %goal, %goal;
  mul.wide.u32 %mine, %t, 4;
  add.u64 %mine, %out, %mine;
"""


def kernel(*code: str, cluster: int = 0) -> str:
    """Return a kernel of these pieces of code."""
    size = f".reqnctapercluster {cluster}, 1, 1" * bool(cluster)
    return HEAD.format(cluster=size) + "\n".join(code) + "\n  ret;\n}\n"


def only(thread: int, *code: str, of: str = "%t") -> str:
    """Let one thread (or block) run code."""
    label = f"$L{next(_labels)}"
    return (
        f"setp.ne.u32 %p1, {of}, {thread};\n@%p1 bra {label};\n" + "\n".join(code) + f"\n{label}:"
    )


def below(threads: int, *code: str) -> str:
    """Let the first threads run code."""
    label = f"$L{next(_labels)}"
    return f"setp.ge.u32 %p1, %t, {threads};\n@%p1 bra {label};\n" + "\n".join(code) + f"\n{label}:"


def above(threads: int, *code: str) -> str:
    """Let the threads after the first ones run code."""
    label = f"$L{next(_labels)}"
    return f"setp.lt.u32 %p1, %t, {threads};\n@%p1 bra {label};\n" + "\n".join(code) + f"\n{label}:"


def init(bar: int = 0, count: int = 1) -> str:
    return f"mbarrier.init.shared::cta.b64 [bars+{8 * bar}], {count};"


def arm(bar: int = 0, size_bytes: int = TILE_BYTES) -> str:
    return f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars+{8 * bar}], {size_bytes};"


def arrive(bar: int = 0, how: str = "") -> str:
    return f"mbarrier.arrive{how}.shared::cta.b64 _, [bars+{8 * bar}];"


def wait(bar: int = 0, parity: int = 0) -> str:
    label = f"$L{next(_labels)}"
    return (
        f"{label}:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [bars+{8 * bar}], {parity};\n"
        f"@!%p2 bra {label};"
    )


def load(bar: int = 0, size_bytes: int = TILE_BYTES) -> str:
    return (
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%in], "
        f"{size_bytes}, [bars+{8 * bar}];"
    )


SYNC = "bar.sync 0;"
FENCE = "fence.proxy.async;"
READ = "ld.shared.u32 %r5, [%word];"
WRITE = "st.shared.u32 [%word], %t;"
STORE = f"cp.async.bulk.global.shared::cta.bulk_group [%out], [tile], {TILE_BYTES};"
COMMIT = "cp.async.bulk.commit_group;"
WAIT_READ = "cp.async.bulk.wait_group.read 0;"
WAIT_WRITTEN = "cp.async.bulk.wait_group 0;"
RESULT = "st.global.u32 [%mine], %r5;"
INIT_FENCE = "fence.mbarrier_init.release.cluster;"
CLUSTER_SYNC = "barrier.cluster.arrive;\nbarrier.cluster.wait;"
READY = (only(0, init(), INIT_FENCE), SYNC)
