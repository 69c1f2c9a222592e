"""The effects of the header's new functions, in kernels that run on the simulator."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import tma_dlpack as tma

pytestmark = [
    pytest.mark.skipif(not hasattr(tma, "run_kernel"), reason="this tma_dlpack runs no kernels"),
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed"),
]
HEAD = """
#include <tma_dlpack.h>
using namespace tma_dlpack;
extern __shared__ unsigned char smem[];
"""


def run(body: str, parameters: str, args, **options):
    source = HEAD + f'extern "C" __global__ void kernel({parameters})\n{{\n{body}\n}}'
    done = tma.run_kernel(source, "kernel", args=args, **{"grid": 1, "block": 128} | options)
    done.raise_if_wrong()
    return done


ADDS = """
  float* tile = reinterpret_cast<float*>(smem);
  tile[threadIdx.x] = threadIdx.x;
  fence_async();
  __syncthreads();
  if (threadIdx.x == 0)
  {
    reduce_bulk<Reduction::add>(out, tile, 512);
    store_commit();
    store_wait();
  }
"""


def test_reduce_bulk_adds_to_what_is_there():
    out = np.full(132, 0.5, np.float32)
    run(ADDS, "float* out", (out,), smem_bytes=512)
    assert np.array_equal(out[:128], np.arange(128) + 0.5)
    assert (out[128:] == 0.5).all()


ARRIVES = """
  __shared__ Barrier full;
  if (threadIdx.x == 0) init(&full, 128);
  __syncthreads();
  if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = 7, arrive(&full, COUNT);
  wait(&full, 0);
  if (threadIdx.x == 127) out[4] = out[0] + out[1] + out[2] + out[3];
"""


def test_an_arrive_with_a_count_is_as_many_arrivals():
    out = np.zeros(5, np.int32)
    run(ARRIVES.replace("COUNT", "32"), "int* out", (out,))
    assert out.tolist() == [7, 7, 7, 7, 28]


def test_with_a_smaller_count_the_phase_never_ends():
    source = HEAD + 'extern "C" __global__ void kernel(int* out)\n{' + ARRIVES + "}"
    done = tma.run_kernel(
        source.replace("COUNT", "31"), "kernel", grid=1, block=128, args=(np.zeros(5, np.int32),)
    )
    assert not done.ok


#: Statements of a warp -> the values in `out`; None if a checked build traps.
STATES = {
    "for (int t = 0; t < 4; ++t, at.advance()) if (elect_one()) use(t);": [10, 11, 0, 1],
    "for (int t = 0; t < 3; ++t, at.advance()) if (threadIdx.x == 0) use(t);"
    "if (threadIdx.x == 1) use(3);": [10, 11, 0, 1],
    "if (elect_one()) at.advance(), at.advance(), use(0), at.advance(3), use(1);": [0, 11, 9, 9],
    "if (elect_one()) use(0), at.advance(), at.advance(0), use(1);": [10, 11, 9, 9],
    "if (elect_one()) use(0), at.advance(), at.advance();": [10, 9, 9, 9],
    "if (elect_one()) use(0), at.advance(), at.advance(), use(1);": None,
    "if (elect_one()) use(0), at.advance(2), at.advance(3), use(1);": None,
}


@pytest.mark.parametrize("body", STATES)
@pytest.mark.parametrize("check", [0, 1], ids=["plain", "checked"])
def test_a_checked_state_traps_only_in_a_thread_that_uses_it_and_skips_a_stage(body, check):
    source = HEAD + 'extern "C" __global__ void kernel(int* out)\n{'
    source += "auto at = PipelineState<2>::producer();"
    source += f"auto use = [&](int i) {{ out[i] = at.stage() + 10 * at.phase(); }}; {body}}}"
    out, options = np.full(4, 9, np.int32), (f"-DTMA_DLPACK_CHECK={check}",)
    done = tma.run_kernel(source, "kernel", grid=1, block=32, args=(out,), options=options)
    if check and STATES[body] is None:
        assert [finding.rule for finding in done.findings] == ["TRAP"]
    else:
        assert done.ok
        assert STATES[body] in (None, out.tolist())


SPREADS = """
  __shared__ Barrier full;
  if (threadIdx.x == 0) init(&full), arrive_expect_tx(&full, 512);
  cluster_arrive_relaxed();
  cluster_wait();
  if (cluster_rank() == 0 && threadIdx.x == 0) load_bulk_multicast(smem, x, 512, &full, 0b11);
  wait(&full, 0);
  out[blockIdx.x * 128 + threadIdx.x] = reinterpret_cast<float*>(smem)[threadIdx.x];
  cluster_sync();
"""


def test_load_bulk_multicast_fills_both_blocks():
    x, out = np.arange(128, dtype=np.float32), np.zeros(256, np.float32)
    arguments = {"grid": 2, "cluster": 2, "smem_bytes": 512}
    run(SPREADS, "const float* x, float* out", (x, out), **arguments)
    assert np.array_equal(out, np.tile(x, 2))


MULTIPLIES = """
  __shared__ Barrier full;
  unsigned char* const tiles = smem + (-shared_address(smem) & 1023);
  if (threadIdx.x == 0)
  {
    init(&full);
    arrive_expect_tx(&full, 16384);
    load(tiles, a, &full, 0, 0);
    load(tiles + 8192, b, &full, 0, 0);
  }
  __syncthreads();
  wait(&full, 0);
  constexpr unsigned long long layout = k_major_descriptor<64, Swizzle::bytes128>();
  float d[32] = {};
  wgmma_fence();
  for (unsigned step = 0; step < 4; ++step)
  {
    const unsigned at = shared_address(tiles) + k_step_bytes<64, Swizzle::bytes128>(step);
    A_OPERAND
    wgmma<64, MmaType::fp16>(d, A, descriptor_at(at + 8192, layout), step);
  }
  wgmma_commit();
  wgmma_wait();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = 0; i < 32; ++i)
    out[(warp * 16 + i % 4 / 2 * 8 + lane / 4) * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
"""
#: PTX's fragment of 64 x 16 halves: each register has two columns of a row.
FROM_REGISTERS = """
    unsigned A[4];
    for (int i = 0; i < 4; ++i)
    {
      const unsigned row = threadIdx.x / 32 * 16 + i % 2 * 8 + threadIdx.x % 32 / 4;
      const unsigned column = step * 16 + i / 2 * 8 + threadIdx.x % 4 * 2;
      A[i] = *reinterpret_cast<unsigned*>(
        tiles + 2 * swizzled_index<unsigned short, Swizzle::bytes128>(row, column));
    }
"""


@pytest.mark.parametrize("a_is_in", ["shared memory", "registers"])
def test_wgmma_multiplies_two_tiles(a_is_in):
    random = np.random.default_rng(46)
    a, b = (random.integers(-4, 5, (64, 64)).astype(np.float16) for _ in "ab")
    out = np.zeros((64, 64), np.float32)
    maps = [tma.make_tma_descriptor(x, (64, 64), swizzle="bytes128") for x in (a, b)]
    in_smem = "const unsigned long long A = descriptor_at(at, layout);"
    operand = in_smem if a_is_in == "shared memory" else FROM_REGISTERS
    parameters = "const __grid_constant__ Map a, const __grid_constant__ Map b, float* out"
    body = MULTIPLIES.replace("A_OPERAND", operand)
    run(body, parameters, (*maps, out), smem_bytes=1024 + 16384)
    assert np.array_equal(out, a.astype(np.float32) @ b.astype(np.float32).T)


TCGEN05 = """
  __shared__ Barrier full, done;
  __shared__ unsigned allocated;
  unsigned char* const tiles = smem + (-shared_address(smem) & 1023);
  if (threadIdx.x == 0) init(&full), init(&done);
  if (threadIdx.x < 32)
  {
    tcgen05_alloc(&allocated, 64);
    tcgen05_relinquish();
    tcgen05_fence_before();
  }
  __syncthreads();
  tcgen05_fence_after();
  if (threadIdx.x == 0)
  {
    arrive_expect_tx(&full, 128 * 128 + 64 * 128);
    load(tiles, a, &full, 0, 0);
    load(tiles + 128 * 128, b, &full, 0, 0);
    wait(&full, 0);
    const unsigned at = shared_address(tiles);
    for (unsigned step = 0; step < 4; ++step)
      tcgen05_mma<MmaType::fp16>(
        allocated,
        descriptor_at(at + 32 * step, tcgen05_k_major_descriptor<128, Swizzle::bytes128>()),
        descriptor_at(at + 128 * 128 + 32 * step,
                      tcgen05_k_major_descriptor<64, Swizzle::bytes128>()),
        tcgen05_instruction_descriptor<MmaType::fp16, 128, 64>(), step);
    tcgen05_commit(&done);
  }
  __syncwarp();
  wait(&done, 0);
  tcgen05_fence_after();
  for (int n = 0; n < 64; n += 16)
  {
    float columns[16];
    tcgen05_load(columns, allocated + (threadIdx.x / 32 * 32 << 16) + n);
    tcgen05_wait_load();
    for (int i = 0; i < 16; ++i) out[threadIdx.x * 64 + n + i] = columns[i];
  }
  tcgen05_fence_before();
  __syncthreads();
  if (threadIdx.x < 32) tcgen05_dealloc(allocated, 64);
"""


def test_tcgen05_multiplies_two_tiles():
    random = np.random.default_rng(46)
    a, b = (random.integers(-4, 5, (n, 64)).astype(np.float16) for n in (128, 64))
    out = np.zeros((128, 64), np.float32)
    maps = [
        tma.make_tma_descriptor(x, (len(x), 64), swizzle="bytes128", target="sm_100")
        for x in (a, b)
    ]
    parameters = "const __grid_constant__ Map a, const __grid_constant__ Map b, float* out"
    arguments = {"smem_bytes": 1024 + 192 * 128, "target": "sm_100"}
    run(TCGEN05, parameters, (*maps, out), **arguments)
    assert np.array_equal(out, a.astype(np.float32) @ b.astype(np.float32).T)


HANDS_OVER = """
  __shared__ Barrier full;
  if (threadIdx.x == 0) init(&full);
  x[threadIdx.x] = threadIdx.x;
  FENCE
  __syncthreads();
  if (threadIdx.x == 0) arrive_expect_tx(&full, 512), load_bulk(smem, x, 512, &full);
  wait(&full, 0);
  out[threadIdx.x] = reinterpret_cast<float*>(smem)[threadIdx.x];
"""


@pytest.mark.parametrize("fence", ["fence_async_global();", ""])
def test_fence_async_global_orders_ordinary_stores_before_a_bulk_load(fence):
    x, out = (np.zeros(128, np.float32) for _ in "xo")
    parameters = "float* x, float* out"
    source = f'{HEAD}extern "C" __global__ void kernel({parameters}) {{{HANDS_OVER}}}'
    source = source.replace("FENCE", fence)
    done = tma.run_kernel(source, "kernel", grid=1, block=128, args=(x, out), smem_bytes=512)
    assert done.ok == bool(fence), done
    assert fence or "PROXY_FENCE" in {finding.rule for finding in done.findings}


@pytest.mark.parametrize("blocks", [1, 2])
def test_blackwell_gemm_multiplies_with_one_block_and_with_a_pair(blocks):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    random = np.random.default_rng(46)
    a, b = (random.integers(-3, 4, (256, 128)).astype(bfloat16) for _ in "ab")
    out = np.zeros((256, 256), bfloat16)
    options = {"swizzle": "bytes128", "data_type": "bf16", "target": "sm_100"}
    maps = [
        tma.make_tma_descriptor(x.view(np.uint16), (rows, 64), **options)
        for x, rows in ((a, 128), (b, 256 // blocks), (out, 128))
    ]
    source = Path(__file__).parents[2] / "notebooks" / "blackwell_gemm.cu"
    done = tma.run_kernel(
        source,
        "blackwell_gemm",
        grid=(2, 1),
        block=128,
        cluster=blocks,
        smem_bytes=1024 + 4 * 128 * (128 + 256 // blocks),
        args=(*maps, 128),
        target="sm_100",
        options=(f"-DBLOCKS={blocks}",),
    )
    done.raise_if_wrong()
    right = a.astype(np.float32) @ b.astype(np.float32).T
    assert np.array_equal(out.astype(np.float32), right.astype(bfloat16).astype(np.float32))
