// A tile of 16-bit elements in shared memory, laid out so that ldmatrix meets no bank conflict.
//
// The tile is cut into panels of 64, 32 or 16 columns (the widest that divides it), each kRows rows of
// 128, 64 or 32 bytes. Inside a panel the 16-byte chunks of a row are XOR-swizzled by the row, which is
// the 128B / 64B / 32B swizzle of TMA and of the matrix descriptors (PTX ISA, "Swizzling modes").
#pragma once

#include "fagen/base/types.cuh"

namespace fagen::smem {

template <int kRows_, int kCols_>
struct Tile {
  static_assert(kRows_ % 16 == 0 && kCols_ % 16 == 0, "tiles are made of 16 x 16 blocks");
  static constexpr int kRows = kRows_;
  static constexpr int kCols = kCols_;
  static constexpr int kPanelCols = kCols % 64 == 0 ? 64 : kCols % 32 == 0 ? 32 : 16;
  static constexpr int kRowBytes = 2 * kPanelCols;       // of one panel
  static constexpr int kPanelBytes = kRows * kRowBytes;  // panels follow one another
  static constexpr int kChunks = kRowBytes / 16;         // 16-byte chunks in a row of one panel
  static constexpr int kBytes = 2 * kRows * kCols;

  // What the row adds (XOR) to the chunk index: it advances once per 128 bytes of rows.
  __device__ static constexpr int swizzle(int row) { return (row * kRowBytes / 128) & (kChunks - 1); }

  // Byte offset of chunk `chunk` (8 columns) of row `row`.
  __device__ static constexpr int offset(int row, int chunk) {
    return chunk / kChunks * kPanelBytes + row * kRowBytes + ((chunk % kChunks) ^ swizzle(row)) * 16;
  }
};

// One lane's place in a tile, or in kWidth of its columns: at (row, chunk). The address of what is so many
// rows and columns further, compile-time multiples of 8, is one XOR and one immediate away where the part
// does not cut panels.
template <typename TileT, int kWidth = TileT::kCols>
struct Cursor {
  static constexpr bool kCutsPanels = kWidth % TileT::kPanelCols != 0 && TileT::kPanelCols % kWidth != 0;

  uint32_t tile, lane;
  int row, chunk;

  __device__ __forceinline__ Cursor(uint32_t tile, int row, int chunk)
      : tile(tile), lane(tile + TileT::offset(row, chunk)), row(row), chunk(chunk) {}

  __device__ __forceinline__ uint32_t block(int rows, int cols) const {
    const int chunks = cols / 8;
    if constexpr (kCutsPanels) return tile + TileT::offset(row, chunk + chunks) + rows * TileT::kRowBytes;
    return (lane ^ (chunks % TileT::kChunks << 4)) + chunks / TileT::kChunks * TileT::kPanelBytes +
           rows * TileT::kRowBytes;
  }
};

}  // namespace fagen::smem
