// The online softmax of one warp's rows (FlashAttention-2, section 3.1): O stays unnormalised and is
// divided by the row sum once, at the end.
//
// Scores come in unscaled; `scale_log2` = softmax scale * log2(e) is folded into the exponent. A row's
// reference is the maximum that its P is scaled by: exp2((s - reference) * scale_log2 + kOffset). An offset
// lets P use more of the range of an 8-bit type; it leaves through the row sum.
//
// With kByTile every tile has a scale_log2 of its own, and a share that its P is multiplied by beside.
// References are then kept times the scale of their tile.
#pragma once

#include "fagen/attn/exp2.cuh"
#include "fagen/base/constants.cuh"
#include "fagen/base/types.cuh"
#include "fagen/ptx/special.cuh"
#include "fagen/ptx/uniform.cuh"

namespace fagen::attn {

inline constexpr uint32_t kWarp = 0xffffffffu;

// Above this, rounding s * scale_log2 - reference * scale_log2 in one FMA could reach whole powers of two.
inline constexpr float kLargeExponent = 65536.0f;
__device__ __forceinline__ bool is_large(const float (&exponent)[2]) {
  return fmaxf(fabsf(exponent[0]), fabsf(exponent[1])) > kLargeExponent;
}

// A lane's part of a row sum above which P is not scaled down: some of it may be infinite.
inline constexpr float kLostSum = 0x1p120f;

// The four lanes of a quad share a row of an mma accumulator.
__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kWarp, x, 1));
  return fmaxf(x, __shfl_xor_sync(kWarp, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(kWarp, x, 1);
  return x + __shfl_xor_sync(kWarp, x, 2);
}

// This lane's largest of row r of the two that it has.
template <int kN>
__device__ __forceinline__ float row_max(const float (&s)[kN][4], int r) {
  float x = fmaxf(s[0][2 * r], s[0][2 * r + 1]);
#pragma unroll
  for (int n = 1; n < kN; ++n) x = fmaxf(x, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
  return x;
}

// O or P times its rows' factors.
template <int kM, int kNv>
__device__ __forceinline__ void scale(float (&o)[kM][kNv][4], const float (&factor)[kM][2]) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kNv; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) o[m][n][i] *= factor[m][i / 2];
}

template <int kM, int kOffset = 0, bool kByTile = false>
struct Softmax {
  float reference[kM][2];  // per row g and g + 8 of each 16-row block, -inf before the first key
  float sum[kM][2];        // this lane's part of the row sum
  float scale_log2;
  float offset;    // kByTile: kOffset and the logarithm of the tile's share
  float regained;  // kByTile: what to multiply a sum of the tile's P by, to be that without the share

  __device__ __forceinline__ explicit Softmax(float scale_log2) : scale_log2(scale_log2) {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) reference[m][r] = -kInf, sum[m][r] = 0.0f;
  }

  // kByTile: before a tile.
  __device__ __forceinline__ void begin_tile(float scale, float share) {
    scale_log2 = scale;
    offset = kOffset + ptx::log2(share);
    regained = ptx::reciprocal(share);
  }

  // Moves each row's reference to its maximum over `s`, rescales the sums to it, and says by what to scale O.
  // With kLazy >= 0 nothing moves while no row of the warp has grown by more than 2^kLazy: P then exceeds 1,
  // by that factor at most, and the final division takes it out (FlashAttention-4's conditional rescale).
  // False if nothing moved; `factor` is then 1.
  template <typename Policy, int kN>
  __device__ __forceinline__ bool advance(const float (&s)[kM][kN][4], float (&factor)[kM][2]) {
    float next[kM][2];
    bool grown = false;
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float x = row_max(s[m], r);
        if constexpr (kByTile) x *= scale_log2;
        next[m][r] = fmaxf(reference[m][r], quad_max(x));
        factor[m][r] = 1.0f;
        grown |= in_log2(next[m][r] - reference[m][r]) > Policy::kLazy;
      }
    if (Policy::kLazy >= 0.0f && !__any_sync(kWarp, grown)) return false;
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        // A row that has seen no key yet keeps -inf: its sum and O are zero, whatever they are scaled by.
        float shift = next[m][r] == -kInf ? 0.0f : in_log2(reference[m][r] - next[m][r]);
        factor[m][r] = ptx::exp2(shift);
        reference[m][r] = next[m][r];
        sum[m][r] *= factor[m][r];
      }
    return true;
  }

  // The same, and scales `o`.
  template <typename Policy, int kN, int kNv>
  __device__ __forceinline__ void rescale(const float (&s)[kM][kN][4], float (&o)[kM][kNv][4]) {
    float factor[kM][2];
    if (advance<Policy>(s, factor)) scale(o, factor);
  }

  // Turns scores into P in place and adds them to the row sums. Until its first key a row's reference is
  // -inf, and so are its scores: shifted by nothing they become P = 0.
  template <typename Policy, int kN>
  __device__ __forceinline__ void exponentiate(float (&s)[kM][kN][4]) {
    float shift[kM][2];
    bool large = false;
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        shift[m][r] = reference[m][r] == -kInf ? 0.0f : exponent_at(reference[m][r]);
#pragma unroll
    for (int m = 0; m < kM; ++m) large |= is_large(shift[m]);
    if constexpr (kByTile) {
      float part[kM][2] = {};
      exponentials<Policy>(s, shift, part);
      add(part);
    } else {
      if (__any_sync(kWarp, large)) subtract_reference(s, shift);
      exponentials<Policy>(s, shift, sum);
    }
  }

  // The same, with the references as they are, which saves finding the maxima: P then exceeds 1 where scores
  // have grown, and the final division takes that out. False where a row's `part`, the sum over this lane's
  // scores, exceeds kGrowth, or a reference is missing or huge: the row sums are then as they were.
  template <typename Policy, int kN>
  __device__ __forceinline__ bool try_exponentiate(float (&s)[kM][kN][4], float (&part)[kM][2]) {
    float shift[kM][2];
    bool fails = false;
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) shift[m][r] = exponent_at(reference[m][r]), part[m][r] = 0.0f;
    exponentials<Policy>(s, shift, part);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      fails |= fmaxf(part[m][0], part[m][1]) > Policy::kGrowth;
      fails |= is_large(shift[m]);
    }
    if (__any_sync(kWarp, fails)) return false;
    add(part);
    return true;
  }

  // After that: moves the references of the warp's rows to their maxima after all, scales P down for it, and
  // says by what to scale O. P need not be computed again: fp32 has it as exactly as ever. False where it has
  // not, `s` being spent: the caller must then come back with the scores and move the references. No
  // scale_log2 is so small that its reciprocal is infinite.
  template <int kN>
  __device__ __forceinline__ bool scale_down(float (&s)[kM][kN][4], float (&part)[kM][2],
                                             float (&factor)[kM][2]) {
    bool is_lost = false;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      const float shift[2] = {exponent_at(reference[m][0]), exponent_at(reference[m][1])};
      is_lost |= fmaxf(part[m][0], part[m][1]) > kLostSum || is_large(shift);
    }
    if (__any_sync(kWarp, is_lost)) return false;
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float growth = fmaxf(ptx::log2(quad_max(row_max(s[m], r))) - p_offset(), 0.0f);
        const float next = reference[m][r] + (kByTile ? growth : growth * ptx::reciprocal(scale_log2));
        factor[m][r] = ptx::exp2(in_log2(reference[m][r] - next));
        reference[m][r] = next;
        sum[m][r] *= factor[m][r];
        part[m][r] *= factor[m][r];
      }
    scale(s, factor);
    add(part);
    return true;
  }

  // Adds a tile's part to the row sums.
  __device__ __forceinline__ void add(const float (&part)[kM][2]) {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) sum[m][r] += kByTile ? part[m][r] * regained : part[m][r];
  }

  // A difference of references as a power of two; the power of two that P is at the reference; and what to
  // take off the exponents of a reference's row.
  __device__ __forceinline__ float in_log2(float x) const { return kByTile ? x : x * scale_log2; }
  __device__ __forceinline__ float p_offset() const { return kByTile ? offset : kOffset; }
  __device__ __forceinline__ float exponent_at(float reference) const {
    return in_log2(reference) - p_offset();
  }

  // P of every score for these shifts, in place, added to the rows' sums. With kSpreadsExponents each 16
  // columns wait for the sums of the 16 that came two before: the compiler would have the exponents of all
  // scores first, while the special-function unit, which takes longest, has nothing to do.
  template <typename Policy, int kN>
  __device__ __forceinline__ void exponentials(float (&s)[kM][kN][4], const float (&shift)[kM][2],
                                               float (&sums)[kM][2]) const {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      float past[2][2];  // the sums of each row, by turns
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const int turn = n / 2 % 2;
        const bool waits = Policy::kSpreadsExponents && n >= 4;
        float own[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) own[r] = waits ? ptx::after(past[turn][r], shift[m][r]) : shift[m][r];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& x = s[m][n][i];
          if (is_polynomial<Policy>(4 * n + i))
            x = polynomial_exp2(x, scale_log2, own[i / 2]);
          else
            x = ptx::exp2(fmaf(x, scale_log2, -own[i / 2]));
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) sums[m][r] += s[m][n][2 * r] + s[m][n][2 * r + 1];
        if (n % 2 == 1) past[turn][0] = sums[m][0], past[turn][1] = sums[m][1];
      }
    }
  }

  // For huge scores: s - reference exactly, before scaling, and nothing left to shift by but the offset.
  template <int kN>
  __device__ __forceinline__ void subtract_reference(float (&s)[kM][kN][4], float (&shift)[kM][2]) const {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float x = reference[m][r] == -kInf ? 0.0f : reference[m][r];
        shift[m][r] = -kOffset;
#pragma unroll
        for (int n = 0; n < kN; ++n) s[m][n][2 * r] -= x, s[m][n][2 * r + 1] -= x;
      }
  }

  // The reciprocals of the row sums, to scale O by, and the rows' natural-log LSE: 0 and -inf without keys.
  __device__ __forceinline__ void finish(float (&inverse)[kM][2], float (&lse)[kM][2]) const {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float total = quad_sum(sum[m][r]);
        bool empty = total == 0.0f;
        inverse[m][r] = empty ? 0.0f : ptx::reciprocal(total);
        lse[m][r] = empty ? -kInf : (in_log2(reference[m][r]) - kOffset + ptx::log2(total)) * kLn2;
      }
  }
};

}  // namespace fagen::attn
