// Fixed-width integers and the 16-bit element types. NVRTC has no <cstdint>: the names are declared here, as
// Linux's own <cstdint> has them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long;
using uint64_t = unsigned long;

namespace fagen {

// A compile-time flag as an argument, for generic lambdas.
template <bool kValue>
struct Bool {
  static constexpr bool value = kValue;
};

// Rounds two floats to one 32-bit register of 16-bit elements, `low` in the lower half.
template <typename T>
__device__ __forceinline__ uint32_t pack(float low, float high);

template <>
__device__ __forceinline__ uint32_t pack<__half>(float low, float high) {
  __half2 pair = __floats2half2_rn(low, high);
  return reinterpret_cast<uint32_t&>(pair);
}

template <>
__device__ __forceinline__ uint32_t pack<__nv_bfloat16>(float low, float high) {
  __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<uint32_t&>(pair);
}

// The two floats of such a register: x from the lower half.
template <typename T>
__device__ __forceinline__ float2 unpack(uint32_t pair);

template <>
__device__ __forceinline__ float2 unpack<__half>(uint32_t pair) {
  return __half22float2(reinterpret_cast<__half2&>(pair));
}

template <>
__device__ __forceinline__ float2 unpack<__nv_bfloat16>(uint32_t pair) {
  return __bfloat1622float2(reinterpret_cast<__nv_bfloat162&>(pair));
}

}  // namespace fagen
