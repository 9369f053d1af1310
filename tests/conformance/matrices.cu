// ldmatrix and stmatrix, every form: one warp, one CTA per form. Matrix i, row r lies at a place of its own.
#include "fagen/base/grid.cuh"
#include "fagen/ptx/ldmatrix.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/ptx/stmatrix.cuh"

using namespace fagen;

struct Params {
  const uint32_t* in;     // 32 rows of 16 bytes
  const int32_t* places;  // of matrix i, row r: the 16-byte line at places[8 i + r]
  uint32_t* loaded;       // [form][register][lane]
  uint32_t* stored;       // [form][line][word]: what stmatrix makes of the same registers
};

template <typename Load, typename Store, int kCount>
__device__ void run(const Params& p, Load load, Store store, uint32_t (&r)[kCount]) {
  uint32_t smem = ptx::dynamic_shared(), lane = lane_id();
  for (int i = 0; i < 4; ++i) ptx::st_shared(smem + 16 * p.places[lane] + 4 * i, p.in[4 * lane + i]);
  __syncwarp();
  load(r, smem + 16 * p.places[lane]);
  for (int i = 0; i < kCount; ++i) p.loaded[(4 * blockIdx.x + i) * 32 + lane] = r[i];
  __syncwarp();
  for (int i = 0; i < 4; ++i) ptx::st_shared(smem + 16 * lane + 4 * i, 0xffffffff);
  __syncwarp();
  store(smem + 16 * p.places[lane], r);
  __syncwarp();
  uint4 line = ptx::ld_shared_16(smem + 16 * lane);
  uint32_t words[4] = {line.x, line.y, line.z, line.w};
  for (int i = 0; i < 4; ++i) p.stored[(32 * blockIdx.x + lane) * 4 + i] = words[i];
}

#define FORM(INDEX, COUNT, NAME)                                                              \
  if (blockIdx.x == INDEX) {                                                                  \
    uint32_t r[COUNT];                                                                        \
    run(                                                                                      \
        p, [](uint32_t (&x)[COUNT], uint32_t smem) { ptx::ldmatrix_##NAME(x, smem); },        \
        [](uint32_t smem, const uint32_t (&x)[COUNT]) { ptx::stmatrix_##NAME(smem, x); }, r); \
  }

extern "C" __global__ void matrices(const __grid_constant__ Params p) {
  FORM(0, 1, x1)
  FORM(1, 2, x2)
  FORM(2, 4, x4)
  FORM(3, 1, x1_trans)
  FORM(4, 2, x2_trans)
  FORM(5, 4, x4_trans)
}
