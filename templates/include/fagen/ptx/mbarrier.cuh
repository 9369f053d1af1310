// mbarrier: an arrival counter in shared memory whose phase flips when all expected arrivals are in
// (PTX ISA, "mbarrier"). A fresh barrier is in phase 0; waiting for parity 1 on it returns at once.
#pragma once

#include "fagen/base/types.cuh"

#ifdef FAGEN_EMU
#include "fagen/ptx/emu/mbarrier.cuh"
#else

namespace fagen::ptx {

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Ends the barrier's life; its bytes may then hold something else.
__device__ __forceinline__ void mbarrier_inval(uint32_t barrier) {
  asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(barrier) : "memory");
}

// Arrives once all of this thread's earlier cp.async copies have landed; counted among the arrivals.
__device__ __forceinline__ void mbarrier_arrive_after_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

// Waits until the phase of the given parity is complete.
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
#define FAGEN_MBARRIER_WAIT "mbarrier.try_wait.parity.shared.b64"  // may suspend the thread
#else
#define FAGEN_MBARRIER_WAIT "mbarrier.test_wait.parity.shared.b64"
#endif
  asm volatile(
      "{\n.reg .pred done;\n"
      "WAIT_%=:\n" FAGEN_MBARRIER_WAIT
      " done, [%0], %1;\n"
      "@!done bra WAIT_%=;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
#undef FAGEN_MBARRIER_WAIT
}

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
