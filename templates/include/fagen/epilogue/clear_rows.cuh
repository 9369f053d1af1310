// Rows of packed tensors that are of no sequence: those past the last one.
#pragma once

#include "fagen/base/constants.cuh"
#include "fagen/ptx/global.cuh"

namespace fagen::epilogue {

// O = 0 and LSE = -inf for them; all CTAs share them out. O is contiguous, [tokens_q, heads_q, kDim].
template <int kDim, typename Params>
__device__ __forceinline__ void clear_rows(const Params& p) {
  const int first = ptx::ld_global(p.cu_seqlens_q + p.batch);
  constexpr int kChunks = kDim / 8;  // of 16 bytes
  for (int row = first + int(blockIdx.x); row < p.tokens_q; row += int(gridDim.x)) {
    for (int i = threadIdx.x; i < p.heads_q * kChunks; i += blockDim.x)
      ptx::st_global_16(p.out + (int64_t(row) * p.heads_q * kChunks + i) * 8, uint4{0, 0, 0, 0});
    if (p.lse != nullptr)
      for (int head = threadIdx.x; head < p.heads_q; head += blockDim.x)
        ptx::st_global(p.lse + int64_t(head) * p.tokens_q + row, -kInf);
  }
}

}  // namespace fagen::epilogue
