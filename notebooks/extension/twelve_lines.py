"""One kernel, its map and its launch in twelve lines, for a GPU with TMA."""

import cupy

import tma_dlpack as tma

SOURCE = r"""
#include <tma_dlpack.h>
using namespace tma_dlpack;
extern "C" __global__ void corner(const __grid_constant__ Map x, float* out) {
  __shared__ alignas(128) float tile[16 * 32];
  __shared__ Barrier full;
  if (threadIdx.x == 0) init(&full), arrive_expect_tx(&full, 2048), load(tile, x, &full, 32, 16);
  __syncthreads(), wait(&full, 0);
  out[threadIdx.x] = tile[threadIdx.x];
}"""
corner = cupy.RawKernel(SOURCE, "corner", ("-std=c++17", f"-I{tma.get_include()}"))
x, out = cupy.random.rand(64, 64, dtype="float32"), cupy.empty((16, 32), "float32")
tm = tma.make_tma_descriptor(x, (16, 32))
corner((1,), (512,), (tm.numpy().view("V128"), out))
assert (out == x[16:32, 32:64]).all()
