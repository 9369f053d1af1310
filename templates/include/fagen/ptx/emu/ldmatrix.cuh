// Emulation of ptx/ldmatrix.cuh.
#pragma once

#include "fagen/base/types.cuh"
#include "warp_matrix.hpp"

namespace fagen::ptx {

__device__ __forceinline__ void ldmatrix_x1(uint32_t (&r)[1], uint32_t smem) {
  emu::load_matrix(r, 1, false, smem);
}

__device__ __forceinline__ void ldmatrix_x1_trans(uint32_t (&r)[1], uint32_t smem) {
  emu::load_matrix(r, 1, true, smem);
}

__device__ __forceinline__ void ldmatrix_x2(uint32_t (&r)[2], uint32_t smem) {
  emu::load_matrix(r, 2, false, smem);
}

__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&r)[2], uint32_t smem) {
  emu::load_matrix(r, 2, true, smem);
}

__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], uint32_t smem) {
  emu::load_matrix(r, 4, false, smem);
}

__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t smem) {
  emu::load_matrix(r, 4, true, smem);
}

}  // namespace fagen::ptx
