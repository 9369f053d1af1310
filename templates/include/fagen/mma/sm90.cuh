// Warpgroup-level matrix products on wgmma: 64 rows of Q per warpgroup, K and V from swizzled shared tiles, P
// from registers (FlashAttention-3, section 3). They are issued, not waited for: until the wgmma_wait that
// covers it, a product's accumulator and P belong to the tensor core.
//
// An accumulator is float [1][N / 8][4], as mma/sm80.cuh's of one 16-row block: each warp has 16 of the rows.
#pragma once

#include "fagen/ptx/uniform.cuh"
#include "fagen/ptx/wgmma.cuh"
#include "fagen/smem/descriptor_sm90.cuh"
#include "fagen/smem/tile.cuh"

namespace fagen::mma {

inline constexpr int kWarpgroupRows = 64;

template <int kN>
using WarpgroupAccumulator = float[1][kN / 8][4];

// P as A operand: four registers for each 16 columns.
template <int kN>
using WarpgroupOperand = uint32_t[kN / 16][4];

// The accumulator as one instruction has it.
template <int kN>
__device__ __forceinline__ float (&registers(float (&x)[1][kN][4]))[4 * kN] {
  return reinterpret_cast<float (&)[4 * kN]>(x);
}

// Reads of the accumulator stay behind the wgmma_wait before this, and writes before the wgmma after it.
template <int kN>
__device__ __forceinline__ void pin(float (&x)[1][kN][4]) {
  ptx::pin(registers(x));
}

template <typename TileT>
__device__ __forceinline__ constexpr smem::Swizzle swizzle_of() {
  return TileT::kRowBytes == 128  ? smem::Swizzle::k128
         : TileT::kRowBytes == 64 ? smem::Swizzle::k64
                                  : smem::Swizzle::k32;
}

inline constexpr int kStepBytes = 32;  // of a row of a K-major operand that one wgmma multiplies

// S = Q K^T with Q a tile [64][d] and K a tile [Bc][d], which have zeros from column kColumns on.
template <typename T, typename QTile, typename KTile, int kColumns>
__device__ __forceinline__ void issue_qk(WarpgroupAccumulator<KTile::kRows>& s, uint32_t q_tile,
                                         uint32_t k_tile) {
  const uint64_t q = smem::descriptor(ptx::fresh(q_tile), 0, 8 * QTile::kRowBytes, swizzle_of<QTile>());
  const uint64_t k = smem::descriptor(ptx::fresh(k_tile), 0, 8 * KTile::kRowBytes, swizzle_of<KTile>());
#pragma unroll
  for (int step = 0; step * kStepBytes < kColumns * KTile::kElementBytes; ++step) {
    constexpr int kPerPanel = KTile::kRowBytes / kStepBytes;
    const int panel = step / kPerPanel, bytes = step % kPerPanel * kStepBytes;
    ptx::wgmma<T, T>(registers(s), smem::advance(q, panel * QTile::kPanelBytes + bytes),
                     smem::advance(k, panel * KTile::kPanelBytes + bytes), step > 0);
  }
}

// O = P V or O += P V with V a tile [Bc][dv].
template <typename T, typename VTile>
__device__ __forceinline__ void issue_pv(WarpgroupAccumulator<VTile::kCols>& o,
                                         const WarpgroupOperand<VTile::kRows>& p, uint32_t v_tile,
                                         bool accumulate) {
  const uint64_t v =
      smem::descriptor(ptx::fresh(v_tile), VTile::kPanelBytes, 8 * VTile::kRowBytes, swizzle_of<VTile>());
#pragma unroll
  for (int step = 0; step < VTile::kRows / 16; ++step)
    ptx::wgmma<T, T, ptx::Major::kMN>(registers(o), p[step], smem::advance(v, step * 16 * VTile::kRowBytes),
                                      accumulate || step > 0);
}

// Rounds an accumulator to an operand: two neighbouring 8-column blocks are the four registers of 16 columns,
// so P moves through no memory and no other lane.
template <typename T, int kN>
__device__ __forceinline__ void round(const float (&s)[1][kN][4], uint32_t (&p)[kN / 2][4]) {
#pragma unroll
  for (int step = 0; step < kN / 2; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* pair = &s[0][2 * step + i / 2][i % 2 * 2];
      p[step][i] = pack<T>(pair[0], pair[1]);
    }
}

}  // namespace fagen::mma
