// Maps in global memory that change between copies, by a kernel or by a copy from the host.

#include <tma_dlpack.h>

using namespace tma_dlpack;

constexpr unsigned ROWS = 16, COLUMNS = 32, TILE_BYTES = ROWS * COLUMNS * sizeof(float);
constexpr unsigned long long TWO_SECONDS = 2'000'000'000;

// The current address and number of rows of a matrix.
struct Matrix
{
  const float* address;
  unsigned long long rows;
};

struct Room
{
  alignas(128) float tile[ROWS * COLUMNS];
  Map map;
  Barrier full;
};

// One warp loads the first tile; `phase` counts the loads of this block.
__device__ void load_tile(Room& room, const Map* map, bool acquire, unsigned phase, float* out)
{
  if (threadIdx.x == 0)
  {
    if (acquire) fence_acquire(map);
    arrive_expect_tx(&room.full, TILE_BYTES);
    load(room.tile, *map, &room.full, 0, 0);
  }
  if (!wait_at_most(&room.full, phase % 2, TWO_SECONDS)) return;
  for (unsigned i = threadIdx.x; i < ROWS * COLUMNS; i += 32) out[i] = room.tile[i];
  __syncwarp();
}

__device__ void start(Room& room)
{
  if (threadIdx.x == 0) init(&room.full);
  __syncwarp();
}

__device__ void change(Room& room, Map* map, Matrix to)
{
  if (threadIdx.x == 0)
  {
    room.map = *map;
    replace_global_address(&room.map, to.address);
    replace_global_dim<1>(&room.map, to.rows);
  }
  publish(map, &room.map);
}

extern "C" __global__ void move_map(Map* map, const Matrix* to)
{
  __shared__ Room room;
  change(room, map, *to);
}

extern "C" __global__ void first_tile(const Map* map, float* out, unsigned acquire)
{
  __shared__ Room room;
  start(room);
  load_tile(room, map, acquire, 0, out);
}

// For each matrix, change the map and load a tile. out: one tile per matrix.
extern "C" __global__ void change_and_load(Map* map, const Matrix* matrices, unsigned count,
                                           float* out, unsigned acquire)
{
  __shared__ Room room;
  start(room);
  for (unsigned i = 0; i < count; ++i)
  {
    change(room, map, matrices[i]);
    load_tile(room, map, acquire, i, out + i * ROWS * COLUMNS);
  }
}

// The same as the kernel above, but changes the map in global memory, without shared memory.
extern "C" __global__ void change_in_place_and_load(Map* map, const Matrix* matrices, unsigned count,
                                                    float* out, unsigned acquire)
{
  __shared__ Room room;
  start(room);
  for (unsigned i = 0; i < count; ++i)
  {
    if (threadIdx.x == 0)
    {
      replace_global_address(map, matrices[i].address);
      replace_global_dim<1>(map, matrices[i].rows);
      fence_release();
    }
    load_tile(room, map, acquire, i, out + i * ROWS * COLUMNS);
  }
}
