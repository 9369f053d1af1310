// The load role: one thread streams Q, K and V of item after item into shared memory by TMA, and beside Q the
// item's descales. K is fetched one tile ahead of V, as it is used. Where other warps transpose V, it tells
// them the end.
#pragma once

#include "fagen/pipe/stream.cuh"
#include "fagen/pipe/tma_tile.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/sched/item.cuh"

namespace fagen::role {

template <typename Cfg, typename Params>
class Load {
 public:
  // `rank`: the CTA's number in its cluster.
  __device__ __forceinline__ Load(const Params& p, const pipe::Stream<Cfg>& stream, uint32_t rank)
      : p_(p), stream_(stream), rank_(rank) {}

  __device__ __forceinline__ void run() {
    const uint32_t items = uint32_t(p_.batch) * p_.heads_q * p_.q_tiles;
    typename Cfg::Handout handout(p_);
    KvRows v_rows;         // of the tile whose K was fetched last
    bool pending = false;  // its V is still to come
    uint32_t index;
    while ((index = handout.next()) < items) {
      const sched::Item<Cfg> item(p_, Cfg::work(p_, index), rank_);
      if (!item.has_queries()) continue;
      auto kv_rows = [&](int tile) { return item.sequence.kv_rows(item.work.head_kv, tile * Cfg::kTileKv); };
      load_k(kv_rows(item.end - 1));
      if (pending) load_v(v_rows);
      load_q(item);
      for (int tile = item.end - 2; tile >= item.begin; --tile) {
        load_k(kv_rows(tile));
        load_v(kv_rows(tile + 1));
      }
      v_rows = kv_rows(item.begin);
      pending = true;
    }
    if (pending) load_v(v_rows);
    stream_.q.begin_fill(q_at_);
    ptx::st_shared(stream_.item(q_at_), sched::kNoPair);
    ptx::st_shared(stream_.item(q_at_) + 4, 0);
    stream_.q.expect(q_at_, 0);
    if constexpr (Cfg::kTransposers > 0) {
      stream_.v.begin_fill(v_at_);
      ptx::st_shared(stream_.v_end(v_at_), 1);
      stream_.v.expect(v_at_, 0);
    }
    handout.finish();
  }

 private:
  using QRing = typename pipe::Stream<Cfg>::QRing;
  using KRing = typename pipe::Stream<Cfg>::KRing;
  using VRing = typename pipe::Stream<Cfg>::VRing;
  using KvRows = typename Cfg::Sequence::KvRows;

  // Beside Q lies whose it is, and what multiplies it.
  __device__ __forceinline__ void load_q(const sched::Item<Cfg>& item) {
    const uint32_t full = stream_.q.begin_fill(q_at_);
    ptx::st_shared(stream_.item(q_at_), item.work.pair);
    ptx::st_shared(stream_.item(q_at_) + 4, item.work.q_tile);
    if constexpr (Cfg::kDescaleBytes > 0) typename Cfg::Descales(p_, item.work).put(stream_.descales(q_at_));
    stream_.q.expect(q_at_, Cfg::kWarpgroups * Cfg::QTile::kBytes);
#pragma unroll
    for (int w = 0; w < Cfg::kWarpgroups; ++w)
      pipe::load_tile<typename Cfg::QTile>(
          stream_.q_tile(q_at_, w), p_.q_map, full,
          item.sequence.q_rows(item.work.head_q, item.query(w * Cfg::QTile::kRows)));
    q_at_.advance();
  }

  // V that comes transposed has its keys in order, and K then has not.
  __device__ __forceinline__ void load_k(KvRows rows) {
    if constexpr (Cfg::kVTransposed)
      load_kv<typename Cfg::KTile>(stream_.k, k_at_, stream_.k_tile(k_at_), p_.k_map,
                                   pipe::RowsOfFours{rows, 0});
    else
      load_kv<typename Cfg::KTile>(stream_.k, k_at_, stream_.k_tile(k_at_), p_.k_map, rows);
  }
  __device__ __forceinline__ void load_v(KvRows rows) {
    if constexpr (Cfg::kVTransposed)
      load_kv<typename Cfg::VTile>(stream_.v, v_at_, stream_.v_tile(v_at_), p_.v_map,
                                   pipe::TransposedRows{rows.row, 0, rows.second, rows.third});
    else
      load_kv<typename Cfg::VTile>(stream_.v, v_at_, stream_.v_tile(v_at_), p_.v_map, rows);
  }

  template <typename TileT, typename Ring, typename RowsT>
  __device__ __forceinline__ void load_kv(const Ring& ring, typename Ring::At& at, uint32_t tile,
                                          const ptx::TensorMap& map, RowsT rows) {
    const uint32_t full = ring.begin_fill(at);
    ring.expect(at, TileT::kBytes);
    if constexpr (Cfg::kCluster == 1)
      pipe::load_tile<TileT>(tile, map, full, rows);
    else
      pipe::load_tile_shared<TileT, Cfg::kCluster>(tile, map, full, rank_, rows);
    at.advance();
  }

  const Params& p_;
  const pipe::Stream<Cfg>& stream_;
  const uint32_t rank_;
  typename QRing::At q_at_ = QRing::first_fill();
  typename KRing::At k_at_ = KRing::first_fill();
  typename VRing::At v_at_ = VRing::first_fill();
};

}  // namespace fagen::role
