// Kernels that copy a tensor tile by tile, and kernels that compare the copy with the tensor. In a
// copying kernel, one thread of each CTA issues all loads and stores of the CTA.

#include <tma_dlpack.h>

using namespace tma_dlpack;

enum Status : unsigned { DONE = 0, TIMED_OUT = 1, MISALIGNED = 2 };

constexpr unsigned long long TWO_SECONDS = 2'000'000'000;

extern __shared__ unsigned char shared_memory[];

struct Coords { int c[5]; };  // innermost first

// The tiles that cover a tensor. In the arrays, the innermost dimension is first.
struct Tiling
{
  unsigned counts[5];  // tiles per dimension
  int box[5];
  unsigned total;
  // 1: consecutive tiles are adjacent along the outermost dimension (maps of split_inner).
  // 0: consecutive tiles are adjacent along the innermost dimension.
  unsigned last_first;
};

// The layout of shared memory: `stages` tiles, which begin at multiples of `stage_bytes`, then one
// mbarrier for each stage.
struct Ring
{
  unsigned stages, stage_bytes, tx_bytes;
  unsigned stores_in_flight;  // number of stages whose stores may be pending
  unsigned neighbours;        // number of adjacent tiles that one CTA copies at a time
};

// Return the coordinates of the first element of a tile.
template <unsigned RANK>
__device__ inline Coords coords_of(const Tiling& tiling, unsigned tile)
{
  Coords at{};
  if (RANK > 2 && tiling.last_first)
  {
    at.c[RANK - 1] = static_cast<int>(tile % tiling.counts[RANK - 1]) * tiling.box[RANK - 1];
    tile /= tiling.counts[RANK - 1];
  }
#pragma unroll
  for (unsigned d = 0; d + 1 < RANK; ++d)
  {
    at.c[d] = static_cast<int>(tile % tiling.counts[d]) * tiling.box[d];
    tile /= tiling.counts[d];
  }
  if (RANK <= 2 || !tiling.last_first) at.c[RANK - 1] = static_cast<int>(tile) * tiling.box[RANK - 1];
  return at;
}

template <unsigned RANK>
__device__ inline void load_tile(void* smem, const Map& map, Barrier* full, Coords at)
{
  const int* const c = at.c;
  if constexpr (RANK == 1) load(smem, map, full, c[0]);
  if constexpr (RANK == 2) load(smem, map, full, c[0], c[1]);
  if constexpr (RANK == 3) load(smem, map, full, c[0], c[1], c[2]);
  if constexpr (RANK == 4) load(smem, map, full, c[0], c[1], c[2], c[3]);
  if constexpr (RANK == 5) load(smem, map, full, c[0], c[1], c[2], c[3], c[4]);
}

template <unsigned RANK>
__device__ inline void store_tile(const Map& map, const void* smem, Coords at)
{
  const int* const c = at.c;
  if constexpr (RANK == 1) store(map, smem, c[0]);
  if constexpr (RANK == 2) store(map, smem, c[0], c[1]);
  if constexpr (RANK == 3) store(map, smem, c[0], c[1], c[2]);
  if constexpr (RANK == 4) store(map, smem, c[0], c[1], c[2], c[3]);
  if constexpr (RANK == 5) store(map, smem, c[0], c[1], c[2], c[3], c[4]);
}

// Wait until at most `stores_in_flight` stores of this thread still have to read their tiles. The
// operand of cp.async.bulk.wait_group must be a constant (PTX ISA), so each count has a case.
__device__ inline void wait_for_reads(unsigned stores_in_flight)
{
  switch (stores_in_flight)
  {
    case 1: store_wait_read<1>(); break;
    case 2: store_wait_read<2>(); break;
    case 3: store_wait_read<3>(); break;
    case 4: store_wait_read<4>(); break;
    default: store_wait_read(); break;
  }
}

// Return the number of the k-th tile of this CTA. CTA 0 copies the first `neighbours` tiles, CTA 1
// copies the next `neighbours` tiles, and so on. CTA 0 continues after the tiles of the last CTA.
__device__ inline unsigned tile_of(unsigned k, unsigned neighbours)
{
  return (k / neighbours * gridDim.x + blockIdx.x) * neighbours + k % neighbours;
}

// Copy the tiles of this CTA. The CTA's k-th tile uses stage k % stages.
template <unsigned RANK>
__device__ inline void copy_tiles(const Map& source, const Map& target,
                                  const Tiling& tiling, const Ring& ring, unsigned* status)
{
  if (threadIdx.x != 0) return;
  if (shared_address(shared_memory) % 1024 != 0)
  {
    *status = MISALIGNED;
    return;
  }
  Barrier* const full = reinterpret_cast<Barrier*>(shared_memory + ring.stages * ring.stage_bytes);
  for (unsigned stage = 0; stage < ring.stages; ++stage) init(full + stage);

  const auto load = [&](unsigned tile, unsigned stage)
  {
    arrive_expect_tx(full + stage, ring.tx_bytes);
    load_tile<RANK>(shared_memory + stage * ring.stage_bytes, source, full + stage,
                    coords_of<RANK>(tiling, tile));
  };
  unsigned loaded = 0, to_load = tile_of(0, ring.neighbours);
  for (unsigned stage = 0; stage < ring.stages && to_load < tiling.total; ++stage)
  {
    load(to_load, stage);
    to_load = tile_of(++loaded, ring.neighbours);
  }

  // In iteration k, tile k is stored from `stage`. The next load writes to `free_stage`, the stage
  // of the oldest pending store.
  unsigned stage = 0, parity = 0, free_stage = 0;
  for (unsigned k = 0;; ++k)
  {
    const unsigned tile = tile_of(k, ring.neighbours);
    if (tile >= tiling.total) break;
    if (!wait_at_most(full + stage, parity, TWO_SECONDS))
    {
      *status = TIMED_OUT;
      return;
    }
    store_tile<RANK>(target, shared_memory + stage * ring.stage_bytes,
                     coords_of<RANK>(tiling, tile));
    store_commit();
    if (++stage == ring.stages) stage = 0, parity ^= 1;

    // After `wait_for_reads`, the store of tile k - stores_in_flight has read its stage, which is
    // `free_stage`. So the next tile can be loaded into `free_stage`.
    if (k < ring.stores_in_flight || to_load >= tiling.total) continue;
    wait_for_reads(ring.stores_in_flight);
    load(to_load, free_stage);
    to_load = tile_of(++loaded, ring.neighbours);
    if (++free_stage == ring.stages) free_stage = 0;
  }
  store_wait();
}

#define COPY_TILES(RANK)                                                                          \
  extern "C" __global__ void copy_tiles_##RANK(const __grid_constant__ Map source,               \
                                               const __grid_constant__ Map target,               \
                                               const __grid_constant__ Tiling tiling,            \
                                               const __grid_constant__ Ring ring, unsigned* status) \
  {                                                                                               \
    copy_tiles<RANK>(source, target, tiling, ring, status);                                       \
  }

COPY_TILES(1)
COPY_TILES(2)
COPY_TILES(3)
COPY_TILES(4)
COPY_TILES(5)

// ---- comparison of the copy with the tensor; each warp compares one row at a time ----

struct Rows
{
  unsigned long long strides[4];  // bytes
  unsigned counts[4];
  unsigned long long total, row_bytes;
};

// Call visit(offset) for every 16 bytes of every row, and tail(offset) for each remaining byte of
// the row.
template <class Visit, class Tail>
__device__ inline void for_each_row(const Rows& rows, Visit visit, Tail tail)
{
  const unsigned lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * warps;
  for (unsigned long long row = blockIdx.x * warps + threadIdx.x / 32; row < rows.total; row += step)
  {
    unsigned long long left = row, offset = 0;
    for (unsigned d = 0; d < 4; ++d)
    {
      offset += left % rows.counts[d] * rows.strides[d];
      left /= rows.counts[d];
    }
    for (unsigned long long i = lane * 16; i + 16 <= rows.row_bytes; i += 32 * 16) visit(offset + i);
    for (unsigned long long i = rows.row_bytes / 16 * 16 + lane; i < rows.row_bytes; i += 32)
      tail(offset + i);
  }
}

__device__ inline uint4& vector_at(unsigned char* pointer)
{
  return *reinterpret_cast<uint4*>(pointer);
}

// Write the inverted bytes of the source to the target, so that every byte differs.
extern "C" __global__ void invert(unsigned char* source, unsigned char* target, Rows rows)
{
  for_each_row(
    rows,
    [&](unsigned long long at)
    {
      const uint4 x = vector_at(source + at);
      vector_at(target + at) = uint4{~x.x, ~x.y, ~x.z, ~x.w};
    },
    [&](unsigned long long at) { target[at] = static_cast<unsigned char>(~source[at]); });
}

// Add to `differences` the number of 16-byte pieces and remaining bytes that differ.
extern "C" __global__ void compare(unsigned char* source, unsigned char* target, Rows rows,
                                   unsigned* differences)
{
  unsigned found = 0;
  for_each_row(
    rows,
    [&](unsigned long long at)
    {
      const uint4 x = vector_at(source + at), y = vector_at(target + at);
      found += x.x != y.x || x.y != y.y || x.z != y.z || x.w != y.w;
    },
    [&](unsigned long long at) { found += source[at] != target[at]; });
  if (found != 0) atomicAdd(differences, found);
}

// Fill memory with pseudo-random words. Each word is a hash of its index. The hash uses the
// constants of splitmix64.
extern "C" __global__ void fill_random(unsigned* words, unsigned long long count)
{
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
  {
    unsigned long long x = (i + 1) * 0x9E3779B97F4A7C15;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9;
    words[i] = static_cast<unsigned>(x >> 32);
  }
}
