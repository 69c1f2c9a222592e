// The PTX of a TMA copy: one line per form. Compiled by NVRTC without any header.
//
// A form is the rank of a tile copy (1..5), or 5 more for an im2col copy (8..10 for ranks 3..5).

struct alignas(128) TensorMap { unsigned char bytes[128]; };
struct Coords { int c[5]; };              // innermost first
struct Offsets { unsigned short o[3]; };  // W first

enum Status : unsigned { DONE = 0, TIMED_OUT = 1, MISALIGNED = 2 };

constexpr unsigned long long WAIT_NANOSECONDS = 2'000'000'000;

extern __shared__ unsigned char shared_memory[];

__device__ inline unsigned shared_address(const void* pointer)
{
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ inline unsigned long long now_nanoseconds()
{
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// ---- mbarrier and fences ----

__device__ inline void barrier_init(unsigned barrier, unsigned arrivals)
{
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void barrier_expect(unsigned barrier, unsigned tx_bytes)
{
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(tx_bytes)
               : "memory");
}

// False when the phase has not completed in time: a wrong copy ends by itself.
__device__ inline bool barrier_wait(unsigned barrier, unsigned parity)
{
  const unsigned long long deadline = now_nanoseconds() + WAIT_NANOSECONDS;
  for (;;)
  {
    unsigned complete;
    asm volatile("{\n .reg .pred p;\n"
                 " mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 " selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(complete)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    if (complete) return true;
    if (now_nanoseconds() > deadline) return false;
  }
}

__device__ inline void fence_proxy_async()
{
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A map that the host wrote into global memory must be acquired before a copy uses it.
__device__ inline void fence_tensormap_acquire(const TensorMap* map)
{
  asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
}

__device__ inline void commit_and_wait_all()
{
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// ---- copies ----

#define COORDS_1 "{%3}"
#define COORDS_2 "{%3, %4}"
#define COORDS_3 "{%3, %4, %5}"
#define COORDS_4 "{%3, %4, %5, %6}"
#define COORDS_5 "{%3, %4, %5, %6, %7}"
#define OFFSETS_1 "{%8}"
#define OFFSETS_2 "{%8, %9}"
#define OFFSETS_3 "{%8, %9, %10}"

#define OPERANDS                                                                              \
  ::"r"(smem), "l"(map), "r"(barrier), "r"(at.c[0]), "r"(at.c[1]), "r"(at.c[2]), "r"(at.c[3]), \
    "r"(at.c[4]), "h"(offsets.o[0]), "h"(offsets.o[1]), "h"(offsets.o[2])                     \
    : "memory"

#define LOAD(RANK, MODE, OFFSETS)                                                           \
  asm volatile("cp.async.bulk.tensor." #RANK "d.shared::cluster.global." MODE               \
               ".mbarrier::complete_tx::bytes [%0], [%1, " COORDS_##RANK "], [%2]" OFFSETS ";" OPERANDS)

__device__ inline void tma_load(unsigned form, unsigned smem, const TensorMap* map, unsigned barrier,
                                Coords at, Offsets offsets)
{
  switch (form)
  {
    case 1: LOAD(1, "tile", ""); break;
    case 2: LOAD(2, "tile", ""); break;
    case 3: LOAD(3, "tile", ""); break;
    case 4: LOAD(4, "tile", ""); break;
    case 5: LOAD(5, "tile", ""); break;
    case 8: LOAD(3, "im2col", ", " OFFSETS_1); break;
    case 9: LOAD(4, "im2col", ", " OFFSETS_2); break;
    case 10: LOAD(5, "im2col", ", " OFFSETS_3); break;
  }
}

#define STORE(PTX, SUFFIX, RANK, MODE)                                                          \
  asm volatile(PTX #RANK "d.global.shared::cta" SUFFIX "." MODE ".bulk_group [%1, " COORDS_##RANK \
                   "], [%0];" OPERANDS)

#define STORE_FORMS(PTX, SUFFIX)                              \
  switch (form)                                               \
  {                                                           \
    case 1: STORE(PTX, SUFFIX, 1, "tile"); break;             \
    case 2: STORE(PTX, SUFFIX, 2, "tile"); break;             \
    case 3: STORE(PTX, SUFFIX, 3, "tile"); break;             \
    case 4: STORE(PTX, SUFFIX, 4, "tile"); break;             \
    case 5: STORE(PTX, SUFFIX, 5, "tile"); break;             \
    case 8: STORE(PTX, SUFFIX, 3, "im2col_no_offs"); break;   \
    case 9: STORE(PTX, SUFFIX, 4, "im2col_no_offs"); break;   \
    case 10: STORE(PTX, SUFFIX, 5, "im2col_no_offs"); break;  \
  }

#define REDUCE_FORMS(OP) STORE_FORMS("cp.reduce.async.bulk.tensor.", "." OP)

// op: 0 stores; 1..8 reduce.
__device__ inline void tma_store(unsigned op, unsigned form, unsigned smem, const TensorMap* map,
                                 Coords at)
{
  const unsigned barrier = 0;
  const Offsets offsets{};
  switch (op)
  {
    case 0: STORE_FORMS("cp.async.bulk.tensor.", ""); break;
    case 1: REDUCE_FORMS("add"); break;
    case 2: REDUCE_FORMS("min"); break;
    case 3: REDUCE_FORMS("max"); break;
    case 4: REDUCE_FORMS("inc"); break;
    case 5: REDUCE_FORMS("dec"); break;
    case 6: REDUCE_FORMS("and"); break;
    case 7: REDUCE_FORMS("or"); break;
    case 8: REDUCE_FORMS("xor"); break;
  }
}
