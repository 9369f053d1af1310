// fagen_rtx5090_fa2_fwd: FlashAttention-2 forward for sm_120a
//
// problem: bf16, head_dim 128, head_dim_v 128, layout bshd
// causal mask, bottom-right: query i sees key j <= i + seqlen_k - seqlen_q
//
// shared memory per CTA: 98336 of 101376 bytes
//   Q tile, O staged through it    49152  Br*bytes*Max(d, dv)
//   K ring                      24576  Bc*bytes*d*stages
//   V ring                      24576  Bc*bytes*dv*stages
//   mbarriers, full and empty       32  16*stages
// shared memory per SM: 99360 of 102400 bytes
//   tiles of all CTAs           98336  ctas*(Bc*bytes*d*stages + Bc*bytes*dv*stages + Br*bytes*Max(d, dv) + 16*stages)
//   taken by the driver          1024  ctas*reserved
// registers per thread: 156 of 168 registers
//   O accumulator                  64  Br*dv/(32*warps)
//   S accumulator                  24  Bc*Br/(32*warps)
//   P fragment of one k-step (P takes over the registers of S)        4  Br/(4*warps)
//   Q fragments, held              32  Br*d/(64*warps)
//   K or V fragments of two k-steps        8  8
//   row maximum and row sum         4  Br/(4*warps)
//   addresses and counters         20  20
// threads per SM: 384 of 1536 threads
//   math warps                    384  32*ctas*warps
//
// One CTA owns 192 queries of one head; its warps split the rows. K and V tiles arrive by cp.async
// in a ring of 2, from the last visible key to the first. O stays unnormalised in registers.
// Printed by fagen from the spec: change the spec or the template, not this file.

#include "fagen/attn/mask.cuh"
#include "fagen/attn/softmax.cuh"
#include "fagen/epilogue/store_lse.cuh"
#include "fagen/epilogue/store_rows.cuh"
#include "fagen/mma/sm80.cuh"
#include "fagen/pipe/load_tile.cuh"
#include "fagen/pipe/ring.cuh"
#include "fagen/sched/longest_first.cuh"
#include "fagen/sched/same_length.cuh"

using T = __nv_bfloat16;  // problem.dtype

struct Params {
  const T* q;  // queries
  const T* k;  // keys
  const T* v;  // values
  T* out;  // output
  float* lse;  // natural-log sum of exp, [batch, heads_q, seqlen_q]; null: not wanted
  int64_t q_batch_stride;  // elements between neighbours of q along batch
  int64_t q_row_stride;  // elements between neighbours of q along row
  int64_t q_head_stride;  // elements between neighbours of q along head
  int64_t k_batch_stride;  // elements between neighbours of k along batch
  int64_t k_row_stride;  // elements between neighbours of k along row
  int64_t k_head_stride;  // elements between neighbours of k along head
  int64_t v_batch_stride;  // elements between neighbours of v along batch
  int64_t v_row_stride;  // elements between neighbours of v along row
  int64_t v_head_stride;  // elements between neighbours of v along head
  int64_t out_batch_stride;  // elements between neighbours of out along batch
  int64_t out_row_stride;  // elements between neighbours of out along row
  int64_t out_head_stride;  // elements between neighbours of out along head
  int32_t batch;  // sequences
  int32_t heads_q;  // query heads
  int32_t heads_per_kv;  // query heads that share one K/V head
  int32_t seqlen_q;  // queries per sequence
  int32_t seqlen_k;  // keys per sequence
  int32_t q_tiles;  // ceil(seqlen_q / Br)
  int32_t heads_abreast;  // (batch, head) pairs that sched/longest_first.cuh runs side by side
  float scale_log2;  // softmax scale * log2(e)
};
static_assert(sizeof(Params) == 168, "the launch packs this struct");

struct Cfg {
  static constexpr int kTileQ = 192;    // schedule.tile.q (Br)
  static constexpr int kTileKv = 48;  // schedule.tile.kv (Bc)
  static constexpr int kWarps = 12;  // schedule.roles.math.warps
  static constexpr int kStages = 2;  // schedule.stages.kv
  static constexpr int kCtasPerSm = 1;  // schedule.ctas_per_sm
  static constexpr int kDim = 128;  // problem.head_dim
  static constexpr int kDimV = 128;  // problem.head_dim_v
  using Mask = fagen::attn::Mask<fagen::attn::kUnbounded, 0>;  // problem.mask
  using Sequence = fagen::sched::SameLength;  // problem.layout
  static constexpr float kLazy = 8.0f;  // schedule.softmax.rescale: log2 of the growth left unapplied, < 0: none
  static constexpr float kPolynomial = 0.0f;  // schedule.softmax.exp2: share of exp2 on the FMA pipe
  static constexpr bool kSpreadsExponents = false;  // the compiler has the exponents of a tile first

  static constexpr int kThreads = 32 * kWarps;
  // Tiles loaded ahead of the one in use. Where there are three stages or more, one is left as slack: a fast
  // warp loads into it while a slow one still reads the stage before.
  static constexpr int kAhead = kStages == 2 ? 1 : kStages - 2;
  static constexpr int kM = kTileQ / kWarps / 16;  // 16-row blocks per warp
  using QTile = fagen::smem::Tile<kTileQ, 128>;
  using KTile = fagen::smem::Tile<kTileKv, 128>;
  using VTile = fagen::smem::Tile<kTileKv, 128>;
  using OTile = fagen::smem::Tile<kTileQ, 128>;  // takes Q's place at the end
};

extern "C" __global__ void __launch_bounds__(Cfg::kThreads, Cfg::kCtasPerSm)
    fagen_rtx5090_fa2_fwd(const __grid_constant__ Params p) {
  using namespace fagen;
  const uint32_t smem = ptx::dynamic_shared();
  const uint32_t q_smem = smem + 0;  // 1 x [192][128]
  const uint32_t k_smem = smem + 49152;  // 2 x [48][128]
  const uint32_t v_smem = smem + 73728;  // 2 x [48][128]

  // schedule.scheduler
  const sched::Work work = sched::Work::of(p, sched::longest_first(sched::Tiles::of_queries(p), blockIdx.x));
  const Cfg::Sequence sequence(p, work.batch);
  const int row0 = work.q_tile * Cfg::kTileQ;
  const int rows = min(Cfg::kTileQ, sequence.seqlen_q - row0);
  const int first_row = sequence.begin_q + row0;
  const T* q = p.q + work.batch * p.q_batch_stride + work.head_q * p.q_head_stride + first_row * p.q_row_stride;
  const T* k = p.k + work.batch * p.k_batch_stride + work.head_kv * p.k_head_stride +
               sequence.begin_k * p.k_row_stride;
  const T* v = p.v + work.batch * p.v_batch_stride + work.head_kv * p.v_head_stride +
               sequence.begin_k * p.v_row_stride;

  // Tiles of keys, visited from the right: the CTA loads [begin, end), this warp uses [begin, warp_end).
  const int warp_row = warp_id() * 16 * Cfg::kM;
  const int warp_last = warp_row + 16 * Cfg::kM - 1;
  const Cfg::Mask mask(sequence.seqlen_q, sequence.seqlen_k);
  const int begin = mask.begin(row0) / Cfg::kTileKv;
  const int end = (mask.end(row0 + rows - 1) + Cfg::kTileKv - 1) / Cfg::kTileKv;
  const int warp_end = (mask.end(row0 + warp_last) + Cfg::kTileKv - 1) / Cfg::kTileKv;

  const pipe::TileLoader<Cfg::QTile, Cfg::kDim, Cfg::kThreads> q_loader;
  const pipe::TileLoader<Cfg::KTile, Cfg::kDim, Cfg::kThreads> k_loader;
  const pipe::TileLoader<Cfg::VTile, Cfg::kDimV, Cfg::kThreads> v_loader;
  const pipe::Ring<Cfg::kStages, Cfg::kWarps> ring(smem + 98304);
  auto fill = ring.first_fill();
  auto load_kv = [&](int tile, auto partial) {
    if (tile < begin) return;
    const int first = tile * Cfg::kTileKv;
    ring.wait_empty(fill);
    k_loader.template load<partial.value>(k_smem + fill.stage * Cfg::KTile::kBytes, k + first * p.k_row_stride,
                                          p.k_row_stride, sequence.seqlen_k - first);
    v_loader.template load<partial.value>(v_smem + fill.stage * Cfg::VTile::kBytes, v + first * p.v_row_stride,
                                          p.v_row_stride, sequence.seqlen_k - first);
    ring.arrive_full(fill);
    fill.advance();
  };

  // Prologue: Q travels with the first K/V tile, the only one that may reach past the last key.
  if (end > begin) q_loader.load<true>(q_smem, q, p.q_row_stride, rows);
  load_kv(end - 1, Bool<true>());
#pragma unroll
  for (int ahead = 1; ahead < Cfg::kAhead; ++ahead) load_kv(end - 1 - ahead, Bool<false>());

  const mma::SharedA<smem::Cursor<Cfg::QTile>, Cfg::kM> q_shared{
      mma::cursor_row_major<Cfg::QTile>(q_smem + warp_row * Cfg::QTile::kRowBytes)};
  // spec: schedule.q_operand = registers
  mma::RegisterA<Cfg::QTile::kCols, Cfg::kM> q_operand;
  if (end > begin) {
    ring.wait_full(ring.first_read());
    q_operand.load(q_shared);
  }

  mma::Accumulator<Cfg::kM, Cfg::VTile::kCols> o;
  mma::clear(o);
  attn::Softmax<Cfg::kM> softmax(p.scale_log2);

  auto read = ring.first_read();
  for (int tile = end - 1; tile >= begin; --tile) {
    load_kv(tile - Cfg::kAhead, Bool<false>());
    ring.wait_full(read);
    if (tile < warp_end) {
      mma::Accumulator<Cfg::kM, Cfg::kTileKv> s;
      mma::clear(s);
      mma::gemm<T, Cfg::KTile::kCols>(
          s, q_operand,
          mma::SharedB{mma::cursor_col_major<Cfg::KTile>(k_smem + read.stage * Cfg::KTile::kBytes)});
      const int col0 = tile * Cfg::kTileKv;
      if (mask.hides(row0 + warp_row, row0 + warp_last, col0, col0 + Cfg::kTileKv))
        mask.apply(s, warp_row, [&](int row) { return row0 + row; }, col0);
      softmax.rescale<Cfg>(s, o);
      softmax.exponentiate<Cfg>(s);
      mma::gemm<T, Cfg::kTileKv>(
          o, mma::as_operand<T>(s),
          mma::SharedTransposedB{mma::cursor_row_major<Cfg::VTile>(v_smem + read.stage * Cfg::VTile::kBytes)});
    }
    ring.arrive_empty(read);
    read.advance();
  }

  float inverse[Cfg::kM][2], lse[Cfg::kM][2];
  softmax.finish(inverse, lse);
  attn::scale(o, inverse);
  // O takes Q's place row by row, a warp over its own rows only, if both tiles have the same panels.
  if constexpr (Cfg::OTile::kRowBytes != Cfg::QTile::kRowBytes) __syncthreads();
  T* out = p.out + work.batch * p.out_batch_stride + work.head_q * p.out_head_stride + first_row * p.out_row_stride;
  epilogue::store_out<T, Cfg::OTile, Cfg::kDimV>(o, q_smem, warp_row, out, p.out_row_stride, rows);
  if (p.lse != nullptr) {
    float* row_lse = p.lse + sequence.lse(p, work.head_q) + row0;
    epilogue::store_lse(lse, warp_row, [&](int row) { return row_lse + row; }, rows);
  }
}
