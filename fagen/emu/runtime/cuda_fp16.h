// Stand-in for CUDA's cuda_fp16.h: what the kernels use of it.
#pragma once

#include "float16.hpp"
#include "vector_types.hpp"

struct alignas(2) __half {
  uint16_t bits;
  operator float() const { return fagen::emu::float_of_fp16(bits); }
};
struct alignas(4) __half2 {
  __half x, y;
};

inline __half __float2half_rn(float value) { return {fagen::emu::fp16_of_float(value)}; }
inline __half __float2half(float value) { return __float2half_rn(value); }
inline float __half2float(__half value) { return value; }
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
inline __half2 __float22half2_rn(float2 value) { return __floats2half2_rn(value.x, value.y); }
inline float2 __half22float2(__half2 value) { return {value.x, value.y}; }
