// The three ways to bring a map to a kernel, and the programming guide's kernel, once per way.
#include "tma.cuh"

__constant__ TensorMap constant_map;

// Load an 8 x 16 tile of int32 at (x, y), add the thread index to its first row, store it back.
__device__ void load_modify_store(const TensorMap* map, int x, int y, unsigned* status)
{
  alignas(128) __shared__ int tile[8][16];
  __shared__ unsigned long long barrier;
  const Coords at{{x, y}};
  if (threadIdx.x == 0)
  {
    barrier_init(shared_address(&barrier), 1);
    barrier_expect(shared_address(&barrier), sizeof(tile));
    tma_load(2, shared_address(tile), map, shared_address(&barrier), at, Offsets{});
  }
  __syncthreads();
  if (!barrier_wait(shared_address(&barrier), 0))
  {
    *status = TIMED_OUT;
    return;
  }
  tile[0][threadIdx.x] += threadIdx.x;
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0)
  {
    tma_store(0, 2, shared_address(tile), map, at);
    commit_and_wait_all();
    *status = DONE;
  }
}

extern "C" __global__ void by_parameter(const __grid_constant__ TensorMap map, int x, int y,
                                        unsigned* status)
{
  load_modify_store(&map, x, y, status);
}

extern "C" __global__ void by_constant_memory(int x, int y, unsigned* status)
{
  load_modify_store(&constant_map, x, y, status);
}

extern "C" __global__ void by_global_memory(const TensorMap* map, int x, int y, unsigned* status)
{
  fence_tensormap_acquire(map);
  load_modify_store(map, x, y, status);
}

// A load that expects more bytes than the copy brings.
extern "C" __global__ void expects_too_much(const __grid_constant__ TensorMap map, unsigned* status)
{
  alignas(128) __shared__ int tile[8][16];
  __shared__ unsigned long long barrier;
  if (threadIdx.x == 0)
  {
    barrier_init(shared_address(&barrier), 1);
    barrier_expect(shared_address(&barrier), sizeof(tile) + 16);
    tma_load(2, shared_address(tile), &map, shared_address(&barrier), Coords{}, Offsets{});
    *status = barrier_wait(shared_address(&barrier), 0) ? DONE : TIMED_OUT;
  }
}
