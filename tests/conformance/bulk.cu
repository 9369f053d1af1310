// Every CTA copies `bytes` bytes from `in` to shared memory, from there to `out`, and adds them, as floats,
// to `sums`, which all CTAs share.
#include "fagen/ptx/bulk.cuh"
#include "fagen/ptx/fence.cuh"
#include "fagen/ptx/mbarrier.cuh"
#include "fagen/ptx/mbarrier_tx.cuh"
#include "fagen/ptx/shared.cuh"

using namespace fagen;

struct Params {
  const unsigned char* in;
  unsigned char* out;
  float* sums;
  uint32_t* seen;  // per CTA: the first word of `out` once the copy is complete
  int32_t bytes;
};

extern "C" __global__ void bulk(const __grid_constant__ Params p) {
  uint32_t barrier = ptx::dynamic_shared(), data = barrier + 16;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(barrier, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(barrier, p.bytes);
    ptx::bulk_load(data, p.in + blockIdx.x * p.bytes, p.bytes, barrier);
    ptx::mbarrier_wait(barrier, 0);
    ptx::bulk_store(p.out + blockIdx.x * p.bytes, data, p.bytes);
    ptx::bulk_commit();
    ptx::bulk_reduce_add(p.sums, data, p.bytes);
    ptx::bulk_commit();
    ptx::bulk_wait<1>();
    p.seen[blockIdx.x] = *reinterpret_cast<const volatile uint32_t*>(p.out + blockIdx.x * p.bytes);
    ptx::bulk_wait_read<0>();
  }
}
