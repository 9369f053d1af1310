// cp.async: three groups, waited for one after the other, and a copy that an mbarrier waits for.
#include "fagen/ptx/cp_async.cuh"
#include "fagen/ptx/global.cuh"
#include "fagen/ptx/mbarrier.cuh"
#include "fagen/ptx/shared.cuh"

using namespace fagen;

struct Params {
  const unsigned char* in;  // [4][128 threads][16]
  unsigned char* out;       // the same; of the second group, odd threads' bytes are zeros
};

extern "C" __global__ void cp_async(const __grid_constant__ Params p) {
  uint32_t barrier = ptx::dynamic_shared(), own = barrier + 16 + 16 * threadIdx.x;
  const unsigned char* in = p.in + 16 * threadIdx.x;
  unsigned char* out = p.out + 16 * threadIdx.x;
  if (threadIdx.x == 0) ptx::mbarrier_init(barrier, blockDim.x);
  __syncthreads();
  ptx::cp_async_16(own, in);
  ptx::cp_async_commit();
  ptx::cp_async_16_or_zero(own + 2048, in + 2048, threadIdx.x % 2 == 0);
  ptx::cp_async_commit();
  ptx::cp_async_16(own + 4096, in + 4096);
  ptx::cp_async_commit();
  ptx::cp_async_16(own + 6144, in + 6144);
  ptx::mbarrier_arrive_after_copies(barrier);
  ptx::cp_async_wait<2>();
  ptx::st_global_16(out, ptx::ld_shared_16(own));
  ptx::cp_async_wait<0>();
  ptx::st_global_16(out + 2048, ptx::ld_shared_16(own + 2048));
  ptx::st_global_16(out + 4096, ptx::ld_shared_16(own + 4096));
  ptx::mbarrier_wait(barrier, 0);
  ptx::st_global_16(out + 6144, ptx::ld_shared_16(own + 6144));
}
