// A user's kernel with tma_dlpack.h: every tile of a float32 matrix is loaded, doubled and stored.

#include <tma_dlpack.h>

constexpr int ROWS = 16, COLUMNS = 32;  // box_sizes = (16, 32)

__device__ void double_tile(const tma_dlpack::Map& map, unsigned tx_bytes)
{
  __shared__ alignas(128) float tile[ROWS][COLUMNS];
  __shared__ tma_dlpack::Barrier full;
  const int column = blockIdx.x * COLUMNS, row = blockIdx.y * ROWS;

  if (threadIdx.x == 0)
  {
    tma_dlpack::init(&full);
    tma_dlpack::arrive_expect_tx(&full, tx_bytes);
    tma_dlpack::load(tile, map, &full, column, row);
  }
  __syncthreads();
  tma_dlpack::wait(&full, 0);

  for (int i = threadIdx.x; i < ROWS * COLUMNS; i += blockDim.x) tile[i / COLUMNS][i % COLUMNS] *= 2;

  tma_dlpack::fence_async();
  __syncthreads();
  if (threadIdx.x == 0)
  {
    tma_dlpack::store(map, tile, column, row);
    tma_dlpack::store_commit();
    tma_dlpack::store_wait_read();
  }
}

// The map as a parameter, by value, which is the usual way.
extern "C" __global__ void double_tiles(const __grid_constant__ tma_dlpack::Map map, unsigned tx_bytes)
{
  double_tile(map, tx_bytes);
}

// The map in global memory, for launchers that cannot pass a struct by value.
extern "C" __global__ void double_tiles_at(const tma_dlpack::Map* map, unsigned tx_bytes)
{
  if (threadIdx.x == 0) tma_dlpack::fence_acquire(map);
  double_tile(*map, tx_bytes);
}
