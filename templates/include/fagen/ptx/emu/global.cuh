// Emulation of ptx/global.cuh.
#pragma once

#include "fagen/base/types.cuh"
#include "global.hpp"

namespace fagen::ptx {

__device__ __forceinline__ int32_t ld_global(const int32_t* global) {
  int32_t v;
  emu::load_global(global, &v, 4);
  return v;
}

__device__ __forceinline__ uint64_t ld_global(const uint64_t* global) {
  uint64_t v;
  emu::load_global(global, &v, 8);
  return v;
}

__device__ __forceinline__ float ld_global(const float* global) {
  float v;
  emu::load_global(global, &v, 4);
  return v;
}

__device__ __forceinline__ uint4 ld_global_16(const void* global) {
  uint4 v;
  emu::load_global(global, &v, 16);
  return v;
}

__device__ __forceinline__ void st_global_16(void* global, uint4 v) { emu::store_global(global, &v, 16); }

__device__ __forceinline__ void st_global_8(void* global, uint2 v) { emu::store_global(global, &v, 8); }

__device__ __forceinline__ void st_global_16(void* global, uint4 v, bool exists) {
  if (exists) emu::store_global(global, &v, 16);
}

__device__ __forceinline__ void st_global(float* global, float v) { emu::store_global(global, &v, 4); }

__device__ __forceinline__ void st_global(uint32_t* global, uint32_t v) { emu::store_global(global, &v, 4); }

}  // namespace fagen::ptx
