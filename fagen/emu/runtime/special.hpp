// The special-function unit's base-2 exponent and logarithm, and reciprocal: exact to fp32 here, where the
// hardware is off by up to 2^-22; subnormal numbers are zero.
#pragma once

#include <cmath>

namespace fagen::emu {

inline float flush(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
inline float exp2_approx(float x) { return flush(std::exp2(flush(x))); }
inline float log2_approx(float x) { return std::log2(flush(x)); }
inline float reciprocal_approx(float x) { return flush(1.0f / flush(x)); }

}  // namespace fagen::emu
