// Scores of a warp, S = Q K^T of 16 rows of Q in shared memory, computed again where they are lost.
#pragma once

#include "fagen/base/grid.cuh"
#include "fagen/base/types.cuh"
#include "fagen/mma/key_order.cuh"
#include "fagen/mma/sm80.cuh"
#include "fagen/ptx/global.cuh"

namespace fagen::mma {

// With the tile of K that is still in shared memory, and which the warp has read when this returns.
template <typename T, typename QTile, typename KTile, int kN>
__device__ __forceinline__ void scores_of_shared_keys(float (&s)[1][kN][4], uint32_t q_rows,
                                                      uint32_t k_tile) {
  clear(s);
  gemm<T, KTile::kCols>(s, SharedA<smem::Cursor<QTile>, 1>{cursor_row_major<QTile>(q_rows)},
                        SharedB{cursor_col_major<KTile>(k_tile)});
  __syncwarp();
}

// With keys in global memory, of kColumns columns and `row_stride` elements apart. Block by block of S, as
// registers are few: it is rare.
template <typename T, typename QTile, int kColumns, typename KeyOrder, int kN>
__device__ __forceinline__ void scores_of_global_keys(float (&s)[1][kN][4], uint32_t q_rows, const T* keys,
                                                      int64_t row_stride) {
  const SharedA<smem::Cursor<QTile>, 1> q{cursor_row_major<QTile>(q_rows)};
  constexpr int kStep = 32 / sizeof(T), kWord = 4 / sizeof(T);  // elements of a product, and of a register
  const int column = lane_id() / 4;                             // of a block
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    const int key = KeyOrder::first(column / 2) + KeyOrder::template key<kN>(n, column % 2);
    const T* row = keys + key * row_stride;
    float c[4] = {};
#pragma unroll 1
    for (int k = 0; k < kColumns; k += kStep) {
      FragmentA<1> a;
      q.fragment(a, k);
      uint32_t b[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = k + (i * 4 + lane_id() % 4) * kWord;
        b[i] = at < kColumns ? ptx::ld_global(reinterpret_cast<const int32_t*>(row + at)) : 0;
      }
      multiply<T>(c, a[0], b[0], b[1]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) s[0][n][i] = c[i];
  }
}

}  // namespace fagen::mma
