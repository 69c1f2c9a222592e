// A kernel that changes a map field by field, and loads a tile with the changed map.

#include <tma_dlpack.h>

using namespace tma_dlpack;

struct Coords { int c[5]; };  // innermost first

// A change of one field of a map. n is the field's number in `NUMBERS` of
// verification/on_device.py. If the new value is in a register, `field` is 8 * n + dimension. If
// the new value is a constant in the instruction, `field` is 8 * n + value.
struct Change { unsigned long long field, value; };

constexpr unsigned long long TWO_SECONDS = 2'000'000'000;
constexpr unsigned ADDRESS = 0, RANK = 1, ELEMTYPE = 16;

extern __shared__ __align__(1024) unsigned char shared_memory[];

// In tensormap.replace, the dimension and some new values must be constants (PTX ISA). So each
// possible constant has a case.
#define IN_DIMENSION(FIELD, NUMBER, DIMENSION) \
  case 8 * NUMBER + DIMENSION: replace_##FIELD<DIMENSION>(map, to.value); break;
#define FOUR(FIELD, NUMBER)         \
  IN_DIMENSION(FIELD, NUMBER, 0)    \
  IN_DIMENSION(FIELD, NUMBER, 1)    \
  IN_DIMENSION(FIELD, NUMBER, 2)    \
  IN_DIMENSION(FIELD, NUMBER, 3)
#define FIVE(FIELD, NUMBER) FOUR(FIELD, NUMBER) IN_DIMENSION(FIELD, NUMBER, 4)
#define CONSTANT(FIELD, NUMBER, VALUE) \
  case 8 * NUMBER + static_cast<unsigned>(VALUE): replace_##FIELD<VALUE>(map); break;

__device__ void change(Map* map, Change to)
{
  switch (to.field)
  {
    case 8 * ADDRESS: replace_global_address(map, reinterpret_cast<void*>(to.value)); break;
    case 8 * RANK: replace_rank(map, to.value); break;
    FIVE(global_dim, 2)
    FOUR(global_stride, 3)
    FIVE(box_dim, 4)
    FIVE(element_stride, 5)
    CONSTANT(interleave_layout, 6, 0)
    CONSTANT(interleave_layout, 6, 1)
    CONSTANT(interleave_layout, 6, 2)
    CONSTANT(swizzle_mode, 7, Swizzle::none)
    CONSTANT(swizzle_mode, 7, Swizzle::bytes32)
    CONSTANT(swizzle_mode, 7, Swizzle::bytes64)
    CONSTANT(swizzle_mode, 7, Swizzle::bytes128)
    CONSTANT(fill_mode, 8, 0)
    CONSTANT(fill_mode, 8, 1)
    CONSTANT(elemtype, ELEMTYPE, 0)
    CONSTANT(elemtype, ELEMTYPE, 1)
    CONSTANT(elemtype, ELEMTYPE, 2)
    CONSTANT(elemtype, ELEMTYPE, 3)
    CONSTANT(elemtype, ELEMTYPE, 4)
    CONSTANT(elemtype, ELEMTYPE, 5)
    CONSTANT(elemtype, ELEMTYPE, 6)
    CONSTANT(elemtype, ELEMTYPE, 7)
    CONSTANT(elemtype, ELEMTYPE, 8)
    CONSTANT(elemtype, ELEMTYPE, 9)
    CONSTANT(elemtype, ELEMTYPE, 10)
    CONSTANT(elemtype, ELEMTYPE, 11)
    CONSTANT(elemtype, ELEMTYPE, 12)
  }
}

__device__ void load_rank(unsigned rank, void* smem, const Map& map, Barrier* full, Coords at)
{
  const int* const c = at.c;
  switch (rank)
  {
    case 1: load(smem, map, full, c[0]); break;
    case 2: load(smem, map, full, c[0], c[1]); break;
    case 3: load(smem, map, full, c[0], c[1], c[2]); break;
    case 4: load(smem, map, full, c[0], c[1], c[2], c[3]); break;
    case 5: load(smem, map, full, c[0], c[1], c[2], c[3], c[4]); break;
  }
}

// One warp changes a map, and loads a tile with the changed map. With `in_place`, the warp changes
// the map in global memory at `out`. Otherwise the warp changes the map in shared memory, and then
// publishes the map to `out`. Then the warp writes the first `bytes` bytes of shared memory to the
// addresses after this map. These bytes are the tile, and zeros before the tile and in its gaps. If
// the load does not complete in two seconds, the warp does not write these bytes.
extern "C" __global__ void change_and_load(const __grid_constant__ Map from, const Coords at,
                                           unsigned rank, unsigned in_place, unsigned count,
                                           unsigned smem_offset, unsigned bytes, unsigned tx_bytes,
                                           unsigned char* out, const Change* changes)
{
  Map* const here = reinterpret_cast<Map*>(shared_memory + (bytes + 127) / 128 * 128);
  Barrier* const full = reinterpret_cast<Barrier*>(here + 1);
  Map* const place = reinterpret_cast<Map*>(out);
  for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x) shared_memory[i] = 0;
  fence_async();  // Order these writes before the tile, which TMA writes later.
  if (threadIdx.x == 0)
  {
    init(full);
    Map* const map = in_place ? place : here;
    *map = from;
    for (unsigned i = 0; i < count; ++i) change(map, changes[i]);
    if (in_place) fence_release();
  }
  if (!in_place) publish(place, here);
  __syncwarp();
  if (threadIdx.x == 0)
  {
    fence_acquire(place);
    arrive_expect_tx(full, tx_bytes);
    load_rank(rank, shared_memory + smem_offset, *place, full, at);
  }
  if (!wait_at_most(full, 0, TWO_SECONDS)) return;
  for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x)
    out[sizeof(Map) + i] = shared_memory[i];
}
