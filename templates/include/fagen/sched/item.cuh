// A work item: one tile of queries of one head, and the K/V tiles that it sees.
#pragma once

#include "fagen/base/types.cuh"
#include "fagen/sched/work.cuh"

namespace fagen::sched {

inline constexpr uint32_t kNoPair = 0xffffffffu;  // where there is no item

template <typename Cfg>
struct Item {
  Work work;
  typename Cfg::Sequence sequence;
  typename Cfg::Mask mask;
  int first, query0;  // first query of the cluster, and of the CTA
  int begin, end;     // K/V tiles; at least one, which may be hidden whole

  __device__ __forceinline__ Item() {}

  // As the CTA of number `rank` in its cluster sees it.
  template <typename Params>
  __device__ __forceinline__ Item(const Params& p, const Work& work_, uint32_t rank)
      : work(work_), sequence(p, work.batch), mask(sequence.seqlen_q, sequence.seqlen_k) {
    // The CTAs of a cluster take neighbouring tiles of queries, and see all K/V tiles that one of them needs.
    const int queries = sequence.query(Cfg::kTileQ);
    first = work.q_tile * Cfg::kCluster * queries;
    query0 = first + rank * queries;
    const int last = min(first + Cfg::kCluster * queries, sequence.seqlen_q) - 1;
    begin = mask.begin(first) / Cfg::kTileKv;
    end = max(begin + 1, (mask.end(last) + Cfg::kTileKv - 1) / Cfg::kTileKv);
  }

  // The query of a row of the CTA's tile, and how many rows exist from there on, where a query's rows begin.
  __device__ __forceinline__ int query(int row) const { return query0 + sequence.query(row); }
  __device__ __forceinline__ int rows_from(int row) const {
    return sequence.rows(sequence.seqlen_q - query(row));
  }

  // A short sequence of a packed batch has fewer tiles of queries than the longest.
  __device__ __forceinline__ bool has_queries() const { return first < sequence.seqlen_q; }
};

}  // namespace fagen::sched
