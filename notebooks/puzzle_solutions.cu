// One solution for each puzzle of puzzles.ipynb. A puzzle has other solutions too.
#include <tma_dlpack.h>
using namespace tma_dlpack;

constexpr unsigned tile_bytes = 16 * 32 * sizeof(float);

// 1  The barrier expects all bytes of the box before any thread waits.
extern "C" __global__ void one_copy(const __grid_constant__ Map x, float* out)
{
  __shared__ alignas(128) float tile[16 * 32];
  __shared__ Barrier full;
  if (threadIdx.x == 0)
  {
    init(&full);
    arrive_expect_tx(&full, tile_bytes);
    load(tile, x, &full, 0, 16 * blockIdx.x);
  }
  __syncthreads();
  wait(&full, 0);
  for (int i = threadIdx.x; i < 512; i += 128) out[512 * blockIdx.x + i] = tile[i] + 1;
}

// 2  The parity of the wait alternates: 0, 1, 0, 1. The next load writes through another proxy (async).
//    The fence orders the reads of the threads before these writes.
extern "C" __global__ void two_phases(const __grid_constant__ Map x, float* out)
{
  __shared__ alignas(128) float tile[16 * 32];
  __shared__ Barrier full;
  float sums[4] = {};
  if (threadIdx.x == 0) init(&full);
  __syncthreads();
  for (int t = 0; t < 4; ++t)
  {
    if (threadIdx.x == 0)
    {
      arrive_expect_tx(&full, tile_bytes);
      load(tile, x, &full, 0, 16 * t);
    }
    wait(&full, t % 2);
    for (int k = 0; k < 4; ++k) sums[k] += tile[128 * k + threadIdx.x];
    fence_async();
    __syncthreads();  // everybody has read the tile, so the next load may begin
  }
  for (int k = 0; k < 4; ++k) out[128 * k + threadIdx.x] = sums[k];
}

// 3  Every thread that wrote makes its writes visible to the engine. Then one thread stores.
extern "C" __global__ void triple(const __grid_constant__ Map x, const __grid_constant__ Map out)
{
  __shared__ alignas(128) float tile[16 * 32];
  __shared__ Barrier full;
  const int row = 16 * blockIdx.x, column = 32 * blockIdx.y;
  if (threadIdx.x == 0)
  {
    init(&full);
    arrive_expect_tx(&full, tile_bytes);
    load(tile, x, &full, column, row);
  }
  __syncthreads();
  wait(&full, 0);
  for (int i = threadIdx.x; i < 512; i += 128) tile[i] *= 3;
  fence_async();
  __syncthreads();
  if (threadIdx.x == 0)
  {
    store(out, tile, column, row);
    store_commit();
    store_wait_read();
  }
}

// 4  Threads wrote the tile, and the engine writes it next. The fence must be between the two writes.
extern "C" __global__ void reload(const __grid_constant__ Map x, float* out)
{
  __shared__ alignas(128) float tile[16 * 32];
  __shared__ Barrier full;
  if (threadIdx.x == 0) init(&full);
  __syncthreads();
  for (int t = 0; t < 4; ++t)
  {
    if (threadIdx.x == 0)
    {
      arrive_expect_tx(&full, tile_bytes);
      load(tile, x, &full, 0, 16 * t);
    }
    wait(&full, t % 2);
    for (int i = threadIdx.x; i < 512; i += 128) tile[i] *= 2;
    __syncthreads();
    for (int i = threadIdx.x; i < 512; i += 128) out[512 * t + i] = tile[511 - i];
    fence_async();
    __syncthreads();
  }
}

// 5  Coordinates may be out of bounds: row -1 is filled with zeros. The barrier counts the bytes of all 18 rows.
extern "C" __global__ void halo(const __grid_constant__ Map x, float* out)
{
  __shared__ alignas(128) float tile[18 * 32];
  __shared__ Barrier full;
  const int row = 16 * blockIdx.x;
  if (threadIdx.x == 0)
  {
    init(&full);
    arrive_expect_tx(&full, sizeof(tile));
    load(tile, x, &full, 0, row - 1);
  }
  __syncthreads();
  wait(&full, 0);
  for (int i = threadIdx.x; i < 512; i += 128)
    out[32 * row + i] = tile[i] + tile[i + 32] + tile[i + 64];
}

// 6  The innermost coordinate must be a multiple of 4 floats (16 bytes). So load the tile from `column` on,
//    and read from column + 3 on.
extern "C" __global__ void shift(const __grid_constant__ Map x, float* out)
{
  __shared__ alignas(128) float tile[16 * 36];
  __shared__ Barrier full;
  const int column = 32 * blockIdx.x;
  if (threadIdx.x == 0)
  {
    init(&full);
    arrive_expect_tx(&full, sizeof(tile));
    load(tile, x, &full, column, 0);
  }
  __syncthreads();
  wait(&full, 0);
  for (int i = threadIdx.x; i < 512; i += 128)
    out[64 * (i / 32) + column + i % 32] = tile[36 * (i / 32) + i % 32 + 3];
}

// 7  The tile is aligned to 1024 bytes, so chunk c (16 bytes) of row r is at place c ^ (r % 8) of the row.
extern "C" __global__ void unswizzle(const __grid_constant__ Map x, float* out)
{
  __shared__ alignas(1024) float tile[32 * 32];
  __shared__ Barrier full;
  if (threadIdx.x == 0)
  {
    init(&full);
    arrive_expect_tx(&full, sizeof(tile));
    load(tile, x, &full, 0, 32 * blockIdx.x);
  }
  __syncthreads();
  wait(&full, 0);
  for (int i = threadIdx.x; i < 1024; i += 128)
  {
    const int row = i / 32, chunk = i % 32 / 4;
    out[1024 * blockIdx.x + i] = tile[32 * row + 4 * (chunk ^ (row % 8)) + i % 4];
  }
}

// 8  Write to a second tile, because a thread must not overwrite elements that other threads still read.
extern "C" __global__ void transpose(const __grid_constant__ Map x, const __grid_constant__ Map out)
{
  __shared__ alignas(128) float tile[32 * 32], turned[32 * 32];
  __shared__ Barrier full;
  const int row = 32 * blockIdx.x, column = 32 * blockIdx.y;
  if (threadIdx.x == 0)
  {
    init(&full);
    arrive_expect_tx(&full, sizeof(tile));
    load(tile, x, &full, column, row);
  }
  __syncthreads();
  wait(&full, 0);
  for (int i = threadIdx.x; i < 1024; i += 128) turned[i] = tile[32 * (i % 32) + i / 32];
  fence_async();
  __syncthreads();
  if (threadIdx.x == 0)
  {
    store(out, turned, row, column);
    store_commit();
    store_wait_read();
  }
}

// 9  Thread 0 loads into a stage of the ring again only after all threads have read its tile (__syncthreads).
extern "C" __global__ void ring(const __grid_constant__ Map x, float* out, int tiles)
{
  __shared__ alignas(128) float tile[3][16 * 32];
  __shared__ Barrier full[3];
  float sums[4] = {};
  if (threadIdx.x == 0)
  {
    for (int s = 0; s < 3; ++s) init(&full[s]);
    for (int t = 0; t < 3 && t < tiles; ++t)
    {
      arrive_expect_tx(&full[t], tile_bytes);
      load(tile[t], x, &full[t], 0, 16 * t);
    }
  }
  __syncthreads();
  for (int t = 0; t < tiles; ++t)
  {
    const int s = t % 3;
    wait(&full[s], t / 3 % 2);
    for (int k = 0; k < 4; ++k) sums[k] += (t + 1) * tile[s][128 * k + threadIdx.x];
    fence_async();
    __syncthreads();
    if (threadIdx.x == 0 && t + 3 < tiles)
    {
      arrive_expect_tx(&full[s], tile_bytes);
      load(tile[s], x, &full[s], 0, 16 * (t + 3));
    }
  }
  for (int k = 0; k < 4; ++k) out[128 * k + threadIdx.x] = sums[k];
}

// 10  Each block expects the bytes at its own barrier. After that, the block of rank 0 issues the load.
extern "C" __global__ void __cluster_dims__(2, 1, 1)
  multicast(const __grid_constant__ Map x, float* out)
{
  __shared__ alignas(128) float tile[16 * 32];
  __shared__ Barrier full;
  const unsigned rank = cluster_rank();
  if (threadIdx.x == 0)
  {
    init(&full);
    arrive_expect_tx(&full, tile_bytes);
  }
  cluster_sync();
  if (threadIdx.x == 0 && rank == 0)
    load_multicast(tile, x, &full, 0b11, 0, 16 * (blockIdx.x / 2));
  wait(&full, 0);
  for (int i = threadIdx.x; i < 512; i += 128) out[512 * blockIdx.x + i] = (rank + 1) * tile[i];
  cluster_sync();  // the other block loads into this block's shared memory: wait for it before the end
}

// 11  The engine writes the whole box, so the barrier counts all its bytes. Threads that write to out
//     need a bounds check.
extern "C" __global__ void tail(const __grid_constant__ Map x, float* out, int rows)
{
  __shared__ alignas(128) float tile[16 * 32];
  __shared__ Barrier full;
  const int row = 16 * blockIdx.x;
  if (threadIdx.x == 0)
  {
    init(&full);
    arrive_expect_tx(&full, tile_bytes);
    load(tile, x, &full, 0, row);
  }
  __syncthreads();
  wait(&full, 0);
  for (int i = threadIdx.x; i < 512; i += 128)
    if (row + i / 32 < rows) out[32 * row + i] = tile[i] + 1;
}

// 12  A stage is free after three arrivals at `empty`, one per warp. The first wait at `empty` must pass at once.
extern "C" __global__ void dead(const __grid_constant__ Map x, float* out, int tiles)
{
  __shared__ alignas(128) float tile[2][16 * 32];
  __shared__ Barrier full[2], empty[2];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0)
    for (int s = 0; s < 2; ++s)
    {
      init(&full[s], 1);
      init(&empty[s], 3);
    }
  __syncthreads();
  if (warp == 0)
  {
    if (lane == 0)
      for (int t = 0; t < tiles; ++t)
      {
        const int s = t % 2;
        wait(&empty[s], t / 2 % 2 ^ 1);
        arrive_expect_tx(&full[s], tile_bytes);
        load(tile[s], x, &full[s], 0, 16 * t);
      }
    return;
  }
  float sums[6] = {};
  for (int t = 0; t < tiles; ++t)
  {
    const int s = t % 2;
    wait(&full[s], t / 2 % 2);
    for (int k = 0, i = threadIdx.x - 32; i < 512; ++k, i += 96) sums[k] += tile[s][i];
    fence_async();
    __syncwarp();
    if (lane == 0) arrive(&empty[s]);
  }
  for (int k = 0, i = threadIdx.x - 32; i < 512; ++k, i += 96) out[i] = sums[k];
}
