// Which keys a query sees.
#pragma once

#include "fagen/base/constants.cuh"
#include "fagen/base/grid.cuh"
#include "fagen/base/types.cuh"

namespace fagen::attn {

// Query i sees key j when j < seqlen_k and, if causal, j <= i + seqlen_k - seqlen_q (bottom-right).
template <bool kCausal>
struct Mask {
  int seqlen_k;
  int diagonal;  // seqlen_k - seqlen_q

  template <typename Params>
  __device__ __forceinline__ explicit Mask(const Params& p)
      : seqlen_k(p.seqlen_k), diagonal(p.seqlen_k - p.seqlen_q) {}

  // Query `row` sees keys [0, visible(row)); it grows with the row.
  __device__ __forceinline__ int visible(int row) const {
    return kCausal ? max(0, min(seqlen_k, row + diagonal + 1)) : seqlen_k;
  }

  // Tiles of kTileKv keys that hold all that query `row` sees.
  template <int kTileKv>
  __device__ __forceinline__ int tiles(int row) const {
    return (visible(row) + kTileKv - 1) / kTileKv;
  }

  // Sets hidden scores to -inf. The warp's rows start at query `row0`, the tile's columns at key `col0`.
  template <int kM, int kN>
  __device__ __forceinline__ void apply(float (&s)[kM][kN][4], int row0, int col0) const {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        int row = row0 + 16 * m + 8 * r + lane_id() / 4;
        int end = visible(row) - col0 - lane_id() % 4 * 2;
#pragma unroll
        for (int n = 0; n < kN; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            if (8 * n + i >= end) s[m][n][2 * r + i] = -kInf;
      }
  }
};

}  // namespace fagen::attn
