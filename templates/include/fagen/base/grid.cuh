// Where a thread stands in its CTA.
#pragma once

namespace fagen {

__device__ __forceinline__ int lane_id() { return threadIdx.x & 31; }

// Broadcast from lane 0, so that the compiler knows that the value is the same in the whole warp.
__device__ __forceinline__ int warp_id() { return __shfl_sync(0xffffffffu, threadIdx.x >> 5, 0); }

}  // namespace fagen
