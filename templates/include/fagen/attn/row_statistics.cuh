// The statistics that FlashAttention's first generation keeps in global memory (arXiv 2205.14135, Algorithm
// 1): per row the maximum of its scaled scores so far, m, and the sum of their exponentials relative to it,
// l. A row that has seen no key has m = -inf and l = 0.
#pragma once

#include "fagen/attn/softmax.cuh"
#include "fagen/base/constants.cuh"
#include "fagen/base/grid.cuh"
#include "fagen/ptx/global.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/ptx/special.cuh"
#include "fagen/smem/tile.cuh"

namespace fagen::attn {

// Of one head, [rows] each; `row_stats` is [2][heads][rows], m and then l.
template <typename Float>
struct HeadStatistics {
  Float *m, *l;
  int rows;

  __device__ __forceinline__ HeadStatistics(Float* row_stats, int64_t heads, int64_t head, int rows)
      : m(row_stats + head * rows), l(m + heads * rows), rows(rows) {}
};

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

// What the backward needs of a block of kRows rows, as the pairs that attn/gradient.cuh reads: (m + ln(l))
// log2(e), since diag(l)^-1 e^(S - m) = e^(S - m - ln(l)), and D = rowsum(dO o O), less the gradient of the
// LSE. A quad of lanes takes a row at a time.
template <int kRows, int kThreads>
struct BlockStatistics {
  static constexpr int kAtOnce = kThreads / 4;
  static constexpr int kPasses = (kRows + kAtOnce - 1) / kAtOnce;

  float lse[kPasses], dlse[kPasses];  // of this quad's rows; LSE in powers of two

  // Reads m, l and the LSE's gradient, of which a null means 0.
  __device__ __forceinline__ BlockStatistics(const HeadStatistics<const float>& head, const float* dlse_rows,
                                             int row0) {
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const int row = row0 + threadIdx.x / 4 + i * kAtOnce;
      lse[i] = kInf, dlse[i] = 0.0f;  // a row without keys: P = e^-inf = 0
      if (row >= head.rows) continue;
      const float l = ptx::ld_global(head.l + row);
      if (l == 0.0f) continue;
      lse[i] = ptx::ld_global(head.m + row) * kLog2E + ptx::log2(l);
      if (dlse_rows != nullptr) dlse[i] = ptx::ld_global(dlse_rows + row);
    }
  }

  // Writes the pairs to `smem`, with D from the tiles of O and dO.
  template <typename T, typename TileT>
  __device__ __forceinline__ void store(uint32_t smem, uint32_t out_tile, uint32_t dout_tile) const {
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const int row = threadIdx.x / 4 + i * kAtOnce;
      float sum = 0.0f;
      if (row < kRows)
#pragma unroll 4
        for (int chunk = threadIdx.x % 4; chunk < TileT::kCols / 8; chunk += 4)
          sum += dot_8<T>(out_tile + TileT::offset(row, chunk), dout_tile + TileT::offset(row, chunk));
      sum = quad_sum(sum);
      if (row >= kRows || threadIdx.x % 4 != 0) continue;
      ptx::st_shared(smem + 8 * row, __builtin_bit_cast(uint32_t, lse[i]));
      ptx::st_shared(smem + 8 * row + 4, __builtin_bit_cast(uint32_t, sum - dlse[i]));
    }
  }

 private:
  // The sum of the products of 8 neighbours.
  template <typename T>
  __device__ __forceinline__ static float dot_8(uint32_t x, uint32_t y) {
    const uint4 a = ptx::ld_shared_16(x), b = ptx::ld_shared_16(y);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 u = unpack<T>((&a.x)[i]), v = unpack<T>((&b.x)[i]);
      sum = fmaf(u.x, v.x, fmaf(u.y, v.y, sum));
    }
    return sum;
  }
};

}  // namespace fagen::attn
