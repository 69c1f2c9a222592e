// The three ways to pass a map to a kernel: the programming guide's kernel, once per way.
#include <tma_dlpack.h>

using namespace tma_dlpack;

enum Status : unsigned { DONE = 0, TIMED_OUT = 1 };

constexpr unsigned long long TWO_SECONDS = 2'000'000'000;

__constant__ Map constant_map;

// Load an 8 x 16 tile of int32 at (x, y), add the thread index to its first row, store it back.
__device__ void load_modify_store(const Map* map, int x, int y, unsigned* status)
{
  alignas(128) __shared__ int tile[8][16];
  __shared__ Barrier full;
  if (threadIdx.x == 0)
  {
    init(&full);
    arrive_expect_tx(&full, sizeof(tile));
    load(tile, *map, &full, x, y);
  }
  __syncthreads();
  if (!wait_at_most(&full, 0, TWO_SECONDS))
  {
    *status = TIMED_OUT;
    return;
  }
  tile[0][threadIdx.x] += threadIdx.x;
  fence_async();
  __syncthreads();
  if (threadIdx.x == 0)
  {
    store(*map, tile, x, y);
    store_commit();
    store_wait();
    *status = DONE;
  }
}

extern "C" __global__ void by_parameter(const __grid_constant__ Map map, int x, int y,
                                        unsigned* status)
{
  load_modify_store(&map, x, y, status);
}

extern "C" __global__ void by_constant_memory(int x, int y, unsigned* status)
{
  load_modify_store(&constant_map, x, y, status);
}

extern "C" __global__ void by_global_memory(const Map* map, int x, int y, unsigned* status)
{
  fence_acquire(map);
  load_modify_store(map, x, y, status);
}

// A load that expects more bytes than the copy transfers.
extern "C" __global__ void expects_too_much(const __grid_constant__ Map map, unsigned* status)
{
  alignas(128) __shared__ int tile[8][16];
  __shared__ Barrier full;
  if (threadIdx.x == 0)
  {
    init(&full);
    arrive_expect_tx(&full, sizeof(tile) + 16);
    load(tile, map, &full, 0, 0);
    *status = wait_at_most(&full, 0, TWO_SECONDS) ? DONE : TIMED_OUT;
  }
}
