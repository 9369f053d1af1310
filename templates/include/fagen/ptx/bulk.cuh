// Bulk copies: contiguous bytes between global and shared memory, moved by one thread's order, and the groups
// that these and TMA's stores complete in (PTX ISA, "cp.async.bulk", "cp.reduce.async.bulk"; sm_90).
// Addresses and sizes are multiples of 16 bytes.
#pragma once

#include "fagen/base/types.cuh"

#ifdef FAGEN_EMU
#include "fagen/ptx/emu/bulk.cuh"
#else

namespace fagen::ptx {

// Global to shared memory; the bytes complete on `barrier`.
__device__ __forceinline__ void bulk_load(uint32_t smem, const void* global, uint32_t bytes,
                                          uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :
               : "r"(smem), "l"(global), "r"(bytes), "r"(barrier)
               : "memory");
}

// Shared to global memory; belongs to the thread's next bulk group.
__device__ __forceinline__ void bulk_store(void* global, uint32_t smem, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               :
               : "l"(global), "r"(smem), "r"(bytes)
               : "memory");
}

// The same, added to what is there. Denormal results become zero; the order of additions is not fixed.
__device__ __forceinline__ void bulk_reduce_add(float* global, uint32_t smem, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
               :
               : "l"(global), "r"(smem), "r"(bytes)
               : "memory");
}

// Closes the thread's bulk group.
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until all but the thread's newest kPending groups are complete: written, and visible to this thread.
template <int kPending>
__device__ __forceinline__ void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

// Waits until all but the newest kPending groups have read their source, which may then be written again.
template <int kPending>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

}  // namespace fagen::ptx

#endif  // FAGEN_EMU
