// Emulation of ptx/stmatrix.cuh.
#pragma once

#include "fagen/base/types.cuh"
#include "store_matrix.hpp"

namespace fagen::ptx {

inline constexpr bool kHasStmatrix = FAGEN_EMU >= 900;

__device__ __forceinline__ void stmatrix_x1(uint32_t smem, const uint32_t (&r)[1]) {
  emu::store_matrix(smem, r, 1, false);
}

__device__ __forceinline__ void stmatrix_x1_trans(uint32_t smem, const uint32_t (&r)[1]) {
  emu::store_matrix(smem, r, 1, true);
}

__device__ __forceinline__ void stmatrix_x2(uint32_t smem, const uint32_t (&r)[2]) {
  emu::store_matrix(smem, r, 2, false);
}

__device__ __forceinline__ void stmatrix_x2_trans(uint32_t smem, const uint32_t (&r)[2]) {
  emu::store_matrix(smem, r, 2, true);
}

__device__ __forceinline__ void stmatrix_x4(uint32_t smem, const uint32_t (&r)[4]) {
  emu::store_matrix(smem, r, 4, false);
}

__device__ __forceinline__ void stmatrix_x4_trans(uint32_t smem, const uint32_t (&r)[4]) {
  emu::store_matrix(smem, r, 4, true);
}

}  // namespace fagen::ptx
