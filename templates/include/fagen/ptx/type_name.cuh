// Element types as matrix instructions spell them, for the "C" constraint of inline asm.
#pragma once

#include "fagen/base/fp8.cuh"
#include "fagen/base/types.cuh"

namespace fagen::ptx {

template <typename T>
struct TypeName;
template <>
struct TypeName<__half> {
  static constexpr char kText[] = ".f16";
};
template <>
struct TypeName<__nv_bfloat16> {
  static constexpr char kText[] = ".bf16";
};
template <>
struct TypeName<e4m3> {
  static constexpr char kText[] = ".e4m3";
};
template <>
struct TypeName<e5m2> {
  static constexpr char kText[] = ".e5m2";
};

}  // namespace fagen::ptx
