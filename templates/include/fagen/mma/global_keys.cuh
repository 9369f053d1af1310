// Scores of a warp once more, when shared memory has their keys no longer.
#pragma once

#include "fagen/base/grid.cuh"
#include "fagen/base/types.cuh"
#include "fagen/mma/key_order.cuh"
#include "fagen/mma/sm80.cuh"
#include "fagen/ptx/global.cuh"

namespace fagen::mma {

// S = Q K^T of 16 rows of Q, in shared memory, and of as many keys as S has columns, in global memory: of
// kColumns columns, `row_stride` elements apart. Block by block of S, as registers are few: it is rare.
template <typename T, int kColumns, typename KeyOrder = InOrder, typename QCursor, int kN>
__device__ __forceinline__ void scores_of_global_keys(float (&s)[1][kN][4], const QCursor& q, const T* keys,
                                                      int64_t row_stride) {
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
      SharedA<QCursor, 1>{q}.fragment(a, k);
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
