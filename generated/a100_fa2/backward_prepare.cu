// fagen_a100_fa2_bwd_prepare: FlashAttention-2 backward for sm_80, before the main kernel
//
// problem: bf16, head_dim 128, head_dim_v 128, layout bshd
// causal mask, bottom-right: query i sees key j <= i + seqlen_k - seqlen_q
//
// One CTA per Q tile of one query head: what the main kernel needs of its rows, and zeros where it adds to.
// Printed by fagen from the spec: change the spec or the template, not this file.

#include "fagen/attn/row_stats.cuh"
#include "fagen/ptx/global.cuh"
#include "fagen/sched/same_length.cuh"

using T = __nv_bfloat16;  // problem.dtype

struct Params {
  const T* out;  // the forward's output
  const T* dout;  // gradient of out
  const float* lse;  // the forward's natural-log sum of exp, [batch, heads_q, seqlen_q]
  const float* dlse;  // gradient of lse, like it; null: none
  float* row_stats;  // [Q tiles][Br][2]: LSE * log2(e), and rowsum(dO * O) - dLSE
  float* dq_sum;  // [Q tiles][Br * dim]: dQ / scale, summed up, in the order of fragments
  int64_t out_batch_stride;  // elements between neighbours of out along batch
  int64_t out_row_stride;  // elements between neighbours of out along row
  int64_t out_head_stride;  // elements between neighbours of out along head
  int64_t dout_batch_stride;  // elements between neighbours of dout along batch
  int64_t dout_row_stride;  // elements between neighbours of dout along row
  int64_t dout_head_stride;  // elements between neighbours of dout along head
  int32_t batch;  // sequences
  int32_t heads_q;  // query heads
  int32_t heads_kv;  // K/V heads
  int32_t seqlen_q;  // queries per sequence
  int32_t seqlen_k;  // keys per sequence
  int32_t head_tiles;  // Q tiles of one head in the workspaces
  int32_t q_tiles;  // ceil(seqlen_q / Br)
};
static_assert(sizeof(Params) == 128, "the launch packs this struct");

struct Cfg {
  static constexpr int kTileQ = 64;  // schedule.backward.tile.q (Br)
  static constexpr int kThreads = 128;
  static constexpr int kDimV = 128;  // problem.head_dim_v
  using Sequence = fagen::sched::SameLength;  // problem.layout
};

extern "C" __global__ void __launch_bounds__(Cfg::kThreads)
    fagen_a100_fa2_bwd_prepare(const __grid_constant__ Params p) {
  using namespace fagen;
  const int pair = blockIdx.x / p.q_tiles, row0 = blockIdx.x % p.q_tiles * Cfg::kTileQ;
  const int batch = pair / p.heads_q, head = pair % p.heads_q;
  const Cfg::Sequence sequence(p, batch);
  const int rows = sequence.seqlen_q - row0;
  const int64_t tile = sequence.first_tile(p, head, Cfg::kTileQ) + row0 / Cfg::kTileQ;
  const int64_t first = sequence.begin_q + row0;
  const T* out = p.out + batch * p.out_batch_stride + head * p.out_head_stride + first * p.out_row_stride;
  const T* dout = p.dout + batch * p.dout_batch_stride + head * p.dout_head_stride + first * p.dout_row_stride;
  const int64_t lse = sequence.lse(p, head) + row0;

  float* sums = p.dq_sum + tile * (Cfg::kTileQ * 128);
#pragma unroll 4
  for (int i = threadIdx.x; i < Cfg::kTileQ * 128 / 4; i += Cfg::kThreads)
    ptx::st_global_16(sums + 4 * i, uint4{0, 0, 0, 0});
  attn::row_stats<Cfg::kTileQ, Cfg::kDimV, Cfg::kThreads>(out, p.out_row_stride, dout, p.dout_row_stride, rows,
                                                          p.lse + lse, p.dlse == nullptr ? nullptr : p.dlse + lse,
                                                          p.row_stats + tile * 2 * Cfg::kTileQ);
}
