// setmaxnreg: moves registers between the warpgroups of a CTA (PTX ISA, "setmaxnreg"; sm_90a). kRegisters is
// per thread, a multiple of 8 from 24 to 256. All warps of the warpgroup; the kernel's own register count
// must be fixed, by __launch_bounds__(threads, 1).
#pragma once

#ifdef FAGEN_EMU
#include "fagen/ptx/emu/setmaxnreg.cuh"
#else

namespace fagen::ptx {

template <int kRegisters>
__device__ __forceinline__ void release_registers_to() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Waits until other warpgroups have released enough.
template <int kRegisters>
__device__ __forceinline__ void claim_registers_to() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
