// Items handed out beforehand: round r of the grid takes the next items, forwards in even and backwards in
// odd rounds, so that where items are sorted by length, who got the longest gets the shortest next.
#pragma once

#include "fagen/base/types.cuh"

namespace fagen::sched {

// One thread of each CTA; the CTAs of a cluster get the same items.
template <int kCluster>
class Rounds {
 public:
  template <typename Params>
  __device__ __forceinline__ explicit Rounds(const Params&) {}

  // Number of the next item; there may be no item of that number, nor then any after it.
  __device__ __forceinline__ uint32_t next() {
    uint32_t each = gridDim.x / kCluster, own = blockIdx.x / kCluster;
    uint32_t start = round_ * each;
    return start + (round_++ % 2 == 0 ? own : each - 1 - own);
  }

  __device__ __forceinline__ void finish() const {}

 private:
  uint32_t round_ = 0;
};

}  // namespace fagen::sched
