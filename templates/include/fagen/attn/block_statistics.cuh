// What the backward of FlashAttention's first generation makes of a block's m, l, O and dO (arXiv 2205.14135,
// Algorithm 4, lines 13 and 19).
#pragma once

#include "fagen/attn/dot.cuh"
#include "fagen/attn/head_statistics.cuh"
#include "fagen/attn/softmax.cuh"
#include "fagen/base/constants.cuh"
#include "fagen/ptx/global.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/ptx/special.cuh"

namespace fagen::attn {

// What the backward needs of a block of rows, as the pairs that attn/gradient.cuh reads: (m + ln(l)) log2(e),
// since diag(l)^-1 e^(S - m) = e^(S - m - ln(l)), and D = rowsum(dO o O), less the gradient of the LSE. TileT
// is the tile of O, and that of dO. A quad of lanes takes a row at a time.
template <typename TileT, int kThreads>
struct BlockStatistics {
  static constexpr int kAtOnce = kThreads / 4;
  static constexpr int kPasses = (TileT::kRows + kAtOnce - 1) / kAtOnce;

  float m[kPasses], l[kPasses], dlse[kPasses];  // of this quad's rows

  // Begins to read m, l and the LSE's gradient, of which a null means 0. A row that does not exist sees no
  // key.
  __device__ __forceinline__ void load(const HeadStatistics<const float>& head, const float* dlse_rows,
                                       int row0) {
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const int row = row0 + threadIdx.x / 4 + i * kAtOnce;
      const bool exists = row < head.rows;
      m[i] = exists ? ptx::ld_global(head.m + row) : -kInf;
      l[i] = exists ? ptx::ld_global(head.l + row) : 0.0f;
      dlse[i] = exists && dlse_rows != nullptr ? ptx::ld_global(dlse_rows + row) : 0.0f;
    }
  }

  // Writes the pairs to `smem`, with D from the tiles of O and dO.
  template <typename T>
  __device__ __forceinline__ void store(uint32_t smem, uint32_t out_tile, uint32_t dout_tile) const {
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const int row = threadIdx.x / 4 + i * kAtOnce;
      // Odd rows start with the other half of a panel's row: two rows are read at a time, from all banks.
      const int first = threadIdx.x % 4 ^ row % 2 * (TileT::kChunks / 2);
      float sum = 0.0f;
      if (row < TileT::kRows)
#pragma unroll
        for (int chunk = 0; chunk < TileT::kCols / 8; chunk += 4)
          sum += dot_8<T>(ptx::ld_shared_16(out_tile + TileT::offset(row, first ^ chunk)),
                          ptx::ld_shared_16(dout_tile + TileT::offset(row, first ^ chunk)));
      sum = quad_sum(sum);
      if (row >= TileT::kRows || threadIdx.x % 4 != 0) continue;
      const bool sees_keys = l[i] != 0.0f;
      const float lse = sees_keys ? m[i] * kLog2E + ptx::log2(l[i]) : kInf;  // without keys P = e^-inf = 0
      ptx::st_shared(smem + 8 * row, __builtin_bit_cast(uint32_t, lse));
      ptx::st_shared(smem + 8 * row + 4, __builtin_bit_cast(uint32_t, sees_keys ? sum - dlse[i] : 0.0f));
    }
  }
};

}  // namespace fagen::attn
