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
#include "fagen/smem/tile.cuh"

namespace fagen::attn {

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
          sum += dot_8<T>(ptx::ld_shared_16(out_tile + TileT::offset(row, chunk)),
                          ptx::ld_shared_16(dout_tile + TileT::offset(row, chunk)));
      sum = quad_sum(sum);
      if (row >= kRows || threadIdx.x % 4 != 0) continue;
      ptx::st_shared(smem + 8 * row, __builtin_bit_cast(uint32_t, lse[i]));
      ptx::st_shared(smem + 8 * row + 4, __builtin_bit_cast(uint32_t, sum - dlse[i]));
    }
  }
};

}  // namespace fagen::attn
