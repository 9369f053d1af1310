// Emulation of ptx/wgmma.cuh.
#pragma once

#include "fagen/base/fp8.cuh"
#include "fagen/base/types.cuh"
#include "wgmma.hpp"

namespace fagen::ptx {

__device__ __forceinline__ void wgmma_fence() { emu::wgmma_fence(); }

__device__ __forceinline__ void wgmma_commit() { emu::wgmma_commit(); }

template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  emu::wgmma_wait(kPending);
}

// The host's compiler knows that the emulator has the registers' addresses.
template <int kRegisters>
__device__ __forceinline__ void pin(float (&)[kRegisters]) {}

__device__ __forceinline__ void finish_before_wait(float, float) {}

namespace detail {

template <typename T>
inline constexpr emu::Element kElement = emu::Element::fp16;
template <>
inline constexpr emu::Element kElement<__nv_bfloat16> = emu::Element::bf16;
template <>
inline constexpr emu::Element kElement<e4m3> = emu::Element::e4m3;
template <>
inline constexpr emu::Element kElement<e5m2> = emu::Element::e5m2;

template <typename A, typename B, Major kA, Major kB, int kRegisters>
inline constexpr emu::WgmmaShape kShape = {2 * kRegisters, kElement<A>, kElement<B>, kA == Major::kMN,
                                           kB == Major::kMN};

}  // namespace detail

template <typename A, typename B, Major kA = Major::kK, Major kB = Major::kK, int kRegisters>
__device__ __forceinline__ void wgmma(float (&d)[kRegisters], uint64_t a, uint64_t b, bool accumulate) {
  static_assert(sizeof(A) == 2 || (kA == Major::kK && kB == Major::kK), "8-bit operands are K-major");
  static_assert(kRegisters % 4 == 0 && kRegisters <= 128);
  emu::wgmma_issue(detail::kShape<A, B, kA, kB, kRegisters>, d, nullptr, a, b, accumulate);
}

template <typename A, typename B, Major kB = Major::kK, int kRegisters>
__device__ __forceinline__ void wgmma(float (&d)[kRegisters], const uint32_t (&a)[4], uint64_t b,
                                      bool accumulate) {
  static_assert(sizeof(A) == 2 || kB == Major::kK, "8-bit operands are K-major");
  static_assert(kRegisters % 4 == 0 && kRegisters <= 128);
  // The emulator takes A's registers away until they may be used again.
  emu::wgmma_issue(detail::kShape<A, B, Major::kK, kB, kRegisters>, d, const_cast<uint32_t*>(a), 0, b,
                   accumulate);
}

}  // namespace fagen::ptx
