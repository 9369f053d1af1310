// Emulation of ptx/uniform.cuh.
#pragma once

#include "fagen/base/types.cuh"
#include "warp.hpp"

namespace fagen::ptx {

__device__ __forceinline__ uint32_t uniform(uint32_t x) { return emu::uniform(x); }

__device__ __forceinline__ uint32_t broadcast(uint32_t x) { return __shfl_sync(0xffffffffu, x, 0); }

__device__ __forceinline__ uint32_t fresh(uint32_t x) { return x; }

__device__ __forceinline__ float after(float y, float x) { return (void)y, x; }

}  // namespace fagen::ptx
