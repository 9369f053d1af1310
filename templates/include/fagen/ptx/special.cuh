// Base-2 exponent and logarithm, reciprocal and hyperbolic tangent, on the special-function unit (PTX ISA,
// "ex2", "lg2", "rcp"); and a saturated product and sum ("fma").
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

// a * b + c, brought to [0, 1]; NaN becomes 0.
__device__ __forceinline__ float fma_saturated(float a, float b, float c) {
  float y;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(y) : "f"(a), "f"(b), "f"(c));
  return y;
}

// Turns x into (2^y - 1) / (2^y + 1), the hyperbolic tangent of y ln(2) / 2, where y = x * scale; absolute
// error below 5e-7, and 1 and -1 at the infinities. In place and in one piece of assembly: the compiler would
// have the pieces of many such values under way at once, and run out of registers.
__device__ __forceinline__ void tanh_base2(float& x, float scale) {
  asm("mul.f32 %0, %0, %1;\n"
      "ex2.approx.ftz.f32 %0, %0;\n"
      "add.f32 %0, %0, 0f3F800000;\n"
      "rcp.approx.ftz.f32 %0, %0;\n"
      "fma.rn.f32 %0, %0, 0fC0000000, 0f3F800000;"  // 1 - 2 / (1 + 2^y)
      : "+f"(x)
      : "f"(scale));
}

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
