// Clusters of two CTAs of a loading and two reading warps. Each CTA loads half of every tile into both, and
// releases the tiles that it has read in both. All but one warp exit before the cluster's last barrier.
#include "fagen/base/grid.cuh"
#include "fagen/pipe/tma_ring.cuh"
#include "fagen/ptx/fence.cuh"
#include "fagen/ptx/global.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/ptx/tma.cuh"

using namespace fagen;

constexpr int kWarps = 2, kStages = 2, kRows = 16, kColumns = 32, kHalfBytes = 4 * kColumns * kRows / 2;

struct Params {
  ptx::TensorMap map;  // fp32, [clusters * tiles * kRows][kColumns]; boxes of half a tile
  uint32_t* sums;      // [CTAs][kWarps][32]: of each lane's column
  int32_t tiles;       // of a cluster
};

extern "C" __global__ void cluster_ring(const __grid_constant__ Params p) {
  using Ring = pipe::TmaRing<kStages, kWarps, 2>;
  const uint32_t smem = ptx::dynamic_shared(), tiles = smem + 1024;
  const Ring ring(smem);
  if (threadIdx.x == 0) {
    ring.init();
    ptx::fence_mbarrier_init();
  }
  const uint32_t rank = ptx::cluster_rank(), warp = threadIdx.x / 32;
  ptx::cluster_arrive();
  ptx::cluster_wait();

  if (warp == kWarps) {
    auto at = Ring::At::first_fill();
    for (int tile = 0; tile < p.tiles && lane_id() == 0; ++tile) {
      const uint32_t full = ring.begin_fill(at);
      ring.expect(at, 2 * kHalfBytes);
      const int32_t row = (blockIdx.x / 2 * p.tiles + tile) * kRows + rank * kRows / 2;
      ptx::tma_load_multicast(tiles + (2 * at.stage + rank) * kHalfBytes, p.map, full, 3, 0, row);
      at.advance();
    }
    __syncwarp();
  } else {
    auto at = Ring::At::first_read();
    uint32_t sum = 0;
    for (int tile = 0; tile < p.tiles; ++tile) {
      ring.wait_full(at);
      for (int row = 0; row < kRows; ++row)
        sum += ptx::ld_shared(tiles + 2 * at.stage * kHalfBytes + 4 * (row * kColumns + lane_id()));
      __syncwarp();
      ring.release(at);
      at.advance();
    }
    ptx::st_global(p.sums + (blockIdx.x * kWarps + warp) * 32 + lane_id(), sum);
    if (warp > 0) return;
  }
  ptx::cluster_arrive();
  ptx::cluster_wait();
}
