// Rows, rounded to 8 bits, from registers to global memory: as they are, or as columns.
#pragma once

#include "fagen/base/fp8.cuh"
#include "fagen/base/types.cuh"
#include "fagen/ptx/convert_fp8.cuh"
#include "fagen/ptx/global.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/quantize/part.cuh"

namespace fagen::quantize {

// Four neighbours times `factor`, the first in the lowest byte.
template <typename F8>
__device__ __forceinline__ uint32_t round(const float* x, float factor);

template <>
__device__ __forceinline__ uint32_t round<e4m3>(const float* x, float factor) {
  return ptx::pack_e4m3(x[0] * factor, x[1] * factor, x[2] * factor, x[3] * factor);
}

template <>
__device__ __forceinline__ uint32_t round<e5m2>(const float* x, float factor) {
  return ptx::pack_e5m2(x[0] * factor, x[1] * factor, x[2] * factor, x[3] * factor);
}

// The rows of kDim bytes that exist, `rows` of them.
template <class Part, typename F8>
__device__ __forceinline__ void store_rows(const typename Part::Values& x, float factor, F8* out,
                                           int64_t row_stride, int rows) {
#pragma unroll
  for (int i = 0; i < Part::kOwn; ++i) {
    if (Part::row(i) >= rows) continue;
#pragma unroll
    for (int chunk = 0; chunk < Part::kChunks; ++chunk)
      ptx::st_global_8(out + Part::row(i) * row_stride + Part::column(chunk),
                       uint2{round<F8>(x[i][chunk], factor), round<F8>(x[i][chunk] + 4, factor)});
  }
}

// Byte j of lane 4 i + r's word becomes byte i of lane 4 j + r's, i and j from 0 to 3; the same in the upper
// half of the warp.
__device__ __forceinline__ uint32_t transpose_bytes(uint32_t word) {
  uint32_t other = __shfl_xor_sync(0xffffffffu, word, 2 * kLanes);
  word = __byte_perm(word, other, threadIdx.x & 2 * kLanes ? 0x3276 : 0x5410);
  other = __shfl_xor_sync(0xffffffffu, word, kLanes);
  return __byte_perm(word, other, threadIdx.x & kLanes ? 0x3715 : 0x6240);
}

// A column's bytes in shared memory, apart so that rows of 16 bytes stay aligned.
template <class Part>
inline constexpr int kColumnBytes = Part::kRows + 16;

// The block as kDim columns of bytes, each `column_stride` from the last; the columns end with the `rows`
// that exist, rounded up to 16, zeros in the place of the others. `smem` is kDim * kColumnBytes<Part> bytes,
// which nobody reads or writes any more.
template <class Part, typename F8>
__device__ __forceinline__ void store_columns(const typename Part::Values& x, float factor, uint32_t smem,
                                              F8* out, int64_t column_stride, int rows) {
  constexpr int kChunks = Part::kRows / 16;  // of a column
  const int own = threadIdx.x / kLanes % 4;  // of four rows, and then of four columns
#pragma unroll
  for (int i = 0; i < Part::kOwn; ++i)
#pragma unroll
    for (int chunk = 0; chunk < Part::kChunks; ++chunk)
#pragma unroll
      for (int c = 0; c < 8; c += 4) {
        const uint32_t word = transpose_bytes(round<F8>(x[i][chunk] + c, factor));
        const int column = Part::column(chunk) + c + own, row = Part::row(i) - own;
        ptx::st_shared(smem + column * kColumnBytes<Part> + row, word);
      }
  __syncthreads();
  constexpr int kCopies = Part::kDim * kChunks;
#pragma unroll
  for (int first = 0; first < kCopies; first += Part::kThreads) {
    const int i = first + threadIdx.x, column = i / kChunks, row = 16 * (i % kChunks);
    if (first + Part::kThreads > kCopies && i >= kCopies) break;
    const uint4 v = ptx::ld_shared_16(smem + column * kColumnBytes<Part> + row);
    ptx::st_global_16(out + column * column_stride + row, v, row < rows);
  }
}

}  // namespace fagen::quantize
