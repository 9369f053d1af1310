// Every CTA loads one box by TMA and writes out the shared memory it landed in.
#include "fagen/ptx/fence.cuh"
#include "fagen/ptx/global.cuh"
#include "fagen/ptx/mbarrier.cuh"
#include "fagen/ptx/mbarrier_tx.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/ptx/tma.cuh"

using namespace fagen;

constexpr int kMaps = 40;

struct Case {
  int32_t map, rank, at[5];
  int32_t smem;   // where the box lands, from the start of the tile area
  int32_t bytes;  // of the box
  int32_t out;    // where its bytes go
};

struct Params {
  ptx::TensorMap maps[kMaps];
  const Case* cases;
  unsigned char* out;
};

extern "C" __global__ void tma_load(const __grid_constant__ Params p) {
  const Case& c = p.cases[blockIdx.x];
  const ptx::TensorMap& map = p.maps[c.map];
  uint32_t barrier = ptx::dynamic_shared(), tile = barrier + 1024 + c.smem;
  if (threadIdx.x == 0) {
    ptx::prefetch_tensor_map(map);
    ptx::mbarrier_init(barrier, 1);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(barrier, c.bytes);
    const int32_t (&x)[5] = c.at;
    if (c.rank == 1) ptx::tma_load(tile, map, barrier, x[0]);
    if (c.rank == 2) ptx::tma_load(tile, map, barrier, x[0], x[1]);
    if (c.rank == 3) ptx::tma_load(tile, map, barrier, x[0], x[1], x[2]);
    if (c.rank == 4) ptx::tma_load(tile, map, barrier, x[0], x[1], x[2], x[3]);
    if (c.rank == 5) ptx::tma_load(tile, map, barrier, x[0], x[1], x[2], x[3], x[4]);
  }
  ptx::mbarrier_wait(barrier, 0);
  for (int i = 16 * threadIdx.x; i < c.bytes; i += 16 * blockDim.x)
    ptx::st_global_16(p.out + c.out + i, ptx::ld_shared_16(tile + i));
}
