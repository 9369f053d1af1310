// Emulation of ptx/named_barrier.cuh.
#pragma once

#include "barrier.hpp"
#include "fagen/base/types.cuh"

namespace fagen::ptx {

__device__ __forceinline__ void named_barrier_sync(uint32_t barrier, uint32_t threads) {
  emu::barrier_sync(barrier, threads);
}

__device__ __forceinline__ void named_barrier_arrive(uint32_t barrier, uint32_t threads) {
  emu::barrier_arrive(barrier, threads);
}

}  // namespace fagen::ptx
