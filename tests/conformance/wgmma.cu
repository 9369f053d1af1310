// Every CTA is one warpgroup with one case: operands as bytes in shared memory, or fragments of A;
// accumulators before and after as they lie in the registers, [register][thread].
#include "fagen/ptx/fence.cuh"
#include "fagen/ptx/global.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/ptx/wgmma.cuh"
#include "fagen/smem/descriptor_sm90.cuh"

using namespace fagen;
using ptx::Major;

struct Operand {
  int32_t start, leading, stride, swizzle, step;  // bytes; step: from one instruction's K to the next's
};

struct Case {
  int32_t n, form;
  int32_t steps;  // instructions, one after the other along K
  int32_t accumulate;
  int32_t image, bytes;  // what shared memory holds
  int32_t fragments;     // of A, in words
  int32_t c;             // accumulators, in floats
  Operand a, b;
};

struct Params {
  const Case* cases;
  const uint32_t* images;
  const uint32_t* fragments;
  const float* c;
  float* d;
};

__device__ __forceinline__ uint64_t describe(uint32_t smem, const Operand& x, int step) {
  return smem::descriptor(smem + x.start + step * x.step, x.leading, x.stride,
                          static_cast<smem::Swizzle>(x.swizzle));
}

template <int kN, typename A, typename B, bool kRegisters, Major kA, Major kB>
__device__ void run(const Params& p, const Case& c, uint32_t smem) {
  float d[kN / 2];
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) d[i] = p.c[c.c + i * 128 + threadIdx.x];
#pragma unroll 1
  for (int step = 0; step < c.steps; ++step) {
    bool accumulate = c.accumulate || step > 0;
    uint64_t b = describe(smem, c.b, step);
    if constexpr (kRegisters) {
      uint32_t a[4];
      for (int i = 0; i < 4; ++i) a[i] = p.fragments[c.fragments + (4 * step + i) * 128 + threadIdx.x];
      ptx::pin(d);
      ptx::wgmma_fence();
      ptx::wgmma<A, B, kB>(d, a, b, accumulate);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
    } else {
      ptx::pin(d);
      ptx::wgmma_fence();
      ptx::wgmma<A, B, kA, kB>(d, describe(smem, c.a, step), b, accumulate);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
    }
    ptx::pin(d);
  }
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) ptx::st_global(p.d + c.c + i * 128 + threadIdx.x, d[i]);
}

// FORMS is the set of forms to compile, as bits, MAX_N the largest N; forms are numbered as in test_wgmma.py.
template <int kN, int kFirst, typename T>
__device__ void forms_16(const Params& p, const Case& c, uint32_t smem) {
  constexpr int kForms = FORMS >> kFirst;
  int form = c.form - kFirst;
  if constexpr (kForms & 1)
    if (form == 0) run<kN, T, T, false, Major::kK, Major::kK>(p, c, smem);
  if constexpr (kForms & 2)
    if (form == 1) run<kN, T, T, false, Major::kK, Major::kMN>(p, c, smem);
  if constexpr (kForms & 4)
    if (form == 2) run<kN, T, T, false, Major::kMN, Major::kK>(p, c, smem);
  if constexpr (kForms & 8)
    if (form == 3) run<kN, T, T, false, Major::kMN, Major::kMN>(p, c, smem);
  if constexpr (kForms & 16)
    if (form == 4) run<kN, T, T, true, Major::kK, Major::kK>(p, c, smem);
  if constexpr (kForms & 32)
    if (form == 5) run<kN, T, T, true, Major::kK, Major::kMN>(p, c, smem);
}

template <int kN, int kFirst, typename A, typename B>
__device__ void forms_8(const Params& p, const Case& c, uint32_t smem) {
  constexpr int kForms = FORMS >> kFirst;
  int form = c.form - kFirst;
  if constexpr (kForms & 1)
    if (form == 0) run<kN, A, B, false, Major::kK, Major::kK>(p, c, smem);
  if constexpr (kForms & 2)
    if (form == 1) run<kN, A, B, true, Major::kK, Major::kK>(p, c, smem);
}

template <int kN>
__device__ void choose(const Params& p, const Case& c, uint32_t smem) {
  if (c.n != kN) {
    if constexpr (kN > 8) choose<kN - 8>(p, c, smem);
    return;
  }
  forms_16<kN, 0, __half>(p, c, smem);
  forms_16<kN, 6, __nv_bfloat16>(p, c, smem);
  forms_8<kN, 12, e4m3, e4m3>(p, c, smem);
  forms_8<kN, 14, e4m3, e5m2>(p, c, smem);
  forms_8<kN, 16, e5m2, e4m3>(p, c, smem);
  forms_8<kN, 18, e5m2, e5m2>(p, c, smem);
}

extern "C" __global__ void wgmma(const __grid_constant__ Params p) {
  const Case& c = p.cases[blockIdx.x];
  uint32_t smem = ptx::dynamic_shared();
  for (int i = threadIdx.x; i < c.bytes / 4; i += blockDim.x)
    ptx::st_shared(smem + 4 * i, p.images[c.image / 4 + i]);
  ptx::fence_proxy_async();
  __syncthreads();
  choose<MAX_N>(p, c, smem);
}
