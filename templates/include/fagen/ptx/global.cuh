// Loads from and stores to global memory.
#pragma once

#include "fagen/base/types.cuh"

#ifdef FAGEN_EMU
#include "fagen/ptx/emu/global.cuh"
#else

namespace fagen::ptx {

__device__ __forceinline__ int32_t ld_global(const int32_t* global) {
  int32_t v;
  asm volatile("ld.global.b32 %0, [%1];" : "=r"(v) : "l"(global));
  return v;
}

__device__ __forceinline__ uint64_t ld_global(const uint64_t* global) {
  uint64_t v;
  asm volatile("ld.global.b64 %0, [%1];" : "=l"(v) : "l"(global));
  return v;
}

__device__ __forceinline__ float ld_global(const float* global) {
  float v;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(global));
  return v;
}

// `global` is 16-byte aligned.
__device__ __forceinline__ uint4 ld_global_16(const void* global) {
  uint4 v;
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(global));
  return v;
}

// `global` is 16-byte aligned.
__device__ __forceinline__ void st_global_16(void* global, uint4 v) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(global), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}

// `global` is 8-byte aligned.
__device__ __forceinline__ void st_global_8(void* global, uint2 v) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(global), "r"(v.x), "r"(v.y) : "memory");
}

// Where `exists`, without a branch.
__device__ __forceinline__ void st_global_16(void* global, uint4 v, bool exists) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.b32 p, %5, 0;\n"
      "@p st.global.v4.b32 [%0], {%1, %2, %3, %4};\n}" ::"l"(global),
      "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(static_cast<uint32_t>(exists))
      : "memory");
}

__device__ __forceinline__ void st_global(float* global, float v) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(global), "f"(v) : "memory");
}

__device__ __forceinline__ void st_global(uint32_t* global, uint32_t v) {
  asm volatile("st.global.b32 [%0], %1;" ::"l"(global), "r"(v) : "memory");
}

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
