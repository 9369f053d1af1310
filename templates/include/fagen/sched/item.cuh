// A work item: one tile of queries of one head, and the K/V tiles that it sees.
#pragma once

#include "fagen/base/types.cuh"
#include "fagen/sched/work.cuh"

namespace fagen::sched {

inline constexpr uint32_t kNoItem = 0xffffffffu;

template <typename Cfg>
struct Item {
  Work work;
  typename Cfg::Sequence sequence;
  typename Cfg::Mask mask;
  int first, row0;  // first query of the cluster, and of the CTA
  int begin, end;   // K/V tiles; at least one, which may be hidden whole

  // Item number `index`, as the CTA of number `rank` in its cluster sees it.
  template <typename Params>
  __device__ __forceinline__ Item(const Params& p, uint32_t index, uint32_t rank)
      : work(Cfg::work(p, index)), sequence(p, work.batch), mask(sequence.seqlen_q, sequence.seqlen_k) {
    // The CTAs of a cluster take neighbouring tiles of queries, and see all K/V tiles that one of them needs.
    first = work.q_tile * Cfg::kCluster * Cfg::kTileQ;
    row0 = first + rank * Cfg::kTileQ;
    const int last = min(first + Cfg::kCluster * Cfg::kTileQ, sequence.seqlen_q) - 1;
    begin = mask.begin(first) / Cfg::kTileKv;
    end = max(begin + 1, (mask.end(last) + Cfg::kTileKv - 1) / Cfg::kTileKv);
  }

  // A short sequence of a packed batch has fewer tiles of queries than the longest.
  __device__ __forceinline__ bool has_queries() const { return first < sequence.seqlen_q; }
};

}  // namespace fagen::sched
