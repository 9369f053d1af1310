// A barrier of the CTA in two halves: what a thread does between them hides its wait for the slowest.
#pragma once

#include "fagen/ptx/mbarrier.cuh"

namespace fagen::pipe {

template <int kThreads>
struct SplitBarrier {
  uint32_t barrier, parity = 0;

  // An mbarrier, 8 bytes at `smem`; the CTA's next __syncthreads() makes it known to all.
  __device__ __forceinline__ explicit SplitBarrier(uint32_t smem) : barrier(smem) {
    if (threadIdx.x == 0) ptx::mbarrier_init(barrier, kThreads);
  }

  // What this thread has done so far, all others see once they have waited.
  __device__ __forceinline__ void arrive() const { ptx::mbarrier_arrive(barrier); }
  __device__ __forceinline__ void wait() {
    ptx::mbarrier_wait(barrier, parity);
    parity ^= 1;
  }
};

}  // namespace fagen::pipe
