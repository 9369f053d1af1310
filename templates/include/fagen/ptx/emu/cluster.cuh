// Emulation of ptx/cluster.cuh.
#pragma once

#include "cluster.hpp"
#include "fagen/base/types.cuh"
#include "mbarrier.hpp"

namespace fagen::ptx {

__device__ __forceinline__ uint32_t cluster_rank() { return emu::cluster_rank(); }

__device__ __forceinline__ void cluster_arrive() { emu::cluster_arrive(); }
__device__ __forceinline__ void cluster_wait() { emu::cluster_wait(); }

__device__ __forceinline__ uint32_t map_to_rank(uint32_t smem, uint32_t rank) {
  return emu::map_to_rank(smem, rank);
}

__device__ __forceinline__ void mbarrier_arrive_remote(uint32_t barrier) { emu::mbarrier_arrive(barrier); }

}  // namespace fagen::ptx
