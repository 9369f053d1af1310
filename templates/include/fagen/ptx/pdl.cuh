// Programmatic dependent launch: a kernel may start before the previous one of its stream has ended
// (PTX ISA, "griddepcontrol"; sm_90).
#pragma once

#ifdef FAGEN_EMU
#include "fagen/ptx/emu/pdl.cuh"
#else

namespace fagen::ptx {

// Waits until the kernels that this one depends on have ended and their writes are visible.
__device__ __forceinline__ void wait_for_previous_kernel() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Lets the next kernel start once all CTAs have said so or ended.
__device__ __forceinline__ void let_next_kernel_start() { asm volatile("griddepcontrol.launch_dependents;"); }

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
