// Emulation of ptx/mma_sync_fp8.cuh.
#pragma once

#include "fagen/base/fp8.cuh"
#include "fagen/base/types.cuh"
#include "mma_fp8.hpp"

namespace fagen::ptx {

namespace detail {

template <typename T>
inline constexpr auto kDecode = emu::float_of_e4m3;
template <>
inline constexpr auto kDecode<e5m2> = emu::float_of_e5m2;

}  // namespace detail

template <typename A, typename B>
__device__ __forceinline__ void mma_m16n8k32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
  emu::mma_fp8("mma.m16n8k32", d, a, {b0, b1}, detail::kDecode<A>, detail::kDecode<B>);
}

}  // namespace fagen::ptx
