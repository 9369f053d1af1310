// fagen_h200_fa2_bwd_convert: FlashAttention-2 backward for sm_90a, after the main kernel
//
// problem: bf16, head_dim 128, head_dim_v 128, layout bshd
// causal mask, bottom-right: query i sees key j <= i + seqlen_k - seqlen_q
//
// One CTA per Q tile of one query head: dQ out of its fp32 sums, scaled and rounded.
// Printed by fagen from the spec: change the spec or the template, not this file.

#include "fagen/epilogue/store_rows.cuh"
#include "fagen/epilogue/sum_tile.cuh"
#include "fagen/mma/sm80.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/sched/same_length.cuh"

using T = __nv_bfloat16;  // problem.dtype

struct Params {
  const float* dq_sum;  // [Q tiles][Br * dim]: dQ / scale, summed up, in the order of fragments
  T* dq;  // gradient of q
  int64_t dq_batch_stride;  // elements between neighbours of dq along batch
  int64_t dq_row_stride;  // elements between neighbours of dq along row
  int64_t dq_head_stride;  // elements between neighbours of dq along head
  int32_t batch;  // sequences
  int32_t heads_q;  // query heads
  int32_t seqlen_q;  // queries per sequence
  int32_t seqlen_k;  // keys per sequence
  int32_t head_tiles;  // Q tiles of one head in the workspaces
  int32_t q_tiles;  // ceil(seqlen_q / Br)
  float scale;  // softmax scale
};
static_assert(sizeof(Params) == 72, "the launch packs this struct");

struct Cfg {
  static constexpr int kTileQ = 64;  // schedule.backward.tile.q (Br)
  static constexpr int kWarps = 8;
  static constexpr int kWarpsDq = 2;  // schedule.backward.warps.dq
  static constexpr int kDim = 128;  // problem.head_dim
  using Sequence = fagen::sched::SameLength;  // problem.layout

  static constexpr int kThreads = 32 * kWarps;
  using QTile = fagen::smem::Tile<kTileQ, 128>;
  // A warp's part, as in the main kernel.
  static constexpr int kRowsDq = kTileQ / kWarpsDq, kColsDq = 128 / (kWarps / kWarpsDq);
};

extern "C" __global__ void __launch_bounds__(Cfg::kThreads)
    fagen_h200_fa2_bwd_convert(const __grid_constant__ Params p) {
  using namespace fagen;
  const uint32_t smem = ptx::dynamic_shared();  // [64][128]
  const int pair = blockIdx.x / p.q_tiles, row0 = blockIdx.x % p.q_tiles * Cfg::kTileQ;
  const int batch = pair / p.heads_q, head = pair % p.heads_q;
  const Cfg::Sequence sequence(p, batch);
  const int rows = sequence.seqlen_q - row0;
  const int64_t tile = sequence.first_tile(p, head, Cfg::kTileQ) + row0 / Cfg::kTileQ;

  mma::Accumulator<Cfg::kRowsDq / 16, Cfg::kColsDq> dq;
  epilogue::load_sums(dq, p.dq_sum + tile * (Cfg::kTileQ * 128));
  mma::scale(dq, p.scale);
  mma::store_shared<T, Cfg::QTile>(dq, smem, warp_id() % Cfg::kWarpsDq * Cfg::kRowsDq,
                                   warp_id() / Cfg::kWarpsDq * Cfg::kColsDq);
  __syncthreads();
  T* dq_out = p.dq + batch * p.dq_batch_stride + head * p.dq_head_stride + (sequence.begin_q + row0) * p.dq_row_stride;
  epilogue::copy_rows<Cfg::QTile, Cfg::kTileQ, Cfg::kDim, Cfg::kThreads>(smem, 0, threadIdx.x, dq_out,
                                                                        p.dq_row_stride, rows);
}
