// The softmax of the backward: P again from scores and LSE, and dS from dP (FlashAttention-2, Algorithm 2).
#pragma once

#include "fagen/base/grid.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/ptx/special.cuh"

namespace fagen::attn {

// Of a warp's rows: pairs of LSE * log2(e), which is +inf where P is 0, and delta = rowsum(dO o O), less the
// gradient of the LSE.
template <int kM>
struct RowStats {
  float2 of[kM][2];  // per row g and g + 8 of each 16-row block

  // `smem` has the pairs of a tile's rows; the warp's start at `warp_row`.
  __device__ __forceinline__ RowStats(uint32_t smem, int warp_row) {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        of[m][r] = ptx::ld_shared_pair(smem + 8 * (warp_row + 16 * m + 8 * r + lane_id() / 4));
  }

  // Turns scores into P, in place. P is at most 1: where scores are huge, rounding could have it anywhere.
  template <int kN>
  __device__ __forceinline__ void probabilities(float (&s)[kM][kN][4], float scale_log2) const {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          s[m][n][i] = ptx::exp2(fminf(fmaf(s[m][n][i], scale_log2, -of[m][i / 2].x), 0.0f));
  }

  // Turns dP into dS = P o (dP - delta), in place.
  template <int kN>
  __device__ __forceinline__ void score_gradients(float (&dp)[kM][kN][4], const float (&p)[kM][kN][4]) const {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) dp[m][n][i] = p[m][n][i] * (dp[m][n][i] - of[m][i / 2].y);
  }

  // Takes dS through the soft cap, in place: its derivative is 1 - t^2. t, the capped score by the cap, is
  // what P was made of; where P is 0, so is dS. `per_cap` is ln(2) / cap.
  template <int kN>
  __device__ __forceinline__ void uncap(float (&ds)[kM][kN][4], const float (&p)[kM][kN][4],
                                        float per_cap) const {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float t = fmaxf((ptx::log2(p[m][n][i]) + of[m][i / 2].x) * per_cap, -1.0f);
          ds[m][n][i] *= 1.0f - t * t;
        }
  }
};

}  // namespace fagen::attn
