// Clusters of two CTAs of three warpgroups each: what threads tell each other by every kind of barrier.
#include "fagen/base/grid.cuh"
#include "fagen/ptx/bulk.cuh"
#include "fagen/ptx/cluster.cuh"
#include "fagen/ptx/elect.cuh"
#include "fagen/ptx/fence.cuh"
#include "fagen/ptx/mbarrier.cuh"
#include "fagen/ptx/mbarrier_tx.cuh"
#include "fagen/ptx/named_barrier.cuh"
#include "fagen/ptx/pdl.cuh"
#include "fagen/ptx/setmaxnreg.cuh"
#include "fagen/ptx/shared.cuh"

using namespace fagen;

struct Out {
  uint32_t elected[12];         // per warp: one lane, and the same one twice
  uint32_t through_named[128];  // from the first warpgroup to the second
  uint32_t loaded[4];
  uint32_t rank, remote_rank, unused[2];
};

struct Params {
  const uint32_t* in;
  Out* out;
};

extern "C" __global__ void __launch_bounds__(384, 1) barriers(const __grid_constant__ Params p) {
  constexpr uint32_t kNamed = 3, kTaken = 4;
  Out& out = p.out[blockIdx.x];
  uint32_t full = ptx::dynamic_shared(), told = full + 8, data = full + 16, words = data + 16;
  uint32_t rank = ptx::cluster_rank(), thread = threadIdx.x % 128;
  ptx::wait_for_previous_kernel();

  uint32_t once = __ballot_sync(0xffffffff, ptx::elect_one());
  uint32_t again = __ballot_sync(0xffffffff, ptx::elect_one());
  if (lane_id() == 0) out.elected[threadIdx.x / 32] = once != 0 && (once & (once - 1)) == 0 && once == again;

  if (threadIdx.x == 0) {
    ptx::mbarrier_init(full, 4);
    ptx::mbarrier_init(told, 1);
    ptx::fence_mbarrier_init();
    out.rank = rank;
  }
  ptx::cluster_arrive();
  ptx::cluster_wait();

  // `full` completes by three arrivals at once, one more, and 16 bytes.
  if (threadIdx.x == 32) ptx::mbarrier_arrive(full, 3);
  if (threadIdx.x == 0) {
    ptx::mbarrier_expect_tx(full, 16);
    ptx::bulk_load(data, p.in, 16, full);
    ptx::mbarrier_arrive(full);
    ptx::mbarrier_arrive_remote(ptx::map_to_rank(told, 1 - rank));
  }
  while (!ptx::mbarrier_try_wait(full, 0)) {
  }
  if (threadIdx.x == 200) {
    uint4 v = ptx::ld_shared_16(data);
    out.loaded[0] = v.x, out.loaded[1] = v.y, out.loaded[2] = v.z, out.loaded[3] = v.w;
  }
  if (threadIdx.x == 0) {
    ptx::mbarrier_wait(told, 0);
    out.remote_rank = 1 - rank;
  }
  ptx::cluster_arrive();
  ptx::cluster_wait();

  // The bytes of a barrier that has ended are free again.
  if (threadIdx.x == 0) {
    ptx::mbarrier_inval(full);
    ptx::mbarrier_inval(told);
    for (int i = 0; i < 4; ++i) ptx::st_shared(full + 4 * i, i);
  }

  if (threadIdx.x < 128) {
    ptx::release_registers_to<40>();
    for (uint32_t round = 0; round < 3; ++round) {
      if (round > 0) ptx::named_barrier_sync(kTaken, 256);
      for (int i = 0; i < 4; ++i) ptx::st_shared(words + 16 * thread + 4 * i, 1000 * round + thread);
      ptx::named_barrier_arrive(kNamed, 256);
    }
  } else if (threadIdx.x < 256) {
    ptx::claim_registers_to<240>();  // more than the 168 that each begins with
    uint32_t sum = 0;
    for (uint32_t round = 0; round < 3; ++round) {
      ptx::named_barrier_sync(kNamed, 256);
      sum += ptx::ld_shared_16(words + 16 * (127 - thread)).x;
      if (round < 2) ptx::named_barrier_arrive(kTaken, 256);
    }
    out.through_named[thread] = sum;
  }
  ptx::let_next_kernel_start();
}
