// The blocks of rows that a CTA works through.
#pragma once

#include "fagen/base/types.cuh"

namespace fagen::quantize {

// Neighbouring rows of one head.
struct Block {
  int head, block, batch;
};

// Every gridDim.x-th block of a tensor, from block blockIdx.x on. Heads are counted first: CTAs that run at
// the same time then read all heads of some rows, which lie side by side in layout bshd.
class Blocks {
 public:
  // `heads` of `blocks` blocks each.
  __device__ __forceinline__ Blocks(int heads, int blocks)
      : heads_(heads), blocks_(blocks), at_(block(blockIdx.x)), step_(block(gridDim.x)) {}

  // The block, past the last one with a batch that does not exist; moves on to the next.
  __device__ __forceinline__ Block next() {
    const Block found = at_;
    at_ = {at_.head + step_.head, at_.block + step_.block, at_.batch + step_.batch};
    if (at_.head >= heads_) at_.head -= heads_, ++at_.block;
    if (at_.block >= blocks_) at_.block -= blocks_, ++at_.batch;
    return found;
  }

 private:
  __device__ __forceinline__ Block block(int i) const {
    return {i % heads_, i / heads_ % blocks_, i / heads_ / blocks_};
  }

  int heads_, blocks_;
  Block at_, step_;
};

}  // namespace fagen::quantize
