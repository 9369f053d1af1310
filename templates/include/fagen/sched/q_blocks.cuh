// The walk of the backward of FlashAttention's first generation over the blocks of Q (arXiv 2205.14135,
// Algorithm 4, line 9).
#pragma once

#include "fagen/base/types.cuh"

namespace fagen::sched {

struct QBlock {
  int head, row0;
};

// Blocks of kRows rows, from row `begin` up to `end`, of one query head of a group after the other.
template <int kRows>
struct QBlocks {
  int begin_head, end_head;
  int begin, end;

  __device__ __forceinline__ QBlock first() const { return {begin < end ? begin_head : end_head, begin}; }
  __device__ __forceinline__ QBlock after(QBlock at) const {
    return at.row0 + kRows < end ? QBlock{at.head, at.row0 + kRows} : QBlock{at.head + 1, begin};
  }
  __device__ __forceinline__ bool has(QBlock at) const { return at.head < end_head; }
};

}  // namespace fagen::sched
