// The Hadamard transform of rows: changes of sign, then multiplication by a matrix of +1 and -1 with
// orthogonal rows. Sums are fp32.
//
// The matrix is a Kronecker product over the parts of a column's number, 8 * (4 * (m * p + i) + lane) + 4 *
// half
// + j, where m is odd, lane, half and j are two, one and two bits, and p is what bits are left. The bits are
// transformed by powers of (1 1; 1 -1): lane and j, which four lanes share, by a matrix of order 16 on the
// tensor core, the others by additions. With m = 3, 5 or 7 the pair (j, i) is transformed by a matrix of
// order 4 m (williamson.cuh), and the tensor core leaves j as it is.
#pragma once

#include "fagen/base/grid.cuh"
#include "fagen/base/types.cuh"
#include "fagen/ptx/mma_sync.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/quantize/part.cuh"
#include "fagen/quantize/williamson.cuh"

namespace fagen::quantize {

template <class Part, typename T>
class Hadamard {
 public:
  __device__ __forceinline__ Hadamard() {
    // Row k and column n of the matrix of order 16 are for lane k % 8 / 2 and j = k % 2 + 2 * (k / 8): then a
    // chunk is an operand of mma as it is, its halves in two rows, and the results lie as the chunk did.
    const int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
    for (int right = 0; right < 2; ++right)
#pragma unroll
      for (int low = 0; low < 2; ++low) {
        const int lane = g / 2, j = g % 2 + 2 * right;
        matrix_[right][low] = pack<T>(entry(t, 2 * low, lane, j), entry(t, 2 * low + 1, lane, j));
      }
  }

  // Takes a thread's part of the block in `stage`, transformed; the sums are not divided by the square root
  // of the number of columns. `signs` is what `store_signs` has written.
  __device__ __forceinline__ void take(typename Part::Values& x, uint32_t stage, uint32_t signs) const {
#pragma unroll
    for (int chunk = 0; chunk < Part::kChunks; ++chunk) {
      const uint4 flip = ptx::ld_shared_16(signs + 2 * Part::column(chunk));
#pragma unroll
      for (int i = 0; i < Part::kOwn; ++i) {
        const uint4 v = Part::chunk(stage, i, chunk);
        multiply(x[i][chunk], {v.x ^ flip.x, v.z ^ flip.z, v.y ^ flip.y, v.w ^ flip.w});
      }
    }
#pragma unroll
    for (int i = 0; i < Part::kOwn; ++i) add(x[i]);
  }

 private:
  static constexpr int kPower = Part::kChunks & -Part::kChunks, kOdd = Part::kChunks / kPower;

  // Of the matrix on the tensor core.
  static __device__ __forceinline__ float entry(int lane_in, int j_in, int lane, int j) {
    if (kOdd != 1 && j_in != j) return 0.0f;
    const int bits = (lane_in & lane) ^ (kOdd == 1 ? j_in & j : 0);
    return (bits >> 1 ^ bits) & 1 ? -1.0f : 1.0f;
  }

  // A chunk of 8 elements, its halves in rows g and g + 8.
  __device__ __forceinline__ void multiply(float (&x)[8], const uint32_t (&halves)[4]) const {
#pragma unroll
    for (int right = 0; right < 2; ++right) {
      float d[4] = {};
      ptx::mma_m16n8k16<T>(d, halves, matrix_[right][0], matrix_[right][1]);
      x[2 * right] = d[0], x[2 * right + 1] = d[1];
      x[4 + 2 * right] = d[2], x[4 + 2 * right + 1] = d[3];
    }
  }

  // The rest of the transform, of a row.
  static __device__ __forceinline__ void add(float (&x)[Part::kChunks][8]) {
    if constexpr (kOdd != 1) {
#pragma unroll
      for (int first = 0; first < Part::kChunks; first += kOdd)
#pragma unroll
        for (int half = 0; half < 8; half += 4) williamson<kOdd>(x, first, half);
    }
#pragma unroll
    for (int chunk = 0; chunk < Part::kChunks; ++chunk)
#pragma unroll
      for (int j = 0; j < 4; ++j) butterfly(x[chunk][j], x[chunk][j + 4]);
#pragma unroll
    for (int step = kOdd; step < Part::kChunks; step *= 2)
#pragma unroll
      for (int chunk = 0; chunk < Part::kChunks; ++chunk)
        if (chunk / step % 2 == 0)
#pragma unroll
          for (int c = 0; c < 8; ++c) butterfly(x[chunk][c], x[chunk + step][c]);
  }

  uint32_t matrix_[2][2];
};

}  // namespace fagen::quantize
