// A tile in shared memory, of 16-bit elements unless it says otherwise, laid out so that ldmatrix meets no
// bank conflict.
//
// The tile is cut into panels of columns, 128, 64 or 32 bytes wide (the widest that divides it), each kRows
// rows one behind the other. Inside a panel the 16-byte chunks of a row are XOR-swizzled by the row, which is
// the 128B / 64B / 32B swizzle of TMA and of the matrix descriptors (PTX ISA, "Swizzling modes").
#pragma once

#include "fagen/base/types.cuh"

namespace fagen::smem {

template <int kRows_, int kCols_, int kElementBytes_ = 2>
struct Tile {
  static_assert(kRows_ % 16 == 0 && kCols_ * kElementBytes_ % 32 == 0, "blocks of 16 x 32 bytes");
  static constexpr int kRows = kRows_;
  static constexpr int kCols = kCols_;
  static constexpr int kElementBytes = kElementBytes_;
  static constexpr int kBytes = kElementBytes * kRows * kCols;
  static constexpr int kWidth = kElementBytes * kCols;  // bytes of a row of the tile
  static constexpr int kRowBytes = kWidth % 128 == 0 ? 128 : kWidth % 64 == 0 ? 64 : 32;  // of one panel
  static constexpr int kPanelCols = kRowBytes / kElementBytes;
  static constexpr int kPanelBytes = kRows * kRowBytes;  // panels follow one another
  static constexpr int kChunks = kRowBytes / 16;         // 16-byte chunks in a row of one panel
  static constexpr int kChunkCols = 16 / kElementBytes;

  // What the row adds (XOR) to the chunk index: it advances once per 128 bytes of rows.
  __device__ static constexpr int swizzle(int row) { return (row * kRowBytes / 128) & (kChunks - 1); }

  // Byte offset of chunk `chunk` (kChunkCols columns) of row `row`.
  __device__ static constexpr int offset(int row, int chunk) {
    return chunk / kChunks * kPanelBytes + row * kRowBytes + ((chunk % kChunks) ^ swizzle(row)) * 16;
  }
};

// One lane's place in a tile, or in kWidth of its columns: at (row, chunk). The address of what is so many
// rows and columns further, compile-time multiples of 8 rows and of chunks, is one XOR and one immediate away
// where the part does not cut panels.
template <typename TileT, int kWidth = TileT::kCols>
struct Cursor {
  static constexpr bool kCutsPanels = kWidth % TileT::kPanelCols != 0 && TileT::kPanelCols % kWidth != 0;

  uint32_t tile, lane;
  int row, chunk;

  __device__ __forceinline__ Cursor(uint32_t tile, int row, int chunk)
      : tile(tile), lane(tile + TileT::offset(row, chunk)), row(row), chunk(chunk) {}

  __device__ __forceinline__ uint32_t block(int rows, int cols) const {
    const int chunks = cols / TileT::kChunkCols;
    if constexpr (kCutsPanels) return tile + TileT::offset(row, chunk + chunks) + rows * TileT::kRowBytes;
    return (lane ^ (chunks % TileT::kChunks << 4)) + chunks / TileT::kChunks * TileT::kPanelBytes +
           rows * TileT::kRowBytes;
  }
};

}  // namespace fagen::smem
