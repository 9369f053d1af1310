// Numbers that C++ has no literal for.
#pragma once

namespace fagen {

inline constexpr float kLn2 = 0.693147180559945309f;
inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kInf = __builtin_bit_cast(float, 0x7f800000);
inline constexpr float kNan = __builtin_bit_cast(float, 0x7fffffff);

}  // namespace fagen
