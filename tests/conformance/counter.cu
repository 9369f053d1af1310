// CTAs take numbers from a counter until there are none left; the last one to end adds up what all have
// written and sets the counters back.
#include "fagen/ptx/atomic.cuh"
#include "fagen/ptx/global.cuh"

using namespace fagen;

struct Params {
  uint32_t* counters;  // [2], zeros: the next number, and the CTAs that are done
  uint32_t* takers;    // [numbers]: one more than the CTA that took it
  int32_t* own;        // [CTAs]: the sum of what each took
  uint32_t* total;
  int32_t numbers;
};

extern "C" __global__ void counter(const __grid_constant__ Params p) {
  if (threadIdx.x != 0) return;
  uint32_t sum = 0, number;
  while ((number = ptx::atomic_add(p.counters, 1)) < p.numbers) {
    ptx::st_global(p.takers + number, blockIdx.x + 1);
    sum += number;
  }
  ptx::st_global(reinterpret_cast<uint32_t*>(p.own) + blockIdx.x, sum);
  if (ptx::atomic_add_ordered(p.counters + 1, 1) == gridDim.x - 1) {
    uint32_t total = 0;
    for (int cta = 0; cta < gridDim.x; ++cta) total += ptx::ld_global(p.own + cta);
    ptx::st_global(p.total, total);
    ptx::st_global(p.counters, 0u);
    ptx::st_global(p.counters + 1, 0u);
  }
}
