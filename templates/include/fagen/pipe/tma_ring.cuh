// A ring of shared-memory stages between TMA, driven by one thread, and the warps that use what it brings; or
// between kFillers warps and those. Every stage has two mbarriers: `full` completes when its bytes have
// landed, or all fillers are through, `empty` when all warps are done with it. In a cluster a stage is filled
// in all CTAs at once, so it is empty when the warps of all are done.
#pragma once

#include "fagen/base/grid.cuh"
#include "fagen/pipe/position.cuh"
#include "fagen/ptx/cluster.cuh"
#include "fagen/ptx/mbarrier.cuh"
#include "fagen/ptx/mbarrier_tx.cuh"

namespace fagen::pipe {

template <int kStages, int kWarps, int kCluster = 1, int kFillers = 1>
struct TmaRing {
  static constexpr int kBarrierBytes = 16 * kStages;
  using At = Position<kStages>;

  uint32_t full, empty;

  // The barriers take kBarrierBytes at `smem`.
  __device__ __forceinline__ explicit TmaRing(uint32_t smem) : full(smem), empty(smem + 8 * kStages) {}

  __device__ static At first_fill() { return At::first_fill(); }
  __device__ static At first_read() { return At::first_read(); }

  // One thread; others may use the ring after a fence_mbarrier_init and a barrier.
  __device__ __forceinline__ void init() const {
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
      ptx::mbarrier_init(full + 8 * stage, kFillers);
      ptx::mbarrier_init(empty + 8 * stage, kWarps * kCluster);
    }
  }

  // A filling thread: waits for the stage, and returns the barrier that its bytes complete.
  __device__ __forceinline__ uint32_t begin_fill(At at) const {
    ptx::mbarrier_wait(empty + 8 * at.stage, at.parity);
    return full + 8 * at.stage;
  }
  // Then announces all the bytes that will come.
  __device__ __forceinline__ void expect(At at, uint32_t bytes) const {
    ptx::mbarrier_arrive_expect_tx(full + 8 * at.stage, bytes);
  }

  // A filling warp has begun the stage, and all its lanes are through.
  __device__ __forceinline__ void end_fill(At at) const {
    if (lane_id() == 0) ptx::mbarrier_arrive(full + 8 * at.stage);
  }

  __device__ __forceinline__ void wait_full(At at) const {
    ptx::mbarrier_wait(full + 8 * at.stage, at.parity);
  }

  // The whole warp is done with the stage.
  __device__ __forceinline__ void release(At at) const {
    if constexpr (kCluster == 1) {
      if (lane_id() == 0) ptx::mbarrier_arrive(empty + 8 * at.stage);
    } else {
      if (lane_id() < kCluster)
        ptx::mbarrier_arrive_remote(ptx::map_to_rank(empty + 8 * at.stage, lane_id()));
    }
  }
};

}  // namespace fagen::pipe
