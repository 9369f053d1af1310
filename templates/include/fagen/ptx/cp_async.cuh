// cp.async: copies global memory to shared memory without passing registers (PTX ISA, "cp.async").
#pragma once

#include "fagen/base/types.cuh"

#ifdef FAGEN_EMU
#include "fagen/ptx/emu/cp_async.cuh"
#else

namespace fagen::ptx {

// Copies 16 bytes; both addresses 16-byte aligned.
__device__ __forceinline__ void cp_async_16(uint32_t smem, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(smem), "l"(global) : "memory");
}

// Copies 16 bytes where `valid`, else writes 16 zero bytes without reading `global`.
__device__ __forceinline__ void cp_async_16_or_zero(uint32_t smem, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(smem), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}

// Closes the group of the thread's copies so far.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all but the thread's newest kPending groups have landed; other threads learn of it by a
// barrier.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
