// Warp-level matrix products on mma.sync m16n8k16, operands from swizzled shared tiles.
//
// A warp owns kM blocks of 16 rows. An accumulator is float [kM][N / 8][4]: see ptx/mma_sync.cuh for the
// (row, column) of each register.
#pragma once

#include "fagen/base/grid.cuh"
#include "fagen/ptx/ldmatrix.cuh"
#include "fagen/ptx/mma_sync.cuh"
#include "fagen/smem/tile.cuh"

namespace fagen::mma {

template <int kM, int kN>
using Accumulator = float[kM][kN / 8][4];

template <int kM>
using FragmentA = uint32_t[kM][4];

// Lane's cursor over a tile read as A operand, or as B operand stored [k][n] (transposed on the way).
template <typename TileT>
__device__ __forceinline__ smem::Cursor<TileT> cursor_row_major(uint32_t tile) {
  return {tile, lane_id() & 15, lane_id() >> 4};
}

// Lane's cursor over a tile read as B operand stored [n][k].
template <typename TileT>
__device__ __forceinline__ smem::Cursor<TileT> cursor_col_major(uint32_t tile) {
  return {tile, (lane_id() & 7) + (lane_id() >> 4) * 8, (lane_id() >> 3) & 1};
}

// Q as A operand, read again from shared memory at every use.
template <typename TileT, int kM>
struct SharedA {
  smem::Cursor<TileT> cursor;

  __device__ __forceinline__ void fragment(FragmentA<kM>& a, int k) const {
#pragma unroll
    for (int m = 0; m < kM; ++m) ptx::ldmatrix_x4(a[m], cursor.block(16 * m, k));
  }
};

// Q as A operand, read once and held in registers.
template <typename TileT, int kM>
struct RegisterA {
  FragmentA<kM> held[TileT::kCols / 16];

  __device__ __forceinline__ void load(const SharedA<TileT, kM>& shared) {
#pragma unroll
    for (int k = 0; k < TileT::kCols; k += 16) shared.fragment(held[k / 16], k);
  }

  __device__ __forceinline__ void fragment(FragmentA<kM>& a, int k) const {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) a[m][i] = held[k / 16][m][i];
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

// S = A K^T: A is [16 kM][d], K a tile [Bc][d].
template <typename T, typename KTile, int kM, typename OperandA>
__device__ __forceinline__ void gemm_qk(Accumulator<kM, KTile::kRows>& s, const OperandA& q,
                                        const smem::Cursor<KTile>& k_tile) {
  clear(s);
#pragma unroll
  for (int k = 0; k < KTile::kCols; k += 16) {
    FragmentA<kM> a;
    q.fragment(a, k);
#pragma unroll
    for (int n = 0; n < KTile::kRows; n += 16) {
      uint32_t b[4];
      ptx::ldmatrix_x4(b, k_tile.block(n, k));
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        ptx::mma_m16n8k16<T>(s[m][n / 8], a[m], b[0], b[1]);
        ptx::mma_m16n8k16<T>(s[m][n / 8 + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// O += P V: P is [16 kM][Bc] in accumulator registers, V a tile [Bc][dv]. Two neighbouring 8-column blocks
// of an accumulator are, rounded to 16 bits, the A fragment of one k-step: P moves through no memory.
template <typename T, typename VTile, int kM>
__device__ __forceinline__ void gemm_pv(Accumulator<kM, VTile::kCols>& o,
                                        const Accumulator<kM, VTile::kRows>& p,
                                        const smem::Cursor<VTile>& v_tile) {
#pragma unroll
  for (int k = 0; k < VTile::kRows; k += 16) {
    FragmentA<kM> a;
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        a[m][i] = pack<T>(p[m][k / 8 + i / 2][i % 2 * 2], p[m][k / 8 + i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int n = 0; n < VTile::kCols; n += 16) {
      uint32_t b[4];
      ptx::ldmatrix_x4_trans(b, v_tile.block(k, n));
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        ptx::mma_m16n8k16<T>(o[m][n / 8], a[m], b[0], b[1]);
        ptx::mma_m16n8k16<T>(o[m][n / 8 + 1], a[m], b[2], b[3]);
      }
    }
  }
}

}  // namespace fagen::mma
