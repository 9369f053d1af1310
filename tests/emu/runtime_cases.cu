// One small kernel per thing that the runtime promises; the launch picks one by its number.

#include "fagen/ptx/cp_async.cuh"
#include "fagen/ptx/global.cuh"
#include "fagen/ptx/ldmatrix.cuh"
#include "fagen/ptx/mbarrier.cuh"
#include "fagen/ptx/mma_sync.cuh"
#include "fagen/ptx/shared.cuh"

using namespace fagen;

struct Params {
  const uint32_t* in;
  uint32_t* out;
  int32_t n;      // words of in and of out
  int32_t which;  // case
};

struct Case {
  const Params& p;
  uint32_t smem = ptx::dynamic_shared();
  uint32_t thread = threadIdx.x;
  uint32_t lane = threadIdx.x % 32;

  uint32_t word(uint32_t i) const { return smem + 4 * i; }
  void put(uint32_t i, uint32_t value) const { ptx::st_shared(word(i), value); }
  uint32_t get(uint32_t i) const {
    uint32_t value;
    emu::load_shared(word(i), &value, 4);
    return value;
  }
  void result(uint32_t i, uint32_t value) const { emu::store_global(p.out + i, &value, 4); }
};

#define CASE(name) static void name(const Case& c)

// Order between threads. ------------------------------------------------------------------------------------

CASE(write_then_read) {
  if (c.thread == 0) c.put(0, 7);
  if (c.thread == 32) c.get(0);
}
CASE(write_sync_read) {
  if (c.thread == 0) c.put(0, 7);
  __syncthreads();
  c.result(c.thread, c.get(0));
}
CASE(two_writes) {
  if (c.lane == 0) c.put(0, c.thread);
}
CASE(read_then_write) {
  c.put(c.thread, 7);
  __syncthreads();
  if (c.thread == 0) ptx::st_shared(c.smem, 8);
  if (c.thread == 32) ptx::ld_shared_16(c.smem);
}
CASE(neighbours_of_a_word) {
  uint16_t half = 7;
  if (c.lane == 0) emu::store_shared(c.smem + 2 * (c.thread / 32), &half, 2);
  __syncthreads();
  c.result(c.thread, c.get(0));
}
CASE(write_syncwarp_read) {
  if (c.lane == 0) c.put(c.thread, 7);
  __syncwarp();
  c.result(c.thread, c.get(c.thread - c.lane));
}
CASE(write_shuffle_read) {
  if (c.lane == 0) c.put(c.thread, 7);
  __shfl_sync(~0u, 0, 0);
  c.get(c.thread - c.lane);
}
CASE(partial_syncwarp) {
  if (c.thread >= 32) return;
  if (c.lane < 16) {
    if (c.lane == 0) c.put(0, 7);
    __syncwarp(0xffff);
    c.result(c.thread, c.get(0));
  } else {
    __syncwarp(0xffff0000);
  }
}
CASE(barrier_arrive_then_sync) {  // the first warp tells the second
  if (c.thread < 32) {
    c.put(c.thread, c.thread);
    emu::barrier_arrive(1, 64);
  } else {
    emu::barrier_sync(1, 64);
    c.result(c.lane, c.get(c.lane));
  }
}
CASE(barrier_arrive_orders_nothing_for_the_arriver) {
  c.put(c.thread, 6);
  __syncthreads();
  if (c.thread >= 32) {
    c.put(c.lane, 7);
    emu::barrier_sync(1, 64);
  } else {
    emu::barrier_arrive(1, 64);
    c.get(c.lane);
  }
}
CASE(barrier_orders_nothing_of_its_next_generation) {  // 128 threads: warps 0 and 1, then 2 and 3 use it
  if (c.thread == 64) c.put(0, 7);
  if (c.thread < 64) emu::barrier_sync(1, 64);
  if (c.thread >= 32) emu::barrier_sync(2, 96);
  if (c.thread >= 64) emu::barrier_sync(1, 64);
  if (c.thread == 0) c.put(0, 7);
}
CASE(mbarrier_orders) {
  if (c.thread == 0) ptx::mbarrier_init(c.smem, 32);
  __syncthreads();
  if (c.thread < 32) {
    c.put(8 + c.lane, c.lane);
    ptx::mbarrier_arrive(c.smem);
  } else {
    ptx::mbarrier_wait(c.smem, 0);
    c.result(c.lane, c.get(8 + (c.lane ^ 1)));
  }
}

// Memory. ---------------------------------------------------------------------------------------------------

CASE(unwritten) { c.get(c.thread); }
CASE(beyond_shared) { c.put(1024, 1); }
CASE(below_shared) { ptx::st_shared(c.smem - 4, 1); }
CASE(misaligned_shared) { ptx::st_shared(c.smem + 2, 1); }
CASE(beyond_global) { c.result(c.p.n, 1); }
CASE(far_from_global) { ptx::st_global(static_cast<float*>(nullptr), 1); }
CASE(write_to_input) { ptx::st_global(reinterpret_cast<float*>(const_cast<uint32_t*>(c.p.in)), 1); }
CASE(misaligned_global) { ptx::st_global_16(c.p.out + 1, {}); }

// cp.async. -------------------------------------------------------------------------------------------------

static uint32_t copy(const Case& c, uint32_t slot) {
  uint32_t to = c.smem + 1024 * slot + 16 * c.thread;
  ptx::cp_async_16(to, c.p.in + 4 * c.thread);
  return to;
}
static void take(const Case& c, uint32_t from) {
  uint4 v = ptx::ld_shared_16(from);
  ptx::st_global_16(c.p.out + 4 * c.thread, v);
}
CASE(copy_wait) {
  uint32_t at = copy(c, 0);
  emu::copy_async_commit();
  emu::copy_async_wait(0);
  take(c, at);
}
CASE(copy_no_wait) {
  uint32_t at = copy(c, 0);
  emu::copy_async_commit();
  take(c, at);
}
CASE(copy_no_commit) {
  uint32_t at = copy(c, 0);
  emu::copy_async_wait(0);
  take(c, at);
}
CASE(copy_wait_all) {
  uint32_t at = copy(c, 0);
  emu::copy_async_wait_all();
  take(c, at);
}
CASE(copy_older_group) {
  uint32_t at = copy(c, 0);
  emu::copy_async_commit();
  copy(c, 1);
  emu::copy_async_commit();
  emu::copy_async_wait(1);
  take(c, at);
  emu::copy_async_wait(0);
}
CASE(copy_weak_wait) {
  copy(c, 0);
  emu::copy_async_commit();
  uint32_t at = copy(c, 1);
  emu::copy_async_commit();
  emu::copy_async_wait(1);
  take(c, at);
}
CASE(copy_of_another_thread) {
  for (uint32_t i = 0; i < 4; ++i) c.put(i * 64 + c.thread, 6);
  __syncthreads();
  uint32_t at = copy(c, 0);
  emu::copy_async_wait_all();
  take(c, at ^ 16);
}
CASE(copy_of_another_thread_synced) {
  uint32_t at = copy(c, 0);
  emu::copy_async_wait_all();
  __syncthreads();
  take(c, at ^ 16);
}
CASE(copy_over_a_read) {
  uint32_t at = copy(c, 0);
  emu::copy_async_wait_all();
  __syncthreads();
  take(c, at ^ 16);
  copy(c, 0);
  emu::copy_async_wait_all();
}
CASE(copies_on_top_of_each_other) {
  copy(c, 0);
  copy(c, 0);
  emu::copy_async_wait_all();
}
CASE(copy_zeros) {
  uint32_t at = c.smem + 16 * c.thread;
  ptx::cp_async_16_or_zero(at, c.p.in + 4 * c.thread, c.thread % 2);
  emu::copy_async_wait_all();
  take(c, at);
}
CASE(copy_beyond_input) {
  ptx::cp_async_16(c.smem + 16 * c.thread, c.p.in + c.p.n);
  emu::copy_async_wait_all();
}
CASE(copy_misaligned_source) {
  ptx::cp_async_16(c.smem + 16 * c.thread, c.p.in + 1);
  emu::copy_async_wait_all();
}
CASE(copy_arrives) {
  if (c.thread == 0) ptx::mbarrier_init(c.smem + 2048, 64);
  __syncthreads();
  uint32_t at = copy(c, 0);
  ptx::mbarrier_arrive_after_copies(c.smem + 2048);
  ptx::mbarrier_wait(c.smem + 2048, 0);
  take(c, at ^ 16);
}
CASE(copy_arrives_too_early) {
  if (c.thread == 0) ptx::mbarrier_init(c.smem + 2048, 64);
  __syncthreads();
  uint32_t at = copy(c, 0);
  ptx::mbarrier_arrive(c.smem + 2048);
  ptx::mbarrier_wait(c.smem + 2048, 0);
  take(c, at ^ 16);
}
CASE(copy_after_its_arrival) {
  if (c.thread == 0) ptx::mbarrier_init(c.smem + 2048, 64);
  __syncthreads();
  ptx::mbarrier_arrive_after_copies(c.smem + 2048);
  uint32_t at = copy(c, 0);
  ptx::mbarrier_wait(c.smem + 2048, 0);
  take(c, at ^ 16);
}

// mbarriers. ------------------------------------------------------------------------------------------------

static void init(const Case& c, uint32_t arrivals) {
  if (c.thread == 0) ptx::mbarrier_init(c.smem, arrivals);
  __syncthreads();
}
CASE(mbarrier_phases) {
  init(c, 64);
  for (uint32_t phase = 0; phase < 5; ++phase) {
    ptx::mbarrier_arrive(c.smem);
    ptx::mbarrier_wait(c.smem, phase & 1);
  }
}
CASE(mbarrier_fresh) {
  init(c, 64);
  ptx::mbarrier_wait(c.smem, 1);
}
CASE(mbarrier_never_made) { ptx::mbarrier_wait(c.smem, 0); }
CASE(mbarrier_not_synced) {
  if (c.thread == 0) ptx::mbarrier_init(c.smem, 1);
  if (c.thread == 32) ptx::mbarrier_arrive(c.smem);
}
CASE(mbarrier_made_twice) {
  init(c, 64);
  init(c, 64);
}
CASE(mbarrier_of_nobody) { init(c, 0); }
CASE(mbarrier_misaligned) {
  if (c.thread == 0) ptx::mbarrier_init(c.smem + 4, 1);
}
CASE(mbarrier_many_at_once) {
  init(c, 2);
  if (c.thread == 0) emu::mbarrier_arrive(c.smem, 3);
}
CASE(mbarrier_bytes_missing) {
  init(c, 64);
  if (c.thread == 0)
    emu::mbarrier_arrive_expect_tx(c.smem, 16);
  else
    ptx::mbarrier_arrive(c.smem);
  ptx::mbarrier_wait(c.smem, 0);
}
CASE(mbarrier_too_many_arrivals_open) {
  init(c, 1);
  if (c.thread == 0) {
    emu::mbarrier_arrive_expect_tx(c.smem, 16);
    emu::mbarrier_arrive(c.smem);
  }
}
CASE(mbarrier_two_phases_ahead) {
  init(c, 1);
  if (c.thread == 0) {
    for (int i = 0; i < 1000; ++i) ptx::mbarrier_arrive(c.smem);
  } else {
    ptx::mbarrier_wait(c.smem, 0);
  }
}
CASE(mbarrier_as_data) {
  init(c, 1);
  c.get(1);
}
CASE(mbarrier_overwritten) {
  init(c, 1);
  if (c.thread == 0) c.put(0, 1);
}
CASE(mbarrier_given_up) {
  init(c, 64);
  ptx::mbarrier_arrive(c.smem);
  ptx::mbarrier_wait(c.smem, 0);
  __syncthreads();
  if (c.thread == 0) emu::mbarrier_inval(c.smem), c.put(0, 7);
  __syncthreads();
  c.result(c.thread, c.get(0));
}
CASE(mbarrier_given_up_unsynced) {
  init(c, 64);
  if (c.thread == 0) emu::mbarrier_inval(c.smem);
  if (c.thread == 32) c.put(0, 7);
}
CASE(mbarrier_used_after_inval) {
  init(c, 64);
  if (c.thread == 0) emu::mbarrier_inval(c.smem);
  __syncthreads();
  ptx::mbarrier_arrive(c.smem);
}
CASE(mbarrier_polled) {
  init(c, 1);
  if (c.thread == 0) ptx::mbarrier_arrive(c.smem);
  while (!emu::mbarrier_test_wait(c.smem, 0)) {
  }
}
CASE(polling_forever) {
  init(c, 1);
  while (!emu::mbarrier_test_wait(c.smem, 0)) {
  }
}

// Collectives and barriers. ---------------------------------------------------------------------------------

CASE(different_collectives) {
  if (c.lane < 16)
    __any_sync(~0u, 1);
  else
    __shfl_sync(~0u, 1, 0);
}
CASE(different_masks) {
  if (c.lane < 16)
    __syncwarp(~0u);
  else
    __syncwarp(0xffff0000);
}
CASE(not_in_its_mask) { __syncwarp(0xffff); }
CASE(exits_before_a_collective) {
  if (c.lane == 3) return;
  __syncwarp();
}
CASE(shuffle_from_outside) {
  if (c.lane < 16) __shfl_sync(0xffff, 1, 20);
}
CASE(half_a_warp_at_barrier) {
  if (c.lane < 16) emu::barrier_sync(1, 32);
}
CASE(barrier_counts_disagree) { emu::barrier_sync(1, c.thread < 32 ? 32 : 64); }
CASE(barrier_of_33) { emu::barrier_sync(1, 33); }
CASE(barrier_16) { emu::barrier_sync(16, 64); }
CASE(barrier_arrives_twice) {
  if (c.thread >= 32) return;
  emu::barrier_arrive(1, 64);
  emu::barrier_arrive(1, 64);
}
CASE(one_warp_syncs) {
  if (c.thread < 32) __syncthreads();
}
CASE(shuffles) {
  uint32_t x = 100 + c.lane;
  uint32_t* out = c.p.out + 8 * c.thread;
  uint32_t values[8] = {__shfl_sync(~0u, x, 5),
                        __shfl_xor_sync(~0u, x, 3),
                        __shfl_up_sync(~0u, x, 2),
                        __shfl_down_sync(~0u, x, 2),
                        __shfl_sync(~0u, x, 9, 8),
                        __shfl_down_sync(~0u, x, 1, 8),
                        __ballot_sync(~0u, c.lane % 3 == 0),
                        uint32_t(__any_sync(~0u, c.lane == 9)) | uint32_t(__all_sync(~0u, c.lane < 31)) << 1};
  for (int i = 0; i < 8; ++i) emu::store_global(out + i, values + i, 4);
}

// Matrices: in holds 16 rows of 8 words, two 16-bit elements each. ------------------------------------------

static void load_tile(const Case& c) {
  if (c.thread < 32) ptx::cp_async_16(c.smem + 16 * c.thread, c.p.in + 4 * c.thread);
  emu::copy_async_wait_all();
  __syncthreads();
}
template <bool kTransposed>
static void matrix(const Case& c) {
  load_tile(c);
  if (c.thread >= 32) return;
  uint32_t r[4];  // matrices: rows 0-7 and 8-15 of columns 0-7, then of columns 8-15
  uint32_t at = c.smem + c.lane % 16 * 32 + c.lane / 16 * 16;
  if (kTransposed)
    ptx::ldmatrix_x4_trans(r, at);
  else
    ptx::ldmatrix_x4(r, at);
  for (int i = 0; i < 4; ++i) c.result(4 * c.lane + i, r[i]);
}
CASE(ldmatrix) { matrix<false>(c); }
CASE(ldmatrix_transposed) { matrix<true>(c); }
CASE(ldmatrix_by_half_a_warp) {
  load_tile(c);
  uint32_t r[4];
  if (c.lane < 16) ptx::ldmatrix_x4(r, c.smem);
}
template <typename T>
static void product(const Case& c) {  // A A^T for the tile's left and right 8 rows of n
  load_tile(c);
  if (c.thread >= 32) return;
  uint32_t a[4];
  ptx::ldmatrix_x4(a, c.smem + c.lane % 16 * 32 + c.lane / 16 * 16);
  float d[2][4] = {{1, 1, 1, 1}, {}};
  ptx::mma_m16n8k16<T>(d[0], a, a[0], a[2]);
  ptx::mma_m16n8k16<T>(d[1], a, a[1], a[3]);
  for (int i = 0; i < 8; ++i) c.result(8 * c.lane + i, __builtin_bit_cast(uint32_t, d[i / 4][i % 4]));
}
CASE(mma_fp16) { product<__half>(c); }
CASE(mma_bf16) { product<__nv_bfloat16>(c); }

// Numbers: every word of in, as fp32, rounded to fp16 (low half of the result) and bf16; and back. ----------

CASE(round_to_16_bits) {
  for (int i = c.thread; i < c.p.n; i += blockDim.x) {
    float x = __builtin_bit_cast(float, c.p.in[i]);
    c.result(i, __float2half_rn(x).bits | uint32_t(__float2bfloat16_rn(x).bits) << 16);
  }
}
CASE(widen_fp16) {
  for (int i = c.thread; i < c.p.n; i += blockDim.x)
    c.result(i, __builtin_bit_cast(uint32_t, __half2float(__half{uint16_t(i)})));
}

// Interleaving: tickets in the order in which threads come. -------------------------------------------------

CASE(tickets) {
  uint32_t* mine = c.p.out + 65 * blockIdx.x;
  c.result(65 * blockIdx.x + 1 + c.thread, atomicAdd(mine, 1u));
}
CASE(late_ctas_fail) {
  if (blockIdx.x >= 3) c.get(0);
}
CASE(nothing) {}
