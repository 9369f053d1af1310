// e4m3 and e5m2 as bits: conversions to and from fp32 (OCP 8-bit floating point), rounding to nearest even.
#pragma once

#include "float16.hpp"

namespace fagen::emu {

// The exponent's bias moves from 7 to fp16's 15; a multiplication does it for subnormals too.
inline float float_of_e4m3(uint8_t bits) {
  if ((bits & 0x7f) == 0x7f) return std::bit_cast<float>(0x7fffffffu);
  auto half = static_cast<uint16_t>((bits & 0x80) << 8 | (bits & 0x7f) << 7);
  return float_of_fp16(half) * 256.0f;
}

// What is beyond 448 becomes 448, as cvt.satfinite has it.
inline uint8_t e4m3_of_float(float value) {
  auto bits = std::bit_cast<uint32_t>(value);
  auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7f;          // NaN
  if (magnitude >= 0x43e00000) return sign | 0x7e;  // from 448 on
  if (magnitude < 0x3c800000) {  // subnormal, below 2^-6: let the addition round at the last place, 2^-9
    float scaled = std::bit_cast<float>(magnitude) + 0x1p14f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(scaled) - 0x46800000));
  }
  return static_cast<uint8_t>(sign | ((magnitude - 0x3c000000 + 0x7ffff + (magnitude >> 20 & 1)) >> 20));
}

// The upper half of an fp16.
inline float float_of_e5m2(uint8_t bits) { return float_of_fp16(static_cast<uint16_t>(bits << 8)); }

// What is beyond 57344 becomes 57344, as cvt.satfinite has it.
inline uint8_t e5m2_of_float(float value) {
  auto bits = std::bit_cast<uint32_t>(value);
  auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7f;          // NaN
  if (magnitude >= 0x47600000) return sign | 0x7b;  // from 57344 on
  if (magnitude < 0x38800000) {  // subnormal, below 2^-14: let the addition round at the last place, 2^-16
    float scaled = std::bit_cast<float>(magnitude) + 0x1p7f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(scaled) - 0x43000000));
  }
  return static_cast<uint8_t>(sign | ((magnitude - 0x38000000 + 0xfffff + (magnitude >> 21 & 1)) >> 21));
}

}  // namespace fagen::emu
