// Hadamard matrices of orders 12, 20 and 28, after J. Williamson, "Hadamard's determinant theorem and the sum
// of four squares", Duke Mathematical Journal 11, 1944: (A B C D; -B A -D C; -C D A -B; -D -C B A), where A
// to D are symmetric circulant matrices of order m = 3, 5 or 7.
#pragma once

#include "fagen/base/types.cuh"

namespace fagen::quantize {

// x + y and x - y.
__device__ __forceinline__ void butterfly(float& x, float& y) {
  const float sum = x + y;
  y = x - y;
  x = sum;
}

// s x + t y of x + y and x - y, where s and t are -1 if so, else 1.
__device__ __forceinline__ float combine(bool minus_s, bool minus_t, float sum, float difference) {
  const float found = minus_s == minus_t ? sum : difference;
  return minus_s ? -found : found;
}

// Multiplies the vector that is x[first + i][half + j], its (j * m + i)-th element, by the matrix of order 4
// m. Diagonal by diagonal, off by k from the main one, and the like of all of A to D: 2 + 3 * (m / 2)
// additions for an element.
template <int m, int kChunks>
__device__ __forceinline__ void williamson(float (&x)[kChunks][8], int first, int half) {
  static_assert(m == 3 || m == 5 || m == 7, "orders 12, 20 and 28");
  constexpr uint32_t kMinus = m == 3 ? 0xe0 : m == 5 ? 0xde0 : 0xb480;  // bit 4 k + j: of A to D, the j-th
#pragma unroll
  for (int i = 0; i < m; ++i) {
    butterfly(x[first + i][half], x[first + i][half + 1]);
    butterfly(x[first + i][half + 2], x[first + i][half + 3]);
  }
  float y[m][4];
#pragma unroll
  for (int k = 0; k <= m / 2; ++k) {
    const bool a = kMinus >> 4 * k & 1, b = kMinus >> 4 * k & 2, c = kMinus >> 4 * k & 4,
               d = kMinus >> 4 * k & 8;
#pragma unroll
    for (int i = 0; i < m; ++i) {
      const float* u = x[first + i] + half;
      const float z[] = {
          combine(a, b, u[0], u[1]) + combine(c, d, u[2], u[3]),
          combine(!b, a, u[0], u[1]) + combine(!d, c, u[2], u[3]),
          combine(!c, d, u[0], u[1]) + combine(a, !b, u[2], u[3]),
          combine(!d, !c, u[0], u[1]) + combine(b, a, u[2], u[3]),
      };
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (k == 0) {
          y[i][j] = z[j];
        } else {
          y[(i + k) % m][j] += z[j];
          y[(i + m - k) % m][j] += z[j];
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < m; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) x[first + i][half + j] = y[i][j];
}

}  // namespace fagen::quantize
