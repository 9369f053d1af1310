// Additions to global memory, which several clusters may make at once.
#pragma once

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>

#include "float16.hpp"

namespace fagen::emu {

enum class AddKind : uint8_t { none, f16, bf16, f32, f32_flushed };

namespace detail {

template <class Bits, class Sum>
void add_elements(void* to, const void* from, uint32_t bytes, Sum sum) {
  for (uint32_t i = 0; i < bytes / sizeof(Bits); ++i) {
    std::atomic_ref<Bits> target(static_cast<Bits*>(to)[i]);
    Bits add = static_cast<const Bits*>(from)[i], old = target.load();
    while (!target.compare_exchange_weak(old, sum(old, add))) {
    }
  }
}

inline float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

}  // namespace detail

// Adds `bytes` bytes of elements, each rounded to nearest even.
inline void atomic_add(AddKind kind, void* to, const void* from, uint32_t bytes) {
  using detail::add_elements, detail::flushed;
  auto as_float = [](uint32_t x) { return std::bit_cast<float>(x); };
  switch (kind) {
    case AddKind::none:
      break;
    case AddKind::f16:
      add_elements<uint16_t>(to, from, bytes, [](uint16_t a, uint16_t b) {
        return fp16_of_float(float_of_fp16(a) + float_of_fp16(b));
      });
      break;
    case AddKind::bf16:
      add_elements<uint16_t>(to, from, bytes, [](uint16_t a, uint16_t b) {
        return bf16_of_float(float_of_bf16(a) + float_of_bf16(b));
      });
      break;
    case AddKind::f32:
      add_elements<uint32_t>(to, from, bytes, [=](uint32_t a, uint32_t b) {
        return std::bit_cast<uint32_t>(as_float(a) + as_float(b));
      });
      break;
    case AddKind::f32_flushed:
      add_elements<uint32_t>(to, from, bytes, [=](uint32_t a, uint32_t b) {
        return std::bit_cast<uint32_t>(flushed(flushed(as_float(a)) + flushed(as_float(b))));
      });
      break;
  }
}

}  // namespace fagen::emu
