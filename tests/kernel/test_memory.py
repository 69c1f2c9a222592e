"""Forms of loads, stores, atomics and addresses, in handwritten PTX."""

import re

import numpy as np
import pytest

import tma_dlpack as tma

THREADS = 64
T = np.arange(THREADS, dtype=np.uint64)
HEADER = """.version 8.8
.target sm_100a
.address_size 64
.shared .align 16 .b8 s[1024];
.global .align 32 .b8 g[1024];
.const .align 8 .b32 c[2] = {7, 9};
.visible .entry k(.param .u64 out)
{
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %t, %w<19>; .reg .b64 %d<19>; .reg .b64 %a, %s64;
.reg .b32 %s;
.local .align 16 .b8 own[64];
ld.param.u64 %a, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %d18, %t, 8; add.u64 %a, %a, %d18;
mov.u32 %s, s; mad.lo.u32 %s, %t, 16, %s; mov.u64 %d0, 0;
"""

#: PTX that leaves a thread's result in %d0, and the expected result of thread T.
FORMS = {
    "a vector of four words": (
        "st.shared.v4.b32 [%s], {%t, 1, 2, 3}; ld.shared.v2.b64 {%d1, %d2}, [%s];"
        "add.u64 %d0, %d1, %d2;",
        T + (1 << 32) + 2 + (3 << 32)),
    "a vector with a sink": (
        "st.shared.v4.b32 [%s], {%t, 1, 2, 3}; ld.shared.v4.b32 {_, %w1, _, %w2}, [%s];"
        "mov.b64 %d0, {%w1, %w2};", np.full(THREADS, 1 | 3 << 32)),
    "eight words of global memory": (
        "mov.u64 %d2, g; mov.u32 %w9, 8; st.global.u32 [%d2+28], %w9; bar.sync 0;"
        "ld.global.v8.b32 {%w1, %w2, %w3, %w4, %w5, %w6, %w7, %w8}, [%d2]; cvt.u64.u32 %d0, %w8;",
        np.full(THREADS, 8)),
    "a signed byte in a wide register": (
        "cvt.u16.u32 %h1, %t; sub.u16 %h1, %h1, 60; st.shared.b8 [%s], %h1; ld.shared.s8 %w1, [%s];"
        "cvt.s64.s32 %d0, %w1;", T - np.uint64(60)),
    "a cache hint": (
        "createpolicy.fractional.L2::evict_first.b64 %d1, 1.0; mov.u32 %w1, 3;"
        "st.global.L2::cache_hint.u32 [%a], %w1, %d1;"
        "ld.global.L1::no_allocate.L2::cache_hint.L2::128B.u32 %w2, [%a], %d1;"
        "cvt.u64.u32 %d0, %w2;",
        np.full(THREADS, 3)),
    "constants and local memory by generic addresses": (
        "mov.u64 %d1, c; cvta.const.u64 %d1, %d1; ld.u32 %w1, [%d1+4]; mov.u64 %d2, own;"
        "cvta.local.u64 %d3, %d2; st.u32 [%d3+8], %t; ld.local.u32 %w2, [%d2+8];"
        "add.u32 %w1, %w1, %w2;"
        "isspacep.local %p1, %d3; isspacep.shared %p2, %d3; selp.u32 %w3, 100, 0, %p1;"
        "@%p2 add.u32 %w3, %w3, 1000; add.u32 %w1, %w1, %w3; cvt.u64.u32 %d0, %w1;", T + 109),
    "the window of parameters": (
        "mov.b64 %d1, out; cvta.param.u64 %d2, %d1; isspacep.param %p1, %d2;"
        "isspacep.param %p2, %a; add.u64 %d3, %d2, 8; isspacep.param %p3, %d3;"
        "selp.u64 %d0, 1, 0, %p1; @%p2 add.u64 %d0, %d0, 10; @%p3 add.u64 %d0, %d0, 100;",
        np.ones(THREADS)),
    "a window of shared memory": (
        "cvt.u64.u32 %s64, %s; cvta.shared.u64 %d1, %s64; st.u32 [%d1], %t;"
        "cvta.to.shared.u64 %d2, %d1;"
        "ld.shared.u32 %w1, [%d2]; mapa.u64 %d3, %d1, 0; getctarank.u64 %w2, %d3;"
        "ld.u32 %w3, [%d3];"
        "add.u32 %w1, %w1, %w3; add.u32 %w1, %w1, %w2; cvt.u64.u32 %d0, %w1;", 2 * T),
    "a compare and swap of 16 bits": (
        "mov.u16 %h1, 0; st.shared.b16 [%s], %h1; cvt.u16.u32 %h2, %t;"
        "atom.shared.cas.b16 %h3, [%s], %h1, %h2;"
        "ld.shared.u16 %w1, [%s]; cvt.u64.u32 %d0, %w1;", T),
    "sums of vectors": (
        "mov.u64 %d1, g; mov.f32 %w1, 0f3F800000; cvt.rn.f32.u32 %w2, %t;"
        "red.global.add.v2.f32 [%d1], {%w1, %w2}; bar.sync 0; ld.global.v2.f32 {%w3, %w4}, [%d1];"
        "add.f32 %w3, %w3, %w4; cvt.rzi.u64.f32 %d0, %w3;", np.full(THREADS, 64 + 63 * 32)),
    "an atomic of packed halves": (
        "mov.u64 %d1, g; mov.b32 %w1, 0x3C004000; red.global.add.noftz.f16x2 [%d1], %w1;"
        "bar.sync 0;"
        "ld.global.u32 %w2, [%d1]; cvt.u64.u32 %d0, %w2;", np.full(THREADS, 0x54005800)),
    "a decrement that wraps": (
        "mov.u64 %d1, g; atom.global.dec.u32 %w1, [%d1], 9; bar.sync 0; ld.global.u32 %w2, [%d1];"
        "cvt.u64.u32 %d0, %w2;", np.full(THREADS, 6)),
    "carries": (
        "mov.u32 %w1, 0xFFFFFFFF; add.cc.u32 %w2, %w1, %t; addc.u32 %w3, 0, 0;"
        "sub.cc.u32 %w4, %t, 5;"
        "subc.u32 %w5, 0, 0; mov.b64 %d0, {%w3, %w5};",
        (T > 0) + (np.where(T < 5, 0xFFFFFFFF, 0).astype(np.uint64) << np.uint64(32))),
    "hints without a value": (
        "prefetch.global.L2 [%a]; prefetchu.L1 [%a];"
        "applypriority.global.L2::evict_normal [%a], 128;"
        "nanosleep.u32 20; griddepcontrol.wait; griddepcontrol.launch_dependents; mov.u64 %d0, 1;",
        np.ones(THREADS)),
    "a table of branches": (
        "and.b32 %w1, %t, 3; $TABLE: .branchtargets $L0, $L1, $L0, $L2; brx.idx %w1, $TABLE;"
        "$L0: mov.u64 %d0, 10; bra $END; $L1: mov.u64 %d0, 11; bra $END;"
        "$L2: mov.u64 %d0, 12; $END:",
        np.array([10, 11, 10, 12])[T.astype(int) % 4]),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_form_of_an_access_has_the_value_that_ptx_gives_it(name):
    code, expected = FORMS[name]
    out = np.zeros(THREADS, np.uint64)
    ptx = HEADER + code + "\nst.global.u64 [%a], %d0; ret; }"
    run = tma.run_kernel(ptx, grid=1, block=THREADS, args=(out,), schedules=2)
    assert run.ok, str(run)
    np.testing.assert_array_equal(out, np.asarray(expected).astype(np.uint64))


@pytest.mark.parametrize(
    "code",
    ["multimem.red.relaxed.sys.global.add.u32 [%a], %t;", "ld.global.b128 %q0, [%a];",
     "atom.global.cas.b128 %q0, [%a], %q0, %q0;"],
)  # fmt: skip
def test_an_instruction_that_is_not_simulated_is_named_with_its_line(code):
    ptx = f"{HEADER}.reg .b128 %q<3>; {code}\nret; }}"
    name = re.escape(code.split()[0])
    with pytest.raises(tma.TmaUnsupportedError, match=rf"{name} \(line \d+ of the PTX"):
        tma.run_kernel(ptx, grid=1, block=THREADS, args=(np.zeros(THREADS, np.uint64),))
