// Emulation of ptx/cp_async.cuh.
#pragma once

#include "copy_async.hpp"
#include "fagen/base/types.cuh"

namespace fagen::ptx {

__device__ __forceinline__ void cp_async_16(uint32_t smem, const void* global) {
  emu::copy_async(smem, global, 16, 16);
}

__device__ __forceinline__ void cp_async_16_or_zero(uint32_t smem, const void* global, bool valid) {
  emu::copy_async(smem, global, 16, valid ? 16 : 0);
}

__device__ __forceinline__ void cp_async_commit() { emu::copy_async_commit(); }

template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  emu::copy_async_wait(kPending);
}

}  // namespace fagen::ptx
