// Emulation of ptx/mbarrier.cuh.
#pragma once

#include "fagen/base/types.cuh"
#include "mbarrier.hpp"

namespace fagen::ptx {

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
  emu::mbarrier_init(barrier, arrivals);
}

__device__ __forceinline__ void mbarrier_inval(uint32_t barrier) { emu::mbarrier_inval(barrier); }

__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) { emu::mbarrier_arrive(barrier); }

__device__ __forceinline__ void mbarrier_arrive_after_copies(uint32_t barrier) {
  emu::mbarrier_arrive_after_copies(barrier);
}

__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  emu::mbarrier_wait(barrier, parity);
}

}  // namespace fagen::ptx
