// Tiles between global and shared memory by TMA: one box per panel of the tile.
#pragma once

#include "fagen/ptx/tma.cuh"

namespace fagen::pipe {

// Coordinates of a tile's first row, behind the column: what they mean is the tensor map's affair.
struct Rows {
  int32_t row, second, third;
};

template <typename TileT>
__device__ __forceinline__ void load_tile(uint32_t smem, const ptx::TensorMap& map, uint32_t barrier,
                                          Rows at) {
#pragma unroll
  for (int col = 0; col < TileT::kCols; col += TileT::kPanelCols)
    ptx::tma_load(smem + col / TileT::kPanelCols * TileT::kPanelBytes, map, barrier, col, at.row, at.second,
                  at.third);
}

// This CTA's share of the rows, to every CTA of the cluster: together they load the tile once.
template <typename TileT, int kCluster>
__device__ __forceinline__ void load_tile_shared(uint32_t smem, const ptx::TensorMap& map, uint32_t barrier,
                                                 int32_t rank, Rows at) {
  constexpr int kShare = TileT::kRows / kCluster;
  static_assert(kShare % 8 == 0, "a swizzle's pattern is 8 rows");
#pragma unroll
  for (int col = 0; col < TileT::kCols; col += TileT::kPanelCols)
    ptx::tma_load_multicast(
        smem + col / TileT::kPanelCols * TileT::kPanelBytes + rank * kShare * TileT::kRowBytes, map, barrier,
        (1u << kCluster) - 1, col, at.row + rank * kShare, at.second, at.third);
}

// Belongs to the thread's next bulk group.
template <typename TileT>
__device__ __forceinline__ void store_tile(const ptx::TensorMap& map, uint32_t smem, Rows at) {
#pragma unroll
  for (int col = 0; col < TileT::kCols; col += TileT::kPanelCols)
    ptx::tma_store(map, smem + col / TileT::kPanelCols * TileT::kPanelBytes, col, at.row, at.second,
                   at.third);
}

}  // namespace fagen::pipe
