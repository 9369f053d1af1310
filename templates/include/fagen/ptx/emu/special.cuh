// Emulation of ptx/special.cuh.
#pragma once

#include "special.hpp"

namespace fagen::ptx {

__device__ __forceinline__ float exp2(float x) { return emu::exp2_approx(x); }

__device__ __forceinline__ float log2(float x) { return emu::log2_approx(x); }

__device__ __forceinline__ float reciprocal(float x) { return emu::reciprocal_approx(x); }

__device__ __forceinline__ float fma_saturated(float a, float b, float c) {
  const float y = fmaf(a, b, c);
  return y > 0.0f ? fminf(y, 1.0f) : 0.0f;
}

__device__ __forceinline__ void tanh_base2(float& x, float scale) {
  x = 1.0f - 2.0f * reciprocal(1.0f + exp2(x * scale));
}

}  // namespace fagen::ptx
