// Loads rows of a global tensor into a shared tile with cp.async, all threads of the CTA together.
#pragma once

#include "fagen/ptx/cp_async.cuh"
#include "fagen/smem/tile.cuh"

namespace fagen::pipe {

// One thread's share of every load of one tensor: a fixed 16-byte chunk, and rows kRowStep apart.
// kDim columns exist in global memory; the tile's further columns are filled with zeros.
template <typename TileT, int kDim, int kThreads>
struct TileLoader {
  static constexpr int kRowChunks = TileT::kCols / 8;
  // Rows that the CTA covers in one pass: whole swizzle patterns where it can, so that a thread's shared
  // addresses are one constant apart.
  static constexpr int kRowsAtOnce = kThreads / kRowChunks;
  static constexpr int kRowStep = kRowsAtOnce < 8 ? kRowsAtOnce : kRowsAtOnce / 8 * 8;
  static constexpr int kPasses = (TileT::kRows + kRowStep - 1) / kRowStep;
  static_assert(kRowStep > 0, "a row has at most as many chunks as the CTA has threads");

  int row, chunk;
  bool active;  // threads beyond the last whole row of a pass have nothing to load

  __device__ __forceinline__ TileLoader()
      : row(threadIdx.x / kRowChunks),
        chunk(threadIdx.x % kRowChunks),
        active(kThreads == kRowStep * kRowChunks || threadIdx.x < kRowStep * kRowChunks) {}

  // Rows 0..TileT::kRows-1 from `global` (a row is `stride` elements) into the tile at `smem`.
  // kPartial: only the first `rows` rows exist, the rest of the tile is filled with zeros.
  template <bool kPartial, typename T>
  __device__ __forceinline__ void load(uint32_t smem, const T* global, int64_t stride, int rows) const {
    constexpr bool kZeros = kPartial || kDim != TileT::kCols;
    bool column = kDim == TileT::kCols || chunk < kDim / 8;
    const T* source = global + row * stride + chunk * 8;
    int64_t step = kRowStep * stride;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass, source += step) {
      int r = row + pass * kRowStep;
      if (!active || (TileT::kRows % kRowStep != 0 && r >= TileT::kRows)) continue;
      uint32_t target = smem + TileT::offset(r, chunk);
      if constexpr (kZeros) {
        bool exists = column && (!kPartial || r < rows);
        ptx::cp_async_16_or_zero(target, exists ? source : global, exists);
      } else {
        ptx::cp_async_16(target, source);
      }
    }
  }
};

}  // namespace fagen::pipe
