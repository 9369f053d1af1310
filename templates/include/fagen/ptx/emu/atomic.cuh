// Emulation of ptx/atomic.cuh.
#pragma once

#include "fagen/base/types.cuh"
#include "global.hpp"

namespace fagen::ptx {

__device__ __forceinline__ uint32_t atomic_add(uint32_t* global, uint32_t value) {
  return emu::atomic_global(global, [value](uint32_t old) { return old + value; });
}

__device__ __forceinline__ uint32_t atomic_add_ordered(uint32_t* global, uint32_t value) {
  return atomic_add(global, value);
}

__device__ __forceinline__ void reduce_max(uint32_t* global, uint32_t value) {
  emu::atomic_global(global, [value](uint32_t old) { return max(old, value); });
}

__device__ __forceinline__ void signal(uint32_t* global) { atomic_add(global, 1); }

__device__ __forceinline__ void wait_for_signals(const uint32_t* global, uint32_t count) {
  while (atomic_add(const_cast<uint32_t*>(global), 0) != count) emu::yield_turn();
}

}  // namespace fagen::ptx
