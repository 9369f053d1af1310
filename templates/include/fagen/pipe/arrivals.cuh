// Stages of shared memory that cp.async fills, where a barrier of the CTA says when a stage may be filled
// again.
#pragma once

#include "fagen/pipe/position.cuh"
#include "fagen/ptx/mbarrier.cuh"

namespace fagen::pipe {

// An mbarrier for each stage, complete when all threads' copies into it have landed.
template <int kStages, int kThreads>
struct Arrivals {
  uint32_t full;

  // The barriers take 8 * kStages bytes at `smem`. All threads of the CTA.
  __device__ __forceinline__ explicit Arrivals(uint32_t smem) : full(smem) {
    if (threadIdx.x == 0) {
#pragma unroll
      for (int stage = 0; stage < kStages; ++stage) ptx::mbarrier_init(full + 8 * stage, kThreads);
    }
    __syncthreads();
  }

  // All copies that this thread has issued so far belong to the stage, or to an earlier one.
  __device__ __forceinline__ void arrive(Position<kStages> at) const {
    ptx::mbarrier_arrive_after_copies(full + 8 * at.stage);
  }
  __device__ __forceinline__ void wait(Position<kStages> at) const {
    ptx::mbarrier_wait(full + 8 * at.stage, at.parity);
  }
};

}  // namespace fagen::pipe
