// Where one side stands in a ring of stages.
#pragma once

#include "fagen/base/types.cuh"

namespace fagen::pipe {

// The stage, and the parity of the phase to wait for there.
template <int kStages>
struct Position {
  int stage;
  uint32_t parity;

  // Fresh stages are empty; nothing has been read yet.
  __device__ __forceinline__ static Position first_fill() { return {0, 1}; }
  __device__ __forceinline__ static Position first_read() { return {0, 0}; }

  __device__ __forceinline__ void advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

}  // namespace fagen::pipe
