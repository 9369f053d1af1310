// The 64-bit descriptor of a wgmma operand in shared memory (PTX ISA, "Matrix-descriptor").
//
// The operand is made of atoms: 8 rows of 16, 32, 64 or 128 bytes (the swizzle's span; 16 without one),
// rows running along M or N for a K-major operand and along K for an MN-major one. What the two strides, in
// bytes, say:
//
//               no swizzle                                  with a swizzle
//   K-major     `leading`: next 16 bytes of K               `leading`: not used
//               `stride`:  next 8 rows of M or N            `stride`:  next 8 rows of M or N
//   MN-major    `leading`: next 8 rows of K                 `leading`: next span of M or N
//               `stride`:  next 16 bytes of M or N          `stride`:  next 8 rows of K
#pragma once

#include "fagen/base/types.cuh"

namespace fagen::smem {

// Values of the descriptor's layout field. XORs bits 4.. of the shared-memory address with bits 7..
enum class Swizzle : uint32_t { kNone = 0, k128 = 1, k64 = 2, k32 = 3 };

// `address` and strides are multiples of 16 below 2^18. The swizzle's pattern is one of the address itself,
// so atoms start at multiples of 8 spans, and an operand may start at any 16-byte column of one.
__device__ __forceinline__ constexpr uint64_t descriptor(uint32_t address, uint32_t leading, uint32_t stride,
                                                         Swizzle swizzle) {
  auto field = [](uint32_t bytes) { return static_cast<uint64_t>((bytes & 0x3ffff) >> 4); };
  return field(address) | field(leading) << 16 | field(stride) << 32 | static_cast<uint64_t>(swizzle) << 62;
}

// The descriptor of what lies `bytes`, a multiple of 16, further on. Shared memory ends below 2^18: no carry.
__device__ __forceinline__ constexpr uint64_t advance(uint64_t descriptor, uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

}  // namespace fagen::smem
