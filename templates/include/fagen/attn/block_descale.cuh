// The same as descale.cuh where every block of rows of a head has a number of its own. V's are taken as
// shares of the largest that an item meets: P of a tile is multiplied by its share, which costs nothing as it
// goes into the exponent, and O by that largest one.
#pragma once

#include "fagen/attn/descale.cuh"
#include "fagen/base/grid.cuh"
#include "fagen/base/types.cuh"
#include "fagen/ptx/global.cuh"
#include "fagen/ptx/special.cuh"

namespace fagen::attn {

// Those of a work item's rows from one warpgroup's on, which lie in one block; kBlock rows are a block.
template <int kBlock, int kTileKv>
struct BlockDescales {
  static_assert(kBlock % kTileKv == 0);
  static constexpr int kSharedBytes = 0;
  static constexpr float kLeastShare = 1e-9f;  // P is 0 in 8 bits long before
  float q;
  float v;  // of its O
  const float* k_blocks;
  const float* v_blocks;
  int last_key;
  float k_of_tile, v_of_tile;

  __device__ __forceinline__ BlockDescales() {}

  template <typename Params, typename ItemT>
  __device__ __forceinline__ BlockDescales(const Params& p, const ItemT& item, int row)
      : k_blocks(p.k_descale + item.work.batch * p.k_descale_batch_stride +
                 item.work.head_kv * p.k_descale_head_stride),
        v_blocks(p.v_descale + item.work.batch * p.v_descale_batch_stride +
                 item.work.head_kv * p.v_descale_head_stride),
        last_key(item.sequence.seqlen_k - 1) {
    const int query = min(item.query(row), item.sequence.seqlen_q - 1);
    q = ptx::ld_global(p.q_descale + item.work.batch * p.q_descale_batch_stride +
                       item.work.head_q * p.q_descale_head_stride + query / kBlock);
    v = 0.0f;
    const int end = block(item.end - 1);
    for (int i = block(item.begin) + lane_id(); i <= end; i += 32)
      v = larger(v, ptx::ld_global(v_blocks + i));
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) v = larger(v, __shfl_xor_sync(0xffffffffu, v, lanes));
  }

  // Reads those of a tile, well before they are used.
  __device__ __forceinline__ void read(int tile) {
    k_of_tile = ptx::ld_global(k_blocks + block(tile));
    v_of_tile = ptx::ld_global(v_blocks + block(tile));
  }
  __device__ __forceinline__ float qk() const { return q * k_of_tile; }  // of the tile's scores
  // Of the largest of V's.
  __device__ __forceinline__ float v_share() const {
    return at_least(v > 0.0f ? v_of_tile * ptx::reciprocal(v) : v_of_tile, kLeastShare);
  }

 private:
  // NaN if one of them is, unlike fmaxf.
  static __device__ __forceinline__ float larger(float a, float b) { return b <= a || a != a ? a : b; }
  // A tile that is hidden whole may lie behind the last key.
  __device__ __forceinline__ int block(int tile) const { return min(tile * kTileKv, last_key) / kBlock; }
};

}  // namespace fagen::attn
