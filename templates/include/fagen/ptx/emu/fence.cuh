// Emulation of ptx/fence.cuh.
#pragma once

#include "fagen/base/types.cuh"
#include "mbarrier.hpp"

namespace fagen::ptx {

__device__ __forceinline__ void fence_proxy_async() { emu::fence_proxy_async_entry(); }

__device__ __forceinline__ void fence_mbarrier_init() { emu::fence_mbarrier_init(); }

}  // namespace fagen::ptx
