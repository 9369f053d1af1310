// A ring of shared-memory stages between cp.async and the warps that use them. Every stage has two
// mbarriers: `full` completes when all threads' copies into it have landed, `empty` when all are done with
// it. No barrier for the whole CTA: warps drift apart by as many tiles as the ring has slack.
#pragma once

#include "fagen/pipe/position.cuh"
#include "fagen/ptx/mbarrier.cuh"

namespace fagen::pipe {

template <int kStages, int kWarps>
struct Ring {
  uint32_t full, empty;

  // The barriers take 16 * kStages bytes at `smem`. All threads of the CTA.
  __device__ __forceinline__ explicit Ring(uint32_t smem) : full(smem), empty(smem + 8 * kStages) {
    if (threadIdx.x == 0) {
#pragma unroll
      for (int stage = 0; stage < kStages; ++stage) {
        ptx::mbarrier_init(full + 8 * stage, 32 * kWarps);
        ptx::mbarrier_init(empty + 8 * stage, 32 * kWarps);
      }
    }
    __syncthreads();
  }

  __device__ static Position<kStages> first_fill() { return Position<kStages>::first_fill(); }
  __device__ static Position<kStages> first_read() { return Position<kStages>::first_read(); }

  __device__ __forceinline__ void wait_empty(Position<kStages> at) const {
    ptx::mbarrier_wait(empty + 8 * at.stage, at.parity);
  }
  // All copies that this thread has issued so far belong to the stage, or to an earlier one.
  __device__ __forceinline__ void arrive_full(Position<kStages> at) const {
    ptx::mbarrier_arrive_after_copies(full + 8 * at.stage);
  }
  __device__ __forceinline__ void wait_full(Position<kStages> at) const {
    ptx::mbarrier_wait(full + 8 * at.stage, at.parity);
  }
  // This thread is done with the stage. One elected lane per warp would do, and is as fast; but checkers that
  // follow threads, not warps, then take the other lanes' reads for races.
  __device__ __forceinline__ void arrive_empty(Position<kStages> at) const {
    ptx::mbarrier_arrive(empty + 8 * at.stage);
  }
};

}  // namespace fagen::pipe
