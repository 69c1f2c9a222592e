// double_tiles.cu: out = 2 * x for float32 matrices. A block loads the next tile while it doubles a tile. The file
// needs no framework. torch_operator.cpp and jax_handler.cpp call its launcher, and cupy_double.py calls its kernel.

#include <tma_dlpack.h>

using namespace tma_dlpack;

constexpr int ROWS = 16, COLUMNS = 32, THREADS = 128, BLOCKS = 2112;  // box_sizes = {16, 32}; 16 blocks * 132 SMs

extern "C" __global__ void __launch_bounds__(THREADS)
  double_tiles(const __grid_constant__ Map x, const __grid_constant__ Map out, int across, int count)
{
  __shared__ alignas(128) float tiles[2][ROWS * COLUMNS];
  __shared__ Barrier full[2];
  PipelineState<2> next, at;
  const auto load_tile = [&](int tile)
  {
    store_wait_read();  // the engine may still read the previous tile of this stage
    arrive_expect_tx(full + next.stage(), sizeof(tiles[0]));  // the bytes of a whole box, also at the edges
    load(tiles[next.stage()], x, full + next.stage(), tile % across * COLUMNS, tile / across * ROWS);
    next.advance();
  };
  if (threadIdx.x == 0) init(full), init(full + 1), load_tile(blockIdx.x);
  __syncthreads();

  for (int tile = blockIdx.x; tile < count; tile += gridDim.x, at.advance())
  {
    if (threadIdx.x == 0 && tile + gridDim.x < count) load_tile(tile + gridDim.x);
    wait(full + at.stage(), at.phase());
    for (int i = threadIdx.x; i < ROWS * COLUMNS; i += THREADS) tiles[at.stage()][i] *= 2;
    fence_async();  // every thread makes its writes visible to the copy engine
    __syncthreads();
    if (threadIdx.x == 0) store(out, tiles[at.stage()], tile % across * COLUMNS, tile / across * ROWS), store_commit();
  }
  if (threadIdx.x == 0) store_wait_read();  // shared memory must live until the engine has read it
}

#ifndef __CUDACC_RTC__  // CuPy compiles with NVRTC, and needs only the kernel
cudaError_t launch_double_tiles(const CUtensorMap& x, const CUtensorMap& out, std::int64_t rows,
                                std::int64_t columns, cudaStream_t stream)
{
  const int across = (columns + COLUMNS - 1) / COLUMNS, count = (rows + ROWS - 1) / ROWS * across;
  double_tiles<<<min(count, BLOCKS), THREADS, 0, stream>>>(x, out, across, count);
  return cudaGetLastError();  // an error of the launch only; a later CUDA call returns a fault of the kernel
}
#endif
