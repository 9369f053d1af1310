// Fences between the ways to reach shared memory (PTX ISA, "membar / fence"; sm_90).
#pragma once

#include "fagen/base/types.cuh"

#ifdef FAGEN_EMU
#include "fagen/ptx/emu/fence.cuh"
#else

namespace fagen::ptx {

// After this thread's plain writes to shared memory, and before the barrier that lets another thread have
// TMA, a bulk copy or wgmma read them.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// After this thread's mbarrier_init, and before the barrier that lets the cluster and TMA use it.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
