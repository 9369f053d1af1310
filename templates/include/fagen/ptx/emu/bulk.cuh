// Emulation of ptx/bulk.cuh.
#pragma once

#include "fagen/base/types.cuh"
#include "tma.hpp"

namespace fagen::ptx {

__device__ __forceinline__ void bulk_load(uint32_t smem, const void* global, uint32_t bytes,
                                          uint32_t barrier) {
  emu::bulk_load(smem, global, bytes, barrier);
}

__device__ __forceinline__ void bulk_store(void* global, uint32_t smem, uint32_t bytes) {
  emu::bulk_store(global, smem, bytes, false);
}

__device__ __forceinline__ void bulk_reduce_add(float* global, uint32_t smem, uint32_t bytes) {
  emu::bulk_store(global, smem, bytes, true);
}

__device__ __forceinline__ void bulk_commit() { emu::bulk_commit(); }

template <int kPending>
__device__ __forceinline__ void bulk_wait() {
  emu::bulk_wait(kPending, true);
}

template <int kPending>
__device__ __forceinline__ void bulk_wait_read() {
  emu::bulk_wait(kPending, false);
}

}  // namespace fagen::ptx
