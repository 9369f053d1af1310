// TMA: boxes of a tensor of rank 1 to 5 between global and shared memory, moved by one thread's order
// (PTX ISA, "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor"; sm_90). Coordinates are those of the box's
// first element, innermost first. In shared memory a box is dense, swizzled as its map says, and starts at a
// multiple of 128 bytes (of 8 spans with a swizzle). Elements outside the tensor are read as zeros, and not
// written.
#pragma once

#include "fagen/base/types.cuh"
#include "fagen/ptx/tensor_map.cuh"

#ifdef FAGEN_EMU
#include "fagen/ptx/emu/tma.cuh"
#else

namespace fagen::ptx {

// Fetches the map itself, ahead of its first use.
__device__ __forceinline__ void prefetch_tensor_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Per rank: the coordinates as parameters, as operands, and as text with the operands' numbers.
#define FAGEN_PARAMETERS_1 int32_t c0
#define FAGEN_PARAMETERS_2 FAGEN_PARAMETERS_1, int32_t c1
#define FAGEN_PARAMETERS_3 FAGEN_PARAMETERS_2, int32_t c2
#define FAGEN_PARAMETERS_4 FAGEN_PARAMETERS_3, int32_t c3
#define FAGEN_PARAMETERS_5 FAGEN_PARAMETERS_4, int32_t c4
#define FAGEN_OPERANDS_1 "r"(c0)
#define FAGEN_OPERANDS_2 FAGEN_OPERANDS_1, "r"(c1)
#define FAGEN_OPERANDS_3 FAGEN_OPERANDS_2, "r"(c2)
#define FAGEN_OPERANDS_4 FAGEN_OPERANDS_3, "r"(c3)
#define FAGEN_OPERANDS_5 FAGEN_OPERANDS_4, "r"(c4)
#define FAGEN_TEXT_1(a, b, c, d, e) "{%" #a "}"
#define FAGEN_TEXT_2(a, b, c, d, e) "{%" #a ", %" #b "}"
#define FAGEN_TEXT_3(a, b, c, d, e) "{%" #a ", %" #b ", %" #c "}"
#define FAGEN_TEXT_4(a, b, c, d, e) "{%" #a ", %" #b ", %" #c ", %" #d "}"
#define FAGEN_TEXT_5(a, b, c, d, e) "{%" #a ", %" #b ", %" #c ", %" #d ", %" #e "}"

// For every rank:
// tma_load: one box to `smem`; the whole box's bytes, outside elements included, complete on `barrier`.
// tma_load_multicast: the same to every CTA of the cluster whose bit is set in `ctas`, in each at its own
//   `smem` and on its own `barrier`.
// tma_store: a box from `smem`; belongs to the thread's next bulk group.
// tma_reduce_add: the same, added to what the tensor holds.
#define FAGEN_TMA(R)                                                                                        \
  __device__ __forceinline__ void tma_load(uint32_t smem, const TensorMap& map, uint32_t barrier,           \
                                           FAGEN_PARAMETERS_##R) {                                          \
    asm volatile("cp.async.bulk.tensor." #R                                                                 \
                 "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "                              \
                 "[%0], [%1, " FAGEN_TEXT_##R(3, 4, 5, 6, 7) "], [%2];"                                     \
                 :                                                                                          \
                 : "r"(smem), "l"(&map), "r"(barrier), FAGEN_OPERANDS_##R                                   \
                 : "memory");                                                                               \
  }                                                                                                         \
  __device__ __forceinline__ void tma_load_multicast(uint32_t smem, const TensorMap& map, uint32_t barrier, \
                                                     uint32_t ctas, FAGEN_PARAMETERS_##R) {                 \
    asm volatile("cp.async.bulk.tensor." #R                                                                 \
                 "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "           \
                 "[%0], [%1, " FAGEN_TEXT_##R(4, 5, 6, 7, 8) "], [%2], %3;"                                 \
                 :                                                                                          \
                 : "r"(smem), "l"(&map), "r"(barrier), "h"(static_cast<unsigned short>(ctas)),              \
                   FAGEN_OPERANDS_##R                                                                       \
                 : "memory");                                                                               \
  }                                                                                                         \
  __device__ __forceinline__ void tma_store(const TensorMap& map, uint32_t smem, FAGEN_PARAMETERS_##R) {    \
    asm volatile("cp.async.bulk.tensor." #R                                                                 \
                 "d.global.shared::cta.tile.bulk_group "                                                    \
                 "[%1, " FAGEN_TEXT_##R(2, 3, 4, 5, 6) "], [%0];"                                           \
                 :                                                                                          \
                 : "r"(smem), "l"(&map), FAGEN_OPERANDS_##R                                                 \
                 : "memory");                                                                               \
  }                                                                                                         \
  __device__ __forceinline__ void tma_reduce_add(const TensorMap& map, uint32_t smem,                       \
                                                 FAGEN_PARAMETERS_##R) {                                    \
    asm volatile("cp.reduce.async.bulk.tensor." #R                                                          \
                 "d.global.shared::cta.add.tile.bulk_group "                                                \
                 "[%1, " FAGEN_TEXT_##R(2, 3, 4, 5, 6) "], [%0];"                                           \
                 :                                                                                          \
                 : "r"(smem), "l"(&map), FAGEN_OPERANDS_##R                                                 \
                 : "memory");                                                                               \
  }

FAGEN_TMA(1)
FAGEN_TMA(2)
FAGEN_TMA(3)
FAGEN_TMA(4)
FAGEN_TMA(5)

#undef FAGEN_TMA
#undef FAGEN_TEXT_1
#undef FAGEN_TEXT_2
#undef FAGEN_TEXT_3
#undef FAGEN_TEXT_4
#undef FAGEN_TEXT_5
#undef FAGEN_OPERANDS_1
#undef FAGEN_OPERANDS_2
#undef FAGEN_OPERANDS_3
#undef FAGEN_OPERANDS_4
#undef FAGEN_OPERANDS_5
#undef FAGEN_PARAMETERS_1
#undef FAGEN_PARAMETERS_2
#undef FAGEN_PARAMETERS_3
#undef FAGEN_PARAMETERS_4
#undef FAGEN_PARAMETERS_5

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
