// What the compiler may know of a value (PTX ISA, "redux.sync"; sm_80).
#pragma once

#include "fagen/base/types.cuh"

#ifdef FAGEN_EMU
#include "fagen/ptx/emu/uniform.cuh"
#else

namespace fagen::ptx {

// `x`, which is the same in all lanes of the warp, where the compiler takes it for the same too: it then
// keeps it, and what follows from it, in one register for the warp, not one for each lane.
__device__ __forceinline__ uint32_t uniform(uint32_t x) {
  uint32_t y;
  asm("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
  return y;
}

// `x` of lane 0 to all lanes, as `uniform`; the others come with 0.
__device__ __forceinline__ uint32_t broadcast(uint32_t x) { return uniform(x); }

// `x` as it is, but new to the compiler: what follows from it is then computed where it is used, and not kept
// in registers from before the loop on.
__device__ __forceinline__ uint32_t fresh(uint32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}

// `x` as it is, but not before `y` is there: what follows from the one waits for what the other follows from.
// No grid here has a third dimension, which the compiler does not know.
__device__ __forceinline__ float after(float y, float x) {
  const uint32_t none = __builtin_bit_cast(uint32_t, y) & blockIdx.z;
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, x) | none);
}

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
