// Stand-in for CUDA's cuda_bf16.h: what the kernels use of it.
#pragma once

#include "float16.hpp"
#include "vector_types.hpp"

struct alignas(2) __nv_bfloat16 {
  uint16_t bits;
  operator float() const { return fagen::emu::float_of_bf16(bits); }
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

inline __nv_bfloat16 __float2bfloat16_rn(float value) { return {fagen::emu::bf16_of_float(value)}; }
inline __nv_bfloat16 __float2bfloat16(float value) { return __float2bfloat16_rn(value); }
inline float __bfloat162float(__nv_bfloat16 value) { return value; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 value) { return __floats2bfloat162_rn(value.x, value.y); }
inline float2 __bfloat1622float2(__nv_bfloat162 value) { return {value.x, value.y}; }
