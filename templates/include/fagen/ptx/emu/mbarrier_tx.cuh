// Emulation of ptx/mbarrier_tx.cuh.
#pragma once

#include "fagen/base/types.cuh"
#include "mbarrier.hpp"

namespace fagen::ptx {

__device__ __forceinline__ void mbarrier_expect_tx(uint32_t barrier, uint32_t bytes) {
  emu::mbarrier_expect_tx(barrier, bytes);
}

__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
  emu::mbarrier_arrive_expect_tx(barrier, bytes);
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier, uint32_t count) {
  emu::mbarrier_arrive(barrier, count);
}

__device__ __forceinline__ bool mbarrier_try_wait(uint32_t barrier, uint32_t parity) {
  return emu::mbarrier_test_wait(barrier, parity);
}

}  // namespace fagen::ptx
