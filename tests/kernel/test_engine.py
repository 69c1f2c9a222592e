"""The engine on small kernels: control flow, calls, warps, atomics, memory, three schedules."""

import re

import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack.kernel import machine

THREADS = 128
T = np.arange(THREADS)
WARP = T // 32


def body(code, before=""):
    return f'{before} extern "C" __global__ void kernel(int* out) {{ int t = threadIdx.x; {code} }}'


def collatz(n):
    steps = 0
    while n != 1:
        n = 3 * n + 1 if n % 2 else n // 2
        steps += 1
    return steps


def sums_until(t):
    total = 0
    for i in range(t % 7):
        for j in range(5):
            if j == t % 5:
                return total
            if (i + j) % 3:
                total += i * j
        total += 100
    return total


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def warp_sums(width, values=T):
    return np.repeat(values.reshape(-1, width).sum(1), width)


BRANCHES = [t * 3 for t in T], T - 7, T ^ 5, T << 2, T * T, -T, T // 3, T % 5
TRIPLE = "__device__ __noinline__ int triple(int x) { return 3 * x; } "
ODD = (T * T // 3 & 1).astype(bool)
SUCCESSOR = "__device__ __noinline__ int successor(int x) { return x + 1; } "

#: CUDA C++ of a kernel of 128 threads, and the values that it stores.
KERNELS = {
    "a loop whose length differs by thread": (
        body("int n = t + 1, s = 0; while (n != 1) { n = n & 1 ? 3 * n + 1 : n / 2; ++s; "
             "} out[t] = s;"),
        [collatz(t + 1) for t in T]),
    # The compiler copies a predicate, changes the predicate and branches on the copy.
    "a loop of two turns": (
        body("int s = 0;\n#pragma unroll 1\nfor (int i = 0; i < 2; ++i) s += out[t] + t + 1;\n"
             "out[t] = s;"),
        2 * (T + 1)),
    "a loop in PTX that branches on the copy of a predicate": (
        body('asm volatile("{.reg .pred p, q; .reg .b32 n, m; mov.u32 n, 0; setp.eq.u32 q, n, 0;\\n'
             "again: mov.pred p, q; mov.b32 m, n; add.u32 n, n, 1; mov.pred q, 0; @p bra again;\\n"
             'mad.lo.u32 n, n, 10, m; st.global.u32 [%0], n;}" :: "l"(out + t) : "memory");'),
        [21] * THREADS),
    "a jump out of two loops": (
        body("int s = 0; for (int i = 0; i < t % 7; ++i) { for (int j = 0; j < 5; ++j) {"
             "if (j == t % 5) goto done; if ((i + j) % 3 == 0) continue; s += i * j; } s += 100; }"
             "done: __syncthreads(); out[t] = s;"),
        [sums_until(t) for t in T]),
    "a switch by a table of branches": (
        body("int r; switch (t % 9) { case 0: r = t * 3; break; case 1: r = t - 7; break;"
             "case 2: r = t ^ 5; break; case 3: r = t << 2; break; case 4: r = t * t; break;"
             "case 5: r = -t; break; case 6: r = t / 3; break; case 7: r = t % 5; break;"
             "default: r = 99; } out[t] = r;"),
        np.choose(T % 9, [*BRANCHES, np.full(THREADS, 99)])),
    "a function that calls itself": (
        body("out[t] = f(t % 12);", "__device__ __noinline__ int f(int n) "
             "{ return n < 2 ? n : f(n - 1) + f(n - 2); }"),
        [fibonacci(t % 12) for t in T]),
    "a structure by value": (
        body("S s{1, t, {1, 2}}; s = f(s, t); out[t] = s.a + (int)s.b + (int)(s.c[1] * 2);",
             "struct S { int a; long long b; float c[2]; };"
             "__device__ __noinline__ S f(S s, int t) { s.a += t; s.b *= 2; s.c[1] += 0.5f; "
             "return s; }"),
        1 + T + 2 * T + 5),
    "functions by address": (
        body("out[t] = table[t & 1](t);", TRIPLE + SUCCESSOR
             + "__device__ int (*table[2])(int) = {triple, successor};"),
        np.where(T % 2, T + 1, 3 * T)),
    "an array in local memory": (
        body("int a[16]; for (int i = 0; i < 16; ++i) a[(i * 5 + t) & 15] = i; out[t] = a[5];"),
        13 * (5 - T) % 16),
    "generic pointers to three spaces": (
        body("s[t] = 2 * t; __syncthreads(); int own = 7 * t; out[t] = 1;"
             "int* p = t % 3 == 0 ? &s[t ^ 1] : t % 3 == 1 ? &own : out + t; out[t] = get(p);",
             "__shared__ int s[128]; __device__ __noinline__ int get(int* p) { return *p; }"),
        np.select([T % 3 == 0, T % 3 == 1], [2 * (T ^ 1), 7 * T], 1)),
    "initialised variables": (
        body("out[t] = c[t & 3] + (int)(2 * d[t & 1]);",
             "__constant__ int c[4] = {5, 6, 7, 8}; __device__ float d[2] = {1.5f, 2.5f};"),
        5 + T % 4 + np.where(T % 2, 5, 3)),
    "128-bit integers": (
        body("unsigned __int128 p = (unsigned __int128)(0x9E3779B97F4A7C15ull * (t + 1))"
             " * 0xFFFFFFFFFFFFFFC5ull;"
             "p += ((unsigned __int128)1 << 100) - 5; out[t] = (int)(p >> 64) ^ (int)(p >> 3);"),
        [(lambda p: ((p >> 64 ^ p >> 3) + 2**31) % 2**32 - 2**31)(
            (0x9E3779B97F4A7C15 * (t + 1) % 2**64 * 0xFFFFFFFFFFFFFFC5 + 2**100 - 5) % 2**128)
         for t in range(THREADS)]),
    "shuffles": (
        body("int v = t; for (int i = 16; i; i /= 2) v += __shfl_down_sync(~0u, v, i);"
             "v = __shfl_sync(~0u, v, 0); out[t] = v * 100 + __shfl_xor_sync(~0u, t, 3) % 100"
             "+ __shfl_up_sync(~0u, t, 2, 8);"),
        warp_sums(32) * 100 + (T ^ 3) % 100 + np.where(T % 8 >= 2, T - 2, T)),
    "shuffles of parts of a warp": (
        body("if (t % 32 < 10) out[t] = __shfl_sync(0x3ff, t, 9);"
             "else { int v = __shfl_sync(~0x3ffu, t, 31); __syncwarp(~0x3ffu); "
             "out[t] = v + 1000; }"),
        np.where(T % 32 < 10, WARP * 32 + 9, WARP * 32 + 1031)),
    "member masks that differ in a warp": (
        body("unsigned half = t & 16 ? 0xffff0000u : 0xffffu; "
             "out[t] = __reduce_add_sync(half, t);"),
        warp_sums(16)),
    "member masks that differ between warps": (
        body("bool odd = t * t / 3 & 1; unsigned m = __ballot_sync(~0u, odd); int v;"
             "if (!odd) { v = t; out[t] = v; } else v = __shfl_sync(m, t, __ffs(m) - 1);"
             "__syncwarp(); out[t] = __reduce_add_sync(~0u, v);"),
        warp_sums(32, np.where(ODD, T[ODD.reshape(-1, 32).argmax(1)[WARP] + 32 * WARP], T))),
    "two votes that the halves of a warp reach in different orders": (
        body("bool low = !(t & 16), even = !(t & 32); int v = 0;"
             "_Pragma(\"unroll 1\") for (int i = 0, at = low; i < 1 + (low != even); ++i, at = !at)"
             "if (at) v += __popc(__ballot_sync(even ? ~0u : 0xffffu, true)) * 100;"
             "else v += __popc(__ballot_sync(even ? 0xffff0000u : ~0u, true)); out[t] = v;"),
        np.where(T & 32, np.where(T & 16, 32, 1632), np.where(T & 16, 3216, 3200))),
    "votes and matches": (
        body("out[t] = __popc(__ballot_sync(~0u, t % 3 == 0)) + 100 * __any_sync(~0u, t == 40)"
             "+ 1000 * __all_sync(~0u, t < 64) + 10000 * __popc(__match_any_sync(~0u, t / 8));"),
        warp_sums(32, (T % 3 == 0).astype(int)) + 100 * (WARP == 1) + 1000 * (WARP < 2) + 80000),
    "threads that end early": (
        body("if (t >= 100) return; __syncthreads(); out[t] = __popc(__activemask());"),
        np.select([T < 96, T < 100], [32, 4], 0)),
    "atomics of one word": (
        body("__shared__ int s; if (t == 0) s = 0; __syncthreads(); atomicAdd(&s, t); "
             "__syncthreads();"
             "out[t] = 0; __syncthreads(); atomicMax(out + 1, t); atomicXor(out + 2, 1 << t % 7);"
             "atomicInc((unsigned*)out + 3, 6); if (t == 0) out[0] = s;"),
        [127 * 64, 127, 0b11, 128 % 7, *[0] * 124]),
    "a lock that each lane takes": (
        body("bool done = false; while (!done) if (atomicCAS(&lock, 0, 1) == 0) { __threadfence();"
             "*(volatile int*)out += 1; __threadfence(); atomicExch(&lock, 0); done = true; }",
             "__device__ int lock;"),
        [THREADS, *[0] * 127]),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_stores_what_cuda_stores(name):
    source, expected = KERNELS[name]
    out = np.zeros(THREADS, np.int32)
    options = ("-device-int128",) if "__int128" in source else ()
    run = tma.run_kernel(source, grid=1, block=THREADS, args=(out,), schedules=3, options=options)
    assert run.findings == ()
    np.testing.assert_array_equal(out, expected)


def test_a_function_reads_zeros_for_the_padding_of_its_parameter():
    ptx = """.version 8.8
.target sm_90
.address_size 64
.func f(.param .align 8 .b8 a[16])
{ .reg .b32 %r<3>; .reg .b64 %d<2>;
ld.param.b64 %d1, [a]; ld.param.b32 %r1, [a+8]; ld.param.b32 %r2, [a+12];
add.u32 %r1, %r1, %r2; st.global.b32 [%d1], %r1; ret; }
.visible .entry kernel(.param .u64 out)
{ .reg .b64 %d<2>; ld.param.b64 %d1, [out];
{ .param .align 8 .b8 p[16]; st.param.b64 [p], %d1; st.param.b32 [p+8], 7; call f, (p); }
ret; }"""
    out = np.zeros(1, np.int32)
    assert tma.run_kernel(ptx, "kernel", grid=1, block=1, args=(out,)).findings == ()
    assert out[0] == 7


def test_parts_of_a_warp_gather_after_their_join_is_released():
    source = """extern "C" __global__ void kernel(int* out) {
      int t = threadIdx.x;
      if (t == 0) {
        _Pragma("unroll 1") for (int i = 0; i < 3; ++i) __nanosleep(10); }
      atomicAdd(out + 32, 1);
      if (t < 32) { out[t] = __popc(__ballot_sync(~0u, true)); __threadfence();
        if (t == 0) atomicExch(out + 33, 1); }
      else if (t > 63) while (*(volatile int*)(out + 33) == 0);
      __threadfence(); atomicAdd(out + 34, 1); }"""
    out = np.zeros(35, np.int32)
    run = tma.run_kernel(source, grid=1, block=96, args=(out,), schedules=4)
    assert run.findings == ()
    np.testing.assert_array_equal(out, [32] * 32 + [96, 1, 96])


def test_a_complete_warp_continues_before_a_time_limit_of_another_warp():
    source = """extern "C" __global__ void kernel(int* out) {
      int t = threadIdx.x; volatile int* flag = out + 64; long long begin = clock64();
      if (t == 0) while (*flag == 0) if (clock64() - begin > 1000000) __trap();
      out[t] = __popc(__ballot_sync(~0u, true)); __threadfence();
      if (t == 32) atomicExch(out + 64, 1); }"""
    out = np.zeros(65, np.int32)
    run = tma.run_kernel(source, grid=1, block=64, args=(out,), schedules=4)
    assert run.findings == ()
    np.testing.assert_array_equal(out, [32] * 64 + [1])


def test_blocks_of_a_grid_wait_for_each_other():
    source = """extern "C" __global__ void kernel(int* out, int* count) {
      if (threadIdx.x == 0) { __threadfence(); atomicAdd(count, 1);
      while (atomicAdd(count, 0) < 3); }
      __syncthreads(); out[blockIdx.x * 32 + threadIdx.x] = blockIdx.x; }"""
    out, count = np.zeros(96, np.int32), np.zeros(1, np.int32)
    run = tma.run_kernel(source, grid=3, block=32, args=(out, count), schedules=4)
    assert run.ok
    np.testing.assert_array_equal(out, np.repeat([0, 1, 2], 32))


def test_a_cluster_reads_and_adds_to_the_shared_memory_of_its_other_block():
    source = r"""extern "C" __global__ void __cluster_dims__(2, 1, 1) kernel(int* out) {
      __shared__ int s[32]; int t = threadIdx.x, rank, *other;
      asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
      asm("mapa.u64 %0, %1, %2;" : "=l"(other) : "l"(s), "r"(rank ^ 1));
      #define SYNC asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory")
      s[t] = t + 100 * rank; SYNC; int seen = other[t ^ 1]; SYNC;
      atomicAdd(other + 3, 1); SYNC; out[blockIdx.x * 32 + t] = t == 3 ? s[3] : seen; }"""
    out = np.zeros(64, np.int32)
    assert tma.run_kernel(source, grid=2, block=32, args=(out,), schedules=3).findings == ()
    t, rank = np.arange(64) % 32, np.arange(64) // 32
    np.testing.assert_array_equal(
        out, np.where(t == 3, 35 + 100 * rank, (t ^ 1) + 100 * (1 - rank))
    )


def test_functions_of_the_mathematics_library_are_as_exact_as_cuda_says():
    source = """extern "C" __global__ void kernel(double* out, float* out32) {
      double x = threadIdx.x * 0.37 + 0.1; float y = x;
      out[threadIdx.x] = sin(x) + exp(-x) + log(x) + pow(x, 1.3) + x / 3.7 + sqrt(x);
      out32[threadIdx.x] = sinf(y) + expf(-y) + logf(y) + powf(y, 1.3f)
        + tanhf(y) + fmodf(y, 3); }"""
    out, out32 = np.zeros(THREADS), np.zeros(THREADS, np.float32)
    assert tma.run_kernel(source, grid=1, block=THREADS, args=(out, out32)).findings == ()
    x = T * 0.37 + 0.1
    common = np.sin(x) + np.exp(-x) + np.log(x) + x**1.3
    np.testing.assert_allclose(out, common + x / 3.7 + np.sqrt(x), rtol=1e-14)
    np.testing.assert_allclose(out32, common + np.tanh(x) + np.fmod(x, 3), rtol=1e-5)


def test_printf_prints_the_values_of_each_thread():
    source = (
        'extern "C" __global__ void kernel() { if (threadIdx.x < 2) '
        r'printf("%d %5.2f %s %lld %c%%\n", threadIdx.x, 1.5 * threadIdx.x, "text", 1LL << 40, '
        "65); }"
    )
    run = tma.run_kernel(source, grid=1, block=32)
    assert run.printed == "0  0.00 text 1099511627776 A%\n1  1.50 text 1099511627776 A%\n"


#: Code that ends a run with an error, the rule, and words of the message.
ENDINGS = {
    "a trap": ("if (t == 5) __trap();", "TRAP", "executes a trap"),
    "an assertion": ("assert(t < 100);", "ASSERT", "`t < 100` fails"),
    "an index past the end": ("out[t + 1] = 1;", "ILLEGAL_ADDRESS", "4 bytes past the end of"),
    "an odd address": ("*(int*)((char*)out + 1) = t;", "MISALIGNED_ADDRESS", "4 bytes are"),
    "a poll that nobody answers": (
        "while (*(volatile int*)out == 0);", "HANG_POLL", "wait for memory or a barrier"),
    "a function that is nowhere": (
        "int (*f)(int) = (int (*)(int))out[t]; "
        "out[t] = f(t);", "ILLEGAL_ADDRESS", "function at 0x0"),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDINGS)
def test_what_ends_a_kernel_on_a_gpu_ends_the_run(name):
    code, rule, message = ENDINGS[name]
    out = np.zeros(THREADS, np.int32)
    run = tma.run_kernel(body(code), grid=1, block=THREADS, args=(out,))
    assert [finding.rule for finding in run.findings] == [rule]
    assert message in run.findings[0].message
    assert not run.ok


TIMER = "long long begin = clock64();"
#: Code of thread 0 that polls the barrier `full` before it loads a tile, and what it stores.
BOUNDED = {
    "a wait with a time limit": ("out[0] = wait_at_most(&full, 0, 2000) ? 1 : 2;", 2),
    "a wait with a time limit of 2 s": ("out[0] = wait_at_most(&full, 0, 2000000000) ? 1 : 2;", 2),
    "a loop of 500 polls": (
        "for (int i = 0; i < 500; ++i) s += 1 + test_wait(&full, 0); out[0] = s;",
        500),
    "four calls of a function": (
        "out[0] = poll(&full) + poll(&full) + poll(&full) + poll(&full);", 4),
    "a loop of 500 polls of memory": (
        "for (int i = 0; i < 500; ++i) s += 1 + (int)*(volatile float*)(out + 1); out[0] = s;",
        500),
    "a loop that counts until a time limit": (
        TIMER + "while (!test_wait(&full, 0)) { ++s; if (clock64() - begin > 100000) break; }"
        "out[0] = s > 9;", 1),
    "a delay": (TIMER + "while (clock64() - begin < 2000000000); out[0] = 3;", 3),
    "a delay by the high word of the timer": (
        'unsigned a, b; asm volatile("mov.u32 %0, %%globaltimer_hi;" : "=r"(a)); do asm volatile('
        '"mov.u32 %0, %%globaltimer_hi;" : "=r"(b)); while (a == b); out[0] = b - a;', 1),
    "a loop that sleeps": ("for (int i = 0; i < 50; ++i) __nanosleep(100); out[0] = 4;", 4),
}  # fmt: skip
POLLS = """#include <tma_dlpack.h>
using namespace tma_dlpack;
__device__ __noinline__ int poll(Barrier* full) { return 1 + test_wait(full, 0); }
extern "C" __global__ void kernel(const __grid_constant__ Map map, float* out) {
  __shared__ alignas(128) float tile[512]; __shared__ Barrier full, other; int s = 0;
  if (threadIdx.x == 0) { init(&full); init(&other); }
  __syncthreads();
"""
LOADS = """ arrive_expect_tx(&full, 2048); load(tile, map, &full, 0, 0); }
  __syncthreads(); wait(&full, 0); out[2] = tile[1]; }"""


def polled(code, schedules=4):
    x, out = np.full((64, 64), 7, np.float32), np.zeros(4, np.float32)
    args = tma.make_tma_descriptor(x, (16, 32)), out
    return tma.run_kernel(POLLS + code, grid=1, block=128, args=args, schedules=schedules), out


@pytest.mark.parametrize("case", BOUNDED)
def test_a_kernel_may_poll_a_limited_number_of_times(case):
    code, first = BOUNDED[case]
    run, out = polled("if (threadIdx.x == 0) {" + code + LOADS)
    assert run.findings == ()
    np.testing.assert_array_equal(out, [first, 0, 7, 0])


def test_a_kernel_may_end_after_a_wait_that_nobody_serves():
    run, out = polled("out[0] = wait_at_most(&full, 0, 2000) ? 1 : 2; }")
    assert run.findings == ()
    assert out[0] == 2


#: Code that waits forever, and the offset of the barrier that the finding names.
ENDLESS = {
    "a wait": ("wait(&full, 0);", 0),
    "a wait that counts and prints": (
        'while (!try_wait(&full, 0)) if (++s == 9) printf("9 polls");', 0),
    "a wait that sleeps longer and longer": (
        "for (int n = 32; !test_wait(&full, 0); n = n < 256 ? 2 * n : n) __nanosleep(n);", 0),
    "a wait that prints once a second": (
        TIMER + "while (!test_wait(&full, 0)) if (clock64() - begin > 1000000000)"
        '{ printf("waits"); begin = clock64(); }', 0),
    "a wait after another wait has given up": (
        "out[0] = wait_at_most(&full, 0, 2000); wait(&other, 0);", 8),
    "two parities by turns": ("for (int n = 0; !test_wait(n ? &full : &other, 0); n = !n);", 8),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDLESS)
def test_an_endless_wait_is_a_hang_at_its_barrier(case, monkeypatch):
    monkeypatch.setattr(machine, "POLL_STEPS", 10_000)
    code, offset = ENDLESS[case]
    run, _ = polled(code + "}")
    assert {finding.rule for finding in run.findings} == {"HANG_NOBODY_ARRIVED"}
    assert {barrier.address % 16 for barrier in run.barriers} >= {offset}, run.barriers


def test_a_wait_with_a_time_limit_lasts_until_other_blocks_have_run():
    source = """extern "C" __global__ void kernel(int* out) {
      if (blockIdx.x == 0 && threadIdx.x == 0) { long long begin = clock64();
        while (*(volatile int*)out == 0) if (clock64() - begin > 1000000) __trap(); }
      if (blockIdx.x == 2) atomicExch(out, 5); }"""
    out = np.zeros(1, np.int32)
    run = tma.run_kernel(source, grid=3, block=32, args=(out,), schedules=4)
    assert run.findings == ()
    assert out[0] == 5


def test_max_steps_ends_an_endless_loop_with_its_line():
    source = body("\nint s = out[0];\nwhile (s < n) s ^= 1;\nout[0] = s;").replace(
        "* out", "* out, int n"
    )
    run = tma.run_kernel(
        source,
        grid=1,
        block=32,
        args=(np.zeros(1, np.int32), 9),
        max_steps=10_000,
        options=("-lineinfo",),
    )
    assert [finding.rule for finding in run.findings] == ["ENDLESS_LOOP"]
    assert re.search(r"10,000 steps", run.findings[0].message)


def test_the_same_seed_runs_the_same_steps():
    source, _ = KERNELS["a lock that each lane takes"]
    steps = [
        tma.run_kernel(source, grid=2, block=64, args=(np.zeros(THREADS, np.int32),), seed=seed,
                       schedules=4).steps
        for seed in (3, 3)
    ]  # fmt: skip
    assert steps[0] == steps[1] > 0
