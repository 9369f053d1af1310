// Products of 16-bit elements in fp32.
#pragma once

#include "fagen/base/types.cuh"

namespace fagen::attn {

// The sum of the products of 8 pairs.
template <typename T>
__device__ __forceinline__ float dot_8(const uint4& x, const uint4& y) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 u = unpack<T>((&x.x)[i]), v = unpack<T>((&y.x)[i]);
    sum = fmaf(u.x, v.x, fmaf(u.y, v.y, sum));
  }
  return sum;
}

}  // namespace fagen::attn
