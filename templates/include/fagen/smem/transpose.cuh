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

// Warp `warp` of kWarps does its share: where groups of 32 keys share out evenly, some of them of every block
// of 16 columns; or else every kWarps-th block. `From` is a tile [keys][columns], `To` one [columns][keys].
template <typename From, typename To, int kWarps>
__device__ __forceinline__ void transpose(uint32_t from, uint32_t to, int warp) {
  static_assert(From::kRows == To::kCols && From::kCols == To::kRows && From::kRows % 32 == 0);
  constexpr int kGroups = From::kRows / 32, kBlocks = From::kCols / 16;
  constexpr bool kSharesKeys = kGroups % kWarps == 0;
  constexpr int kOwnGroups = kSharesKeys ? kGroups / kWarps : kGroups;
  constexpr int kStep = kSharesKeys ? 1 : kWarps;
  // Blocks whose loads are under way at once and hide each other's latency: four loads, or those of a block,
  // as a loading warp has few registers.
  constexpr int kAtOnce = kSharesKeys ? 4 / kOwnGroups : 1;
  static_assert(kBlocks % 4 == 0 && kGroups <= 8, "64, 128 or 256 columns, and what a product takes of keys");
  // Of the rows that are stored as one matrix, half are even and half are odd: no two then meet in a bank,
  // which 2g for all g would, as a swizzle's pattern is 8 rows.
  const int lane = lane_id(), g = lane % 8;
  const bool is_odd = (lane / 8 % 2 == 0) == (g >= 4);
  const int group0 = kSharesKeys ? kOwnGroups * warp : 0;
  const uint32_t load = from + 32 * group0 * From::kRowBytes;
  const Cursor<To> store(to, 2 * g + is_odd, lane / 16 + 2 * group0);
  const uint32_t first = lane < 16 ? 0x6420 : 0x7531, second = lane < 16 ? 0x7531 : 0x6420;
#pragma unroll(kSharesKeys ? kBlocks : 1)
  for (int block = kSharesKeys ? 0 : warp; block < kBlocks; block += kStep * kAtOnce) {
    uint32_t v[kAtOnce][kOwnGroups][4];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
#pragma unroll
      for (int i = 0; i < kOwnGroups; ++i)
        ptx::ldmatrix_x4_trans(v[j][i], load + From::offset(lane, block + j) + 32 * i * From::kRowBytes);
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
#pragma unroll
      for (int i = 0; i < kOwnGroups; ++i) {
        const uint32_t (&x)[4] = v[j][i];
        const uint32_t vt[4] = {__byte_perm(x[0], x[1], first), __byte_perm(x[0], x[1], second),
                                __byte_perm(x[2], x[3], first), __byte_perm(x[2], x[3], second)};
        ptx::stmatrix_x4(store.block(0, 32 * i) + 16 * (block + j) * To::kRowBytes, vt);
      }
  }
}

}  // namespace fagen::smem
