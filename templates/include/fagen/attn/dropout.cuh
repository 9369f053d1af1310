// Which elements of P dropout keeps: the counter-based generator Philox4x32-10 (Salmon et al., "Parallel
// random numbers: as easy as 1, 2, 3", 2011), so that the backward finds the mask again that the forward
// used.
#pragma once

#include "fagen/base/grid.cuh"
#include "fagen/base/types.cuh"
#include "fagen/ptx/global.cuh"

namespace fagen::attn {

struct Philox {
  uint32_t word[4];

  __device__ __forceinline__ Philox(uint4 counter, uint64_t key)
      : word{counter.x, counter.y, counter.z, counter.w} {
    uint32_t low = uint32_t(key), high = uint32_t(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
      const uint64_t first = uint64_t(word[0]) * 0xD2511F53u, second = uint64_t(word[2]) * 0xCD9E8D57u;
      word[0] = uint32_t(second >> 32) ^ word[1] ^ low;
      word[1] = uint32_t(second);
      word[2] = uint32_t(first >> 32) ^ word[3] ^ high;
      word[3] = uint32_t(first);
      low += 0x9E3779B9u;
      high += 0xBB67AE85u;
    }
  }
};

// Blocks of 16 by 16 elements, one Philox result a lane: its 8 halfwords are for the lane's 8 elements of an
// mma accumulator, c[n][0..3] and c[n + 1][0..3]. An element is kept where its halfword is `threshold` or
// more.
class Dropout {
 public:
  // `head` counts the query heads of all sequences.
  __device__ __forceinline__ Dropout(const uint64_t* seed, uint32_t head, uint32_t threshold)
      : key_(ptx::ld_global(seed)), head_(head), threshold_(threshold << 16) {}

  // The same for another head.
  __device__ __forceinline__ Dropout of(uint32_t head) const {
    Dropout other = *this;
    other.head_ = head;
    return other;
  }

  // Of the block whose first query is 16 row_block and whose first key is 16 col_block, both counted within
  // the sequence: bit i says whether this lane's element i is kept.
  __device__ __forceinline__ uint32_t kept(int row_block, int col_block) const {
    const Philox random({uint32_t(row_block), uint32_t(col_block), head_, uint32_t(lane_id())}, key_);
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) bits |= uint32_t(random.word[i / 2] << (1 - i % 2) * 16 >= threshold_) << i;
    return bits;
  }

  // Sets dropped elements of an accumulator to 0. It starts at query `row0` and key `col0`, multiples of 16.
  template <int kM, int kN>
  __device__ __forceinline__ void drop(float (&p)[kM][kN][4], int row0, int col0) const {
    static_assert(kN % 2 == 0, "blocks are 16 columns wide");
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < kN; n += 2) {
        const uint32_t bits = kept(row0 / 16 + m, col0 / 16 + n / 2);
#pragma unroll
        for (int i = 0; i < 8; ++i)
          if (!(bits >> i & 1)) p[m][n + i / 4][i % 4] = 0.0f;
      }
  }

 private:
  uint64_t key_;
  uint32_t head_, threshold_;  // the latter in the upper half, where halfwords are compared
};

// What is kept of an accumulator that starts at query `row0` and key `col0`.
template <int kM, int kN>
struct Kept {
  static constexpr int kBlocks = kM * kN / 2;
  uint32_t bits[(kBlocks + 3) / 4];  // 8 for each block

  __device__ __forceinline__ Kept(const Dropout& dropout, int row0, int col0) : bits{} {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
      bits[block / 4] |= dropout.kept(row0 / 16 + block / (kN / 2), col0 / 16 + block % (kN / 2))
                         << block % 4 * 8;
  }

  // `to` = `from` * factor where it is kept, else 0.
  __device__ __forceinline__ void select(float (&to)[kM][kN][4], const float (&from)[kM][kN][4],
                                         float factor) const {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int block = m * (kN / 2) + n / 2;
          const bool is_kept = bits[block / 4] >> (block % 4 * 8 + n % 2 * 4 + i) & 1;
          to[m][n][i] = is_kept ? from[m][n][i] * factor : 0.0f;
        }
  }
};

}  // namespace fagen::attn
