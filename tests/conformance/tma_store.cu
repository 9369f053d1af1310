// Every CTA fills shared memory and stores it, or adds it, to a tensor as one box.
#include "fagen/ptx/bulk.cuh"
#include "fagen/ptx/fence.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/ptx/tma.cuh"

using namespace fagen;

constexpr int kMaps = 40;

struct Case {
  int32_t map, rank, at[5];
  int32_t smem;   // where the box lies, from the start of the tile area
  int32_t bytes;  // of the box
  int32_t in;     // where its bytes come from
  int32_t add;
};

struct Params {
  ptx::TensorMap maps[kMaps];
  const Case* cases;
  const unsigned char* in;
};

extern "C" __global__ void tma_store(const __grid_constant__ Params p) {
  const Case& c = p.cases[blockIdx.x];
  const ptx::TensorMap& map = p.maps[c.map];
  uint32_t tile = ptx::dynamic_shared() + c.smem;
  for (int i = 4 * threadIdx.x; i < c.bytes; i += 4 * blockDim.x)
    ptx::st_shared(tile + i, *reinterpret_cast<const uint32_t*>(p.in + c.in + i));
  ptx::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    const int32_t (&x)[5] = c.at;
    if (c.add) {
      if (c.rank == 1) ptx::tma_reduce_add(map, tile, x[0]);
      if (c.rank == 2) ptx::tma_reduce_add(map, tile, x[0], x[1]);
      if (c.rank == 3) ptx::tma_reduce_add(map, tile, x[0], x[1], x[2]);
      if (c.rank == 4) ptx::tma_reduce_add(map, tile, x[0], x[1], x[2], x[3]);
      if (c.rank == 5) ptx::tma_reduce_add(map, tile, x[0], x[1], x[2], x[3], x[4]);
    } else {
      if (c.rank == 1) ptx::tma_store(map, tile, x[0]);
      if (c.rank == 2) ptx::tma_store(map, tile, x[0], x[1]);
      if (c.rank == 3) ptx::tma_store(map, tile, x[0], x[1], x[2]);
      if (c.rank == 4) ptx::tma_store(map, tile, x[0], x[1], x[2], x[3]);
      if (c.rank == 5) ptx::tma_store(map, tile, x[0], x[1], x[2], x[3], x[4]);
    }
    ptx::bulk_commit();
    ptx::bulk_wait<0>();
  }
}
