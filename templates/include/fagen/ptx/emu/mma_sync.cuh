// Emulation of ptx/mma_sync.cuh.
#pragma once

#include "fagen/base/types.cuh"
#include "warp_matrix.hpp"

namespace fagen::ptx {

template <typename T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

template <>
__device__ __forceinline__ void mma_m16n8k16<__half>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                                     uint32_t b1) {
  emu::mma_fp16(d, a, {b0, b1});
}

template <>
__device__ __forceinline__ void mma_m16n8k16<__nv_bfloat16>(float (&d)[4], const uint32_t (&a)[4],
                                                            uint32_t b0, uint32_t b1) {
  emu::mma_bf16(d, a, {b0, b1});
}

}  // namespace fagen::ptx
