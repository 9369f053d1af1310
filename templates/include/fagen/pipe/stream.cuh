// Where Q, K and V pass from the load role to the math role: rings of tiles in shared memory. Where V has to
// be transposed on its way, TMA brings its rows to warps of the load role, and those pass V^T on in a further
// ring.
#pragma once

#include "fagen/base/types.cuh"
#include "fagen/pipe/tma_ring.cuh"
#include "fagen/ptx/fence.cuh"
#include "fagen/ptx/shared.cuh"

namespace fagen::pipe {

template <typename Cfg>
struct Stream {
  static constexpr int kMathWarps = 4 * Cfg::kWarpgroups;
  static constexpr bool kTransposes = Cfg::kTransposers > 0;
  using QRing = TmaRing<Cfg::kQStages, kMathWarps>;
  using KRing = TmaRing<Cfg::kStages, kMathWarps, Cfg::kCluster>;
  using VRing = TmaRing<Cfg::kStages, kTransposes ? Cfg::kTransposers : kMathWarps, Cfg::kCluster>;
  using VtRing = TmaRing<Cfg::kStages, kMathWarps, 1, Cfg::kTransposers>;

  uint32_t q_smem, k_smem, v_smem, vt_smem;
  QRing q;
  KRing k;
  VRing v;
  uint32_t item_smem;      // for each stage of Q, whose it is: two words, the pair and the Q tile
  uint32_t descales_smem;  // and, where a head has one of each, its descales
  VtRing vt;
  uint32_t v_end_smem;  // for each stage of V, whether it is the end instead: the first of two words

  // The tiles' addresses, and that of the barriers and of what lies with them.
  __device__ __forceinline__ Stream(uint32_t q_smem, uint32_t k_smem, uint32_t v_smem, uint32_t barriers,
                                    uint32_t vt_smem = 0)
      : q_smem(q_smem),
        k_smem(k_smem),
        v_smem(v_smem),
        vt_smem(vt_smem),
        q(barriers),
        k(q.full + QRing::kBarrierBytes),
        v(k.full + KRing::kBarrierBytes),
        item_smem(v.full + VRing::kBarrierBytes),
        descales_smem(item_smem + 8 * Cfg::kQStages),
        vt(descales_smem + Cfg::kDescaleBytes * Cfg::kQStages),
        v_end_smem(vt.full + VtRing::kBarrierBytes) {}

  // One thread; others may use the rings after a barrier.
  __device__ __forceinline__ void init() const {
    q.init();
    k.init();
    v.init();
    if constexpr (kTransposes) {
      vt.init();
#pragma unroll
      for (int stage = 0; stage < Cfg::kStages; ++stage) ptx::st_shared(v_end_smem + 8 * stage, 0);
    }
    ptx::fence_mbarrier_init();
  }

  __device__ __forceinline__ uint32_t q_tile(typename QRing::At at, int warpgroup) const {
    return q_smem + (at.stage * Cfg::kWarpgroups + warpgroup) * Cfg::QTile::kBytes;
  }
  __device__ __forceinline__ uint32_t k_tile(typename KRing::At at) const {
    return k_smem + at.stage * Cfg::KTile::kBytes;
  }
  __device__ __forceinline__ uint32_t v_tile(typename VRing::At at) const {
    return v_smem + at.stage * Cfg::VTile::kBytes;
  }
  __device__ __forceinline__ uint32_t vt_tile(typename VtRing::At at) const {
    return vt_smem + at.stage * Cfg::VTile::kBytes;
  }
  __device__ __forceinline__ uint32_t item(typename QRing::At at) const { return item_smem + 8 * at.stage; }
  __device__ __forceinline__ uint32_t descales(typename QRing::At at) const {
    return descales_smem + Cfg::kDescaleBytes * at.stage;
  }
  __device__ __forceinline__ uint32_t v_end(typename VRing::At at) const { return v_end_smem + 8 * at.stage; }
};

}  // namespace fagen::pipe
