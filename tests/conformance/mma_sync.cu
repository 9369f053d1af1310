// mma.sync, every type: one warp and one CTA per type. Fragments as [register][lane].
#include "fagen/base/grid.cuh"
#include "fagen/ptx/mma_sync.cuh"
#include "fagen/ptx/mma_sync_fp8.cuh"

using namespace fagen;

struct Params {
  const uint32_t* a;  // [type][4][32]
  const uint32_t* b;  // [type][2][32]
  const float* c;     // [type][4][32]
  float* d;
};

extern "C" __global__ void mma_sync(const __grid_constant__ Params p) {
  int type = blockIdx.x, lane = lane_id();
  uint32_t a[4], b[2];
  float d[4];
  for (int i = 0; i < 4; ++i) a[i] = p.a[(4 * type + i) * 32 + lane];
  for (int i = 0; i < 2; ++i) b[i] = p.b[(2 * type + i) * 32 + lane];
  for (int i = 0; i < 4; ++i) d[i] = p.c[(4 * type + i) * 32 + lane];
  if (type == 0) ptx::mma_m16n8k16<__half>(d, a, b[0], b[1]);
  if (type == 1) ptx::mma_m16n8k16<__nv_bfloat16>(d, a, b[0], b[1]);
  if (type == 2) ptx::mma_m16n8k32<e4m3, e4m3>(d, a, b[0], b[1]);
  if (type == 3) ptx::mma_m16n8k32<e4m3, e5m2>(d, a, b[0], b[1]);
  if (type == 4) ptx::mma_m16n8k32<e5m2, e4m3>(d, a, b[0], b[1]);
  if (type == 5) ptx::mma_m16n8k32<e5m2, e5m2>(d, a, b[0], b[1]);
  for (int i = 0; i < 4; ++i) p.d[(4 * type + i) * 32 + lane] = d[i];
}
