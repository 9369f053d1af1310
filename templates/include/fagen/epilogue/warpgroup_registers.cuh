// Writes a warpgroup's 64 rows of O straight from registers, where shared memory has no room for them.
#pragma once

#include "fagen/base/grid.cuh"
#include "fagen/mma/sm90.cuh"
#include "fagen/ptx/global.cuh"

namespace fagen::epilogue {

// Two lanes, `lanes` apart, exchange one of two words: the lower lane its second for the upper lane's first.
__device__ __forceinline__ void exchange(uint32_t& first, uint32_t& second, int lanes) {
  const bool upper = lane_id() & lanes;
  const uint32_t taken = __shfl_xor_sync(0xffffffffu, upper ? first : second, lanes);
  first = upper ? taken : first;
  second = upper ? second : taken;
}

// `out` says where a row of the warpgroup starts in global memory; `rows` exist. The four lanes of a quad
// hold 4 bytes each of a row's every 16: they transpose four such pieces, so that each lane stores 16 bytes.
template <typename T, int kDim, int kN, typename PointerOf>
__device__ __forceinline__ void store_out(const float (&o)[1][kN][4], PointerOf out, int rows) {
  static_assert(kN % 4 == 0, "a quad stores 32 columns at once");
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = warp_id() % 4 * 16 + 8 * r + lane_id() / 4;
    T* to = out(row);
#pragma unroll
    for (int n = 0; n < kN; n += 4) {
      uint32_t word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) word[i] = pack<T>(o[0][n + i][2 * r], o[0][n + i][2 * r + 1]);
      exchange(word[0], word[1], 1);
      exchange(word[2], word[3], 1);
      exchange(word[0], word[2], 2);
      exchange(word[1], word[3], 2);
      const int col = 8 * (n + lane_id() % 4);
      ptx::st_global_16(to + col, uint4{word[0], word[1], word[2], word[3]}, row < rows && col < kDim);
    }
  }
}

}  // namespace fagen::epilogue
