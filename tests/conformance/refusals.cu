// What the emulator must refuse; `fault` picks one. One warpgroup; the second one of two waits for registers.
#include "fagen/base/grid.cuh"
#include "fagen/ptx/bulk.cuh"
#include "fagen/ptx/cluster.cuh"
#include "fagen/ptx/fence.cuh"
#include "fagen/ptx/mbarrier.cuh"
#include "fagen/ptx/mbarrier_tx.cuh"
#include "fagen/ptx/setmaxnreg.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/ptx/stmatrix.cuh"
#include "fagen/ptx/tma.cuh"
#include "fagen/ptx/uniform.cuh"
#include "fagen/ptx/wgmma.cuh"
#include "fagen/smem/descriptor_sm90.cuh"

using namespace fagen;

struct Params {
  ptx::TensorMap map;  // e4m3, rank 2, box 16 x 8
  const unsigned char* bytes;
  unsigned char* out;
  int32_t fault;
};

struct Fault {
  const Params& p;
  uint32_t barrier = ptx::dynamic_shared(), tile = barrier + 1024;
  bool first = threadIdx.x == 0;

  uint64_t operand(uint32_t offset) const {
    return smem::descriptor(tile + offset, 0, 256, smem::Swizzle::k32);
  }

  // Zeros in the first 4 KiB of the tile, visible to the async proxy.
  void fill() const {
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) ptx::st_shared(tile + 4 * i, 0);
    ptx::fence_proxy_async();
    __syncthreads();
  }
  void init() const {
    if (first) {
      ptx::mbarrier_init(barrier, 1);
      ptx::fence_mbarrier_init();
    }
    __syncthreads();
  }
};

#define FAULT(name) static void name(const Fault& f)

FAULT(another_rank) {
  f.init();
  if (f.first) ptx::tma_load(f.tile, f.p.map, f.barrier, 0);
}
FAULT(no_tensor_map) {
  ptx::TensorMap map{};
  f.init();
  if (f.first) ptx::tma_load(f.tile, map, f.barrier, 0, 0);
}
FAULT(coordinate_not_at_16_bytes) {
  f.init();
  if (f.first) ptx::tma_load(f.tile, f.p.map, f.barrier, 8, 0);
}
FAULT(box_not_at_128_bytes) {
  f.init();
  if (f.first) ptx::tma_load(f.tile + 16, f.p.map, f.barrier, 0, 0);
}
FAULT(box_beyond_shared_memory) {
  f.init();
  if (f.first) ptx::tma_load(f.tile + 8192, f.p.map, f.barrier, 0, 0);
}
FAULT(store_below_zero) {
  f.fill();
  if (f.first) ptx::tma_store(f.p.map, f.tile, -16, 0);
}
FAULT(add_8_bit_numbers) {
  f.fill();
  if (f.first) ptx::tma_reduce_add(f.p.map, f.tile, 0, 0);
}
FAULT(multicast_beyond_the_cluster) {
  f.init();
  if (f.first) ptx::tma_load_multicast(f.tile, f.p.map, f.barrier, 2, 0, 0);
}
FAULT(bulk_bytes_not_of_16) {
  f.init();
  if (f.first) ptx::bulk_load(f.tile, f.p.bytes, 24, f.barrier);
}
FAULT(bulk_load_beyond_the_array) {
  f.init();
  if (f.first) ptx::bulk_load(f.tile, f.p.bytes + 512, 1024, f.barrier);
}
FAULT(store_of_bytes_never_written) {
  if (f.first) {
    ptx::bulk_store(f.p.out, f.tile, 16);
    ptx::bulk_commit();
    ptx::bulk_wait<0>();
  }
}
FAULT(source_overwritten_before_it_is_read) {
  f.fill();
  if (f.first) {
    ptx::bulk_store(f.p.out, f.tile, 16);
    ptx::bulk_commit();
    ptx::st_shared(f.tile, 1);
  }
}
FAULT(load_read_before_it_is_waited_for) {
  f.init();
  if (f.first) {
    ptx::mbarrier_arrive_expect_tx(f.barrier, 16);
    ptx::bulk_load(f.tile, f.p.bytes, 16, f.barrier);
    ptx::ld_shared_16(f.tile);
  }
}
FAULT(ends_before_a_load_lands) {
  f.init();
  if (f.first) ptx::bulk_load(f.tile, f.p.bytes, 16, f.barrier);
}
FAULT(more_bytes_than_expected) {
  f.init();
  if (f.first) {
    ptx::mbarrier_expect_tx(f.barrier, 16);
    ptx::bulk_load(f.tile, f.p.bytes, 32, f.barrier);
    ptx::mbarrier_arrive(f.barrier);
    ptx::mbarrier_wait(f.barrier, 0);
  }
}
FAULT(more_copies_than_expected) {
  f.init();
  if (f.first) {
    ptx::mbarrier_arrive_expect_tx(f.barrier, 16);
    ptx::bulk_load(f.tile, f.p.bytes, 16, f.barrier);
    ptx::bulk_load(f.tile + 16, f.p.bytes, 16, f.barrier);
    ptx::mbarrier_wait(f.barrier, 0);
  }
}
FAULT(accumulators_changed_in_flight) {
  float d[4] = {};
  f.fill();
  ptx::wgmma_fence();
  ptx::wgmma<__half, __half>(d, f.operand(0), f.operand(2048), true);
  ptx::wgmma_commit();
  for (float& x : d) x *= 2;
  ptx::wgmma_wait<0>();
}
FAULT(fragments_changed_in_flight) {
  float d[4] = {};
  uint32_t a[4] = {};
  f.fill();
  ptx::wgmma_fence();
  ptx::wgmma<__half, __half>(d, a, f.operand(0), true);
  ptx::wgmma_commit();
  a[0] = 1;
  ptx::wgmma_wait<0>();
}
FAULT(accumulators_changed_after_the_fence) {
  float d[4] = {};
  f.fill();
  ptx::wgmma_fence();
  for (float& x : d) x += f.p.fault;
  ptx::wgmma<__half, __half>(d, f.operand(0), f.operand(2048), true);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
}
FAULT(fragments_changed_after_the_fence) {
  float d[4] = {};
  uint32_t a[4] = {};
  f.fill();
  ptx::wgmma_fence();
  ptx::wgmma<__half, __half>(d, f.operand(0), f.operand(2048), true);
  a[3] = f.p.fault;
  ptx::wgmma<__half, __half>(d, a, f.operand(0), true);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
}
FAULT(operand_written_in_flight) {
  float d[4] = {};
  f.fill();
  ptx::wgmma_fence();
  ptx::wgmma<__half, __half>(d, f.operand(0), f.operand(2048), true);
  ptx::wgmma_commit();
  if (f.first) ptx::st_shared(f.tile + 2048, 1);
  ptx::wgmma_wait<0>();
}
FAULT(ends_before_a_wgmma) {
  float d[4] = {};
  f.fill();
  ptx::wgmma_fence();
  ptx::wgmma<__half, __half>(d, f.operand(0), f.operand(2048), true);
  ptx::wgmma_commit();
}
FAULT(wgmma_by_three_warps) {
  float d[4] = {};
  f.fill();
  if (warp_id() == 3) return;
  ptx::wgmma_fence();
  ptx::wgmma<__half, __half>(d, f.operand(0), f.operand(2048), true);
}
FAULT(descriptors_differ) {
  float d[4] = {};
  f.fill();
  ptx::wgmma_fence();
  ptx::wgmma<__half, __half>(d, f.operand(0), f.operand(warp_id() == 2 ? 0 : 2048), true);
}
FAULT(stmatrix_by_half_a_warp) {
  uint32_t r[1] = {};
  if (lane_id() < 16) ptx::stmatrix_x1(f.tile + 16 * (lane_id() % 8), r);
}
FAULT(stmatrix_misaligned) {
  uint32_t r[1] = {};
  ptx::stmatrix_x1(f.tile + 8 * (lane_id() % 8), r);
}
FAULT(waits_for_the_cluster_without_arriving) { ptx::cluster_wait(); }
FAULT(arrives_twice_at_the_cluster) {
  ptx::cluster_arrive();
  ptx::cluster_arrive();
}
FAULT(maps_beyond_the_cluster) { ptx::map_to_rank(f.tile, 1); }
FAULT(a_uniform_value_that_is_none) { ptx::uniform(lane_id() == 17); }
FAULT(releases_to_more_registers) { ptx::release_registers_to<248>(); }
FAULT(claims_registers_that_nobody_released) { ptx::claim_registers_to<248>(); }

#define ENTRY(name) \
  if (p.fault == i++) return name(Fault{p});

extern "C" __global__ void refusals(const __grid_constant__ Params p) {
  int i = 0;
  FAULTS
}
