// tma_dlpack_check.h: the verbs of tma_dlpack.h with checks. tma_dlpack.h includes this header if
// TMA_DLPACK_CHECK is 1. The checks need about 1 KiB of static shared memory, and they take time
// (see the README).
//
// Each verb checks its arguments and the earlier calls on its barrier, and then calls the unchecked
// verb. If a verb finds a mistake, it prints one line and ends the kernel:
//
//   tma_dlpack check: FILE:LINE, block (X, Y, Z), thread (X, Y, Z), VERB: FOUND; LIMIT
//
// `tma-dlpack explain` explains such a line. Initialise each barrier with init(), because a verb
// reports a barrier that init() did not initialise.

#ifndef TMA_DLPACK_CHECK_H
#define TMA_DLPACK_CHECK_H

#ifndef __CUDACC_RTC__
#include <cstdio>  // printf
#endif

// The time in seconds after which wait() reports the missing arrivals and bytes.
#ifndef TMA_DLPACK_CHECK_SECONDS
#define TMA_DLPACK_CHECK_SECONDS 2.0
#endif

// The maximum number of barriers whose arrivals and bytes are counted in a block. Further barriers
// are not checked.
#ifndef TMA_DLPACK_CHECK_BARRIERS
#define TMA_DLPACK_CHECK_BARRIERS 20
#endif

// The source location of a verb's call. As default arguments of a parameter, __builtin_FILE() and
// __builtin_LINE() return the file and the line of the call. NVRTC before 12.9 lacks the built-ins,
// so the report has "file ?".
#if defined(__CUDACC_RTC__) && TMA_DLPACK_CUDA < 1209
#define TMA_DLPACK_FILE "file ?"
#define TMA_DLPACK_LINE 0
#else
#define TMA_DLPACK_FILE __builtin_FILE()
#define TMA_DLPACK_LINE __builtin_LINE()
#endif

namespace tma_dlpack
{
inline namespace v0_4
{

namespace detail
{

using Word = unsigned long long;

// Checks are not inlined, because a kernel with inlined checks takes a minute to compile.
#define TMA_DLPACK_CALLED __device__ __noinline__ inline

// Defines is_local(), is_shared(), ... Each function returns whether a generic address points to
// the memory in the function's name. __isLocal() and similar functions are not used, because NVRTC
// miscompiles them for pointers to maps.
#define TMA_DLPACK_IS(NAME, SPACE)                                                                  \
  __device__ inline bool is_##NAME(const void* address)                                             \
  {                                                                                                 \
    unsigned is;                                                                                    \
    asm("{\n .reg .pred p;\n isspacep." SPACE " p, %1;\n selp.u32 %0, 1, 0, p;\n}"                  \
        : "=r"(is)                                                                                  \
        : "l"(address));                                                                            \
    return is != 0;                                                                                 \
  }

// Return the offset of an address in its block's shared memory. In a cluster, the upper bits of the
// address are the block's rank.
__device__ inline unsigned smem_offset(const void* place) { return shared_address(place) & 0xFFFFFF; }

TMA_DLPACK_IS(local, "local")
TMA_DLPACK_IS(shared, "shared::cta")
TMA_DLPACK_IS(global, "global")
TMA_DLPACK_IS(parameter, "param")
#undef TMA_DLPACK_IS

// ---- the line that a failed check prints ----

// A parameter of a verb: a map or a barrier, with the file and line of the call. The caller's map
// or barrier is converted to this type at the call, so the default arguments of the constructor are
// the file and line of the call.
template <class T>
struct At
{
  T* it;
  const char* file;
  int line;

  __device__ At(T* it, const char* file = TMA_DLPACK_FILE, int line = TMA_DLPACK_LINE)
    : it(it), file(file), line(line)
  {
  }

  __device__ At(T& it, const char* file = TMA_DLPACK_FILE, int line = TMA_DLPACK_LINE)
    : At(&it, file, line)
  {
  }
};

using MapAt = At<const Map>;
using ChangedMapAt = At<Map>;
using BarrierAt = At<Barrier>;

// A global address of any type, with the file and line of the call. The asm statement hides the
// state space of the address from the compiler. Without the statement, if the address is not
// global, the compiler removes the code that follows a use of the address.
struct BulkAt
{
  const void* it;
  const char* file;
  int line;

  __device__ BulkAt(const void* given, const char* file = TMA_DLPACK_FILE, int line = TMA_DLPACK_LINE)
    : file(file), line(line)
  {
    asm volatile("mov.u64 %0, %1;" : "=l"(it) : "l"(given));
  }
};

// A number, with the file and line of the call. The number is an address in tensor memory, a matrix
// descriptor, or a number of bytes.
template <class Number>
struct ValueAt
{
  Number it;
  const char* file;
  int line;

  __device__ ValueAt(Number it, const char* file = TMA_DLPACK_FILE, int line = TMA_DLPACK_LINE)
    : it(it), file(file), line(line)
  {
  }
};

using NumberAt = ValueAt<unsigned>;
using DescriptorAt = ValueAt<unsigned long long>;
using WordAt = At<unsigned>;

static __device__ unsigned failures = 0;

// Return only in the first thread of the grid that finds a mistake. This thread then prints and
// traps. Other threads that find a mistake wait until the trap.
__device__ inline void wait_unless_first()
{
  if (atomicAdd(&failures, 1u) != 0)
    for (;;) __nanosleep(1000000);
}

// If HOLDS is false, print the line and end the kernel. AT is the argument that has the file and
// line of the call. FOUND and LIMIT are formats of printf, and the last arguments are the values
// for these formats.
#define TMA_DLPACK_REQUIRE(HOLDS, AT, VERB, FOUND, LIMIT, ...)                                      \
  do                                                                                                \
    if (!(HOLDS))                                                                                   \
    {                                                                                               \
      detail::wait_unless_first();                                                                  \
      printf("tma_dlpack check: %s:%d, block (%u, %u, %u), thread (%u, %u, %u), %s: " FOUND "; "    \
             LIMIT "\n", (AT).file, (AT).line, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x,     \
             threadIdx.y, threadIdx.z, VERB, __VA_ARGS__);                                          \
      __trap();                                                                                     \
    }                                                                                               \
  while (false)

// ---- a map's bytes ----

// The index of the first bit of each field in a map's 128 bytes (from the package's table FIELDS).
// For dimension i, add i times the field's constant ..._STEP.
constexpr unsigned IM2COL = 64, RANK = 68, ELEMENT_TYPE = 71, INTERLEAVE = 75, SWIZZLE = 77;
constexpr unsigned SWIZZLE_ATOMICITY = 83;
constexpr unsigned GLOBAL_DIM = 256, GLOBAL_DIM_STEP = 32, ELEMENT_STRIDE = 416;
constexpr unsigned ELEMENT_STRIDE_STEP = 3, BOX_DIM = 440, BOX_DIM_STEP = 8;
constexpr unsigned CHANNELS = 440, PIXELS = 480, LOWER_CORNER = 448, UPPER_CORNER = 464;

// Hexadecimal digit i is the size in bytes of an element of PTX's type i. The lowest digit is digit
// 0. For the packed types of sm_100 and later the digit is 0, so the bytes of their loads are not
// counted.
constexpr Word ELEMENT_BYTES = 0x28442884421;

// The fields of a map that the checks need, decoded from the map's bytes.
struct Decoded
{
  const unsigned* words;
  bool is_parameter, im2col;
  unsigned rank, type, element_bytes, interleave, swizzle;

  // Read word `i` with a volatile load, because a map in memory can change. A parameter cannot
  // change, and there are no volatile loads of parameters.
  __device__ Word word(unsigned i) const
  {
    return is_parameter ? words[i] : *const_cast<const volatile unsigned*>(words + i);
  }

  __device__ unsigned field(unsigned bit, unsigned width) const
  {
    const Word both = word(bit / 32) | word(bit / 32 + 1) << 32;
    return static_cast<unsigned>(both >> bit % 32 & ((Word{1} << width) - 1));
  }

  __device__ explicit Decoded(const Map* map)
    : words(reinterpret_cast<const unsigned*>(map)), is_parameter(detail::is_parameter(map))
  {
    im2col = field(IM2COL, 1);
    rank = field(RANK, 3) + 1;
    type = field(ELEMENT_TYPE, 4);
    element_bytes = ELEMENT_BYTES >> 4 * type & 15;
    interleave = field(INTERLEAVE, 2);
    swizzle = field(SWIZZLE, 2);
  }

  __device__ unsigned dim(unsigned i) const  // extent of dimension i, minus 1
  {
    return field(GLOBAL_DIM + i * GLOBAL_DIM_STEP, 32);
  }

  __device__ unsigned points(unsigned i) const  // number of elements of the box along dimension i
  {
    const unsigned stride = field(ELEMENT_STRIDE + i * ELEMENT_STRIDE_STEP, 3) + 1;
    const unsigned box = field(BOX_DIM + i * BOX_DIM_STEP, 8) + 1;
    return i == 0 && interleave == 0 ? box : (box + stride - 1) / stride;
  }

  __device__ unsigned unit() const { return interleave == 0 ? element_bytes : 8 << interleave; }

  // Return the number of elements in a row of the tile. With an interleave layout, return the
  // number of units of 16 or 32 bytes.
  __device__ unsigned row_points() const
  {
    if (im2col) return interleave == 0 ? field(CHANNELS, 8) + 1 : 1;
    return points(0);
  }

  __device__ unsigned rows() const
  {
    if (im2col) return field(PIXELS, 10) + 1;
    unsigned rows = 1;
    for (unsigned i = 1; i < rank; ++i)
      if (interleave == 0 || i != rank - 2) rows *= points(i);
    return rows;
  }

  // Return the number of bytes that a barrier counts for a tile, or 0 if the number is not known.
  __device__ unsigned tx_bytes() const { return unit() * row_points() * rows(); }

  __device__ unsigned smem_bytes() const
  {
    const unsigned span = swizzle == 0 ? 1 : span_bytes(static_cast<Swizzle>(swizzle));
    const unsigned row = unit() * row_points();
    if (interleave == 0) return (row > span ? row : span) * (rows() - 1) + row;
    return (row * rows() + span - 1) / span * span;
  }

  // Return entry i of a corner of an im2col map. `bit` is LOWER_CORNER or UPPER_CORNER.
  __device__ int corner(unsigned bit, unsigned i) const
  {
    const unsigned width = rank == 3 ? 16 : rank == 4 ? 8 : 5;
    return static_cast<int>(field(bit + i * width, width) << (32 - width)) >> (32 - width);
  }
};

// A Copy stores the arguments after a verb's map and barrier: a policy, coordinates, offsets.
using unchecked::detail::Copy;

template <class... Given>
__device__ inline Copy start(Given... given)
{
  Copy at{};
  (at.take(given), ...);
  return at;
}

// ---- facts about this block ----

// The system reserves the first KiB of shared memory (CUDA Programming Guide). On sm_90, the shared
// memory of a kernel begins at 0x400 (measured).
constexpr unsigned RESERVED_SMEM_BYTES = 1024;

__device__ inline unsigned smem_end()
{
  unsigned size;
  asm("mov.u32 %0, %%total_smem_size;" : "=r"(size));
  return RESERVED_SMEM_BYTES + size;
}

__device__ inline unsigned cluster_blocks()
{
  unsigned blocks;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return blocks;
}

// Return a number that identifies this cluster and this launch. Counts that an earlier block left
// in shared memory have another number, so they are not used.
__device__ inline Word cluster_number()
{
  Word grid;
  unsigned x, y, z, width, height;
  asm("mov.u64 %0, %%gridid;" : "=l"(grid));
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(x));
  asm("mov.u32 %0, %%clusterid.y;" : "=r"(y));
  asm("mov.u32 %0, %%clusterid.z;" : "=r"(z));
  asm("mov.u32 %0, %%nclusterid.x;" : "=r"(width));
  asm("mov.u32 %0, %%nclusterid.y;" : "=r"(height));
  const Word number = (static_cast<Word>(z) * height + y) * width + x;
  return grid * 0x9E3779B97F4A7C15ull + (number + 1) * 0xC2B2AE3D27D4EB4Full;
}

// ---- earlier calls on each barrier ----

// The counts of a barrier. The verbs count arrivals and bytes, because the counts of the hardware's
// barrier cannot be read. In arrays, index 0 is for even phases, and index 1 is for odd phases.
// Arrivals and bytes are sums over all phases, and the sums wrap.
struct Counts
{
  Word key;            // the cluster's number, and the barrier's offset
  unsigned arrivals;   // number of arrivals in a phase
  unsigned arrived;    // number of arrivals in all phases
  unsigned expected[2], issued[2];    // bytes that the barrier expects, bytes of the issued loads
  unsigned settled[2];                // bytes of the phases for which a thread has waited
  // (the last phase for which a thread waited, plus 1) << 11, plus the number of the first thread
  // that waited for this phase
  unsigned waited;
  unsigned unknown;                   // 1 if the bytes or the phase of a load are not known
};

struct Table
{
  Counts counts[TMA_DLPACK_CHECK_BARRIERS];
  Word full;  // set to the cluster's number when the table has no place for a barrier
};

__device__ inline Table& table()
{
  __shared__ Table all;
  return all;
}

__device__ inline Word key_of(unsigned barrier)
{
  return cluster_number() << 18 | (barrier & 0x3FFFF);
}

template <class T>
__device__ inline T now(const T& word)
{
  return *const_cast<const volatile T*>(&word);
}

// Return the counts of a barrier, or null if the barrier was never initialised or the table of
// barriers was full.
TMA_DLPACK_CALLED Counts* find(unsigned barrier)
{
  const Word key = key_of(barrier);
  for (unsigned i = 0; i < TMA_DLPACK_CHECK_BARRIERS; ++i)
  {
    Counts& counts = table().counts[(barrier / 8 + i) % TMA_DLPACK_CHECK_BARRIERS];
    if (now(counts.key) == key) return &counts;
  }
  return nullptr;
}

TMA_DLPACK_CALLED void start_counting(unsigned barrier, unsigned arrivals)
{
  const Word key = key_of(barrier), cluster = key >> 18;
  Counts* counts = find(barrier);
  for (unsigned i = 0; counts == nullptr && i < TMA_DLPACK_CHECK_BARRIERS; ++i)
  {
    Counts& free = table().counts[(barrier / 8 + i) % TMA_DLPACK_CHECK_BARRIERS];
    const Word before = now(free.key);
    if (before >> 18 != cluster && atomicCAS(&free.key, before, key) == before) counts = &free;
  }
  if (counts == nullptr)
    table().full = cluster_number();
  else
    *counts = Counts{key, arrivals, 0, {0, 0}, {0, 0}, {0, 0}, 0, 0};
}

// Return the parity of the barrier's current phase.
__device__ inline unsigned parity_of(Barrier* barrier)
{
  unsigned parity;
  asm volatile("{\n .reg .pred p;\n"
               " mbarrier.test_wait.parity.shared::cta.b64 p, [%1], 0;\n"
               " selp.u32 %0, 1, 0, p;\n}"
               : "=r"(parity)
               : "r"(shared_address(barrier))
               : "memory");
  return parity;
}

// Return the number of the barrier's current phase. An arrival is counted before it happens, so all
// arrivals of a phase may be counted although the phase has not ended. In this case, the parity of
// the hardware's barrier differs from the parity of the counted phase.
__device__ inline unsigned phase_of(const Counts& counts, Barrier* barrier)
{
  unsigned parity, arrived;
  do
  {
    parity = parity_of(barrier);
    arrived = now(counts.arrived);
  } while (parity != parity_of(barrier));
  const unsigned phase = arrived / counts.arrivals;
  return phase % 2 == parity || phase == 0 ? phase : phase - 1;
}

// Return a pointer into another block of the cluster, with the same shared-memory offset as `here`.
template <class T>
__device__ inline T* in_block(T* here, unsigned block)
{
  Word there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(here), "r"(block));
  return reinterpret_cast<T*>(there);
}

// Return the counts of the barrier at the offset `barrier` in another block, or null.
TMA_DLPACK_CALLED Counts* find_in_block(unsigned barrier, unsigned block)
{
  const Word key = key_of(barrier);
  for (unsigned i = 0; i < TMA_DLPACK_CHECK_BARRIERS; ++i)
  {
    Counts* const counts =
      in_block(table().counts + (barrier / 8 + i) % TMA_DLPACK_CHECK_BARRIERS, block);
    if (now(counts->key) == key) return counts;
  }
  return nullptr;
}

__device__ inline bool not_all_are_counted(unsigned block)
{
  return now(*in_block(&table().full, block)) == cluster_number();
}

// ---- the checks ----

TMA_DLPACK_CALLED Counts* check_barrier(BarrierAt at, const char* verb)
{
  TMA_DLPACK_REQUIRE(is_shared(at.it), at, verb,
                     "the barrier at %p is not in this block's shared memory",
                     "declare it __shared__", static_cast<void*>(at.it));
  const unsigned barrier = smem_offset(at.it);
  TMA_DLPACK_REQUIRE(barrier % 8 == 0, at, verb,
                     "the barrier is at shared address 0x%x, %u bytes past a multiple of 8",
                     "align it to 8 bytes", barrier, barrier % 8);
  Counts* const counts = find(barrier);
  TMA_DLPACK_REQUIRE(counts != nullptr || not_all_are_counted(unchecked::cluster_rank()), at, verb,
                     "the barrier at shared address 0x%x was never initialised",
                     "call init(), and __syncthreads() before other threads use it", barrier);
  return counts;
}

TMA_DLPACK_CALLED void check_place(MapAt at, const char* verb)
{
  const Word map = reinterpret_cast<Word>(at.it);
  TMA_DLPACK_REQUIRE(map != 0, at, verb, "the map's address is 0x%llx", "pass a map",
                     map);
  TMA_DLPACK_REQUIRE(!is_local(at.it), at, verb,
                     "the map at 0x%llx is in local memory",
                     "declare the parameter const __grid_constant__, or put the map in global memory",
                     map);
  TMA_DLPACK_REQUIRE(!is_shared(at.it), at, verb, "the map at 0x%llx is in shared memory",
                     "publish() it to global memory", map);
  TMA_DLPACK_REQUIRE(map % 128 == 0, at, verb,
                     "the map is at 0x%llx, %u bytes past a multiple of 128",
                     "align it to 128 bytes", map, static_cast<unsigned>(map % 128));
}

__device__ inline void check_innermost(MapAt at, const char* verb, const Decoded& map, int c)
{
  const unsigned bytes = map.element_bytes;
  const bool in_units = map.interleave != 0 || bytes == 0;
  TMA_DLPACK_REQUIRE(in_units || c * static_cast<long long>(bytes) % 16 == 0, at, verb,
                     "the innermost coordinate %d is at byte %lld of the row",
                     "it must be a multiple of 16 bytes: of %u elements", c,
                     c * static_cast<long long>(bytes), 16 / (bytes == 0 ? 16 : bytes));
}

// Check a map, and the coordinates at which a tile begins.
TMA_DLPACK_CALLED void check_tile(MapAt at, const char* verb, unsigned rank, bool im2col, const int* c)
{
  check_place(at, verb);
  const Decoded map(at.it);
  bool zeros = true;
  for (unsigned i = 0; i < 16; ++i) zeros &= map.word(i) == 0;
  TMA_DLPACK_REQUIRE(!zeros, at, verb, "the map at 0x%llx is all zeros",
                     "copy the bytes of a TensorMap there before the kernel runs",
                     reinterpret_cast<Word>(at.it));
  TMA_DLPACK_REQUIRE(map.im2col == im2col, at, verb, "the map is %s",
                     "this verb takes %s", map.im2col ? "an im2col map" : "a tiled map",
                     im2col ? "im2col maps" : "tiled maps");
  TMA_DLPACK_REQUIRE(map.rank == rank, at, verb, "%u coordinates",
                     "the map has rank %u", rank, map.rank);
  for (unsigned i = 0; i < rank && !im2col; ++i)
    TMA_DLPACK_REQUIRE(map.dim(i) < 0x80000000u, at, verb, "dimension %u of the map is %llu",
                       "a copy takes at most 2147483648", i, Word{map.dim(i)} + 1);

  check_innermost(at, verb, map, c[0]);
}

// Check the address of a tile in shared memory. The tile has `bytes` bytes.
TMA_DLPACK_CALLED void check_smem(MapAt at, const char* verb, const void* smem, unsigned bytes)
{
  TMA_DLPACK_REQUIRE(is_shared(smem), at, verb, "the tile at %p is not in this block's shared memory",
                     "pass a place in shared memory", smem);
  const unsigned first = smem_offset(smem), end = first + bytes;
  TMA_DLPACK_REQUIRE(first % 128 == 0, at, verb,
                     "the tile is at shared address 0x%x, %u bytes past a multiple of 128",
                     "align it to 128 bytes", first, first % 128);
  TMA_DLPACK_REQUIRE(end <= smem_end(), at, verb,
                     "the tile ends at shared address 0x%x", "the block's shared memory ends at 0x%x",
                     end, smem_end());
}

// Check the addresses of a load whose bytes are not counted.
TMA_DLPACK_CALLED void check_places(MapAt at, const char* verb, const void* smem, unsigned rank,
                                   int innermost)
{
  check_place(at, verb);
  const Decoded map(at.it);
  TMA_DLPACK_REQUIRE(map.rank == rank, at, verb, "%u coordinates", "the map has rank %u", rank, map.rank);
  check_innermost(at, verb, map, innermost);
  check_smem(at, verb, smem, 0);
}

// Check a map, its tile in shared memory, and the coordinates at which the tile begins. Returns the
// number of bytes that a barrier counts for the tile.
template <bool is_store>
TMA_DLPACK_CALLED unsigned check_copy(MapAt at, const char* verb, const void* smem, unsigned rank,
                                     bool im2col, const int* c)
{
  check_tile(at, verb, rank, im2col, c);
  const Decoded map(at.it);
  for (unsigned i = 0; is_store && !im2col && i < rank; ++i)
    TMA_DLPACK_REQUIRE(c[i] >= 0, at, verb, "coordinate %u is %d",
                       "a store takes no negative coordinate", i, c[i]);
  for (unsigned i = 0; im2col && i < rank - 2; ++i)
  {
    const unsigned d = map.interleave == 0 ? i + 1 : i;
    const long long low = map.corner(LOWER_CORNER, i);
    const long long high = static_cast<long long>(map.dim(d)) + map.corner(UPPER_CORNER, i);
    TMA_DLPACK_REQUIRE(low <= c[d] && c[d] <= high, at, verb, "coordinate %u is %d",
                       "the walk begins inside the corners: %lld to %lld", d, c[d], low, high);
    TMA_DLPACK_REQUIRE(!is_store || (low >= 0 && map.corner(UPPER_CORNER, i) <= 0), at, verb,
                       "the corners of dimension %u are %lld and %d",
                       "a store's keep inside the tensor: at least 0, at most 0", d, low,
                       map.corner(UPPER_CORNER, i));
  }

  check_smem(at, verb, smem, map.smem_bytes());
  return map.tx_bytes();
}

template <Reduction op>
TMA_DLPACK_CALLED void check_reduction(MapAt at, const char* verb)
{
  const unsigned type = Decoded(at.it).type;
  // Bit n of `types` is set if the operation exists for PTX's type n (measured on sm_90).
  constexpr bool is_add = op == Reduction::add, is_order = op == Reduction::min || op == Reduction::max;
  constexpr bool is_count = op == Reduction::inc || op == Reduction::dec;
  constexpr unsigned types = is_add ? 0x7DC : is_order ? 0x47C : is_count ? 0x4 : 0x1C;
  TMA_DLPACK_REQUIRE(types >> type & 1, at, verb, "the map's element type is %u",
                     "the operation has the types of mask 0x%x", type, types);
}

// Count the bytes of a load before the load is issued.
TMA_DLPACK_CALLED void count_load(BarrierAt at, const char* verb, unsigned bytes)
{
  Counts* const counts = check_barrier(at, verb);
  if (counts == nullptr) return;
  if (bytes == 0) counts->unknown = 1;
  const unsigned phase = phase_of(*counts, at.it), parity = phase % 2;
  const unsigned settled = now(counts->settled[parity]), expected = now(counts->expected[parity]);
  const unsigned issued = atomicAdd(&counts->issued[parity], bytes) + bytes;
  TMA_DLPACK_REQUIRE(now(counts->unknown) || static_cast<int>(issued - expected) <= 0, at, verb,
                     "phase %u of the barrier at shared address 0x%x expects %u bytes, and its loads "
                     "have %u bytes",
                     "arrive_expect_tx() the bytes of every load, before the load", phase,
                     smem_offset(at.it), expected - settled, issued - settled);
}

TMA_DLPACK_CALLED void check_mask(BarrierAt at, const char* verb, unsigned mask)
{
  TMA_DLPACK_REQUIRE(mask != 0 && mask >> cluster_blocks() == 0, at, verb, "the block mask is 0x%x",
                     "the cluster has %u blocks, and a bit for each", mask, cluster_blocks());
}

// Count the bytes of a load in every block of the mask. This function assumes that the barriers of
// these blocks are in the same phase as the barrier of this block.
TMA_DLPACK_CALLED void count_multicast(BarrierAt at, const char* verb, BlockMask block_mask,
                                       unsigned bytes)
{
  const unsigned mask = block_mask.bits;
  const unsigned blocks = cluster_blocks(), self = unchecked::cluster_rank();
  check_mask(at, verb, mask);
  const Counts* const own = check_barrier(at, verb);
  const unsigned parity = own == nullptr ? 0 : phase_of(*own, at.it) % 2;
  const bool is_known = own != nullptr && bytes != 0 && (mask >> self & 1);
  for (unsigned block = 0; block < blocks; ++block)
  {
    if (!(mask >> block & 1)) continue;
    Counts* const counts = find_in_block(smem_offset(at.it), block);
    TMA_DLPACK_REQUIRE(counts != nullptr || not_all_are_counted(block), at, verb,
                       "the barrier at shared address 0x%x of block %u of the cluster was never "
                       "initialised", "call init(), and cluster_sync() before other blocks use it",
                       smem_offset(at.it), block);
    if (counts == nullptr) continue;
    if (!is_known) atomicExch(&counts->unknown, 1);
    atomicAdd(&counts->issued[parity], bytes);
  }
}

// Count the bytes that a barrier expects. Returns the barrier's counts, and stores the number of
// the barrier's current phase in `phase`.
TMA_DLPACK_CALLED Counts* count_expected(BarrierAt at, const char* verb, unsigned tx_bytes,
                                         unsigned& phase)
{
  Counts* const counts = check_barrier(at, verb);
  if (counts == nullptr) return nullptr;
  TMA_DLPACK_REQUIRE(tx_bytes < 1u << 20, at, verb, "%u bytes are expected",
                     "a barrier counts at most 1048575 in a phase", tx_bytes);
  phase = phase_of(*counts, at.it);
  atomicAdd(&counts->expected[phase % 2], tx_bytes);
  return counts;
}

// Count an arrival before it happens.
TMA_DLPACK_CALLED void count_arrival(BarrierAt at, const char* verb, unsigned tx_bytes,
                                    unsigned count = 1)
{
  unsigned phase;
  Counts* const counts = count_expected(at, verb, tx_bytes, phase);
  if (counts == nullptr) return;
  const unsigned number = atomicAdd(&counts->arrived, count) + count - phase * counts->arrivals;
  TMA_DLPACK_REQUIRE(number <= counts->arrivals, at, verb,
                     "this is arrival %u in phase %u of the barrier at shared address 0x%x",
                     "it was initialised for %u arrivals", number, phase, smem_offset(at.it),
                     counts->arrivals);
}

TMA_DLPACK_CALLED void count_remote_arrival(BarrierAt at, const char* verb, unsigned block)
{
  const unsigned blocks = cluster_blocks(), barrier = smem_offset(at.it);
  TMA_DLPACK_REQUIRE(block < blocks, at, verb, "the block's rank is %u", "the cluster has %u blocks",
                     block, blocks);
  Counts* const counts = find_in_block(barrier, block);
  TMA_DLPACK_REQUIRE(counts != nullptr || not_all_are_counted(block), at, verb,
                     "the barrier at shared address 0x%x of block %u of the cluster was never "
                     "initialised", "call init(), and cluster_sync() before other blocks use it",
                     barrier, block);
  if (counts != nullptr) atomicAdd(&counts->arrived, 1u);
}

__device__ inline unsigned this_thread()
{
  return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x + 1;
}

// Check a wait before it begins. A wait for the phase before the current phase returns at once,
// because this earlier phase has ended. Such a wait is a mistake if the barrier already expects
// bytes in the current phase.
TMA_DLPACK_CALLED Counts* check_wait(BarrierAt at, const char* verb, unsigned parity)
{
  Counts* const counts = check_barrier(at, verb);
  TMA_DLPACK_REQUIRE(parity < 2, at, verb, "the parity is %u", "phases are 0, 1, 0, ...", parity);
  if (counts == nullptr) return nullptr;
  const unsigned phase = phase_of(*counts, at.it);
  const bool is_armed = now(counts->expected[phase % 2]) != now(counts->settled[phase % 2]);
  // the value of `waited` if this thread was the first that waited for the previous phase
  const unsigned before = phase << 11 | this_thread();
  TMA_DLPACK_REQUIRE(phase % 2 == parity || !is_armed ||
                       (phase != 0 && now(counts->waited) != before),
                     at, verb, "the parity is %u, and the barrier at shared address 0x%x is in phase %u",
                     "to wait for the bytes that it expects, pass parity %u", parity,
                     smem_offset(at.it), phase, phase % 2);
  return counts;
}

// Check, after a wait, that the barrier expected all bytes that were loaded.
TMA_DLPACK_CALLED void check_end(Counts* counts, BarrierAt at, const char* verb, unsigned parity)
{
  if (counts == nullptr || now(counts->unknown)) return;
  const unsigned issued = now(counts->issued[parity]), expected = now(counts->expected[parity]);
  const unsigned settled = atomicAdd(&counts->settled[parity], 0u);  // other threads write it too
  TMA_DLPACK_REQUIRE(static_cast<int>(issued - expected) <= 0, at, verb,
                     "the wait ended with %u bytes expected, and loads of %u bytes were issued on the "
                     "barrier at shared address 0x%x",
                     "arrive_expect_tx() the bytes of every load", expected - settled, issued - settled,
                     smem_offset(at.it));
  atomicExch(&counts->settled[parity], expected);
  const unsigned after = phase_of(*counts, at.it), waited = atomicAdd(&counts->waited, 0u);
  if (after % 2 != parity && waited >> 11 != after)
    atomicCAS(&counts->waited, waited, after << 11 | this_thread());
}

TMA_DLPACK_CALLED void wait_for(BarrierAt at, const char* verb, unsigned parity)
{
  Counts* const counts = check_wait(at, verb, parity);
  constexpr Word nanoseconds = static_cast<Word>(TMA_DLPACK_CHECK_SECONDS * 1e9);
  if (!unchecked::wait_at_most(at.it, parity, nanoseconds))
  {
    const Counts none{};
    const Counts& seen = counts == nullptr ? none : *counts;
    const unsigned settled = now(seen.settled[parity]);
    const unsigned phase = counts == nullptr ? 0 : phase_of(seen, at.it);
    TMA_DLPACK_REQUIRE(false, at, verb,
                       "after %.3g s phase %u of the barrier at shared address 0x%x is not over: "
                       "%u of %u arrivals, %u bytes expected, loads of %u bytes issued",
                       "a phase ends when all have arrived and as many bytes as expected",
                       TMA_DLPACK_CHECK_SECONDS, phase, smem_offset(at.it),
                       now(seen.arrived) - phase * seen.arrivals, seen.arrivals,
                       now(seen.expected[parity]) - settled, now(seen.issued[parity]) - settled);
  }
  check_end(counts, at, verb, parity);
}

// Check the global address, the shared-memory address and the number of bytes of a copy without a
// map.
TMA_DLPACK_CALLED void check_bulk(BulkAt at, const char* verb, const void* smem, unsigned bytes)
{
  const Word global = reinterpret_cast<Word>(at.it);
  TMA_DLPACK_REQUIRE(bytes % 16 == 0, at, verb, "%u bytes",
                     "pass a multiple of 16", bytes);
  TMA_DLPACK_REQUIRE(is_global(at.it) && global % 16 == 0, at, verb,
                     "the global address is 0x%llx", "pass one in global memory, a multiple of 16",
                     global);
  TMA_DLPACK_REQUIRE(is_shared(smem), at, verb, "the bytes at %p are not in this block's shared memory",
                     "pass a place in shared memory", smem);
  const unsigned first = smem_offset(smem);
  TMA_DLPACK_REQUIRE(first % 16 == 0, at, verb,
                     "the bytes are at shared address 0x%x, %u bytes past a multiple of 16",
                     "align them to 16 bytes", first, first % 16);
  TMA_DLPACK_REQUIRE(bytes <= smem_end() - first, at, verb,
                     "%u bytes from shared address 0x%x on are copied", "the block's shared memory "
                     "ends at shared address 0x%x", bytes, first, smem_end());
}

TMA_DLPACK_CALLED void check_pattern(MapAt at, unsigned address)
{
  check_place(at, "indexed_from_start");
  const Decoded map(at.it);
  // On sm_100 and later, the field SWIZZLE_ATOMICITY is 0 for atoms of 16 bytes, 1 and 2 for atoms
  // of 32 bytes, and 3 for atoms of 64 bytes.
  const unsigned atoms = (map.field(SWIZZLE_ATOMICITY, 2) + 1) / 2;
  const unsigned repeat = map.swizzle == 0 ? 16 : 128u << map.swizzle >> atoms;
  TMA_DLPACK_REQUIRE(address % repeat == 0, at, "indexed_from_start",
                     "the tile is at shared address 0x%x, %u bytes past a multiple of %u",
                     "the map's swizzle repeats every %u bytes of shared memory", address,
                     address % repeat, repeat, repeat);
}

TMA_DLPACK_CALLED void check_changed(ChangedMapAt at, const char* verb)
{
  const Word map = reinterpret_cast<Word>(at.it);
  TMA_DLPACK_REQUIRE((is_shared(at.it) || is_global(at.it)) && !is_parameter(at.it), at, verb,
                     "the map at 0x%llx is in neither shared nor global memory",
                     "copy it there first: a parameter does not change", map);
  TMA_DLPACK_REQUIRE(map % 128 == 0, at, verb,
                     "the map is at 0x%llx, %u bytes past a multiple of 128",
                     "align it to 128 bytes", map, static_cast<unsigned>(map % 128));
  TMA_DLPACK_REQUIRE(!Decoded(at.it).im2col, at, verb, "the map at 0x%llx is an im2col map",
                     "tensormap.replace changes tiled maps", map);
}

// Check a matrix descriptor. Bit 46 is set in descriptors for tcgen05, and is not set in
// descriptors for wgmma.
TMA_DLPACK_CALLED void check_descriptor(DescriptorAt at, const char* verb, bool is_tcgen05)
{
  TMA_DLPACK_REQUIRE((at.it >> 46 & 1) == is_tcgen05, at, verb,
                     "the matrix descriptor is 0x%llx, whose bit 46 is %u", "make it by %s", at.it,
                     static_cast<unsigned>(at.it >> 46 & 1),
                     is_tcgen05 ? "tcgen05_k_major_descriptor() or tcgen05_mn_major_descriptor()"
                                : "k_major_descriptor() or mn_major_descriptor()");
  const unsigned first = (at.it & 0x3FFF) << 4;
  TMA_DLPACK_REQUIRE(first < smem_end(), at, verb, "the matrix is at shared address 0x%x",
                     "the block's shared memory ends at 0x%x", first, smem_end());
}

// Check the lane of an address in tensor memory. A warp can access only 32 lanes. The index of the
// warp in its warpgroup selects these lanes.
TMA_DLPACK_CALLED void check_lanes(NumberAt at, const char* verb)
{
  const unsigned warp = (this_thread() - 1) / 32, first = warp % 4 * 32;
  TMA_DLPACK_REQUIRE(at.it >> 16 == first, at, verb, "the lane is %u in warp %u",
                     "warp w reaches the lanes from 32 * (w %% 4) on: add %u << 16 to the place", at.it >> 16,
                     warp, first);
}

template <class Place>
__device__ inline void check_columns(const Place& at, const char* verb, unsigned columns)
{
  TMA_DLPACK_REQUIRE(columns >= 32 && columns <= 512 && (columns & (columns - 1)) == 0, at, verb,
                     "%u columns", "tensor memory is allocated by 32, 64, 128, 256 or 512 columns", columns);
}

}  // namespace detail

// ---- the verbs ----

using unchecked::cluster_arrive;
using unchecked::cluster_arrive_relaxed;
using unchecked::cluster_rank;
using unchecked::cluster_sync;
using unchecked::cluster_wait;
using unchecked::commit;
using unchecked::elect_one;
using unchecked::evict_first;
using unchecked::evict_last;
using unchecked::evict_normal;
using unchecked::fence_async;
using unchecked::fence_async_global;
using unchecked::fence_release;
using unchecked::launch_dependents;
using unchecked::store_commit;
using unchecked::store_wait;
using unchecked::store_wait_read;
using unchecked::sync_threads;
using unchecked::tcgen05_fence_after;
using unchecked::tcgen05_fence_before;
using unchecked::tcgen05_relinquish;
using unchecked::tcgen05_wait_load;
using unchecked::tcgen05_wait_store;
using unchecked::wait_dependencies;
using unchecked::wait_read;
using unchecked::wait_stores;
using unchecked::wgmma_commit;
using unchecked::wgmma_fence;
using unchecked::wgmma_wait;

__device__ inline void init(detail::BarrierAt barrier, unsigned arrivals = 1)
{
  const unsigned address = detail::smem_offset(barrier.it);
  TMA_DLPACK_REQUIRE(detail::is_shared(barrier.it) && address % 8 == 0, barrier, "init",
                     "the barrier is at %p", "it must be in shared memory, aligned to 8 bytes",
                     static_cast<void*>(barrier.it));
  TMA_DLPACK_REQUIRE(arrivals - 1 < (1u << 20) - 1, barrier, "init", "%u arrivals",
                     "a barrier takes 1 to 1048575", arrivals);
  detail::start_counting(address, arrivals);
  unchecked::init(barrier.it, arrivals);
}

__device__ inline void arrive_expect_tx(detail::BarrierAt barrier, unsigned tx_bytes)
{
  detail::count_arrival(barrier, "arrive_expect_tx", tx_bytes);
  unchecked::arrive_expect_tx(barrier.it, tx_bytes);
}

__device__ inline void expect_tx_only(detail::BarrierAt barrier, unsigned tx_bytes)
{
  unsigned phase;
  detail::count_expected(barrier, "expect_tx_only", tx_bytes, phase);
  unchecked::expect_tx_only(barrier.it, tx_bytes);
}

[[deprecated("call arrive_expect_tx(); PTX's expect_tx, which does not arrive, is expect_tx_only()")]]
__device__ inline void expect_tx(detail::BarrierAt barrier, unsigned tx_bytes)
{
  arrive_expect_tx(barrier, tx_bytes);
}

__device__ inline void arrive(detail::BarrierAt barrier)
{
  detail::count_arrival(barrier, "arrive", 0);
  unchecked::arrive(barrier.it);
}

__device__ inline void arrive(detail::BarrierAt barrier, unsigned count)
{
  TMA_DLPACK_REQUIRE(count != 0, barrier, "arrive", "%u arrivals", "an arrive counts 1 or more", count);
  detail::count_arrival(barrier, "arrive", 0, count);
  unchecked::arrive(barrier.it, count);
}

__device__ inline void arrive_remote(detail::BarrierAt barrier, unsigned block_rank)
{
  detail::count_remote_arrival(barrier, "arrive_remote", block_rank);
  unchecked::arrive_remote(barrier.it, block_rank);
}

#if TMA_DLPACK_CUDA >= 1207
__device__ inline void arrive_remote_relaxed(detail::BarrierAt barrier, unsigned block_rank)
{
  detail::count_remote_arrival(barrier, "arrive_remote_relaxed", block_rank);
  unchecked::arrive_remote_relaxed(barrier.it, block_rank);
}
#else
using unchecked::arrive_remote_relaxed;
#endif

#define TMA_DLPACK_CHECKED_TEST(VERB)                                                              \
  __device__ inline bool VERB(detail::BarrierAt barrier, unsigned parity)                          \
  {                                                                                                \
    detail::Counts* const counts = detail::check_wait(barrier, #VERB, parity);                     \
    if (!unchecked::VERB(barrier.it, parity)) return false;                                        \
    detail::check_end(counts, barrier, #VERB, parity);                                             \
    return true;                                                                                   \
  }

TMA_DLPACK_CHECKED_TEST(try_wait)
TMA_DLPACK_CHECKED_TEST(test_wait)
#undef TMA_DLPACK_CHECKED_TEST

__device__ inline bool wait_at_most(detail::BarrierAt barrier, unsigned parity,
                                    unsigned long long nanoseconds)
{
  detail::Counts* const counts = detail::check_wait(barrier, "wait_at_most", parity);
  if (!unchecked::wait_at_most(barrier.it, parity, nanoseconds)) return false;
  detail::check_end(counts, barrier, "wait_at_most", parity);
  return true;
}

__device__ inline void wait(detail::BarrierAt barrier, unsigned parity)
{
  detail::wait_for(barrier, "wait", parity);
}

__device__ inline void wait_cluster(detail::BarrierAt barrier, unsigned parity)
{
  detail::wait_for(barrier, "wait_cluster", parity);
  unchecked::wait_cluster(barrier.it, parity);
}

__device__ inline void prefetch_map(detail::MapAt map)
{
  detail::check_place(map, "prefetch_map");
  unchecked::prefetch_map(*map.it);
}

[[deprecated("call prefetch_map(); prefetch_tile() is for a tile")]]
__device__ inline void prefetch(detail::MapAt map)
{
  prefetch_map(map);
}

__device__ inline void fence_acquire(detail::MapAt map)
{
  detail::check_place(map, "fence_acquire");
  unchecked::fence_acquire(map.it);
}

#define TMA_DLPACK_CHECKED_COPIES(SUFFIX, IM2COL)                                                     \
  template <class... Given>                                                                           \
  __device__ inline void load##SUFFIX(void* smem, detail::MapAt map, detail::BarrierAt barrier,       \
                                      Given... given)                                                 \
  {                                                                                                   \
    const detail::Copy at = detail::start(given...);                                                  \
    const unsigned tx_bytes =                                                                         \
      detail::check_copy<false>(map, "load" #SUFFIX, smem, at.rank, IM2COL, at.c);                    \
    detail::count_load(barrier, "load" #SUFFIX, tx_bytes);                                            \
    unchecked::load##SUFFIX(smem, *map.it, barrier.it, given...);                                     \
  }                                                                                                   \
                                                                                                      \
  template <class... Given>                                                                           \
  __device__ inline void load##SUFFIX##_multicast(void* smem, detail::MapAt map,                      \
                                                  detail::BarrierAt barrier,                          \
                                                  BlockMask block_mask, Given... given)          \
  {                                                                                                   \
    const detail::Copy at = detail::start(given...);                                                  \
    const unsigned tx_bytes =                                                                         \
      detail::check_copy<false>(map, "load" #SUFFIX "_multicast", smem, at.rank, IM2COL, at.c);       \
    detail::count_multicast(barrier, "load" #SUFFIX "_multicast", block_mask, tx_bytes);              \
    unchecked::load##SUFFIX##_multicast(smem, *map.it, barrier.it, block_mask, given...);             \
  }                                                                                                   \
                                                                                                      \
  template <class... Given>                                                                           \
  TMA_DLPACK_NOWHERE void load##SUFFIX##_multicast(void*, detail::MapAt, detail::BarrierAt, Nowhere*, \
                                                   Given...) = delete;                                \
                                                                                                      \
  template <class... Given>                                                                           \
  __device__ inline void store##SUFFIX(detail::MapAt map, const void* smem, Given... given)           \
  {                                                                                                   \
    const detail::Copy at = detail::start(given...);                                                  \
    detail::check_copy<true>(map, "store" #SUFFIX, smem, at.rank, IM2COL, at.c);                      \
    unchecked::store##SUFFIX(*map.it, smem, given...);                                                \
  }                                                                                                   \
                                                                                                      \
  template <Reduction op, class... Given>                                                             \
  __device__ inline void reduce##SUFFIX(detail::MapAt map, const void* smem, Given... given)          \
  {                                                                                                   \
    const detail::Copy at = detail::start(given...);                                                  \
    detail::check_copy<true>(map, "reduce" #SUFFIX, smem, at.rank, IM2COL, at.c);                     \
    detail::check_reduction<op>(map, "reduce" #SUFFIX);                                               \
    unchecked::reduce##SUFFIX<op>(*map.it, smem, given...);                                           \
  }

TMA_DLPACK_CHECKED_COPIES(, false)
TMA_DLPACK_CHECKED_COPIES(_im2col, true)
#undef TMA_DLPACK_CHECKED_COPIES

template <class... Given>
__device__ inline void prefetch_tile(detail::MapAt map, Given... given)
{
  const detail::Copy at = detail::start(given...);
  detail::check_tile(map, "prefetch_tile", at.rank, false, at.c);
  unchecked::prefetch_tile(*map.it, given...);
}

// Check the coordinates of one row only, because the four rows have the same column. Count the
// bytes of four rows.
template <class... Rows>
__device__ inline void load_gather4(void* smem, detail::MapAt map, detail::BarrierAt barrier,
                                    Coordinate column, Rows... rows)
{
  const int at[2] = {column.value, 0};
  const unsigned row = detail::check_copy<false>(map, "load_gather4", smem, 2, false, at);
  detail::count_load(barrier, "load_gather4", 4 * row);
  unchecked::load_gather4(smem, *map.it, barrier.it, column.value, rows...);
}

template <class... Rows>
__device__ inline void load_gather4_multicast(void* smem, detail::MapAt map, detail::BarrierAt barrier,
                                              BlockMask block_mask, Coordinate column, Rows... rows)
{
  const int at[2] = {column.value, 0};
  const unsigned row = detail::check_copy<false>(map, "load_gather4_multicast", smem, 2, false, at);
  detail::count_multicast(barrier, "load_gather4_multicast", block_mask, 4 * row);
  unchecked::load_gather4_multicast(smem, *map.it, barrier.it, block_mask, column.value, rows...);
}

template <class... Rows>
TMA_DLPACK_NOWHERE void load_gather4_multicast(void*, detail::MapAt, detail::BarrierAt, Nowhere*,
                                               Coordinate, Rows...) = delete;

template <class... Rows>
__device__ inline void store_scatter4(detail::MapAt map, const void* smem, Coordinate column,
                                      Rows... rows)
{
  const int at[2] = {column.value, 0};
  detail::check_copy<true>(map, "store_scatter4", smem, 2, false, at);
  unchecked::store_scatter4(*map.it, smem, column.value, rows...);
}

// These verbs check the address of the tile, the rank and the barrier, but do not count the bytes,
// for two reasons. Loads with a map of mode w or w128 have another order of pixels and an
// additional halo. In a pair of blocks, the bytes of a load may arrive at the barrier of the other
// block.
#define TMA_DLPACK_CHECKED_PLACES(VERB)                                                              \
  template <class... Given>                                                                          \
  __device__ inline void VERB(void* smem, detail::MapAt map, detail::BarrierAt barrier,              \
                              Given... given)                                                        \
  {                                                                                                  \
    const detail::Copy at = detail::start(given...);                                                 \
    detail::check_places(map, #VERB, smem, at.rank, at.c[0]);                                        \
    detail::count_load(barrier, #VERB, 0);                                                           \
    unchecked::VERB(smem, *map.it, barrier.it, given...);                                            \
  }

TMA_DLPACK_CHECKED_PLACES(load_im2col_w)
TMA_DLPACK_CHECKED_PLACES(load_im2col_w128)
TMA_DLPACK_CHECKED_PLACES(load_cta_group2)
#undef TMA_DLPACK_CHECKED_PLACES

template <class... Given>
__device__ inline void load_multicast_cta_group2(void* smem, detail::MapAt map, detail::BarrierAt barrier,
                                                 BlockMask block_mask, Given... given)
{
  const detail::Copy at = detail::start(given...);
  detail::check_places(map, "load_multicast_cta_group2", smem, at.rank, at.c[0]);
  detail::count_multicast(barrier, "load_multicast_cta_group2", block_mask, 0);
  unchecked::load_multicast_cta_group2(smem, *map.it, barrier.it, block_mask, given...);
}

template <class... Given>
TMA_DLPACK_NOWHERE void load_multicast_cta_group2(void*, detail::MapAt, detail::BarrierAt, Nowhere*,
                                                  Given...) = delete;

template <class... Given>
__device__ inline void load_from(void* smem, detail::MapAt map, const void* global_address,
                                 detail::BarrierAt barrier, Given... given)
{
  const detail::Copy at = detail::start(given...);
  const unsigned tx_bytes = detail::check_copy<false>(map, "load_from", smem, at.rank, false, at.c);
  detail::count_load(barrier, "load_from", tx_bytes);
  unchecked::load_from(smem, *map.it, global_address, barrier.it, given...);
}

template <class... Policy>
__device__ inline void load_bulk(void* smem, detail::BulkAt global, unsigned bytes,
                                 detail::BarrierAt barrier, Policy... policy)
{
  detail::check_bulk(global, "load_bulk", smem, bytes);
  if (bytes != 0) detail::count_load(barrier, "load_bulk", bytes);
  unchecked::load_bulk(smem, global.it, bytes, barrier.it, policy...);
}

template <class... Policy>
__device__ inline void load_bulk_multicast(void* smem, detail::BulkAt global, unsigned bytes,
                                           detail::BarrierAt barrier, BlockMask block_mask,
                                           Policy... policy)
{
  detail::check_bulk(global, "load_bulk_multicast", smem, bytes);
  detail::count_multicast(barrier, "load_bulk_multicast", block_mask, bytes);
  unchecked::load_bulk_multicast(smem, global.it, bytes, barrier.it, block_mask, policy...);
}

template <class... Policy>
TMA_DLPACK_NOWHERE void load_bulk_multicast(void*, detail::BulkAt, unsigned, detail::BarrierAt, Nowhere*,
                                            Policy...) = delete;

// The type of `global` is deduced, so `global` cannot also have the file and line of the call.
// `bytes` has the file and line instead.
template <Reduction op, class Element, class... Policy>
__device__ inline void reduce_bulk(Element* global, const void* smem, detail::NumberAt bytes,
                                   Policy... policy)
{
  const detail::BulkAt at(global, bytes.file, bytes.line);
  detail::check_bulk(at, "reduce_bulk", smem, bytes.it);
  unchecked::reduce_bulk<op>(static_cast<Element*>(const_cast<void*>(at.it)), smem, bytes.it, policy...);
}

template <class... Policy>
__device__ inline void store_bulk(detail::BulkAt global, const void* smem, unsigned bytes,
                                  Policy... policy)
{
  detail::check_bulk(global, "store_bulk", smem, bytes);
  unchecked::store_bulk(const_cast<void*>(global.it), smem, bytes, policy...);
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
// The type of `d` is a template parameter. If the type were an array of n / 2 floats, nvcc would
// report this line as the line of the call.
template <unsigned n, auto... types, class Accumulators>
__device__ __forceinline__ void wgmma(Accumulators& d, detail::DescriptorAt a, detail::DescriptorAt b,
                                      int accumulate)
{
  detail::check_descriptor(a, "wgmma", false);
  detail::check_descriptor(b, "wgmma", false);
  unchecked::wgmma<n, types...>(d, a.it, b.it, accumulate);
}

template <unsigned n, auto... types, class Accumulators>
__device__ __forceinline__ void wgmma(Accumulators& d, const unsigned (&a)[4], detail::DescriptorAt b,
                                      int accumulate)
{
  detail::check_descriptor(b, "wgmma", false);
  unchecked::wgmma<n, types...>(d, a, b.it, accumulate);
}
#else
using unchecked::wgmma;
#endif

#if TMA_DLPACK_HAS_PAIRS && TMA_DLPACK_HAS_OPERAND_C
template <unsigned cta_group = 1>
__device__ inline void tcgen05_alloc(detail::WordAt smem, unsigned columns)
{
  detail::check_columns(smem, "tcgen05_alloc", columns);
  TMA_DLPACK_REQUIRE(detail::is_shared(smem.it), smem, "tcgen05_alloc", "the place is written to %p",
                     "pass a place in shared memory", static_cast<void*>(smem.it));
  unchecked::tcgen05_alloc<cta_group>(smem.it, columns);
}

template <unsigned cta_group = 1>
__device__ inline void tcgen05_dealloc(detail::NumberAt tmem, unsigned columns)
{
  detail::check_columns(tmem, "tcgen05_dealloc", columns);
  unchecked::tcgen05_dealloc<cta_group>(tmem.it, columns);
}

template <MmaType a_type = MmaType::bf16, unsigned cta_group = 1>
__device__ inline void tcgen05_mma(unsigned tmem, unsigned long long a, detail::DescriptorAt b,
                                   unsigned instruction, int accumulate)
{
  detail::check_descriptor({a, b.file, b.line}, "tcgen05_mma", true);
  detail::check_descriptor(b, "tcgen05_mma", true);
  unchecked::tcgen05_mma<a_type, cta_group>(tmem, a, b.it, instruction, accumulate);
}

template <MmaType a_type = MmaType::bf16, unsigned cta_group = 1>
__device__ inline void tcgen05_mma(unsigned tmem, unsigned a_tmem, detail::DescriptorAt b,
                                   unsigned instruction, int accumulate)
{
  detail::check_descriptor(b, "tcgen05_mma", true);
  unchecked::tcgen05_mma<a_type, cta_group>(tmem, a_tmem, b.it, instruction, accumulate);
}

template <unsigned cta_group = 1>
__device__ inline void tcgen05_commit(detail::BarrierAt barrier)
{
  detail::count_arrival(barrier, "tcgen05_commit", 0);
  unchecked::tcgen05_commit<cta_group>(barrier.it);
}

template <unsigned cta_group = 1>
__device__ inline void tcgen05_commit(detail::BarrierAt barrier, BlockMask block_mask)
{
  detail::check_mask(barrier, "tcgen05_commit", block_mask.bits);
  for (unsigned block = 0; block < detail::cluster_blocks(); ++block)
    if (block_mask.bits >> block & 1) detail::count_remote_arrival(barrier, "tcgen05_commit", block);
  unchecked::tcgen05_commit<cta_group>(barrier.it, block_mask);
}

template <unsigned = 1>
TMA_DLPACK_NOWHERE void tcgen05_commit(detail::BarrierAt, Nowhere*) = delete;

template <class Element, unsigned count>
__device__ __forceinline__ void tcgen05_load(Element (&values)[count], detail::NumberAt tmem)
{
  detail::check_lanes(tmem, "tcgen05_load");
  unchecked::tcgen05_load(values, tmem.it);
}

template <class Element, unsigned count>
__device__ __forceinline__ void tcgen05_store(detail::NumberAt tmem, const Element (&values)[count])
{
  detail::check_lanes(tmem, "tcgen05_store");
  unchecked::tcgen05_store(tmem.it, values);
}
#else
using unchecked::tcgen05_alloc;
using unchecked::tcgen05_commit;
using unchecked::tcgen05_dealloc;
using unchecked::tcgen05_load;
using unchecked::tcgen05_mma;
using unchecked::tcgen05_store;
#endif

// A PipelineState that reports a stage that a thread skipped. A thread skips a stage if it uses the
// state (that is, it reads a stage or a phase), calls advance() twice, and then uses the state again.
// All threads of a warp may advance a state that only one thread uses.
template <unsigned stages>
class PipelineState
{
  unchecked::PipelineState<stages> state = {}, skipped = {};
  const char* file = nullptr;  // the call of advance() that skipped a stage, or null
  int line = 0;
  mutable bool was_used = false, is_used = false;  // at any time, since the last advance()

  __device__ void refuse_skipped() const
  {
    TMA_DLPACK_REQUIRE(file == nullptr, *this, "advance",
                       "stage %u, phase %u was advanced past without a use",
                       "call advance() once for each stage, or pass the number that others take",
                       skipped.stage(), skipped.phase());
  }

  __host__ __device__ constexpr void use() const
  {
#ifdef __CUDA_ARCH__
    if (file != nullptr) refuse_skipped();
    was_used = is_used = true;
#endif
  }

public:
  __host__ __device__ static constexpr PipelineState producer()
  {
    PipelineState first;
    first.state = first.state.producer();
    return first;
  }

  __host__ __device__ constexpr unsigned stage() const { return use(), state.stage(); }
  __host__ __device__ constexpr unsigned phase() const { return use(), state.phase(); }

  __host__ __device__ constexpr void advance(unsigned steps = 1,
                                             [[maybe_unused]] const char* from = TMA_DLPACK_FILE,
                                             [[maybe_unused]] int at = TMA_DLPACK_LINE)
  {
#ifdef __CUDA_ARCH__
    if (steps != 0)
    {
      if (was_used && !is_used && file == nullptr) skipped = state, file = from, line = at;
      is_used = false;
    }
#endif
    state.advance(steps);
  }
};

__device__ inline void indexed_from_start(const void* smem, detail::MapAt map)
{
  detail::check_pattern(map, detail::smem_offset(smem));
}

__device__ inline void publish(detail::ChangedMapAt global, const Map* shared)
{
  detail::check_place({global.it, global.file, global.line}, "publish");
  TMA_DLPACK_REQUIRE(detail::is_shared(shared) && detail::smem_offset(shared) % 128 == 0, global, "publish",
                     "the changed map is at %p", "it must be in shared memory, aligned to 128 bytes",
                     static_cast<const void*>(shared));
  unchecked::publish(global.it, shared);
}

// Defines the verb replace_FIELD() with checks. TEMPLATE is the template parameter, which is the
// dimension or the value of a field. ARGUMENT is the template argument of the unchecked verb.
#define TMA_DLPACK_CHECKED(FIELD, TEMPLATE, ARGUMENT)                                     \
  template <TEMPLATE class... Operand>                                                    \
  __device__ inline void replace_##FIELD(detail::ChangedMapAt map, Operand... operand)    \
  {                                                                                       \
    detail::check_changed(map, "replace_" #FIELD);                                        \
    unchecked::replace_##FIELD ARGUMENT(map.it, operand...);                              \
  }
#define TMA_DLPACK_COMMA ,

TMA_DLPACK_CHECKED(global_address, , )
TMA_DLPACK_CHECKED(rank, , )
TMA_DLPACK_CHECKED(global_dim, auto which TMA_DLPACK_COMMA, <which>)
TMA_DLPACK_CHECKED(global_stride, auto which TMA_DLPACK_COMMA, <which>)
TMA_DLPACK_CHECKED(box_dim, auto which TMA_DLPACK_COMMA, <which>)
TMA_DLPACK_CHECKED(element_stride, auto which TMA_DLPACK_COMMA, <which>)
TMA_DLPACK_CHECKED(elemtype, auto which TMA_DLPACK_COMMA, <which>)
TMA_DLPACK_CHECKED(swizzle_mode, auto which TMA_DLPACK_COMMA, <which>)
TMA_DLPACK_CHECKED(interleave_layout, auto which TMA_DLPACK_COMMA, <which>)
TMA_DLPACK_CHECKED(fill_mode, auto which TMA_DLPACK_COMMA, <which>)

#undef TMA_DLPACK_COMMA
#undef TMA_DLPACK_CHECKED
#undef TMA_DLPACK_REQUIRE
#undef TMA_DLPACK_CALLED
#undef TMA_DLPACK_LINE
#undef TMA_DLPACK_FILE

}  // namespace v0_4
}  // namespace tma_dlpack

#endif  // TMA_DLPACK_CHECK_H
