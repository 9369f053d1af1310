// Transposes a tile of 8-bit elements in shared memory.
//
// ldmatrix and stmatrix move pairs of bytes. A lane that loads a transposed matrix of 8 keys x 8 pairs of
// columns has the pairs (2g, 2g + 1) of keys 2t and 2t + 1, with g = lane/4 and t = lane%4; from the matrix
// of the next 8 keys it has those of keys 8 + 2t and 8 + 2t + 1. The first bytes of all four are a word of
// V^T's row 2g, the second ones a word of row 2g + 1. So the keys of every 16 lie in this order: 0, 1, 8, 9,
// 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15; which is the order that an accumulator has P in
// (mma/sm90_fp8.cuh).
#pragma once

#include "fagen/base/grid.cuh"
#include "fagen/base/types.cuh"
#include "fagen/ptx/ldmatrix.cuh"
#include "fagen/ptx/stmatrix.cuh"
#include "fagen/smem/tile.cuh"

namespace fagen::smem {

// Warp `warp` of kWarps does its share: every kWarps-th block of 16 columns. `From` is a tile
// [keys][columns], `To` one [columns][keys].
template <typename From, typename To, int kWarps>
__device__ __forceinline__ void transpose(uint32_t from, uint32_t to, int warp) {
  static_assert(From::kRows == To::kCols && From::kCols == To::kRows && From::kRows % 32 == 0);
  // Loads under way at once, which hide each other's latency: as many as the registers of a loading warp
  // take.
  constexpr int kLoads = From::kRows / 32;
  constexpr int kAtOnce = kLoads <= 5 ? kLoads : kLoads % 3 == 0 ? 3 : kLoads % 2 == 0 ? 2 : 1;
  // Of the rows that are stored as one matrix, half are even and half are odd: no two then meet in a bank,
  // which 2g for all g would, as a swizzle's pattern is 8 rows.
  const int lane = lane_id(), g = lane % 8;
  const bool is_odd = (lane / 8 % 2 == 0) == (g >= 4);
  const Cursor<To> store(to, 2 * g + is_odd, lane / 16);
  const uint32_t first = lane < 16 ? 0x6420 : 0x7531, second = lane < 16 ? 0x7531 : 0x6420;
#pragma unroll 1
  for (int block = warp; block < From::kCols / 16; block += kWarps) {
    const uint32_t load = from + From::offset(lane, block);
    const uint32_t rows = 16 * block * To::kRowBytes;
#pragma unroll
    for (int key0 = 0; key0 < From::kRows; key0 += 32 * kAtOnce) {
      uint32_t v[kAtOnce][4];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        ptx::ldmatrix_x4_trans(v[i], load + (key0 + 32 * i) * From::kRowBytes);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const uint32_t vt[4] = {__byte_perm(v[i][0], v[i][1], first), __byte_perm(v[i][0], v[i][1], second),
                                __byte_perm(v[i][2], v[i][3], first), __byte_perm(v[i][2], v[i][3], second)};
        ptx::stmatrix_x4(store.block(0, key0 + 32 * i) + rows, vt);
      }
    }
  }
}

}  // namespace fagen::smem
