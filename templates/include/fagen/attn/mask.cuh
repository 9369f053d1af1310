// Which keys a query sees.
#pragma once

#include "fagen/base/constants.cuh"
#include "fagen/base/grid.cuh"
#include "fagen/base/types.cuh"
#include "fagen/mma/key_order.cuh"

namespace fagen::attn {

inline constexpr int kUnbounded = -1;

// Query i sees key j when 0 <= j < seqlen_k and i + diagonal - kLeft <= j <= i + diagonal + kRight, where
// diagonal = seqlen_k - seqlen_q: bottom-right aligned. A causal mask has kRight = 0 and no bound on the
// left.
template <int kLeft, int kRight>
struct Mask {
  int seqlen_k;
  int diagonal;

  __device__ __forceinline__ Mask() {}
  __device__ __forceinline__ Mask(int seqlen_q, int seqlen_k)
      : seqlen_k(seqlen_k), diagonal(seqlen_k - seqlen_q) {}

  // Query `row` sees keys [begin(row), end(row)), none if that is empty; both grow with the row.
  __device__ __forceinline__ int begin(int row) const {
    return kLeft == kUnbounded ? 0 : max(0, min(seqlen_k, row + diagonal - kLeft));
  }
  __device__ __forceinline__ int end(int row) const {
    return kRight == kUnbounded ? seqlen_k : max(0, min(seqlen_k, row + diagonal + kRight + 1));
  }

  // Key `col` is seen by queries [first_row(col), end_row(col)), none if that is empty; both grow with the
  // key.
  __device__ __forceinline__ int first_row(int col) const {
    return kRight == kUnbounded ? 0 : max(0, col - diagonal - kRight);
  }
  __device__ __forceinline__ int end_row(int col) const {
    const int seqlen_q = seqlen_k - diagonal;
    return kLeft == kUnbounded ? seqlen_q : max(0, min(seqlen_q, col - diagonal + kLeft + 1));
  }

  // Whether some query of [row0, row1] does not see some key of [col0, col1).
  __device__ __forceinline__ bool hides(int row0, int row1, int col0, int col1) const {
    return end(row0) < col1 || (kLeft != kUnbounded && begin(row1) > col0);
  }

  // Sets hidden scores to -inf. The warp's rows start at the tile's row `warp_row`, of which `query` says the
  // query; the columns start at key `col0`, in that order.
  template <typename KeyOrder = mma::InOrder, int kM, int kN, typename QueryOf>
  __device__ __forceinline__ void apply(float (&s)[kM][kN][4], int warp_row, QueryOf query, int col0) const {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        int row = query(warp_row + 16 * m + 8 * r + lane_id() / 4);
        int first = col0 + KeyOrder::first();
        int before = begin(row) - first, after = end(row) - first;
#pragma unroll
        for (int n = 0; n < kN; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int key = KeyOrder::template key<kN>(n, i);
            if (key >= after || (kLeft != kUnbounded && key < before)) s[m][n][2 * r + i] = -kInf;
          }
      }
  }
};

}  // namespace fagen::attn
