// In every cluster of two, CTA 0 loads one box into both, and CTA 1 another one into itself alone. CTA 0
// loads when CTA 1 has told it, across the cluster, that its barrier expects the bytes.
#include "fagen/ptx/cluster.cuh"
#include "fagen/ptx/fence.cuh"
#include "fagen/ptx/global.cuh"
#include "fagen/ptx/mbarrier.cuh"
#include "fagen/ptx/mbarrier_tx.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/ptx/tma.cuh"

using namespace fagen;

struct Params {
  ptx::TensorMap map;  // fp32, rank 2
  int32_t box_bytes, box_rows;
  unsigned char* out;  // two boxes per CTA
};

extern "C" __global__ void tma_multicast(const __grid_constant__ Params p) {
  uint32_t full = ptx::dynamic_shared(), ready = full + 8, tile = full + 1024;
  uint32_t rank = ptx::cluster_rank();
  int32_t cluster = blockIdx.x / 2;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(full, 1);
    ptx::mbarrier_init(ready, 1);
    ptx::fence_mbarrier_init();
  }
  ptx::cluster_arrive();
  ptx::cluster_wait();
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(full, (1 + rank) * p.box_bytes);
    if (rank == 1) {
      ptx::mbarrier_arrive_remote(ptx::map_to_rank(ready, 0));
      ptx::tma_load_multicast(tile + p.box_bytes, p.map, full, 2, 0, 2 * cluster * p.box_rows + p.box_rows);
    } else {
      ptx::mbarrier_wait(ready, 0);
      ptx::tma_load_multicast(tile, p.map, full, 3, 0, 2 * cluster * p.box_rows);
    }
  }
  ptx::mbarrier_wait(full, 0);
  for (int i = 16 * threadIdx.x; i < (1 + rank) * p.box_bytes; i += 16 * blockDim.x)
    ptx::st_global_16(p.out + 2 * blockIdx.x * p.box_bytes + i, ptx::ld_shared_16(tile + i));
  ptx::cluster_arrive();
  ptx::cluster_wait();
}
