"""Each rule: a kernel with the mistake, and a neighbour without the mistake."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from functools import cache
from pathlib import Path

import pytest

import tma_dlpack as tma
from tma_dlpack.debug.lint.rules import RULES
from tma_dlpack.ptx import parse as ptx

HERE = Path(__file__).parent
PTX = HERE / "kernels.ptx"
NVCC = shutil.which("nvcc", path=os.environ["PATH"] + ":/usr/local/cuda/bin")

#: kernel of kernels.cu -> rule, severity, and the lines of kernels.cu from cause to use.
EXPECTED = {
    "proxy_fence_wrong": ("PROXY_FENCE", "error"),
    "proxy_fence_matrix_wrong": ("PROXY_FENCE", "error"),
    "proxy_fence_flag_wrong": ("PROXY_FENCE", "warning"),
    "proxy_fence_read_wrong": ("PROXY_FENCE", "error"),
    "bulk_wait_commit_wrong": ("BULK_WAIT", "warning"),
    "bulk_wait_end_wrong": ("BULK_WAIT", "note"),
    "bulk_wait_again_wrong": ("BULK_WAIT", "error"),
    "bulk_wait_others_wrong": ("BULK_WAIT", "error"),
    "bulk_wait_stage_wrong": ("BULK_WAIT", "error"),
    "barrier_init_both_wrong": ("BARRIER_INIT", "error"),
    "barrier_init_others_wrong": ("BARRIER_INIT", "error"),
    "barrier_init_fence_wrong": ("BARRIER_INIT", "note"),
    "map_fence_both_wrong": ("MAP_FENCE", "error"),
    "map_fence_acquire_wrong": ("MAP_FENCE", "error"),
    "map_fence_publish_wrong": ("MAP_FENCE", "error"),
    "map_space_local_wrong": ("MAP_SPACE", "error"),
    "map_space_shared_wrong": ("MAP_SPACE", "error"),
    "cluster_wrong": ("CLUSTER", "warning"),
    "barrier_arrivals_none_wrong": ("BARRIER_ARRIVALS", "error"),
    "barrier_arrivals_count_wrong": ("BARRIER_ARRIVALS", "warning"),
    "barrier_arrivals_release_wrong": ("BARRIER_ARRIVALS", "warning"),
    "barrier_arrivals_unheeded_wrong": ("BARRIER_ARRIVALS", "warning"),
    "barrier_bytes_none_wrong": ("BARRIER_BYTES", "error"),
    "barrier_bytes_half_wrong": ("BARRIER_BYTES", "error"),
    "barrier_parity_same_wrong": ("BARRIER_PARITY", "warning"),
    "barrier_parity_ahead_wrong": ("BARRIER_PARITY", "warning"),
    "barrier_parity_empty_wrong": ("BARRIER_PARITY", "warning"),
    "block_barrier_wrong": ("BLOCK_BARRIER", "warning"),
    "cluster_order_wrong": ("CLUSTER_ORDER", "error"),
    "cluster_order_block_wrong": ("CLUSTER_ORDER", "warning"),
    "cluster_order_end_wrong": ("CLUSTER_ORDER", "warning"),
    "global_proxy_wrong": ("GLOBAL_PROXY", "warning"),
    "map_pointer_wrong": ("MAP_ACQUIRE", "warning"),
    "bulk_size_wrong": ("BULK_SIZE", "error"),
    "alignment_wrong": ("ALIGNMENT", "warning"),
    "alignment_offset_wrong": ("ALIGNMENT", "error"),
    "pdl_order_wrong": ("PDL_ORDER", "note"),
    "load_wait_wrong": ("LOAD_WAIT", "error"),
}
RIGHT = (
    "proxy_fence_right", "proxy_fence_matrix_right", "proxy_fence_flag_right",
    "proxy_fence_elsewhere_right", "proxy_fence_read_right", "bulk_wait_end_right",
    "bulk_wait_again_right", "bulk_wait_stage_right", "barrier_init_right", "map_fence_right",
    "map_fence_publish_right", "map_space_right", "cluster_right",
    "barrier_right", "barrier_ring_right", "barrier_rings_right", "block_barrier_right",
    "block_barrier_own_right",
    "cluster_order_right", "cluster_order_end_right", "cluster_order_block_right",
    "global_proxy_right", "map_pointer_right", "bulk_size_right", "alignment_right",
    "pdl_order_right",
)  # fmt: skip


@cache
def found_in(path: Path) -> dict[str, list[tuple[str, str]]]:
    """Return rule and severity of the findings of each kernel."""
    found: dict[str, list[tuple[str, str]]] = {}
    for finding in tma.lint(path, notes=True).findings:
        found.setdefault(finding.kernel, []).append((finding.rule, finding.severity))
    return found


@pytest.mark.parametrize("kernel", EXPECTED)
def test_a_kernel_with_a_mistake_has_one_finding(kernel):
    assert found_in(PTX)[kernel] == [EXPECTED[kernel]]


@pytest.mark.parametrize("kernel", RIGHT)
def test_its_neighbour_has_none(kernel):
    assert kernel not in found_in(PTX)


def test_every_kernel_of_the_file_is_in_a_table():
    names = {function.name for function in ptx.parse(PTX.read_text()).functions}
    assert names == {*EXPECTED, *RIGHT}
    written = re.findall(r"^KERNEL .*?(\w+)\(", (HERE / "kernels.cu").read_text(), re.MULTILINE)
    assert {name for name in written if not name.startswith("__")} <= names


def test_every_rule_that_needs_no_map_has_a_kernel_with_it():
    """MAP_MISMATCH has another test file. Rules of wgmma and tcgen05 have PTX texts."""
    elsewhere = {"MAP_MISMATCH", "MMA_WAIT", "TMEM_LEAK"}
    assert {rule for rule, _ in EXPECTED.values()} == {*RULES} - elsewhere


def test_a_finding_names_the_lines_of_the_source():
    [finding] = [f for f in tma.lint(PTX).findings if f.kernel == "proxy_fence_wrong"]
    lines = (HERE / "kernels.cu").read_text().splitlines()
    chains = [re.findall(r"kernels\.cu:(\d+)", step) for step in finding.path]
    write, store = ([lines[int(number) - 1].strip() for number in chain] for chain in chains)
    assert write[0].startswith("for (int i = threadIdx.x; i < 1024;")
    assert store[1] == "store_bulk(out, tile, 4096);"
    assert store[2] == "KERNEL proxy_fence_wrong(int* out) { write_and_store<false>(out); }"
    assert finding.source == "kernels.cu:24"
    assert str(finding).startswith(
        "kernels.cu:24: error: shared memory is written by ordinary stores and read by a bulk store"
    )


@pytest.mark.skipif(NVCC is None, reason="nvcc compiles kernels.cu")
@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["sm_90a", "sm_100a", "sm_120a"])
def test_what_nvcc_makes_of_the_source_today_has_the_same_findings(architecture):
    found = {}
    for finding in tma.lint(
        HERE / "kernels.cu", nvcc_flags=[f"-arch={architecture}"], notes=True
    ).findings:
        found.setdefault(finding.kernel, []).append((finding.rule, finding.severity))
    assert found == found_in(PTX)


@pytest.mark.skipif(NVCC is None, reason="nvcc compiles it")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["extension/double_tiles.cu", "grouped_gemm.cu"])
def test_a_kernel_with_our_header_needs_no_flags_and_has_no_finding(name):
    assert tma.lint(HERE.parent.parent / "notebooks" / name).findings == ()


# -- small texts ----------------------------------------------------------------------------------

HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n.shared .align 128 .b8 tile[4096];\n"
STORE = "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 4096;\n"
END = "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;\nret;\n"


def rules_of(body: str, head: str = HEAD) -> list[str]:
    text = f"{head}.visible .entry k(.param .u64 p) {{\nld.param.u64 %rd1, [p];\n{body}}}\n"
    return [f"{finding.rule} {finding.severity}" for finding in tma.lint(text).findings]


WRITE = "mov.u32 %r1, tile;\nst.shared.u32 [%r1], 0;\n"


@pytest.mark.parametrize(
    ("between", "expected"),
    [
        ("", ["PROXY_FENCE error"]),
        ("bar.sync 0;\n", ["PROXY_FENCE error"]),
        ("fence.proxy.async.global;\n", ["PROXY_FENCE error"]),
        ("fence.acq_rel.cta;\n", ["PROXY_FENCE error"]),
        ("fence.proxy.async;\n", []),
        ("fence.proxy.async.shared::cta;\n", []),
        ("fence.proxy.async.shared::cluster;\n", []),
        ("fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;\n", []),
        ("fence.proxy.alias;\n", ["PROXY_FENCE error"]),
        # a fence of some threads: the PTX does not show that the others need none
        ("setp.eq.u32 %p1, %r9, 0;\n@%p1 fence.proxy.async;\n", ["PROXY_FENCE warning"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_which_instructions_are_the_fence(between, expected):
    assert rules_of(WRITE + between + STORE + END) == expected


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(0, ["PROXY_FENCE error"]), (4092, ["PROXY_FENCE error"]), (4096, []), (-4, [])],
)
def test_only_the_bytes_that_are_stored_count(offset, expected):
    write = f"mov.u32 %r1, tile;\nst.shared.u32 [%r1+{offset}], 0;\n".replace("+-", "-")
    assert rules_of(write + STORE + END) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("mov.u32 %r2, 65536;\nmul.lo.u32 %r3, %r2, %r2;\nadd.u32 %r4, %r1, %r3;", 0),
        ("add.u32 %r3, %r1, 4294967295;\nadd.u32 %r4, %r3, 1;", 0),
        ("mov.u32 %r2, 4096;\nshl.b32 %r3, %r2, 32;\nadd.u32 %r4, %r1, %r3;", 0),
        ("mov.u32 %r2, 4294967295;\nmul.hi.u32 %r3, %r2, 8;\nadd.u32 %r4, %r1, %r3;", 7),
        ("mov.u32 %r2, -1;\nmul.hi.s32 %r3, %r2, 8;\nadd.u32 %r4, %r1, %r3;", -1),
        ("mov.u32 %r2, -8;\nshr.s32 %r3, %r2, 1;\nadd.u32 %r4, %r1, %r3;", -4),
        ("mov.u32 %r2, -8;\nshr.u32 %r3, %r2, 29;\nadd.u32 %r4, %r1, %r3;", 7),
        ("mov.s32 %r2, -7;\ndiv.s32 %r3, %r2, 2;\nadd.u32 %r4, %r1, %r3;", -3),
        ("mov.s32 %r2, -7;\nrem.s32 %r3, %r2, 4;\nadd.u32 %r4, %r1, %r3;", -3),
        ("mov.u16 %rs2, -1;\nmul.wide.u16 %r3, %rs2, 16;\nadd.u32 %r4, %r1, %r3;", 65535 * 16),
        ("mov.u32 %r2, -1;\ncvt.u64.u32 %rd3, %r2;\nshr.u64 %rd4, %rd3, 28;\n"
         "cvt.u32.u64 %r3, %rd4;\nadd.u32 %r4, %r1, %r3;", 15),
    ],
    ids=["square", "wrapping adds", "shl 32", "mul.hi.u32", "mul.hi.s32", "shr.s32", "shr.u32",
         "div.s32", "rem.s32", "mul.wide", "cvt"],
)  # fmt: skip
def test_numbers_have_the_width_and_the_sign_of_their_instruction(code, expected):
    """The store reads the only written word, at `expected`, and no neighbouring word."""
    store = "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1+{}], 16;\n"
    for offset, found in ((expected, ["PROXY_FENCE error"]), (expected + 4, [])):
        body = f"mov.u32 %r1, tile;\n{code}\nst.shared.u32 [%r4], 0;\n"
        at = store.format(offset).replace("+-", "-")
        unaligned = ["ALIGNMENT error"] if offset % 16 else []
        assert sorted(rules_of(body + at + END)) == unaligned + found


LOAD = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 64, [%r8];\n"


@pytest.mark.parametrize(
    ("access", "expected"),
    [
        ("st.shared.u32 [%r1], 0;\n", ["PROXY_FENCE warning"]),
        ("ld.shared.u32 %r4, [%r1];\n", ["PROXY_FENCE error"]),
        ("ld.shared.u32 %r4, [%r1+64];\n", []),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r1];\n", ["PROXY_FENCE error"]),
        ("atom.shared.add.u32 %r4, [%r1], 1;\n", ["PROXY_FENCE warning"]),
        ("ld.global.u32 %r4, [%rd1];\n", []),
        ("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r1], %r4, [%r8];\n", []),
    ],
    ids=lambda value: value.split(" ")[0] if isinstance(value, str) else "",
)
def test_accesses_before_a_bulk_load_of_the_same_bytes(access, expected):
    start = "mov.u32 %r1, tile;\n"
    assert rules_of(start + access + "bar.sync 0;\n" + LOAD + "ret;\n") == expected
    assert rules_of(start + access + "fence.proxy.async;\nbar.sync 0;\n" + LOAD + "ret;\n") == []


@pytest.mark.parametrize(
    ("store", "fence", "expected"),
    [
        ("st.global.u32 [%rd1+60], 0;\n", "", ["GLOBAL_PROXY warning"]),
        ("st.global.u32 [%rd1+64], 0;\n", "", []),
        ("st.global.u32 [%rd2], 0;\n", "", []),  # another pointer, so nothing is proved
        ("st.global.u32 [%rd1], 0;\n", "fence.proxy.async;\n", []),
        ("st.global.u32 [%rd1], 0;\n", "fence.proxy.async.global;\n", []),
        ("st.global.u32 [%rd1], 0;\n", "fence.proxy.async.shared::cta;\n",
         ["GLOBAL_PROXY warning"]),
    ],
)  # fmt: skip
def test_global_memory_that_is_written_and_bulk_loaded_is_fenced(store, fence, expected):
    body = "mov.u32 %r1, tile;\n" + store + fence + "bar.sync 0;\n" + LOAD + "ret;\n"
    assert rules_of(body) == expected


def test_labels_and_registers_of_inline_assembly_are_their_own():
    wait = (
        "{\n.reg .pred p;\nLAB:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%r5], 0;\n"
        "@p bra DONE;\nbra LAB;\nDONE:\n}\n"
    )
    # merged labels would lead from the first wait past the fence
    body = WRITE + wait + "fence.proxy.async;\n" + wait + STORE + END
    assert rules_of(body) == []


REGISTERS = itertools.count(50)


def of_thread_0(instruction: str) -> str:
    n = next(REGISTERS)
    return f"mov.u32 %r{n}, %tid.x;\nsetp.ne.u32 %p{n}, %r{n}, 0;\n@!%p{n} {instruction}\n"


def test_a_fence_by_some_threads_counts_behind_the_barrier_alone():
    fence = of_thread_0("fence.proxy.async;")
    store = of_thread_0(STORE) + of_thread_0("cp.async.bulk.commit_group;")
    end = of_thread_0("cp.async.bulk.wait_group.read 0;") + "ret;\n"
    assert rules_of(WRITE + fence + "bar.sync 0;\n" + store + end) == ["PROXY_FENCE warning"]
    assert rules_of(WRITE + "bar.sync 0;\n" + fence + store + end) == []
    alone = "mov.u32 %r1, tile;\n" + of_thread_0("st.shared.u32 [%r1], 0;")
    assert rules_of(alone + fence + "bar.sync 0;\n" + store + end) == []


@pytest.mark.parametrize(
    ("publish", "expected"),
    [
        ("", ["BULK_WAIT error"]),
        ("bar.sync 0;\n", []),
        ("bar.warp.sync -1;\n", []),
        ("mbarrier.arrive.shared::cta.b64 _, [%r8];\n", []),
        ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], 64;\n", ["BULK_WAIT error"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_others_must_hear_of_a_wait_before_they_write(publish, expected):
    store = "fence.proxy.async;\nbar.sync 0;\n" + of_thread_0(STORE)
    store += of_thread_0("cp.async.bulk.commit_group;")
    wait = of_thread_0("cp.async.bulk.wait_group.read 0;")
    again = WRITE.replace("%r1", "%r2")
    assert rules_of(WRITE + store + wait + publish + again + "ret;\n") == expected


def test_a_binary_holds_several_modules_each_with_its_own_files():
    module = HEAD + '.file 1 "{0}.cu"\n.visible .entry {0}() {{\n.loc 1 7 1\n' + WRITE
    module += STORE.replace("%rd1", "%rd5") + END + "}}\n"
    found = tma.lint("\n".join(module.format(name) for name in ("a", "b"))).findings
    assert [(f.kernel, f.line, f.source) for f in found] == [
        ("a", 10, "a.cu:7"),
        ("b", 25, "b.cu:7"),
    ]


def test_a_called_function_counts_as_its_worst():
    callee = (
        ".func writes()\n{\nmov.u32 %r1, tile;\nst.shared.u32 [%r1], 0;\nret;\n}\n"
        ".func fences()\n{\nfence.proxy.async;\nret;\n}\n"
        ".func perhaps()\n{\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra $L;\nfence.proxy.async;\n"
        "$L:\nret;\n}\n"
    )
    for name, expected in (("fences", []), ("perhaps", ["PROXY_FENCE error"])):
        assert rules_of(WRITE + f"call {name}, ();\n" + STORE + END, HEAD + callee) == expected


MMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %rd3, %rd4, 1;\n"
GROUP = "wgmma.commit_group.sync.aligned;\n"
WAIT = "wgmma.wait_group.sync.aligned 0;\n"
READ = "st.global.f32 [%rd1], %f1;\nret;\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (MMA + GROUP + WAIT + READ, []),
        (MMA + WAIT + READ, ["MMA_WAIT error", "MMA_WAIT warning"]),
        (MMA + GROUP + READ, ["MMA_WAIT warning"]),
        (MMA + GROUP + "mov.f32 %f9, %f1;\n" + WAIT + READ.replace("%f1", "%f9"), []),
        (MMA + GROUP + "mov.f32 %f9, %f1;\n" + READ.replace("%f1", "%f9"), ["MMA_WAIT warning"]),
        (MMA + GROUP + READ.replace("%f1", "%f9"), []),
        # the group before the last group is complete
        (MMA + GROUP + MMA.replace("%f", "%f1") + GROUP + WAIT.replace("0", "1") + READ, []),
        (MMA + GROUP + MMA.replace("%f", "%f1") + GROUP + WAIT.replace("0", "2") + READ,
         ["MMA_WAIT warning"]),
        (WAIT + MMA + GROUP + WAIT + READ, []),
    ],
)  # fmt: skip
def test_accumulators_are_read_behind_the_wait_for_their_group(body, expected):
    assert sorted(rules_of(body)) == expected


DESCRIPTOR = (
    "shr.u32 %r2, %r1, 4;\nand.b32 %r3, %r2, 16383;\ncvt.u64.u32 %rd5, %r3;\n"
    "or.b64 %rd3, %rd5, 4611686293305294848;\nmov.b64 %rd4, 0;\n"
)
TENSOR_PRODUCT = "tcgen05.mma.cta_group::1.kind::f16 [%r5], %rd3, %rd4, %r6, %p1;\n"


@pytest.mark.parametrize(
    ("offset", "between", "expected"),
    [
        (0, "bar.sync 0;\n", ["PROXY_FENCE warning"]),
        (12, "bar.sync 0;\n", ["PROXY_FENCE warning"]),
        (0, "fence.proxy.async;\nbar.sync 0;\n", []),
        (0, "fence.proxy.async.shared::cta;\nbar.sync 0;\n", []),
        (0, "fence.proxy.async.global;\nbar.sync 0;\n", ["PROXY_FENCE warning"]),
        (1024, "bar.sync 0;\n", []),  # only the first bytes of an operand are known
    ],
)
@pytest.mark.parametrize("product", [MMA + GROUP + WAIT, TENSOR_PRODUCT])
def test_ordinary_stores_that_a_matrix_product_reads_are_fenced(product, offset, between, expected):
    write = f"mov.u32 %r1, tile;\nst.shared.u32 [%r1+{offset}], 0;\n"
    head = HEAD.replace("sm_90a", "sm_100a") if "tcgen05" in product else HEAD
    assert rules_of(write + between + DESCRIPTOR + product + "ret;\n", head) == expected


INIT_A_BARRIER = of_thread_0("mbarrier.init.shared::cta.b64 [bar], 1;") + "bar.sync 0;\n"
RELEASE = "mbarrier.arrive.shared::cta.b64 _, [bar];\nbra $L;\n"


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        (MMA + GROUP + WAIT + RELEASE, []),
        (MMA + GROUP + WAIT.replace("0", "1") + RELEASE, []),
        (MMA + GROUP + RELEASE, ["MMA_WAIT warning"]),
        (MMA + GROUP + "bra $L;\n", []),
    ],
)
def test_a_loop_that_releases_stages_waits_for_what_reads_them(loop, expected):
    head = HEAD + ".shared .align 8 .b64 bar;\n"
    found = rules_of(INIT_A_BARRIER + "$L:\n" + loop, head)
    assert [rule for rule in found if rule.startswith("MMA")] == expected


@pytest.mark.parametrize(
    ("between", "expected"),
    [
        ("bar.sync 0;\n", []),
        ("mbarrier.arrive.shared::cta.b64 _, [bar];\n", []),
        ("", ["BLOCK_BARRIER warning"]),
    ],
)
def test_a_loop_that_loads_what_wgmma_reads_has_a_barrier(between, expected):
    head = HEAD + ".shared .align 8 .b64 bar;\n"
    load = of_thread_0(LOAD.replace("[%r8]", "[bar]"))
    expect = of_thread_0("mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;")
    loop = f"mov.u32 %r1, tile;\n$L:\n{MMA}{GROUP}{WAIT}{between}{expect}{load}bra $L;\n"
    found = rules_of(INIT_A_BARRIER + loop, head)
    assert [rule for rule in found if rule.startswith("BLOCK")] == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n", []),
        ("barrier.cluster.arrive.aligned;\n", []),  # the end of a thread arrives too
        ("barrier.cluster.wait.aligned;\n", ["CLUSTER_ORDER error"]),
        ("barrier.cluster.arrive;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;\n",
         ["CLUSTER_ORDER error"]),
        ("@%p9 bra $L;\nbarrier.cluster.arrive;\n$L:\nbarrier.cluster.wait;\n", []),
    ],
)  # fmt: skip
def test_arrivals_and_waits_of_a_cluster_take_turns(body, expected):
    assert rules_of(body + "ret;\n") == expected


TENSOR_STORE = "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [p, {0}], [%r1];\n"


@pytest.mark.parametrize(
    ("declared", "address", "copy", "expected"),
    [
        (".align 128 .b8 a[512]", "a+128", TENSOR_STORE, []),
        (".align 128 .b8 a[512]", "a+64", TENSOR_STORE, ["ALIGNMENT error"]),
        (".align 1024 .b8 a[512]", "a+64", TENSOR_STORE, ["ALIGNMENT error"]),
        (".align 16 .b8 a[512]", "a", TENSOR_STORE, ["ALIGNMENT warning"]),
        (".align 16 .b8 a[512]", "a+64", TENSOR_STORE, ["ALIGNMENT warning"]),
        (".align 16 .b8 a[512]", "a+8", TENSOR_STORE, ["ALIGNMENT error"]),
        (".align 16 .b8 a[512]", "a+16", STORE, []),
        (".align 16 .b8 a[512]", "a+8", STORE, ["ALIGNMENT error"]),
        (".b32 a[512]", "a", STORE, ["ALIGNMENT warning"]),
        (".v4 .b32 a[512]", "a", STORE, []),
    ],
)
def test_a_declaration_and_a_number_give_the_alignment(declared, address, copy, expected):
    head = f"{HEAD}.shared {declared};\n"
    name, _, offset = address.partition("+")
    body = f"mov.u32 %r2, {name};\nadd.u32 %r1, %r2, {offset or 0};\n"
    assert rules_of(body + copy + END, head) == expected


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(0, ["ALIGNMENT note"]), (64, ["ALIGNMENT warning"]), (8, ["ALIGNMENT error"])],
)
def test_dynamic_shared_memory_is_aligned_as_it_is_declared(offset, expected):
    head = HEAD + ".extern .shared .align 16 .b8 dynamic[];\n"
    body = f"mov.u32 %r2, dynamic;\nadd.u32 %r1, %r2, {offset};\n"
    text = f"{head}.visible .entry k(.param .u64 p) {{\nld.param.u64 %rd1, [p];\n{body}"
    found = tma.lint(text + TENSOR_STORE + END + "}\n", notes=True).findings
    assert [f"{f.rule} {f.severity}" for f in found if f.rule == "ALIGNMENT"] == expected
    # an address that is rounded up has another alignment
    rounded = body + "add.u32 %r3, %r1, 127;\nand.b32 %r1, %r3, -128;\n"
    rounded = rounded.replace("add.u32 %r1, %r2", "add.u32 %r1, %r2", 1)
    assert "ALIGNMENT" not in " ".join(rules_of(rounded + TENSOR_STORE + END, head))


@pytest.mark.parametrize(("at", "expected"), [("a", []), ("a+4", ["ALIGNMENT error"])])
def test_an_mbarrier_has_eight_bytes(at, expected):
    head = HEAD + ".shared .align 8 .b64 a[2];\n"
    found = rules_of(f"mbarrier.init.shared::cta.b64 [{at}], 1;\nret;\n", head)
    assert [rule for rule in found if rule.startswith("ALIGN")] == expected


ARRIVE, MEET = "barrier.cluster.arrive;\n", "barrier.cluster.wait;\n"
MAPPED = "mapa.shared::cluster.u32 %r2, %r1, 1;\n"
MULTICAST = (
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
    "[tile], [%rd1], 64, [bar], 3;\n"
)


@pytest.mark.parametrize(
    ("access", "between", "expected"),
    [
        ("ld.shared::cluster.u32 %r3, [%r2];\n", "", True),
        ("@%p9 st.shared::cluster.u32 [%r2+4], 1;\n", "", True),
        ("ld.shared::cluster.u32 %r3, [%r2];\n", ARRIVE + MEET, False),
        ("ld.shared::cluster.u32 %r3, [%r2];\n", ARRIVE, False),
        ("ld.shared::cluster.u32 %r3, [%r2];\n", "bar.sync 0;\n", True),
        ("st.shared::cluster.u32 [%r2], 1;\n",
         "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r2+64];\n", False),
        ("ld.shared.u32 %r3, [%r1];\n", "", False),
        # the mbarrier of the other block keeps that one
        ("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r2], 1, [%r4];\n", "", False),
    ],
)  # fmt: skip
def test_a_block_does_not_end_while_another_reaches_it(access, between, expected):
    body = ARRIVE + MEET + "mov.u32 %r1, tile;\n" + MAPPED + access + between + "ret;\n"
    assert rules_of(body) == ["CLUSTER_ORDER warning"] * expected


def test_a_generic_address_of_another_block_is_one_too():
    body = "mov.u64 %rd2, tile;\ncvta.shared.u64 %rd3, %rd2;\nmapa.u64 %rd4, %rd3, 1;\n"
    body = ARRIVE + MEET + body + "ld.u32 %r3, [%rd4+8];\n"
    assert rules_of(body + "ret;\n") == ["CLUSTER_ORDER warning"]
    assert rules_of(body + ARRIVE + MEET + "ret;\n") == []


def test_many_accesses_before_the_barrier_of_the_cluster_are_one_finding():
    head = HEAD + ".shared .align 8 .b64 bar;\n"
    init = of_thread_0("mbarrier.init.shared::cta.b64 [bar], 1;") + "bar.sync 0;\n"
    body = init + MULTICAST * 3 + ARRIVE + MEET + MULTICAST + "ret;\n"
    found = [rule for rule in rules_of(body, head) if rule.startswith("CLUSTER")]
    assert found == ["CLUSTER_ORDER warning"]


ALLOCATE = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;\n"


def test_tensor_memory_is_deallocated():
    head = HEAD.replace("sm_90a", "sm_100a")
    free = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;\n"
    assert rules_of(ALLOCATE + "ret;\n", head) == ["TMEM_LEAK warning"]
    assert rules_of(ALLOCATE + free + "ret;\n", head) == []


def test_an_address_of_another_block_is_not_of_this_one():
    mapped = "mapa.shared::cluster.u32 %r2, %r1, 1;\nbarrier.cluster.arrive;\n"
    arrive = "barrier.cluster.wait;\nmbarrier.arrive.release.cluster.{}.b64 _, [%r2];\nret;\n"
    assert rules_of(mapped + arrive.format("shared::cta")) == ["CLUSTER warning"]
    assert rules_of(mapped + arrive.format("shared::cluster")) == []


def test_a_barrier_that_nothing_arrives_at():
    wait = "$W:\nmbarrier.try_wait.parity.shared::cta.b64 %p1, [tile], 0;\n@!%p1 bra $W;\nret;\n"
    init = of_thread_0("mbarrier.init.shared::cta.b64 [tile], 1;") + "bar.sync 0;\n"
    arrive = of_thread_0("mbarrier.arrive.shared::cta.b64 _, [tile];")
    assert rules_of(init + wait) == ["BARRIER_ARRIVALS error"]
    assert rules_of(init + arrive + wait) == []
    # a called function may arrive at the barrier
    callee = HEAD + ".func other() { ret; }\n"
    assert rules_of(init + "call other, ();\n" + wait, callee) == []


def test_a_plain_architecture_has_no_wgmma():
    body = "wgmma.fence.sync.aligned;\nret;\n"
    assert rules_of(body) == []
    assert rules_of(body, HEAD.replace("sm_90a", "sm_90")) == ["CLUSTER error"]


def test_a_comment_in_the_source_suppresses_a_finding(tmp_path):
    lines = (HERE / "kernels.cu").read_text().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if line.startswith("KERNEL proxy_fence_wrong"))
    lines[at] = lines[at].rstrip() + "  // lint: allow PROXY_FENCE: shown in the guide\n"
    (tmp_path / "kernels.cu").write_text("".join(lines))
    (tmp_path / "kernels.ptx").write_text(PTX.read_text())
    report = tma.lint(tmp_path / "kernels.ptx", notes=True)
    assert [finding.kernel for finding in report.suppressed] == ["proxy_fence_wrong"]
    assert len(report.findings) == len(EXPECTED) - 1


def test_a_reason_suppresses_a_finding_and_no_reason_does_not():
    comment = "// lint: allow PROXY_FENCE{}\n"
    with_reason = comment.format(": the copy reads old bytes on purpose")
    assert rules_of(WRITE + with_reason + STORE + END) == []
    text = HEAD + ".visible .entry k(.param .u64 p) {\n" + WRITE + comment.format("") + STORE + END
    report = tma.lint(text + "}\n")
    assert [finding.rule for finding in report.findings] == ["PROXY_FENCE"]
    assert report.notes == ("line 9: lint: allow PROXY_FENCE: a suppression needs a reason",)
    report = tma.lint(text.replace("FENCE\n", "FENCE: on purpose\n") + "}\n")
    assert (report.findings, [f.rule for f in report.suppressed]) == ((), ["PROXY_FENCE"])
    assert str(report) == (
        "no mistake was found in 1 function; 1 finding suppressed\n"
        "examined: 1 of 1 function with TMA: 1 copy, 1 wait"
    )


JUMPS = """.version 9.0
.target sm_90a
.address_size 64
.visible .func (.param .b32 r) jumps(.param .b32 p) {{
  ld.param.u32 %r1, [p];
  {jump};
  trap;
$A: ret;
$B: ret;
$T: .branchtargets $A, $B;
$C: ret;
}}"""


@pytest.mark.parametrize(
    ("jump", "follow", "condition"),
    [
        ("bra $B", [3], None),
        ("@%p1 bra $B", [3, 1], (3, "%p1", False)),
        ("@!%p1 bra $C", [4, 1], (4, "%p1", True)),
        ("brx.idx %r1, $T", [2, 3], None),
        ("@%p1 brx.idx %r1, $T", [2, 3, 1], None),
        ("brx.idx %r1, %r2", [2, 3, 4], None),  # without a table, the branch may go to any label
        ("ret", [], None),
        ("@%p1 exit", [1], None),
        ("bra $NOWHERE", [], None),
    ],
)
def test_where_a_branch_can_go(jump, follow, condition):
    (function,) = ptx.parse(JUMPS.format(jump=jump)).functions
    assert function.name == "jumps"
    assert (function.blocks[0].next, function.blocks[0].branch) == (follow, condition)
