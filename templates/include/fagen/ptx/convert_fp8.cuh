// fp32 to 8-bit elements, four to a register, the first in the lowest byte (PTX ISA, "cvt"; sm_89). To
// nearest even; what is beyond the largest value becomes that value.
#pragma once

#include "fagen/base/types.cuh"

#ifdef FAGEN_EMU
#include "fagen/ptx/emu/convert_fp8.cuh"
#else

namespace fagen::ptx {

__device__ __forceinline__ uint32_t pack_e4m3(float a, float b, float c, float d) {
  uint32_t word;
  asm("{\n.reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n}"
      : "=r"(word)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return word;
}

__device__ __forceinline__ uint32_t pack_e5m2(float a, float b, float c, float d) {
  uint32_t word;
  asm("{\n.reg .b16 low, high;\n"
      "cvt.rn.satfinite.e5m2x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e5m2x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n}"
      : "=r"(word)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return word;
}

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
