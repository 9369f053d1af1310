// Writes a warp's rows of O, by way of shared memory, so that each global store is 16 bytes wide.
#pragma once

#include "fagen/base/grid.cuh"
#include "fagen/ptx/global.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/smem/tile.cuh"

namespace fagen::epilogue {

// `o` holds rows [warp_row, warp_row + 16 kM) of the tile at `smem`, which no other warp reads or writes.
// `out` points at the tile's first row in global memory; rows from `rows` on do not exist there.
template <typename T, typename TileT, int kDim, int kM, int kNv>
__device__ __forceinline__ void store_out(const float (&o)[kM][kNv][4], uint32_t smem, int warp_row, T* out,
                                          int64_t stride, int rows) {
  __syncwarp();
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int n = 0; n < kNv; ++n) {
        int row = warp_row + 16 * m + 8 * r + lane_id() / 4;
        ptx::st_shared(smem + TileT::offset(row, n) + lane_id() % 4 * 4,
                       pack<T>(o[m][n][2 * r], o[m][n][2 * r + 1]));
      }
  __syncwarp();
  constexpr int kChunks = kDim / 8;
#pragma unroll 4
  for (int i = lane_id(); i < 16 * kM * kChunks; i += 32) {
    int row = warp_row + i / kChunks;
    int chunk = i % kChunks;
    if (row < rows)
      ptx::st_global_16(out + row * stride + chunk * 8, ptx::ld_shared_16(smem + TileT::offset(row, chunk)));
  }
}

}  // namespace fagen::epilogue
