// Writes a warpgroup's 64 rows of O by TMA, by way of shared memory of its own.
#pragma once

#include "fagen/base/grid.cuh"
#include "fagen/mma/sm90.cuh"
#include "fagen/pipe/tma_tile.cuh"
#include "fagen/ptx/bulk.cuh"
#include "fagen/ptx/fence.cuh"
#include "fagen/ptx/named_barrier.cuh"
#include "fagen/ptx/stmatrix.cuh"
#include "fagen/smem/tile.cuh"

namespace fagen::epilogue {

// Every thread of the warpgroup; the copy may still be on its way afterwards. `barrier` is the warpgroup's
// own.
template <typename T, typename TileT, typename RowsT>
__device__ __forceinline__ void store_out(const mma::WarpgroupAccumulator<TileT::kCols>& o, uint32_t smem,
                                          const ptx::TensorMap& map, RowsT at, uint32_t barrier) {
  const bool issues = threadIdx.x % 128 == 0;
  if (issues) ptx::bulk_wait_read<0>();  // the item before has left the tile
  ptx::named_barrier_sync(barrier, 128);
  const smem::Cursor<TileT> cursor(smem, warp_id() % 4 * 16 + lane_id() % 16, lane_id() / 16);
#pragma unroll
  for (int n = 0; n < TileT::kCols / 8; n += 2) {
    const uint32_t r[4] = {pack<T>(o[0][n][0], o[0][n][1]), pack<T>(o[0][n][2], o[0][n][3]),
                           pack<T>(o[0][n + 1][0], o[0][n + 1][1]), pack<T>(o[0][n + 1][2], o[0][n + 1][3])};
    ptx::stmatrix_x4(cursor.block(0, 8 * n), r);
  }
  ptx::fence_proxy_async();
  ptx::named_barrier_sync(barrier, 128);
  if (issues) {
    pipe::store_tile<TileT>(map, smem, at);
    ptx::bulk_commit();
  }
}

// Before the CTA ends: its shared memory is still being read.
__device__ __forceinline__ void wait_stores() {
  if (threadIdx.x % 128 == 0) ptx::bulk_wait<0>();
}

}  // namespace fagen::epilogue
