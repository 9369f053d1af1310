// Sums in global memory that nobody waits for (PTX ISA, "red"; vectors: sm_90).
#pragma once

#include "fagen/base/types.cuh"

#ifdef FAGEN_EMU
#include "fagen/ptx/emu/reduce.cuh"
#else

namespace fagen::ptx {

#if __CUDA_ARCH__ >= 900
inline constexpr int kReduceWidth = 4;  // floats of one instruction
#else
inline constexpr int kReduceWidth = 1;
#endif

// Adds kReduceWidth neighbours; `global` is aligned to all of them.
__device__ __forceinline__ void reduce_add(float* global, const float (&v)[kReduceWidth]) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(global), "f"(v[0]),
               "f"(v[1]), "f"(v[2]), "f"(v[3])
               : "memory");
#else
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(global), "f"(v[0]) : "memory");
#endif
}

// Reads them.
__device__ __forceinline__ void ld_global(const float* global, float (&v)[kReduceWidth]) {
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
               : "l"(global));
#else
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(v[0]) : "l"(global));
#endif
}

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
