// What the backward needs of each row besides Q and dO (FlashAttention-2, Algorithm 2, line 4).
#pragma once

#include "fagen/attn/dot.cuh"
#include "fagen/base/constants.cuh"
#include "fagen/base/grid.cuh"
#include "fagen/base/types.cuh"
#include "fagen/ptx/global.cuh"

namespace fagen::attn {

// Writes, for each of kRows rows, of which `rows` exist, the pair (LSE * log2(e), delta): delta is rowsum(dO
// o O) less the gradient of the LSE, if there is one. P is 0 in rows that do not exist or see no key, so
// their LSE is +inf.
template <int kRows, int kDim, int kThreads, typename T>
__device__ __forceinline__ void row_stats(const T* out, int64_t out_stride, const T* dout,
                                          int64_t dout_stride, int rows, const float* lse, const float* dlse,
                                          float* stats) {
  // Lanes that share a row, a power of two, 16 bytes each.
  constexpr int kChunks = kDim / 8;
  constexpr int kLanes = kChunks > 16 ? 32 : kChunks > 8 ? 16 : kChunks > 4 ? 8 : 4;
  constexpr int kAtOnce = kThreads / kLanes;
  const int chunk = threadIdx.x % kLanes;
#pragma unroll 4
  for (int row = threadIdx.x / kLanes; row < kRows; row += kAtOnce) {
    const bool exists = row < rows;
    float sum = 0.0f;
    if (exists && chunk < kChunks)
      sum = dot_8<T>(ptx::ld_global_16(out + row * out_stride + 8 * chunk),
                     ptx::ld_global_16(dout + row * dout_stride + 8 * chunk));
#pragma unroll
    for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (chunk != 0) continue;
    const float row_lse = exists ? ptx::ld_global(lse + row) : -kInf;
    const bool sees_keys = row_lse != -kInf;
    if (sees_keys && dlse != nullptr) sum -= ptx::ld_global(dlse + row);
    ptx::st_global(stats + 2 * row, sees_keys ? row_lse * kLog2E : kInf);
    ptx::st_global(stats + 2 * row + 1, sees_keys ? sum : 0.0f);
  }
}

}  // namespace fagen::attn
