// Sums of products in two levels: an accumulator of 8-bit wgmma, which keeps about 14 bits, is added to fp32
// sums every few tiles and begun anew (DeepSeek-V3, arXiv 2412.19437, section 3.3.2).
#pragma once

#include "fagen/mma/sm90.cuh"

namespace fagen::mma {

template <int kN, int kTiles>
struct Promoted {
  WarpgroupAccumulator<kN> sums;
  int tiles;  // in the accumulator

  __device__ __forceinline__ Promoted() { clear(); }

  // Whether the next tile is to be added to what the accumulator has.
  __device__ __forceinline__ bool accumulates() const { return tiles > 0; }

  // Once a tile is in the accumulator.
  __device__ __forceinline__ void add(const WarpgroupAccumulator<kN>& o) {
    if (++tiles < kTiles) return;
    tiles = 0;
#pragma unroll
    for (int n = 0; n < kN / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[0][n][i] += o[0][n][i];
  }

  // Once the last one is: all of them to the accumulator.
  __device__ __forceinline__ void finish(WarpgroupAccumulator<kN>& o) {
#pragma unroll
    for (int n = 0; n < kN / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) o[0][n][i] += sums[0][n][i];
    clear();
  }

 private:
  __device__ __forceinline__ void clear() {
    tiles = 0;
#pragma unroll
    for (int n = 0; n < kN / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[0][n][i] = 0.0f;
  }
};

}  // namespace fagen::mma
