// Which columns change their sign before the Hadamard transform: those whose bit is set in the binary
// fraction of pi, of which nobody has chosen the digits. Q and K have the same, so that Q K^T stays what it
// is.
#pragma once

#include "fagen/base/types.cuh"
#include "fagen/ptx/shared.cuh"

namespace fagen::quantize {

// 32 columns in each, the first in the lowest bit.
inline constexpr uint32_t kPi[] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344,
                                   0xa4093822, 0x299f31d0, 0x082efa98, 0xec4e6c89};

// Writes to shared memory what to flip of a row of kDim 16-bit elements; a barrier has to follow.
template <int kDim, int kThreads>
__device__ __forceinline__ void store_signs(uint32_t smem) {
  for (int pair = threadIdx.x; pair < kDim / 2; pair += kThreads) {
    const uint32_t bits = kPi[pair / 16] >> 2 * (pair % 16);
    ptx::st_shared(smem + 4 * pair, (bits & 1) << 15 | (bits & 2) << 30);
  }
}

}  // namespace fagen::quantize
