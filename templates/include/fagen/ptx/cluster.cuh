// Clusters: CTAs that run together and reach each other's shared memory (PTX ISA, "barrier.cluster", "mapa";
// sm_90). A CTA's own shared addresses are addresses of the cluster too.
#pragma once

#include "fagen/base/types.cuh"

#ifdef FAGEN_EMU
#include "fagen/ptx/emu/cluster.cuh"
#else

namespace fagen::ptx {

// This CTA's number in its cluster.
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// The barrier of all threads of the cluster, in two halves: what a thread wrote before it arrives is visible
// to all that have waited. Whole warps.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address, in the CTA of number `rank`, of what lies at `smem` in this one.
__device__ __forceinline__ uint32_t map_to_rank(uint32_t smem, uint32_t rank) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(smem), "r"(rank));
  return remote;
}

// Arrives on an mbarrier of any CTA of the cluster, given by map_to_rank. Orders what this thread has read,
// and not its writes: a fence for those costs as much as the wait for a whole tile.
__device__ __forceinline__ void mbarrier_arrive_remote(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
