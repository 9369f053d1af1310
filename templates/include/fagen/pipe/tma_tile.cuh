// Tiles between global and shared memory by TMA: one box per panel of the tile.
#pragma once

#include "fagen/ptx/tma.cuh"

namespace fagen::pipe {

// Coordinates of a tile's first row, behind the column: what they mean is the tensor map's affair.
struct Rows {
  int32_t row, second, third;

  __device__ __forceinline__ Rows below(int32_t rows) const { return {row + rows, second, third}; }

  // Calls `order` with all coordinates of the box whose first column is `col`.
  template <typename Order>
  __device__ __forceinline__ void box(int32_t col, Order order) const {
    order(col, row, second, third);
  }
};

// The same for packed sequences: `left` rows of the sequence from here on, and where it ends among all
// tokens. sched/packed.cuh says how the map turns them into addresses.
struct PackedRows {
  static constexpr int32_t kFar = 1 << 30;
  int32_t left, end, head;

  __device__ __forceinline__ PackedRows below(int32_t rows) const { return {left - rows, end, head}; }

  template <typename Order>
  __device__ __forceinline__ void box(int32_t col, Order order) const {
    order(col, kFar - left, end, kFar, head);
  }
};

// The same where rows are all heads of a group, for query after query.
struct GroupedRows {
  int32_t query, group, batch;

  template <typename Order>
  __device__ __forceinline__ void box(int32_t col, Order order) const {
    order(col, 0, query, group, batch);
  }
};

// The same where rows are those of a transposed tensor: `first_col` is the tile's first column.
struct TransposedRows {
  int32_t first_col, row, second, third;

  __device__ __forceinline__ TransposedRows below(int32_t rows) const {
    return {first_col, row + rows, second, third};
  }

  template <typename Order>
  __device__ __forceinline__ void box(int32_t col, Order order) const {
    order(first_col + col, row, second, third);
  }
};

// The same where a box has two rows of every four, the first or the last: maps are (column, row of four,
// four, second, third).
struct RowsOfFours {
  Rows rows;
  int32_t half;

  // Half of a tile's rows further is the other half.
  __device__ __forceinline__ RowsOfFours below(int32_t rows_) const { return {rows, rows_ > 0}; }

  template <typename Order>
  __device__ __forceinline__ void box(int32_t col, Order order) const {
    order(col, 2 * half, rows.row / 4, rows.second, rows.third);
  }
};

template <typename TileT, typename RowsT>
__device__ __forceinline__ void load_tile(uint32_t smem, const ptx::TensorMap& map, uint32_t barrier,
                                          RowsT at) {
#pragma unroll
  for (int col = 0; col < TileT::kCols; col += TileT::kPanelCols)
    at.box(col, [&](auto... coordinates) {
      ptx::tma_load(smem + col / TileT::kPanelCols * TileT::kPanelBytes, map, barrier, coordinates...);
    });
}

template <typename TileT>
__device__ __forceinline__ void load_tile(uint32_t smem, const ptx::TensorMap& map, uint32_t barrier,
                                          RowsOfFours at) {
  constexpr int kHalf = TileT::kRows / 2;
  load_tile<TileT, RowsOfFours>(smem, map, barrier, at);
  load_tile<TileT, RowsOfFours>(smem + kHalf * TileT::kRowBytes, map, barrier, at.below(kHalf));
}

// This CTA's share of the rows, to every CTA of the cluster: together they load the tile once.
template <typename TileT, int kCluster, typename RowsT>
__device__ __forceinline__ void load_tile_shared(uint32_t smem, const ptx::TensorMap& map, uint32_t barrier,
                                                 int32_t rank, RowsT at) {
  constexpr int kShare = TileT::kRows / kCluster;
  static_assert(kShare % 8 == 0, "a swizzle's pattern is 8 rows");
#pragma unroll
  for (int col = 0; col < TileT::kCols; col += TileT::kPanelCols)
    at.below(rank * kShare).box(col, [&](auto... coordinates) {
      ptx::tma_load_multicast(
          smem + col / TileT::kPanelCols * TileT::kPanelBytes + rank * kShare * TileT::kRowBytes, map,
          barrier, (1u << kCluster) - 1, coordinates...);
    });
}

// Belongs to the thread's next bulk group.
template <typename TileT, typename RowsT>
__device__ __forceinline__ void store_tile(const ptx::TensorMap& map, uint32_t smem, RowsT at) {
#pragma unroll
  for (int col = 0; col < TileT::kCols; col += TileT::kPanelCols)
    at.box(col, [&](auto... coordinates) {
      ptx::tma_store(map, smem + col / TileT::kPanelCols * TileT::kPanelBytes, coordinates...);
    });
}

}  // namespace fagen::pipe
