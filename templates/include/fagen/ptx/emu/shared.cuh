// Emulation of ptx/shared.cuh.
#pragma once

#include "fagen/base/types.cuh"
#include "shared.hpp"

namespace fagen::ptx {

__device__ __forceinline__ uint32_t dynamic_shared() { return emu::kSharedBase; }

__device__ __forceinline__ void st_shared(uint32_t smem, uint32_t value) {
  emu::store_shared(smem, &value, 4);
}

__device__ __forceinline__ uint32_t ld_shared(uint32_t smem) {
  uint32_t v;
  emu::load_shared(smem, &v, 4);
  return v;
}

__device__ __forceinline__ float2 ld_shared_pair(uint32_t smem) {
  float2 v;
  emu::load_shared(smem, &v, 8);
  return v;
}

__device__ __forceinline__ uint4 ld_shared_16(uint32_t smem) {
  uint4 v;
  emu::load_shared(smem, &v, 16);
  return v;
}

}  // namespace fagen::ptx
