// Emulation of ptx/pdl.cuh.
#pragma once

namespace fagen::ptx {

// Kernels run one after the other.
__device__ __forceinline__ void wait_for_previous_kernel() {}

__device__ __forceinline__ void let_next_kernel_start() {}

}  // namespace fagen::ptx
