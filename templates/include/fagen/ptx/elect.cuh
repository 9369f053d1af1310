// elect.sync: one lane of a whole warp, the same one every time (PTX ISA, "elect.sync"; sm_90).
#pragma once

#include "fagen/base/types.cuh"

#ifdef FAGEN_EMU
#include "fagen/ptx/emu/elect.cuh"
#else

namespace fagen::ptx {

// True in the elected lane.
__device__ __forceinline__ bool elect_one() {
  uint32_t elected;
  asm volatile(
      "{\n.reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.b32 %0, 1, 0, p;\n}"
      : "=r"(elected));
  return elected != 0;
}

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
