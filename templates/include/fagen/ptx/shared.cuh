// Plain loads and stores by 32-bit shared-memory address.
#pragma once

#include "fagen/base/types.cuh"

#ifdef FAGEN_EMU
#include "fagen/ptx/emu/shared.cuh"
#else

namespace fagen::ptx {

// The CTA's dynamic shared memory, aligned for the 128-byte swizzle.
__device__ __forceinline__ uint32_t dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char memory[];
  return static_cast<uint32_t>(__cvta_generic_to_shared(memory));
}

__device__ __forceinline__ void st_shared(uint32_t smem, uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(smem), "r"(value) : "memory");
}

__device__ __forceinline__ uint32_t ld_shared(uint32_t smem) {
  uint32_t v;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(smem) : "memory");
  return v;
}

__device__ __forceinline__ float2 ld_shared_pair(uint32_t smem) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(smem) : "memory");
  return v;
}

__device__ __forceinline__ uint4 ld_shared_16(uint32_t smem) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(smem)
               : "memory");
  return v;
}

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
