// Where Q, K and V pass from the load role to the math role: rings of tiles in shared memory.
#pragma once

#include "fagen/base/types.cuh"
#include "fagen/pipe/tma_ring.cuh"
#include "fagen/ptx/fence.cuh"

namespace fagen::pipe {

template <typename Cfg>
struct Stream {
  static constexpr int kMathWarps = 4 * Cfg::kWarpgroups;
  using QRing = TmaRing<Cfg::kQStages, kMathWarps>;
  using KvRing = TmaRing<Cfg::kStages, kMathWarps, Cfg::kCluster>;

  uint32_t q_smem, k_smem, v_smem;
  QRing q;
  KvRing k, v;
  uint32_t item_smem;  // for each stage of Q, whose it is: two words, the pair and the Q tile

  // The tiles' addresses, and that of the barriers, behind which the items lie.
  __device__ __forceinline__ Stream(uint32_t q_smem, uint32_t k_smem, uint32_t v_smem, uint32_t barriers)
      : q_smem(q_smem),
        k_smem(k_smem),
        v_smem(v_smem),
        q(barriers),
        k(barriers + QRing::kBarrierBytes),
        v(barriers + QRing::kBarrierBytes + KvRing::kBarrierBytes),
        item_smem(barriers + QRing::kBarrierBytes + 2 * KvRing::kBarrierBytes) {}

  // One thread; others may use the rings after a barrier.
  __device__ __forceinline__ void init() const {
    q.init();
    k.init();
    v.init();
    ptx::fence_mbarrier_init();
  }

  __device__ __forceinline__ uint32_t q_tile(typename QRing::At at, int warpgroup) const {
    return q_smem + (at.stage * Cfg::kWarpgroups + warpgroup) * Cfg::QTile::kBytes;
  }
  __device__ __forceinline__ uint32_t k_tile(typename KvRing::At at) const {
    return k_smem + at.stage * Cfg::KTile::kBytes;
  }
  __device__ __forceinline__ uint32_t v_tile(typename KvRing::At at) const {
    return v_smem + at.stage * Cfg::VTile::kBytes;
  }
  __device__ __forceinline__ uint32_t item(typename QRing::At at) const { return item_smem + 8 * at.stage; }
};

}  // namespace fagen::pipe
