// e4m3 and e5m2 as bits: their values in fp32 (OCP 8-bit floating point).
#pragma once

#include "float16.hpp"

namespace fagen::emu {

// The exponent's bias moves from 7 to fp16's 15; a multiplication does it for subnormals too.
inline float float_of_e4m3(uint8_t bits) {
  if ((bits & 0x7f) == 0x7f) return std::bit_cast<float>(0x7fffffffu);
  auto half = static_cast<uint16_t>((bits & 0x80) << 8 | (bits & 0x7f) << 7);
  return float_of_fp16(half) * 256.0f;
}

// The upper half of an fp16.
inline float float_of_e5m2(uint8_t bits) { return float_of_fp16(static_cast<uint16_t>(bits << 8)); }

}  // namespace fagen::emu
