// Emulation of ptx/reduce.cuh.
#pragma once

#include "global.hpp"

namespace fagen::ptx {

inline constexpr int kReduceWidth = FAGEN_EMU >= 900 ? 4 : 1;

__device__ __forceinline__ void reduce_add(float* global, const float (&v)[kReduceWidth]) {
  for (int i = 0; i < kReduceWidth; ++i)
    emu::atomic_global(global + i, [value = v[i]](float old) { return old + value; });
}

__device__ __forceinline__ void ld_global(const float* global, float (&v)[kReduceWidth]) {
  emu::load_global(global, &v, 4 * kReduceWidth);
}

}  // namespace fagen::ptx
