// Base-2 exponent and logarithm, and reciprocal, on the special-function unit (PTX ISA, "ex2", "lg2", "rcp").
#pragma once

#ifdef FAGEN_EMU
#include "fagen/ptx/emu/special.cuh"
#else

namespace fagen::ptx {

__device__ __forceinline__ float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float log2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
