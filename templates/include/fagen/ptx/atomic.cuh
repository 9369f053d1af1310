// Atomics on global memory (PTX ISA, "atom"; sm_70).
#pragma once

#include "fagen/base/types.cuh"

#ifdef FAGEN_EMU
#include "fagen/ptx/emu/atomic.cuh"
#else

namespace fagen::ptx {

// Adds and returns the old value. Says nothing about other memory.
__device__ __forceinline__ uint32_t atomic_add(uint32_t* global, uint32_t value) {
  uint32_t old;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(global), "r"(value)
               : "memory");
  return old;
}

// The same; what this thread did before is done for whoever sees the new value. Waits for all of it.
__device__ __forceinline__ uint32_t atomic_add_ordered(uint32_t* global, uint32_t value) {
  uint32_t old;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(global), "r"(value)
               : "memory");
  return old;
}

// Replaces it by `value` where that is larger.
__device__ __forceinline__ void reduce_max(uint32_t* global, uint32_t value) {
  asm volatile("red.relaxed.gpu.global.max.u32 [%0], %1;" ::"l"(global), "r"(value) : "memory");
}

// Addition without the old value: what the CTA did before its last barrier is done, too.
__device__ __forceinline__ void signal(uint32_t* global) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(global) : "memory");
}

// Waits until so many signals are there.
__device__ __forceinline__ void wait_for_signals(const uint32_t* global, uint32_t count) {
  uint32_t found;
  do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(global) : "memory");
  while (found != count);
}

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
