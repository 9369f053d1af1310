// Which keys the columns of an S accumulator are of. A lane has, of every block of 8 columns, two neighbours.
#pragma once

#include "fagen/base/grid.cuh"
#include "fagen/base/types.cuh"

namespace fagen::mma {

// Column after column.
struct InOrder {
  // The first key of a lane, of the four that share rows, and how many further the key of its column i of
  // block n is, of kBlocks.
  __device__ __forceinline__ static int first(int lane = lane_id() % 4) { return lane * 2; }
  template <int kBlocks>
  __device__ __forceinline__ static constexpr int key(int n, int i) {
    return 8 * n + i;
  }
  // Of every 16 columns of an 8-bit P operand, the blocks whose columns a lane takes first and last.
  template <int kBlocks>
  __device__ __forceinline__ static constexpr int low(int sixteen) {
    return 2 * sixteen;
  }
  template <int kBlocks>
  __device__ __forceinline__ static constexpr int high(int sixteen) {
    return 2 * sixteen + 1;
  }
};

// The first half of the columns are the first two keys of every four, the second half the last two: a lane
// then has four neighbouring keys, in its two columns of a block and of the block half the columns further.
struct InFours {
  __device__ __forceinline__ static int first(int lane = lane_id() % 4) { return lane * 4; }
  template <int kBlocks>
  __device__ __forceinline__ static constexpr int key(int n, int i) {
    return n % (kBlocks / 2) * 16 + n / (kBlocks / 2) * 2 + i;
  }
  template <int kBlocks>
  __device__ __forceinline__ static constexpr int low(int sixteen) {
    return sixteen;
  }
  template <int kBlocks>
  __device__ __forceinline__ static constexpr int high(int sixteen) {
    return sixteen + kBlocks / 2;
  }
};

}  // namespace fagen::mma
