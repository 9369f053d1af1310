// stmatrix: 8x8 matrices of 16-bit elements from a warp's registers to shared memory, the reverse of ldmatrix
// (PTX ISA, "stmatrix"; sm_90). Lanes 8i..8i+7 give the row addresses of matrix i, 16-byte aligned; lane l
// holds row l/4, columns 2(l%4) and 2(l%4)+1 of each matrix, or the transpose's.
#pragma once

#include "fagen/base/types.cuh"

#ifdef FAGEN_EMU
#include "fagen/ptx/emu/stmatrix.cuh"
#else

namespace fagen::ptx {

inline constexpr bool kHasStmatrix = __CUDA_ARCH__ >= 900;

__device__ __forceinline__ void stmatrix_x1(uint32_t smem, const uint32_t (&r)[1]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(smem), "r"(r[0]) : "memory");
}

__device__ __forceinline__ void stmatrix_x1_trans(uint32_t smem, const uint32_t (&r)[1]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(smem), "r"(r[0])
               : "memory");
}

__device__ __forceinline__ void stmatrix_x2(uint32_t smem, const uint32_t (&r)[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(smem), "r"(r[0]), "r"(r[1])
               : "memory");
}

__device__ __forceinline__ void stmatrix_x2_trans(uint32_t smem, const uint32_t (&r)[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(smem), "r"(r[0]),
               "r"(r[1])
               : "memory");
}

__device__ __forceinline__ void stmatrix_x4(uint32_t smem, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

__device__ __forceinline__ void stmatrix_x4_trans(uint32_t smem, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
