// Writes a warp's rows of the LSE.
#pragma once

#include "fagen/base/grid.cuh"
#include "fagen/ptx/global.cuh"

namespace fagen::epilogue {

// One lane of each quad writes its rows' LSE. `lse` says where that of a tile's row is; `rows` exist.
template <int kM, typename PointerOf>
__device__ __forceinline__ void store_lse(const float (&values)[kM][2], int warp_row, PointerOf lse,
                                          int rows) {
  if (lane_id() % 4 != 0) return;
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      int row = warp_row + 16 * m + 8 * r + lane_id() / 4;
      if (row < rows) ptx::st_global(lse(row), values[m][r]);
    }
}

}  // namespace fagen::epilogue
