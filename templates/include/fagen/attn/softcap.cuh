// Soft cap of the scores (Gemma 2's logit capping): cap * tanh(scale * q.k / cap), before the mask. The
// factor `cap` is left to what scores are scaled by next.
#pragma once

#include "fagen/ptx/special.cuh"

namespace fagen::attn {

// tanh of each score, where `scale` is 2 log2(e) * softmax scale / cap.
template <int kM, int kN>
__device__ __forceinline__ void softcap(float (&s)[kM][kN][4], float scale) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) ptx::tanh_base2(s[m][n][i], scale);
}

}  // namespace fagen::attn
