// The statistics that FlashAttention's first generation keeps in global memory (arXiv 2205.14135, Algorithm
// 1): per row the maximum of its scaled scores so far, m, and the sum of their exponentials relative to it,
// l. A row that has seen no key has m = -inf and l = 0.
#pragma once

#include "fagen/base/types.cuh"

namespace fagen::attn {

// Of one head, [rows] each; `row_stats` is [2][heads][rows], m and then l.
template <typename Float>
struct HeadStatistics {
  Float *m, *l;
  int rows;

  __device__ __forceinline__ HeadStatistics(Float* row_stats, int64_t heads, int64_t head, int rows)
      : m(row_stats + head * rows), l(m + heads * rows), rows(rows) {}
};

}  // namespace fagen::attn
