// mbarriers that also count bytes: a phase completes when all arrivals are in and as many bytes have come as
// were expected (PTX ISA, "Tracking asynchronous operations by the mbarrier object"; sm_90).
#pragma once

#include "fagen/base/types.cuh"

#ifdef FAGEN_EMU
#include "fagen/ptx/emu/mbarrier_tx.cuh"
#else

namespace fagen::ptx {

// The phase under way expects `bytes` more; not an arrival.
__device__ __forceinline__ void mbarrier_expect_tx(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// The same, then one arrival.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// `count` arrivals at once.
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

// Whether the phase of the given parity is complete; may take a while to say no.
__device__ __forceinline__ bool mbarrier_try_wait(uint32_t barrier, uint32_t parity) {
  uint32_t complete;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.b32 %0, 1, 0, p;\n}"
      : "=r"(complete)
      : "r"(barrier), "r"(parity)
      : "memory");
  return complete != 0;
}

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
