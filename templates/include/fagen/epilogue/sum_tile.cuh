// A tile of fp32 sums in global memory: many CTAs add their accumulators to it, or one keeps its own there.
//
// The tile lies in the order of the accumulators' registers, not by rows and columns: a warp's instruction
// covers whole lines.
#pragma once

#include "fagen/base/grid.cuh"
#include "fagen/ptx/global.cuh"
#include "fagen/ptx/reduce.cuh"

namespace fagen::epilogue {

// This lane's registers of a warp's kM * kN accumulator blocks, in groups of kWidth.
template <int kWidth, int kM, int kN, typename Float, typename Visit>
__device__ __forceinline__ void visit_sums(float (&c)[kM][kN][4], Float* sums, Visit visit) {
  Float* own = sums + warp_id() * (kM * kN * 128) + lane_id() * kWidth;
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; i += kWidth)
        visit(own + 32 * ((m * kN + n) * 4 + i), reinterpret_cast<float (&)[kWidth]>(c[m][n][i]));
}

// Adds this warp's accumulator to the tile at `sums`.
template <int kM, int kN>
__device__ __forceinline__ void add_to_sums(float (&c)[kM][kN][4], float* sums) {
  visit_sums<ptx::kReduceWidth>(c, sums, [](float* at, auto& values) { ptx::reduce_add(at, values); });
}

// Reads it back, all sums being there.
template <int kM, int kN>
__device__ __forceinline__ void load_sums(float (&c)[kM][kN][4], const float* sums) {
  visit_sums<ptx::kReduceWidth>(c, sums, [](const float* at, auto& values) { ptx::ld_global(at, values); });
}

// Of a tile that no other CTA touches: a lane reads and writes what it has written itself.
template <int kM, int kN>
__device__ __forceinline__ void load_own_sums(float (&c)[kM][kN][4], const float* sums) {
  visit_sums<4>(c, sums, [](const float* at, float (&values)[4]) {
    const uint4 bits = ptx::ld_global_16(at);
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = __builtin_bit_cast(float, (&bits.x)[i]);
  });
}

template <int kM, int kN>
__device__ __forceinline__ void store_own_sums(float (&c)[kM][kN][4], float* sums) {
  visit_sums<4>(c, sums, [](float* at, float (&values)[4]) {
    uint4 bits;
#pragma unroll
    for (int i = 0; i < 4; ++i) (&bits.x)[i] = __builtin_bit_cast(uint32_t, values[i]);
    ptx::st_global_16(at, bits);
  });
}

// The CTA's kThreads threads clear `count` sums, a multiple of 4.
template <int kThreads>
__device__ __forceinline__ void clear_sums(float* sums, int64_t count) {
  for (int64_t i = 4 * threadIdx.x; i < count; i += 4 * kThreads)
    ptx::st_global_16(sums + i, uint4{0, 0, 0, 0});
}

}  // namespace fagen::epilogue
