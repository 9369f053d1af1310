// Rows of packed tensors that are of no sequence: those past the last one.
#pragma once

#include "fagen/base/constants.cuh"
#include "fagen/ptx/global.cuh"

namespace fagen::epilogue {

// Zeros in rows [first, rows) of a contiguous tensor [rows, heads, kDim]; all CTAs share them out.
template <int kDim, typename T>
__device__ __forceinline__ void clear_rows(T* tensor, int heads, int first, int rows) {
  constexpr int kChunks = kDim / 8;  // of 16 bytes
  for (int row = first + int(blockIdx.x); row < rows; row += int(gridDim.x))
    for (int i = threadIdx.x; i < heads * kChunks; i += blockDim.x)
      ptx::st_global_16(tensor + (int64_t(row) * heads * kChunks + i) * 8, uint4{0, 0, 0, 0});
}

// O = 0 and LSE = -inf there.
template <int kDim, typename Params>
__device__ __forceinline__ void clear_results(const Params& p) {
  const int first = ptx::ld_global(p.cu_seqlens_q + p.batch);
  clear_rows<kDim>(p.out, p.heads_q, first, p.tokens_q);
  if (p.lse == nullptr) return;
  for (int row = first + int(blockIdx.x); row < p.tokens_q; row += int(gridDim.x))
    for (int head = threadIdx.x; head < p.heads_q; head += blockDim.x)
      ptx::st_global(p.lse + int64_t(head) * p.tokens_q + row, -kInf);
}

}  // namespace fagen::epilogue
