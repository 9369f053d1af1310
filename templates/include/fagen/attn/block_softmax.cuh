// The softmax of FlashAttention's first generation: of one block of keys by itself, then merged with that of
// the blocks before (arXiv 2205.14135, Algorithm 1, lines 10 and 11).
#pragma once

#include "fagen/attn/head_statistics.cuh"
#include "fagen/attn/softmax.cuh"
#include "fagen/base/constants.cuh"
#include "fagen/base/grid.cuh"
#include "fagen/ptx/global.cuh"
#include "fagen/ptx/special.cuh"

namespace fagen::attn {

// The softmax of a warp's rows over one block of keys: m~ = rowmax(S), P~ = e^(S - m~), l~ = rowsum(P~), with
// the scaled S. The rows are g and g + 8 of each block of 16, the same on the four lanes of a quad.
template <int kM>
struct BlockSoftmax {
  float m[kM][2], l[kM][2];

  // Turns unscaled scores into P~ in place. Subtracting before scaling is exact where scores are huge.
  template <int kN>
  __device__ __forceinline__ BlockSoftmax(float (&s)[kM][kN][4], float scale) {
    const float scale_log2 = scale * kLog2E;
#pragma unroll
    for (int i = 0; i < kM; ++i) {
      float shift[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float most = -kInf;
#pragma unroll
        for (int n = 0; n < kN; ++n) most = fmaxf(most, fmaxf(s[i][n][2 * r], s[i][n][2 * r + 1]));
        most = quad_max(most);
        m[i][r] = most * scale;
        shift[r] = most == -kInf ? 0.0f : most;  // without a key e^-inf = 0 is wanted
      }
      float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          s[i][n][c] = ptx::exp2((s[i][n][c] - shift[c / 2]) * scale_log2);
          sum[c] += s[i][n][c];
        }
      l[i][0] = quad_sum(sum[0] + sum[1]);
      l[i][1] = quad_sum(sum[2] + sum[3]);
    }
  }

  // Whether some row of the warp sees a key of the block.
  __device__ __forceinline__ bool sees_keys() const {
    bool sees = false;
#pragma unroll
    for (int i = 0; i < kM; ++i) sees |= l[i][0] > 0.0f || l[i][1] > 0.0f;
    return __any_sync(kWarp, sees);
  }
};

// Of a warp's rows over all keys so far: g and g + 8 of each block of 16, the same on the four lanes of a
// quad.
template <int kM>
struct RowStatistics {
  float m[kM][2], l[kM][2];

  // Reads those of the rows from `row0` on; a row that does not exist has seen no key.
  __device__ __forceinline__ RowStatistics(const HeadStatistics<float>& head, int row0) {
#pragma unroll
    for (int i = 0; i < kM; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = row0 + 16 * i + 8 * r + lane_id() / 4;
        m[i][r] = row < head.rows ? ptx::ld_global(head.m + row) : -kInf;
        l[i][r] = row < head.rows ? ptx::ld_global(head.l + row) : 0.0f;
      }
  }

  __device__ __forceinline__ void store(const HeadStatistics<float>& head, int row0) const {
#pragma unroll
    for (int i = 0; i < kM; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = row0 + 16 * i + 8 * r + lane_id() / 4;
        if (row >= head.rows || lane_id() % 4 != 0) continue;
        ptx::st_global(head.m + row, m[i][r]);
        ptx::st_global(head.l + row, l[i][r]);
      }
  }

  // m = max(m_old, m~), l = e^(m_old - m) l_old + e^(m~ - m) l~, with m~ and l~ of another block of keys. The
  // O of all keys is then inverse * (keep * O + add * P~ V).
  __device__ __forceinline__ void merge(const BlockSoftmax<kM>& block, float (&keep)[kM][2],
                                        float (&add)[kM][2], float (&inverse)[kM][2]) {
#pragma unroll
    for (int i = 0; i < kM; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float next = fmaxf(m[i][r], block.m[i][r]);
        const float shift = next == -kInf ? 0.0f : next;
        keep[i][r] = ptx::exp2((m[i][r] - shift) * kLog2E) * l[i][r];
        add[i][r] = ptx::exp2((block.m[i][r] - shift) * kLog2E);
        m[i][r] = next;
        l[i][r] = keep[i][r] + add[i][r] * block.l[i][r];
        inverse[i][r] = l[i][r] == 0.0f ? 0.0f : ptx::reciprocal(l[i][r]);
      }
  }
};

}  // namespace fagen::attn
