// What 8-bit q, k and v are to be multiplied by to be what they stand for: one number for each K/V head of a
// sequence, which its query heads share.
#pragma once

#include "fagen/base/constants.cuh"
#include "fagen/base/grid.cuh"
#include "fagen/base/types.cuh"
#include "fagen/ptx/global.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/ptx/uniform.cuh"
#include "fagen/sched/work.cuh"

namespace fagen::attn {

// A scale made of descales, but no less than `least`; NaN where it is below 0, which none may be, or NaN.
__device__ __forceinline__ float at_least(float scale, float least) {
  return scale >= 0.0f ? fmaxf(scale, least) : kNan;
}

// By what scores are scaled. They, unlike what they stand for, are finite even if a descale is 0; a hidden
// one, -inf, times 0 were NaN.
__device__ __forceinline__ float score_scale(float scale) { return at_least(scale, 1e-30f); }

// Those of a work item. The load role, which is ahead, fetches them and leaves them in shared memory.
struct HeadDescales {
  static constexpr int kSharedBytes = 8;
  float qk;  // of its scores
  float v;   // of its O

  __device__ __forceinline__ HeadDescales() {}

  template <typename Params>
  __device__ __forceinline__ HeadDescales(const Params& p, const sched::Work& work) {
    auto of = [&](const float* descale, int64_t batch_stride, int64_t head_stride) {
      return ptx::ld_global(descale + work.batch * batch_stride + work.head_kv * head_stride);
    };
    qk = of(p.q_descale, p.q_descale_batch_stride, p.q_descale_head_stride) *
         of(p.k_descale, p.k_descale_batch_stride, p.k_descale_head_stride);
    v = of(p.v_descale, p.v_descale_batch_stride, p.v_descale_head_stride);
  }

  __device__ __forceinline__ void put(uint32_t smem) const {
    ptx::st_shared(smem, __builtin_bit_cast(uint32_t, qk));
    ptx::st_shared(smem + 4, __builtin_bit_cast(uint32_t, v));
  }
  // To all lanes of a warp, of which lane 0 reads.
  __device__ __forceinline__ static HeadDescales get(uint32_t smem) {
    auto word = [&](uint32_t at) {
      return __builtin_bit_cast(float, ptx::broadcast(lane_id() == 0 ? ptx::ld_shared(at) : 0));
    };
    HeadDescales descales;
    descales.qk = word(smem), descales.v = word(smem + 4);
    return descales;
  }
};

}  // namespace fagen::attn
