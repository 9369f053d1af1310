// Items handed out as CTAs become free, by a counter in global memory.
#pragma once

#include "fagen/base/types.cuh"
#include "fagen/ptx/atomic.cuh"
#include "fagen/ptx/global.cuh"

namespace fagen::sched {

// One thread of each CTA. `p.counters` are two zeros when the kernel starts, and again when it ends.
class Counter {
 public:
  template <typename Params>
  __device__ __forceinline__ explicit Counter(const Params& p) : counters_(p.counters), next_(blockIdx.x) {}

  // Number of the next item; there may be no item of that number, nor then any after it. The one after it is
  // asked for already.
  __device__ __forceinline__ uint32_t next() {
    uint32_t item = next_;
    next_ = gridDim.x + ptx::atomic_add(counters_, 1);
    return item;
  }

  // After the last next(). The last CTA to get here leaves zeros for the next launch.
  __device__ __forceinline__ void finish() const {
    if (ptx::atomic_add_ordered(counters_ + 1, 1) == gridDim.x - 1) {
      ptx::st_global(counters_, 0u);
      ptx::st_global(counters_ + 1, 0u);
    }
  }

 private:
  uint32_t* counters_;
  uint32_t next_;
};

}  // namespace fagen::sched
