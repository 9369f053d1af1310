// Emulation of ptx/tma.cuh.
#pragma once

#include "fagen/base/types.cuh"
#include "fagen/ptx/tensor_map.cuh"
#include "tma.hpp"

namespace fagen::ptx {

__device__ __forceinline__ void prefetch_tensor_map(const TensorMap& map) { emu::tma_prefetch_map(&map); }

template <typename... C>
__device__ __forceinline__ void tma_load(uint32_t smem, const TensorMap& map, uint32_t barrier, C... at) {
  emu::tma_load(smem, &map, barrier, sizeof...(at), {at...});
}

template <typename... C>
__device__ __forceinline__ void tma_load_multicast(uint32_t smem, const TensorMap& map, uint32_t barrier,
                                                   uint32_t ctas, C... at) {
  emu::tma_load_multicast(smem, &map, barrier, ctas, sizeof...(at), {at...});
}

template <typename... C>
__device__ __forceinline__ void tma_store(const TensorMap& map, uint32_t smem, C... at) {
  emu::tma_store(&map, smem, false, sizeof...(at), {at...});
}

template <typename... C>
__device__ __forceinline__ void tma_reduce_add(const TensorMap& map, uint32_t smem, C... at) {
  emu::tma_store(&map, smem, true, sizeof...(at), {at...});
}

}  // namespace fagen::ptx
