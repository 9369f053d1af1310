// A warp moves rows of a tile between global and shared memory, 16 bytes at a time and without other warps:
// eight rows at once, four lanes to a row, so that all shared addresses are constants away from one.
#pragma once

#include "fagen/base/grid.cuh"
#include "fagen/ptx/cp_async.cuh"
#include "fagen/smem/tile.cuh"

namespace fagen::pipe {

// Calls move(shared address, row, column) for each chunk that this lane has of kRows rows, from the tile's
// `row0` on.
template <typename TileT, int kRows, typename Move>
__device__ __forceinline__ void for_each_chunk(uint32_t tile, int row0, Move move) {
  const int row = lane_id() / 4, chunk = lane_id() % 4;
  const smem::Cursor<TileT> cursor(tile, row0 + row, chunk);
#pragma unroll
  for (int r = 0; r < kRows; r += 8)
#pragma unroll
    for (int c = 0; c < TileT::kCols / 8; c += 4)
      if (c + 4 <= TileT::kCols / 8 || chunk + c < TileT::kCols / 8)
        move(cursor.block(r, 8 * c), row + r, 8 * (chunk + c));
}

// Loads kRows rows by cp.async. `global` points at the first of them, of which `rows` exist; kDim columns do.
// The rest of the tile is filled with zeros.
template <typename TileT, int kRows, int kDim, typename T>
__device__ __forceinline__ void load_rows(uint32_t tile, int row0, const T* global, int64_t stride,
                                          int rows) {
  for_each_chunk<TileT, kRows>(tile, row0, [&](uint32_t smem, int row, int col) {
    const bool exists = row < rows && (kDim == TileT::kCols || col < kDim);
    ptx::cp_async_16_or_zero(smem, exists ? global + row * stride + col : global, exists);
  });
}

}  // namespace fagen::pipe
