// One warp: loads, stores and arithmetic of single words.
#include "fagen/base/grid.cuh"
#include "fagen/ptx/global.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/ptx/special.cuh"
#include "fagen/ptx/uniform.cuh"
#include "fagen/ptx/wgmma.cuh"

using namespace fagen;

struct Params {
  const int32_t* in;     // [32]
  const float* numbers;  // [count], none negative
  uint32_t* shifted;     // [32]: in, each from the next lane
  uint32_t* same;        // [32]: 1000
  uint4* quads;          // [32]; of even lanes only
  float* reciprocals;    // [count]
  float* tangents;       // [2][count]: of numbers and of their negatives
  int32_t count;
};

extern "C" __global__ void words(const __grid_constant__ Params p) {
  const uint32_t smem = ptx::dynamic_shared(), lane = lane_id();
  ptx::st_shared(smem + 4 * lane, ptx::ld_global(p.in + lane));
  __syncwarp();
  const uint32_t x = ptx::ld_shared(smem + (4 * lane + 4) % 128);
  ptx::st_global(p.shifted + lane, x);
  ptx::st_global(p.same + lane, ptx::uniform(1000 + threadIdx.x / 32));
  ptx::st_global_16(p.quads + lane, uint4{x, x + 1, x + 2, x + 3}, lane % 2 == 0);
  for (int i = lane; i < p.count; i += 32) {
    ptx::finish_before_wait(p.numbers[i], p.numbers[p.count - 1 - i]);
    ptx::st_global(p.reciprocals + i, ptx::reciprocal(p.numbers[i]));
    float tangent = p.numbers[i], negative = p.numbers[i];
    ptx::tanh_base2(tangent, 2.0f);
    ptx::tanh_base2(negative, -2.0f);
    ptx::st_global(p.tangents + i, tangent);
    ptx::st_global(p.tangents + p.count + i, negative);
  }
}
