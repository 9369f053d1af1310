// Stand-in for the CUDA C++ language: what generated kernels and headers use of it.
#pragma once

#include <cmath>

#include "barrier.hpp"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "global.hpp"
#include "mbarrier.hpp"
#include "vector_types.hpp"
#include "warp.hpp"
#include "warp_matrix.hpp"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(bytes) alignas(bytes)

#define threadIdx (::fagen::emu::self().index)
#define blockIdx (::fagen::emu::self().cta->index)
#define blockDim (::fagen::emu::self().cta->cluster->block)
#define gridDim (::fagen::emu::self().cta->cluster->grid)

// Functions of the language, each where a kernel expects it.
[[gnu::always_inline]] inline void __syncthreads() { fagen::emu::barrier_sync_all(); }
[[gnu::always_inline]] inline void __syncwarp(unsigned mask = 0xffffffffu) { fagen::emu::sync_warp(mask); }
[[gnu::always_inline]] inline int __any_sync(unsigned mask, int predicate) {
  return fagen::emu::vote("__any_sync", mask, predicate) != 0;
}
[[gnu::always_inline]] inline int __all_sync(unsigned mask, int predicate) {
  return fagen::emu::vote("__all_sync", mask, predicate) == mask;
}
[[gnu::always_inline]] inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return fagen::emu::vote("__ballot_sync", mask, predicate);
}

// `width` cuts the warp into segments; a source outside the segment means the own lane, except that
// __shfl_sync wraps.
template <class T>
[[gnu::always_inline]] inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  unsigned lane = fagen::emu::self().lane, first = lane & ~(width - 1u);
  return fagen::emu::shuffle("__shfl_sync", mask, value, first + (source & (width - 1)));
}
template <class T>
[[gnu::always_inline]] inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  unsigned lane = fagen::emu::self().lane, source = lane ^ lanes;
  return fagen::emu::shuffle("__shfl_xor_sync", mask, value,
                             source < (lane & ~(width - 1u)) + width ? source : lane);
}
template <class T>
[[gnu::always_inline]] inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  unsigned lane = fagen::emu::self().lane;
  return fagen::emu::shuffle("__shfl_up_sync", mask, value,
                             (lane & (width - 1u)) >= delta ? lane - delta : lane);
}
template <class T>
[[gnu::always_inline]] inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  unsigned lane = fagen::emu::self().lane;
  return fagen::emu::shuffle("__shfl_down_sync", mask, value,
                             (lane & (width - 1u)) + delta < unsigned(width) ? lane + delta : lane);
}

// Each nibble of `selector` picks a byte, 0 to 3 of `low` and 4 to 7 of `high`.
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const unsigned long bytes = static_cast<unsigned long>(high) << 32 | low;
  unsigned word = 0;
  for (unsigned i = 0; i < 4; ++i) word |= (bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return word;
}

#define FAGEN_EMU_MIN_MAX(T)                       \
  inline T min(T a, T b) { return b < a ? b : a; } \
  inline T max(T a, T b) { return a < b ? b : a; }
FAGEN_EMU_MIN_MAX(int)
FAGEN_EMU_MIN_MAX(unsigned int)
FAGEN_EMU_MIN_MAX(long)
FAGEN_EMU_MIN_MAX(unsigned long)
#undef FAGEN_EMU_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }

template <class T>
[[gnu::always_inline]] inline T atomicAdd(T* to, T value) {
  return fagen::emu::atomic_global(to, [value](T old) { return static_cast<T>(old + value); });
}
template <class T>
[[gnu::always_inline]] inline T atomicMax(T* to, T value) {
  return fagen::emu::atomic_global(to, [value](T old) { return max(old, value); });
}
template <class T>
[[gnu::always_inline]] inline T atomicExch(T* to, T value) {
  return fagen::emu::atomic_global(to, [value](T) { return value; });
}
template <class T>
[[gnu::always_inline]] inline T atomicCAS(T* to, T expected, T value) {
  return fagen::emu::atomic_global(to, [expected, value](T old) { return old == expected ? value : old; });
}

inline void __threadfence() {}  // one OS thread runs a CTA; atomics are sequentially consistent
