// grouped_gemm.cu: C[rows of group g] = A[rows of group g] x B[g]^T, as in a mixture of experts. bf16,
// float accumulation, for compute capability 9.0. It is built from the parts of hopper_gemm.cu.
//
// A is (m, k) and C is (m, n). In A and C, group g + 1 begins at the row after group g. B[g] is the (n, k) matrix
// of expert g. ends[g] is the first row after group g. `ends` is in GPU memory, so the host need not know the sizes.
// A group may be empty. n and k are multiples of 8. The kernel does not write rows after the last group.
//
//   B's maps   one per expert, made on the host, in global memory: fence_acquire() before the first use
//   A's map    one map for all groups, so a tile at a group's end also loads rows of the next group
//   C's map    a store would also write these rows. So a tile that crosses the end of its group is stored through
//              a copy of C's map that ends at the group's end: replace_global_dim<1>(), publish(), fence_acquire()
//
// python tests/bench grouped measures the kernel; 07_grouped_gemm.ipynb explains it.

#include "hopper_gemm.cu"

namespace grouped
{

using namespace gemm;

// Boxes have 64 rows: half of a tile of A.
using Choose = Choice<Swizzle::bytes128, 64, 4, 2, 2, 8>;
constexpr int ROWS = TILE_M / 2;  // rows of a tile that one warpgroup multiplies

// ---- which tile ----

// The tile of C (128 x 256) that this block computes. The two blocks of a cluster compute tiles that are one above
// the other and need the same tile of B. If a group has an odd number of rows of tiles, the blocks compute tiles
// of the last of these rows. These tiles are side by side and need the same tile of A.
struct Tile
{
  int group, end;   // `end` is the first row after the group
  int row, column;  // first row and column of the tile in C
  bool beside;
};

// The pairs of tiles of all groups, in order: first the pairs of group 0. Each cluster computes whole pairs.
struct Groups
{
  const int* ends;
  int groups, n;
  int group = -1, begin = 0, end = 0, first = 0, tiles = 0;  // of the current group

  // Set `tile` to this block's tile of pair i; return false after the last pair. i must not decrease from call to call.
  __device__ bool find(int i, Tile& tile)
  {
    const int columns = (n + TILE_N - 1) / TILE_N;
    int high = (end - begin + TILE_M - 1) / TILE_M;
    while (i >= first + tiles)
    {
      if (++group == groups) return false;
      first += tiles, begin = end, end = ends[group];
      high = (end - begin + TILE_M - 1) / TILE_M;
      tiles = high / 2 * columns + high % 2 * ((columns + 1) / 2);
    }
    const Tiles<Choose> pairs(high / 2 * 2 * TILE_M, n);
    const int left_over = i - first - pairs.count(), rank = static_cast<int>(cluster_rank());
    const int2 at = left_over < 0 ? pairs.place(i - first)
                                  : int2{(high - 1) * TILE_M, (left_over * 2 + rank) * TILE_N};
    tile = {group, end, begin + at.x, at.y, left_over >= 0};
    return true;
  }
};

// ---- loads ----

__device__ void produce(Ring<Choose> ring, Groups groups, const Map& a, const Map* b, int k)
{
  const int rank = static_cast<int>(cluster_rank());
  ring.at = ring.at.producer();
  int acquired = -1;
  Tile tile;
  for (int i = blockIdx.x / 2; groups.find(i, tile); i += gridDim.x / 2)
  {
    const Map& weights = b[tile.group];
    if (acquired != tile.group) fence_acquire(&weights);  // before the first load through the map
    acquired = tile.group;
    for (int k0 = 0; k0 < k; k0 += TILE_K, ring.at.advance())
    {
      ring.expect();
      if (tile.beside)  // load half of A's tile for both blocks, and all of B's tile for this block
      {
        load_rows<ROWS, TILE_M, true>(ring, ring.a(), a, k0, tile.row, rank * ROWS);
        load_rows<TILE_N, TILE_N, false>(ring, ring.b(), weights, k0, tile.column, 0);
      }
      else
      {
        load_rows<TILE_M, TILE_M, false>(ring, ring.a(), a, k0, tile.row, 0);
        load_rows<TILE_N / 2, TILE_N, true>(ring, ring.b(), weights, k0, tile.column, rank * TILE_N / 2);
      }
    }
  }
}

// ---- the store of C ----

// Make a map of C whose last row is end - 1: change the warpgroup's map in shared memory, and copy this map to
// the warpgroup's place in global memory. One warp of the warpgroup calls this function.
__device__ void clip(Map* shared, Map* place, int end)
{
  const bool first = threadIdx.x % 128 == 0;
  if (first) replace_global_dim<1>(shared, end);
  publish(place, shared);
  if (first) fence_acquire(place);  // by the thread that stores
}

__device__ void consume(Ring<Choose> ring, Groups groups, const Map& c, Map* shared, Map* place,
                        unsigned char* boxes, int k)
{
  const int warpgroup = threadIdx.x / 128 - 1;
  float d[128] = {};
  Tile tile;
  for (int i = blockIdx.x / 2; groups.find(i, tile); i += gridDim.x / 2)
  {
    const int rows = tile.end - tile.row - warpgroup * ROWS;  // rows of the group from this warpgroup's first row on
    const bool crosses = 0 < rows && rows < ROWS;
    if (crosses && threadIdx.x % 128 < 32) clip(shared, place, tile.end);
    multiply(d, ring, warpgroup, k);
    if (rows > 0)
      store_c<Choose>(d, crosses ? *place : c, boxes, warpgroup, {tile.row, tile.column});
  }
  if (threadIdx.x % 128 == 0) store_wait_read();  // shared memory must live until the engine has read it
}

}  // namespace grouped

// `a`, `c` and every map of `b` have boxes of (64, 64) and the swizzle bytes128.
// `places` has room for two maps per block, one for each warpgroup that multiplies.
extern "C" __global__ void __cluster_dims__(2) __launch_bounds__(gemm::THREADS, 1)
  grouped_gemm(const __grid_constant__ gemm::Map a, const gemm::Map* b,
               const __grid_constant__ gemm::Map c, gemm::Map* places, const int* ends, int groups,
               int n, int k)
{
  using namespace grouped;
  __shared__ Map clipped[CONSUMERS];
  unsigned char* c_boxes;
  if (threadIdx.x < CONSUMERS) clipped[threadIdx.x] = c;
  const Ring<Choose> ring = start_ring<Choose>(c_boxes);  // calls cluster_sync(), so `clipped` is complete

  if (threadIdx.x < 128)
  {
    give_registers<40>();
    if (threadIdx.x < 32 && elect_one()) produce(ring, Groups{ends, groups, n}, a, b, k);
  }
  else
  {
    take_registers<232>();
    const int warpgroup = threadIdx.x / 128 - 1;
    consume(ring, Groups{ends, groups, n}, c, clipped + warpgroup,
            places + blockIdx.x * CONSUMERS + warpgroup,
            c_boxes + warpgroup * Choose::c_boxes * C_BOX_BYTES, k);
  }
  cluster_sync();  // the other block loads into this block's shared memory: wait for it before the end
}
