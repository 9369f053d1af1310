// P V on wgmma with 8-bit operands, beside what sm90.cuh has. V is given transposed, [dv][Bc], as 8-bit
// operands are K-major only.
//
// A lane has of each row of an accumulator columns 2t and 2t + 1 of every 8, with t = lane%4; as A operand of
// 32 columns it wants four neighbours of every 16, slots 4t to 4t + 3. P's two neighbouring blocks of 8
// columns fill them with columns 2t, 2t + 1, 8 + 2t and 8 + 2t + 1, so that it moves through no other lane;
// V^T must then have its keys in the same order within every 16. Or V^T has its keys in order, and S has not
// (mma::InFours).
#pragma once

#include "fagen/mma/key_order.cuh"
#include "fagen/mma/sm90.cuh"
#include "fagen/ptx/convert_fp8.cuh"

namespace fagen::mma {

// P as A operand: four registers for each 32 columns.
template <int kN>
using WarpgroupOperand8 = uint32_t[kN / 32][4];

// O = P V or O += P V with V^T a tile [dv][Bc] of T, P of e4m3 whatever T is.
template <typename T, typename VtTile>
__device__ __forceinline__ void issue_pv_transposed(WarpgroupAccumulator<VtTile::kRows>& o,
                                                    const WarpgroupOperand8<VtTile::kCols>& p,
                                                    uint32_t vt_tile, bool accumulate) {
  const uint64_t vt = smem::descriptor(ptx::fresh(vt_tile), 0, 8 * VtTile::kRowBytes, swizzle_of<VtTile>());
#pragma unroll
  for (int step = 0; step < VtTile::kWidth / kStepBytes; ++step) {
    constexpr int kPerPanel = VtTile::kRowBytes / kStepBytes;
    const int panel = step / kPerPanel, bytes = step % kPerPanel * kStepBytes;
    ptx::wgmma<e4m3, T>(registers(o), p[step], smem::advance(vt, panel * VtTile::kPanelBytes + bytes),
                        accumulate || step > 0);
  }
}

// Rounds P to an operand.
template <typename KeyOrder, int kN>
__device__ __forceinline__ void round_e4m3(const float (&s)[1][kN][4], uint32_t (&p)[kN / 4][4]) {
#pragma unroll
  for (int step = 0; step < kN / 4; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int sixteen = 2 * step + i / 2;
      const float* low = &s[0][KeyOrder::template low<kN>(sixteen)][i % 2 * 2];
      const float* high = &s[0][KeyOrder::template high<kN>(sixteen)][i % 2 * 2];
      p[step][i] = ptx::pack_e4m3(low[0], low[1], high[0], high[1]);
    }
}

}  // namespace fagen::mma
