// Warp-level matrix products on mma.sync m16n8k16, operands from swizzled shared tiles or from registers;
// 8-bit ones on m16n8k32, from shared tiles, whose fragments are the same bytes.
//
// A warp owns kM blocks of 16 rows. An accumulator is float [kM][N / 8][4]: see ptx/mma_sync.cuh for the
// (row, column) of each register. An operand answers fragment(): A for 16 columns k of its rows, B for 16
// rows k of 16 columns n.
#pragma once

#include "fagen/base/grid.cuh"
#include "fagen/ptx/ldmatrix.cuh"
#include "fagen/ptx/mma_sync.cuh"
#include "fagen/ptx/mma_sync_fp8.cuh"
#include "fagen/smem/tile.cuh"

namespace fagen::mma {

template <int kM, int kN>
using Accumulator = float[kM][kN / 8][4];

template <int kM>
using FragmentA = uint32_t[kM][4];

// Lane's cursor over a tile, from (row0, col0) on kWidth columns: A operand, or B operand stored [k][n]
// (transposed on the way).
template <typename TileT, int kWidth = TileT::kCols>
__device__ __forceinline__ smem::Cursor<TileT, kWidth> cursor_row_major(uint32_t tile, int row0 = 0,
                                                                        int col0 = 0) {
  return {tile, row0 + (lane_id() & 15), col0 / TileT::kChunkCols + (lane_id() >> 4)};
}

// The same: B operand stored [n][k], or A operand stored [k][m] (transposed on the way).
template <typename TileT, int kWidth = TileT::kCols>
__device__ __forceinline__ smem::Cursor<TileT, kWidth> cursor_col_major(uint32_t tile, int row0 = 0,
                                                                        int col0 = 0) {
  return {tile, row0 + (lane_id() & 7) + (lane_id() >> 4) * 8,
          col0 / TileT::kChunkCols + ((lane_id() >> 3) & 1)};
}

// A stored [m][k], read at every use.
template <typename Cursor, int kM>
struct SharedA {
  Cursor cursor;  // row-major

  __device__ __forceinline__ void fragment(FragmentA<kM>& a, int k) const {
#pragma unroll
    for (int m = 0; m < kM; ++m) ptx::ldmatrix_x4(a[m], cursor.block(16 * m, k));
  }
};

// A stored [k][m], read at every use.
template <typename Cursor, int kM>
struct SharedTransposedA {
  Cursor cursor;  // column-major

  __device__ __forceinline__ void fragment(FragmentA<kM>& a, int k) const {
#pragma unroll
    for (int m = 0; m < kM; ++m) ptx::ldmatrix_x4_trans(a[m], cursor.block(k, 16 * m));
  }
};

// A read once and held in registers.
template <int kK, int kM>
struct RegisterA {
  FragmentA<kM> held[kK / 16];

  template <typename Shared>
  __device__ __forceinline__ void load(const Shared& shared) {
#pragma unroll
    for (int k = 0; k < kK; k += 16) shared.fragment(held[k / 16], k);
  }

  __device__ __forceinline__ void fragment(FragmentA<kM>& a, int k) const {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) a[m][i] = held[k / 16][m][i];
  }
};

// A from an accumulator, rounded to 16 bits: two neighbouring blocks of 8 columns are the fragment of one
// k-step, so that it moves through no memory.
template <typename T, int kM, int kN>
struct AccumulatorA {
  const float (&c)[kM][kN][4];

  __device__ __forceinline__ void fragment(FragmentA<kM>& a, int k) const {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        a[m][i] = pack<T>(c[m][k / 8 + i / 2][i % 2 * 2], c[m][k / 8 + i / 2][i % 2 * 2 + 1]);
  }
};

template <typename T, int kM, int kN>
__device__ __forceinline__ AccumulatorA<T, kM, kN> as_operand(const float (&c)[kM][kN][4]) {
  return {c};
}

// B stored [n][k].
template <typename Cursor>
struct SharedB {
  Cursor cursor;  // column-major

  __device__ __forceinline__ void fragment(uint32_t (&b)[4], int n, int k) const {
    ptx::ldmatrix_x4(b, cursor.block(n, k));
  }
};

// B stored [k][n].
template <typename Cursor>
struct SharedTransposedB {
  Cursor cursor;  // row-major

  __device__ __forceinline__ void fragment(uint32_t (&b)[4], int n, int k) const {
    ptx::ldmatrix_x4_trans(b, cursor.block(k, n));
  }
};

template <int kM, int kN>
__device__ __forceinline__ void clear(float (&c)[kM][kN][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) c[m][n][i] = 0.0f;
}

template <int kM, int kN>
__device__ __forceinline__ void scale(float (&c)[kM][kN][4], float factor) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) c[m][n][i] *= factor;
}

template <typename T>
__device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (sizeof(T) == 1)
    ptx::mma_m16n8k32<T, T>(c, a, b0, b1);
  else
    ptx::mma_m16n8k16<T>(c, a, b0, b1);
}

// C += A B: A is [16 kM][kK], B [kK][8 kN].
template <typename T, int kK, int kM, int kN, typename OperandA, typename OperandB>
__device__ __forceinline__ void gemm(float (&c)[kM][kN][4], const OperandA& a_operand,
                                     const OperandB& b_operand) {
#pragma unroll(sizeof(T) == 1 ? 1 : kK)  // sm_90 has 8-bit mma.sync in many instructions
  for (int k = 0; k < kK; k += 32 / sizeof(T)) {
    FragmentA<kM> a;
    a_operand.fragment(a, k);
#pragma unroll
    for (int n = 0; n < 8 * kN; n += 16) {
      uint32_t b[4];
      b_operand.fragment(b, n, k);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply<T>(c[m][n / 8], a[m], b[0], b[1]);
        multiply<T>(c[m][n / 8 + 1], a[m], b[2], b[3]);
      }
    }
  }
}

}  // namespace fagen::mma
