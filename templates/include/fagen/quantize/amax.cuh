// The largest magnitude of a block, and the scale that follows from it.
#pragma once

#include "fagen/base/fp8.cuh"
#include "fagen/base/grid.cuh"
#include "fagen/base/types.cuh"
#include "fagen/ptx/shared.cuh"

namespace fagen::quantize {

// The largest magnitude of a thread's values; NaN has none.
template <int kOwn, int kChunks>
__device__ __forceinline__ float amax(const float (&x)[kOwn][kChunks][8]) {
  float found = 0.0f;
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk)
#pragma unroll
      for (int c = 0; c < 8; ++c) found = fmaxf(found, fabsf(x[i][chunk][c]));
  return found;
}

// The largest of all threads' values, which are not negative, for all of them. `smem` is 4 bytes for each
// warp, others than at the last call.
template <int kThreads>
__device__ __forceinline__ float largest(float value, uint32_t smem) {
  static_assert(kThreads % 128 == 0, "read by fours");
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, lanes));
  if (lane_id() == 0) ptx::st_shared(smem + threadIdx.x / 32 * 4, __builtin_bit_cast(uint32_t, value));
  __syncthreads();
  uint32_t bits = 0;  // of floats that are not negative: ordered as they are
#pragma unroll
  for (int i = 0; i < kThreads / 128; ++i) {
    const uint4 four = ptx::ld_shared_16(smem + 16 * i);
    bits = max(max(bits, max(four.x, four.y)), max(four.z, four.w));
  }
  return __builtin_bit_cast(float, bits);
}

// The largest value of an 8-bit type.
template <typename F8>
inline constexpr float kLargest = 448.0f;
template <>
inline constexpr float kLargest<e5m2> = 57344.0f;

// What is multiplied by `factor` to become 8 bits, and by `descale` to be what it was.
struct Scale {
  float factor, descale;
};

// Less than this, such as the 0 of a block of zeros, counts as this: no scale is 0 or infinite, nor is the
// ratio of two.
inline constexpr float kSmallestAmax = 0x1p-64f;

// That has `amax` become the largest value.
template <typename F8>
__device__ __forceinline__ Scale scale(float amax) {
  amax = fmaxf(amax, kSmallestAmax);
  return {kLargest<F8> / amax, amax / kLargest<F8>};
}

// The same with the next powers of two, of a finite `amax`. V's blocks are then apart by powers of two, by
// which P may be multiplied without another rounding (attn/block_descale.cuh); 8-bit floats lose nothing by
// it.
template <typename F8>
__device__ __forceinline__ Scale scale_of_power_of_two(float amax) {
  constexpr uint32_t kFraction = 0x7fffff, kExponent = 0x7f800000, kOne = 0x3f800000;
  constexpr uint32_t kMost = __builtin_bit_cast(uint32_t, kLargest<F8>);
  const uint32_t bits = __builtin_bit_cast(uint32_t, fmaxf(amax, kSmallestAmax));
  // The fraction carries into the exponent where it is more than the largest value's.
  const uint32_t least = (bits + kFraction - (kMost & kFraction)) & kExponent;
  const uint32_t descale = least - (kMost & kExponent) + kOne;
  return {__builtin_bit_cast(float, 2 * kOne - descale), __builtin_bit_cast(float, descale)};
}

}  // namespace fagen::quantize
