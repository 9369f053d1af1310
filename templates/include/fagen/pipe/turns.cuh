// Ping-pong: warpgroups take turns at issuing matrix products, so that the softmax of one runs while the
// tensor core works for another (FlashAttention-3, section 3.1).
#pragma once

#include "fagen/ptx/named_barrier.cuh"

namespace fagen::pipe {

// Barrier kFirstBarrier + w completes when warpgroup w waits for its turn and the one before it has passed
// it on. Warpgroup 0 has the first turn.
template <int kWarpgroups, int kFirstBarrier>
struct Turns {
  static constexpr int kThreads = 256;  // of the two warpgroups that meet at a barrier
  int warpgroup;

  __device__ __forceinline__ explicit Turns(int warpgroup) : warpgroup(warpgroup) {
    if (warpgroup == kWarpgroups - 1) pass();
  }

  __device__ __forceinline__ void wait() const {
    ptx::named_barrier_sync(kFirstBarrier + warpgroup, kThreads);
  }

  __device__ __forceinline__ void pass() const {
    ptx::named_barrier_arrive(kFirstBarrier + (warpgroup + 1) % kWarpgroups, kThreads);
  }

  // After the last turn, which no warpgroup 0 follows.
  __device__ __forceinline__ void pass_last() const {
    if (warpgroup != kWarpgroups - 1) pass();
  }
};

}  // namespace fagen::pipe
