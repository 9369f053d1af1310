// An accumulator of mma.sync, rounded to 16 bits, into a shared tile.
#pragma once

#include "fagen/mma/sm80.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/ptx/stmatrix.cuh"

namespace fagen::mma {

// From (row0, col0) of the tile on.
template <typename T, typename TileT, int kM, int kN>
__device__ __forceinline__ void store_shared(const float (&c)[kM][kN][4], uint32_t tile, int row0, int col0) {
  if constexpr (ptx::kHasStmatrix) {
    static_assert(kN % 2 == 0, "four 8x8 matrices at a time");
    const auto cursor = cursor_row_major<TileT, 8 * kN>(tile, row0, col0);
    const auto blocks = as_operand<T>(c);
#pragma unroll
    for (int n = 0; n < 8 * kN; n += 16) {
      FragmentA<kM> block;
      blocks.fragment(block, n);
#pragma unroll
      for (int m = 0; m < kM; ++m) ptx::stmatrix_x4(cursor.block(16 * m, n), block[m]);
    }
  } else {
    const smem::Cursor<TileT, 8 * kN> cursor(tile, row0 + lane_id() / 4, col0 / 8);
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int n = 0; n < kN; ++n)
          ptx::st_shared(cursor.block(16 * m + 8 * r, 8 * n) + lane_id() % 4 * 4,
                         pack<T>(c[m][n][2 * r], c[m][n][2 * r + 1]));
  }
}

}  // namespace fagen::mma
