// mma.sync m16n8k32: D += A B on a warp, 8-bit operands (e4m3, e5m2, mixed), fp32 accumulators
// (PTX ISA, "Matrix fragments for mma.m16n8k32"; sm_89). With g = lane/4 and t = lane%4, registers of A hold
// (row g, k 4t..4t+3), (g+8, 4t..), (g, 16+4t..), (g+8, 16+4t..), b0 and b1 hold (k 4t..4t+3, column g) and
// (16+4t.., g); accumulators as in mma_sync.cuh.
#pragma once

#include "fagen/base/fp8.cuh"
#include "fagen/base/types.cuh"

#ifdef FAGEN_EMU
#include "fagen/ptx/emu/mma_sync_fp8.cuh"
#else

#include "fagen/ptx/type_name.cuh"

namespace fagen::ptx {

template <typename A, typename B>
__device__ __forceinline__ void mma_m16n8k32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32%10%11.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "C"(TypeName<A>::kText),
        "C"(TypeName<B>::kText));
}

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
