// A thread's part of a block of rows: from global memory by way of shared memory into registers.
#pragma once

#include "fagen/base/types.cuh"
#include "fagen/ptx/cp_async.cuh"
#include "fagen/ptx/shared.cuh"

namespace fagen::quantize {

inline constexpr int kLanes = 4;  // neighbouring ones share a row

// Of kRowCount rows of kColumns 16-bit elements: rows row(0), row(1), ..., of each the chunks of 8 elements
// column(0), column(1), .... An instruction of a warp then reads 64 neighbouring bytes of 8 rows, or
// writes 32.
template <int kRowCount, int kColumns, int kThreadCount>
struct Part {
  static constexpr int kRows = kRowCount, kDim = kColumns, kThreads = kThreadCount;
  static constexpr int kAtOnce = kThreads / kLanes;
  static constexpr int kOwn = kRows / kAtOnce;          // rows
  static constexpr int kChunks = kDim / 8 / kLanes;     // of each
  static constexpr int kStageBytes = kRows * kDim * 2;  // of all threads
  static_assert(kRows % kAtOnce == 0 && kDim % (8 * kLanes) == 0, "all threads have the same");

  using Values = float[kOwn][kChunks][8];

  static __device__ __forceinline__ int row(int i) { return threadIdx.x / kLanes + i * kAtOnce; }
  static __device__ __forceinline__ int column(int chunk) {
    return 8 * (kLanes * chunk + threadIdx.x % kLanes);
  }

  // Starts to copy it from `x`, where `rows` rows exist, to a stage of shared memory; others are zeros there.
  // A thread finds there what it has copied itself, so this needs no barrier.
  template <typename T>
  static __device__ __forceinline__ void fetch(uint32_t stage, const T* x, int64_t row_stride, int rows) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk)
        ptx::cp_async_16_or_zero(place(stage, i, chunk), x + row(i) * row_stride + column(chunk),
                                 row(i) < rows);
  }

  // What has been copied of chunk `chunk` of row(i): 8 elements.
  static __device__ __forceinline__ uint4 chunk(uint32_t stage, int i, int chunk) {
    return ptx::ld_shared_16(place(stage, i, chunk));
  }

 private:
  // Neighbouring threads' chunks are neighbours.
  static __device__ __forceinline__ uint32_t place(uint32_t stage, int i, int chunk) {
    return stage + 16 * ((i * kChunks + chunk) * kThreads + threadIdx.x);
  }
};

// All of it, as it is.
template <class Part, typename T>
__device__ __forceinline__ void take(typename Part::Values& x, uint32_t stage) {
#pragma unroll
  for (int i = 0; i < Part::kOwn; ++i)
#pragma unroll
    for (int chunk = 0; chunk < Part::kChunks; ++chunk) {
      const uint4 v = Part::chunk(stage, i, chunk);
      const uint32_t pairs[] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 pair = unpack<T>(pairs[j]);
        x[i][chunk][2 * j] = pair.x, x[i][chunk][2 * j + 1] = pair.y;
      }
    }
}

}  // namespace fagen::quantize
