// Emulation of ptx/convert_fp8.cuh.
#pragma once

#include "fagen/base/types.cuh"
#include "float8.hpp"

namespace fagen::ptx {

__device__ __forceinline__ uint32_t pack_e4m3(float a, float b, float c, float d) {
  return emu::e4m3_of_float(a) | emu::e4m3_of_float(b) << 8 | emu::e4m3_of_float(c) << 16 |
         static_cast<uint32_t>(emu::e4m3_of_float(d)) << 24;
}

__device__ __forceinline__ uint32_t pack_e5m2(float a, float b, float c, float d) {
  return emu::e5m2_of_float(a) | emu::e5m2_of_float(b) << 8 | emu::e5m2_of_float(c) << 16 |
         static_cast<uint32_t>(emu::e5m2_of_float(d)) << 24;
}

}  // namespace fagen::ptx
