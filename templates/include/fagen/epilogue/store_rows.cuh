// Writes rows of a shared tile to global memory, so that each store is 16 bytes wide.
#pragma once

#include "fagen/base/grid.cuh"
#include "fagen/mma/store_shared.cuh"
#include "fagen/ptx/global.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/smem/tile.cuh"

namespace fagen::epilogue {

// kThreads threads, of which this is number `thread`, write kRows rows of the tile at `smem`, from `row0` on,
// kDim columns each. `global` points at the tile's first row; rows from `rows` on do not exist there.
template <typename TileT, int kRows, int kDim, int kThreads, typename T>
__device__ __forceinline__ void copy_rows(uint32_t smem, int row0, int thread, T* global, int64_t stride,
                                          int rows) {
  constexpr int kChunks = kDim / 8;
#pragma unroll 4
  for (int i = thread; i < kRows * kChunks; i += kThreads) {
    int row = row0 + i / kChunks;
    int chunk = i % kChunks;
    if (row < rows)
      ptx::st_global_16(global + row * stride + chunk * 8,
                        ptx::ld_shared_16(smem + TileT::offset(row, chunk)));
  }
}

// A warp writes its rows of O. `o` holds rows [warp_row, warp_row + 16 kM) of the tile at `smem`, which no
// other warp reads or writes.
template <typename T, typename TileT, int kDim, int kM, int kNv>
__device__ __forceinline__ void store_out(const float (&o)[kM][kNv][4], uint32_t smem, int warp_row, T* out,
                                          int64_t stride, int rows) {
  __syncwarp();
  mma::store_shared<T, TileT>(o, smem, warp_row, 0);
  __syncwarp();
  copy_rows<TileT, 16 * kM, kDim, 32>(smem, warp_row, lane_id(), out, stride, rows);
}

}  // namespace fagen::epilogue
