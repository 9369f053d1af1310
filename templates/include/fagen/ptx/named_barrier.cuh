// Named barriers: 16 of a CTA, of which 0 is __syncthreads's (PTX ISA, "bar"). `threads`, a multiple of 32,
// counts all that sync on and arrive at one phase of a barrier. Whole warps.
#pragma once

#include "fagen/base/types.cuh"

#ifdef FAGEN_EMU
#include "fagen/ptx/emu/named_barrier.cuh"
#else

namespace fagen::ptx {

__device__ __forceinline__ void named_barrier_sync(uint32_t barrier, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Counts without waiting.
__device__ __forceinline__ void named_barrier_arrive(uint32_t barrier, uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
