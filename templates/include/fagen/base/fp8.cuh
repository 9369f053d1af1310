// The 8-bit element types. Their values move in registers of four.
#pragma once

namespace fagen {

// 1 sign, 4 exponent, 3 mantissa bits; largest value 448; no infinity.
struct e4m3 {
  unsigned char bits;
};

// 1 sign, 5 exponent, 2 mantissa bits; largest finite value 57344.
struct e5m2 {
  unsigned char bits;
};

}  // namespace fagen
