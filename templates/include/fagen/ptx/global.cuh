// Stores to global memory.
#pragma once

#include "fagen/base/types.cuh"

#ifdef FAGEN_EMU
#include "fagen/ptx/emu/global.cuh"
#else

namespace fagen::ptx {

// `global` is 16-byte aligned.
__device__ __forceinline__ void st_global_16(void* global, uint4 v) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(global), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}

__device__ __forceinline__ void st_global(float* global, float v) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(global), "f"(v) : "memory");
}

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
