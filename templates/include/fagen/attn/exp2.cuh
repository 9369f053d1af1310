// Base-2 exponent on the FMA pipe, for a share of the scores: the special-function unit does 16 a clock and
// SM, which at small head sizes takes as long as the matrix products (FlashAttention-4, section 3).
#pragma once

#include "fagen/base/types.cuh"
#include "fagen/ptx/special.cuh"

namespace fagen::attn {

// 2^x of x = s * scale - shift, with a relative error below 1.2e-4; 0 from -127 down, 2^127 from 127 up. A
// saturated FMA brings that range to [0, 1]: the bounds then cost nothing. With x = n + f, n the nearest
// integer, 2^f is a polynomial, minimax on [-1/2, 1/2] and exact at 0, and n is added to its exponent.
__device__ __forceinline__ float polynomial_exp2(float s, float scale, float shift) {
  constexpr float kRange = 254.0f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves an integer in the lowest bits
  constexpr float kRoundFromLow = kRound - 127.0f;
  const float t = ptx::fma_saturated(s, scale * (1.0f / kRange), (127.0f - shift) * (1.0f / kRange));
  const float shifted = fmaf(t, kRange, kRoundFromLow);
  const float f = fmaf(t, kRange, kRoundFromLow - shifted);
  const float y = fmaf(fmaf(fmaf(0.0550089292f, f, 0.242210954f), f, 0.693282902f), f, 1.0f);
  const uint32_t exponent = __builtin_bit_cast(uint32_t, shifted) << 23;
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, y) + exponent);
}

// Whether score number `index` of a row is among the share, kPolynomial, that goes to the FMA pipe, evenly
// spread.
template <typename Policy>
__device__ __forceinline__ constexpr bool is_polynomial(int index) {
  return static_cast<int>((index + 1) * Policy::kPolynomial) > static_cast<int>(index * Policy::kPolynomial);
}

}  // namespace fagen::attn
