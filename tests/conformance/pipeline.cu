// A small warp-specialised GEMM, D = A B^T with A [TILES 64][64] and B [64][64] in fp16: a producer warp
// loads A's tiles by TMA through a ring of two stages, a warpgroup multiplies them by wgmma with B, which it
// has written to shared memory itself, and stores D as fp16 by TMA. WITHOUT is the step to leave out
// (test_pipeline.py): a constant, or p.without.
#include "fagen/base/grid.cuh"
#include "fagen/ptx/bulk.cuh"
#include "fagen/ptx/elect.cuh"
#include "fagen/ptx/fence.cuh"
#include "fagen/ptx/mbarrier.cuh"
#include "fagen/ptx/mbarrier_tx.cuh"
#include "fagen/ptx/named_barrier.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/ptx/stmatrix.cuh"
#include "fagen/ptx/tma.cuh"
#include "fagen/ptx/wgmma.cuh"
#include "fagen/smem/descriptor_sm90.cuh"
#include "fagen/smem/tile.cuh"

using namespace fagen;
using Tile = smem::Tile<64, 64>;

struct Params {
  ptx::TensorMap a, d;
  const uint32_t* b;
  int32_t tiles;
  int32_t without;
};

enum Step {
  kNothing,
  kEmptyCount,
  kInitFence,
  kInitSync,
  kWaitEmpty,
  kExpect,
  kAllBytes,
  kWaitFull,
  kFenceB,
  kSyncB,
  kRegisterFence,
  kCommit,
  kWait,
  kArriveEmpty,
  kArriveEmptyLate,
  kWaitRead,
  kSyncRead,
  kFenceD,
  kSyncD,
  kStoreCommit,
  kStoreWait,
};

extern "C" __global__ void __launch_bounds__(160, 1) pipeline(const __grid_constant__ Params p) {
  constexpr int kStages = 2;
  uint32_t base = ptx::dynamic_shared(), full = base, empty = full + 8 * kStages;
  uint32_t b_tile = base + 1024, d_tile = b_tile + Tile::kBytes, a_tiles = d_tile + Tile::kBytes;
  auto with = [&](Step step) { return WITHOUT != step; };

  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(full + 8 * i, 1);
      ptx::mbarrier_init(empty + 8 * i, with(kEmptyCount) ? 4 : 3);
    }
    if (with(kInitFence)) ptx::fence_mbarrier_init();
  }
  if (with(kInitSync)) __syncthreads();

  if (warp_id() == 4) {
    if (!ptx::elect_one()) return;
    for (int tile = 0; tile < p.tiles; ++tile) {
      int stage = tile % kStages;
      if (with(kWaitEmpty)) ptx::mbarrier_wait(empty + 8 * stage, (tile / kStages & 1) ^ 1);
      uint32_t bytes = with(kAllBytes) ? Tile::kBytes : Tile::kBytes - 16;
      if (with(kExpect))
        ptx::mbarrier_arrive_expect_tx(full + 8 * stage, bytes);
      else
        ptx::mbarrier_arrive(full + 8 * stage);
      ptx::tma_load(a_tiles + stage * Tile::kBytes, p.a, full + 8 * stage, 0, 64 * tile);
    }
    return;
  }

  for (int i = threadIdx.x; i < 64 * 32; i += 128) {  // B row by row, two columns at a time
    int row = i / 32, word = i % 32;
    ptx::st_shared(b_tile + Tile::offset(row, word / 4) + word % 4 * 4, p.b[i]);
  }
  if (with(kFenceB)) ptx::fence_proxy_async();
  if (with(kSyncB)) ptx::named_barrier_sync(1, 128);

  float d[32];
  for (int tile = 0; tile < p.tiles; ++tile) {
    int stage = tile % kStages;
    uint32_t a_tile = a_tiles + stage * Tile::kBytes;
    if (with(kWaitFull)) ptx::mbarrier_wait(full + 8 * stage, tile / kStages & 1);
    ptx::pin(d);
    if (with(kRegisterFence)) ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      ptx::wgmma<__half, __half>(d, smem::descriptor(a_tile + 32 * k, 0, 1024, smem::Swizzle::k128),
                                 smem::descriptor(b_tile + 32 * k, 0, 1024, smem::Swizzle::k128), k > 0);
    if (with(kCommit)) ptx::wgmma_commit();
    if (!with(kArriveEmptyLate) && lane_id() == 0) ptx::mbarrier_arrive(empty + 8 * stage);
    if (with(kWait)) ptx::wgmma_wait<0>();
    ptx::pin(d);
    if (with(kArriveEmpty) && with(kArriveEmptyLate) && lane_id() == 0)
      ptx::mbarrier_arrive(empty + 8 * stage);

    if (tile > 0 && threadIdx.x == 0 && with(kWaitRead)) ptx::bulk_wait_read<0>();
    if (with(kSyncRead)) ptx::named_barrier_sync(1, 128);
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // 16 columns
      uint32_t r[4];
      for (int j = 0; j < 4; ++j) r[j] = pack<__half>(d[8 * i + 2 * j], d[8 * i + 2 * j + 1]);
      int row = 16 * warp_id() + lane_id() % 16;
      ptx::stmatrix_x4(d_tile + Tile::offset(row, 2 * i + lane_id() / 16), r);
    }
    if (with(kFenceD)) ptx::fence_proxy_async();
    if (with(kSyncD)) ptx::named_barrier_sync(1, 128);
    if (threadIdx.x == 0) {
      ptx::tma_store(p.d, d_tile, 0, 64 * tile);
      if (with(kStoreCommit)) ptx::bulk_commit();
    }
  }
  if (threadIdx.x == 0 && with(kStoreWait)) ptx::bulk_wait<0>();
}
