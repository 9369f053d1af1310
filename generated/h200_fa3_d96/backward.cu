// fagen_h200_fa3_d96_bwd: FlashAttention-2 backward for sm_90a, the main kernel
//
// problem: bf16, head_dim 96, head_dim_v 96, layout bshd
// causal mask, bottom-right: query i sees key j <= i + seqlen_k - seqlen_q
//
// shared memory per CTA: 107536 of 232448 bytes
//   K tile                      12288  Bc*bytes*d
//   V tile                      12288  Bc*bytes*dv
//   Q tiles                     24576  Br*bytes*d*stages
//   dO tiles                    24576  Br*bytes*dv*stages
//   P tiles                     16384  Bc*Br*bytes*ds_stages
//   dS tiles                    16384  Bc*Br*bytes*ds_stages
//   LSE and delta of each row     1024  8*Br*stages
//   mbarriers                      16  8*stages
// shared memory per SM: 217120 of 233472 bytes
//   tiles of all CTAs          215072  ctas*(2*Bc*Br*bytes*ds_stages + Bc*bytes*d + Bc*bytes*dv + Br*bytes*d*stages + Br*bytes*dv*stages + 8*Br*stages + 8*stages)
//   taken by the driver          2048  ctas*reserved
// registers per thread: 216 of 255 registers
//   dK and dV accumulators         96  Bc*(d + dv)/(32*warps)
//   S and dP or dQ in their place       64  Max(Bc*Br/(16*warps), Br*d/(32*warps))
//   fragments of two k-steps       16  16
//   addresses and counters         40  40
// threads per SM: 256 of 2048 threads
//   warps                         256  32*ctas*warps
//
// One CTA owns 64 keys of one K/V head and visits the Q tiles that see them, of every query head of its group.
// dK and dV stay in registers; dQ is added to sums in global memory. A visit:
//   S = Q K^T, dP = dO V^T, P = exp(S - LSE), dS = P o (dP - delta); P and dS go to shared memory
//   dQ += dS K of the visit before, for half of the warps before S, for the others here
//   barrier of the CTA, the only one where P and dS have two buffers
//   dV += P^T dO, dK += dS^T Q
// Printed by fagen from the spec: change the spec or the template, not this file.

#include "fagen/attn/gradient.cuh"
#include "fagen/attn/mask.cuh"
#include "fagen/epilogue/store_rows.cuh"
#include "fagen/epilogue/sum_tile.cuh"
#include "fagen/mma/sm80.cuh"
#include "fagen/pipe/arrivals.cuh"
#include "fagen/pipe/load_tile.cuh"
#include "fagen/ptx/cp_async.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/sched/longest_first.cuh"
#include "fagen/sched/same_length.cuh"

using T = __nv_bfloat16;  // problem.dtype

struct Params {
  const T* q;  // queries
  const T* k;  // keys
  const T* v;  // values
  const T* dout;  // gradient of out
  T* dk;  // gradient of k
  T* dv;  // gradient of v
  const float* row_stats;  // [Q tiles][Br][2]: LSE * log2(e), and rowsum(dO * O) - dLSE
  float* dq_sum;  // [Q tiles][Br * dim]: dQ / scale, summed up, in the order of fragments
  int64_t q_batch_stride;  // elements between neighbours of q along batch
  int64_t q_row_stride;  // elements between neighbours of q along row
  int64_t q_head_stride;  // elements between neighbours of q along head
  int64_t k_batch_stride;  // elements between neighbours of k along batch
  int64_t k_row_stride;  // elements between neighbours of k along row
  int64_t k_head_stride;  // elements between neighbours of k along head
  int64_t v_batch_stride;  // elements between neighbours of v along batch
  int64_t v_row_stride;  // elements between neighbours of v along row
  int64_t v_head_stride;  // elements between neighbours of v along head
  int64_t dout_batch_stride;  // elements between neighbours of dout along batch
  int64_t dout_row_stride;  // elements between neighbours of dout along row
  int64_t dout_head_stride;  // elements between neighbours of dout along head
  int64_t dk_batch_stride;  // elements between neighbours of dk along batch
  int64_t dk_row_stride;  // elements between neighbours of dk along row
  int64_t dk_head_stride;  // elements between neighbours of dk along head
  int64_t dv_batch_stride;  // elements between neighbours of dv along batch
  int64_t dv_row_stride;  // elements between neighbours of dv along row
  int64_t dv_head_stride;  // elements between neighbours of dv along head
  int32_t batch;  // sequences
  int32_t heads_q;  // query heads
  int32_t heads_kv;  // K/V heads
  int32_t heads_per_kv;  // query heads that share one K/V head
  int32_t seqlen_q;  // queries per sequence
  int32_t seqlen_k;  // keys per sequence
  int32_t kv_tiles;  // ceil(seqlen_k / Bc)
  int32_t head_tiles;  // Q tiles of one head in the workspaces
  int32_t heads_abreast;  // (batch, K/V head) pairs that sched/longest_first.cuh runs side by side
  float scale;  // softmax scale
  float scale_log2;  // softmax scale * log2(e)
};
static_assert(sizeof(Params) == 256, "the launch packs this struct");

struct Cfg {
  static constexpr int kTileQ = 64;    // schedule.backward.tile.q (Br)
  static constexpr int kTileKv = 64;  // schedule.backward.tile.kv (Bc)
  static constexpr int kWarps = 4;
  static constexpr int kWarpsQ = 2;    // schedule.backward.warps.q: along the rows of S
  static constexpr int kWarpsDq = 2;  // schedule.backward.warps.dq: along the rows of dQ
  static constexpr int kStages = 2;     // schedule.backward.stages.q
  static constexpr int kDsStages = 2;  // schedule.backward.stages.ds
  static constexpr int kCtasPerSm = 2;  // schedule.backward.ctas_per_sm
  static constexpr int kDim = 96;   // problem.head_dim
  static constexpr int kDimV = 96;  // problem.head_dim_v
  using Mask = fagen::attn::Mask<fagen::attn::kUnbounded, 0>;  // problem.mask
  using Sequence = fagen::sched::SameLength;  // problem.layout

  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kWarpsKv = kWarps / kWarpsQ;
  using QTile = fagen::smem::Tile<kTileQ, 96>;
  using KTile = fagen::smem::Tile<kTileKv, 96>;
  using VTile = fagen::smem::Tile<kTileKv, 96>;
  using DoTile = fagen::smem::Tile<kTileQ, 96>;
  using STile = fagen::smem::Tile<kTileQ, kTileKv>;  // P and dS
  static constexpr int kStatsBytes = 8 * kTileQ;

  // A warp's part of S and dP, of dK and dV, and of dQ.
  static constexpr int kRowsS = kTileQ / kWarpsQ, kColsS = kTileKv / kWarpsKv;
  static constexpr int kColsDk = 96 / kWarpsQ, kColsDv = 96 / kWarpsQ;  // kColsS rows
  static constexpr int kRowsDq = kTileQ / kWarpsDq, kColsDq = 96 / (kWarps / kWarpsDq);
};

extern "C" __global__ void __launch_bounds__(Cfg::kThreads, Cfg::kCtasPerSm)
    fagen_h200_fa3_d96_bwd(const __grid_constant__ Params p) {
  using namespace fagen;
  const uint32_t smem = ptx::dynamic_shared();
  const uint32_t k_smem = smem + 0;  // 1 x [64][96]
  const uint32_t v_smem = smem + 12288;  // 1 x [64][96]
  const uint32_t q_smem = smem + 24576;  // 2 x [64][96]
  const uint32_t dout_smem = smem + 49152;  // 2 x [64][96]
  const uint32_t p_smem = smem + 73728;  // 2 x [64][64]
  const uint32_t ds_smem = smem + 90112;  // 2 x [64][64]
  const uint32_t stats_smem = smem + 106496;  // 2 x [64][2]

  // schedule.backward.scheduler
  const sched::Tiles tiles{uint32_t(p.batch) * p.heads_kv, uint32_t(p.kv_tiles), uint32_t(p.heads_abreast)};
  const sched::Place place = sched::longest_first(tiles, blockIdx.x);
  const int batch = place.pair / p.heads_kv, head_kv = place.pair % p.heads_kv;
  const int kv_tile = p.kv_tiles - 1 - place.tile;  // the first keys are seen by the most queries
  const Cfg::Sequence sequence(p, batch);
  const int col0 = kv_tile * Cfg::kTileKv;
  const int cols = min(Cfg::kTileKv, sequence.seqlen_k - col0);

  // The Q tiles that see some of these keys, of each query head; visited from the last to the first.
  const Cfg::Mask mask(sequence.seqlen_q, sequence.seqlen_k);
  const int begin = mask.first_row(col0) / Cfg::kTileQ;
  const int end = (mask.end_row(col0 + cols - 1) + Cfg::kTileQ - 1) / Cfg::kTileQ;
  const int visits = p.heads_per_kv * max(0, end - begin);
  struct Visit {
    int head, tile;

    __device__ __forceinline__ void advance(int begin, int end) {
      if (--tile < begin) tile = end - 1, ++head;
    }
  };
  Visit visit{head_kv * p.heads_per_kv, end - 1}, next = visit;

  const pipe::Arrivals<Cfg::kStages, Cfg::kThreads> arrivals(smem + 107520);
  const pipe::TileLoader<Cfg::QTile, Cfg::kDim, Cfg::kThreads> q_loader;
  const pipe::TileLoader<Cfg::DoTile, Cfg::kDimV, Cfg::kThreads> dout_loader;
  auto filling = pipe::Position<Cfg::kStages>::first_read(), reading = filling;
  auto fill = [&] {
    const int row0 = next.tile * Cfg::kTileQ, rows = sequence.seqlen_q - row0;
    const int64_t row = sequence.begin_q + row0;
    const T* q = p.q + batch * p.q_batch_stride + next.head * p.q_head_stride + row * p.q_row_stride;
    const T* dout = p.dout + batch * p.dout_batch_stride + next.head * p.dout_head_stride + row * p.dout_row_stride;
    const float* stats = p.row_stats + (sequence.first_tile(p, next.head, Cfg::kTileQ) + next.tile) * 2 * Cfg::kTileQ;
    q_loader.template load<true>(q_smem + filling.stage * Cfg::QTile::kBytes, q, p.q_row_stride, rows);
    dout_loader.template load<true>(dout_smem + filling.stage * Cfg::DoTile::kBytes, dout, p.dout_row_stride, rows);
    if (threadIdx.x < Cfg::kStatsBytes / 16)
      ptx::cp_async_16(stats_smem + filling.stage * Cfg::kStatsBytes + 16 * threadIdx.x, stats + 4 * threadIdx.x);
    arrivals.arrive(filling);
    filling.advance();
    next.advance(begin, end);
  };
  const int64_t key = sequence.begin_k + col0;
  if (visits > 0) {
    const T* k = p.k + batch * p.k_batch_stride + head_kv * p.k_head_stride + key * p.k_row_stride;
    const T* v = p.v + batch * p.v_batch_stride + head_kv * p.v_head_stride + key * p.v_row_stride;
    const pipe::TileLoader<Cfg::KTile, Cfg::kDim, Cfg::kThreads> k_loader;
    const pipe::TileLoader<Cfg::VTile, Cfg::kDimV, Cfg::kThreads> v_loader;
    k_loader.template load<true>(k_smem, k, p.k_row_stride, cols);
    v_loader.template load<true>(v_smem, v, p.v_row_stride, cols);
    fill();
  }

  // Where this warp's parts start.
  const int row_s = warp_id() % Cfg::kWarpsQ * Cfg::kRowsS, col_s = warp_id() / Cfg::kWarpsQ * Cfg::kColsS;
  const int col_dk = warp_id() % Cfg::kWarpsQ * Cfg::kColsDk, col_dv = warp_id() % Cfg::kWarpsQ * Cfg::kColsDv;
  const int row_dq = warp_id() % Cfg::kWarpsDq * Cfg::kRowsDq, col_dq = warp_id() / Cfg::kWarpsDq * Cfg::kColsDq;
  constexpr int kM = Cfg::kRowsS / 16, kMDkv = Cfg::kColsS / 16, kMDq = Cfg::kRowsDq / 16;

  const mma::SharedB k_transposed{mma::cursor_col_major<Cfg::KTile>(k_smem, col_s)};
  const mma::SharedB v_transposed{mma::cursor_col_major<Cfg::VTile>(v_smem, col_s)};
  const mma::SharedTransposedB k_columns{mma::cursor_row_major<Cfg::KTile, Cfg::kColsDq>(k_smem, 0, col_dq)};
  mma::Accumulator<kMDkv, Cfg::kColsDk> dk;
  mma::Accumulator<kMDkv, Cfg::kColsDv> dv;
  mma::clear(dk);
  mma::clear(dv);

  Visit done = visit;  // the one before
  auto add_dq = [&](int i) {  // dQ += dS K
    const uint32_t ds_tile = ds_smem + i % Cfg::kDsStages * Cfg::STile::kBytes;
    const int64_t tile = sequence.first_tile(p, done.head, Cfg::kTileQ) + done.tile;
    mma::Accumulator<kMDq, Cfg::kColsDq> dq;
    mma::clear(dq);
    mma::gemm<T, Cfg::kTileKv>(
        dq, mma::SharedA<smem::Cursor<Cfg::STile>, kMDq>{mma::cursor_row_major<Cfg::STile>(ds_tile, row_dq)},
        k_columns);
    epilogue::add_to_sums(dq, p.dq_sum + tile * (Cfg::kTileQ * 96));
  };
  // The two warps of a scheduler do it at different times: one multiplies while the other takes exponentials.
  const bool dq_first = Cfg::kDsStages == 1 || warp_id() < Cfg::kWarps / 2;

  for (int i = 0; i < visits; ++i) {
    const uint32_t q_tile = q_smem + reading.stage * Cfg::QTile::kBytes;
    const uint32_t dout_tile = dout_smem + reading.stage * Cfg::DoTile::kBytes;
    const uint32_t p_tile = p_smem + i % Cfg::kDsStages * Cfg::STile::kBytes;
    const uint32_t ds_tile = ds_smem + i % Cfg::kDsStages * Cfg::STile::kBytes;
    const int row0 = visit.tile * Cfg::kTileQ;
    arrivals.wait(reading);
    if (i > 0 && dq_first) add_dq(i - 1);

    mma::Accumulator<kM, Cfg::kColsS> s;
    mma::clear(s);
    mma::gemm<T, Cfg::QTile::kCols>(
        s, mma::SharedA<smem::Cursor<Cfg::QTile>, kM>{mma::cursor_row_major<Cfg::QTile>(q_tile, row_s)},
        k_transposed);
    mma::Accumulator<kM, Cfg::kColsS> dp;
    mma::clear(dp);
    mma::gemm<T, Cfg::DoTile::kCols>(
        dp, mma::SharedA<smem::Cursor<Cfg::DoTile>, kM>{mma::cursor_row_major<Cfg::DoTile>(dout_tile, row_s)},
        v_transposed);
    if (mask.hides(row0 + row_s, row0 + row_s + Cfg::kRowsS - 1, col0 + col_s, col0 + col_s + Cfg::kColsS))
      mask.apply(s, row_s, [&](int row) { return row0 + row; }, col0 + col_s);
    const attn::RowStats<kM> stats(stats_smem + reading.stage * Cfg::kStatsBytes, row_s);
    stats.probabilities(s, p.scale_log2);
    if constexpr (Cfg::kDsStages == 1) __syncthreads();  // all are done with P and dS of the visit before
    mma::store_shared<T, Cfg::STile>(s, p_tile, row_s, col_s);
    stats.score_gradients(dp, s);
    mma::store_shared<T, Cfg::STile>(dp, ds_tile, row_s, col_s);
    if (i > 0 && !dq_first) add_dq(i - 1);
    __syncthreads();  // P and dS are there, and all are done with the visit before
    if (Cfg::kStages > 1 && i + 1 < visits) fill();

    mma::gemm<T, Cfg::kTileQ>(
        dv,
        mma::SharedTransposedA<smem::Cursor<Cfg::STile, Cfg::kColsS>, kMDkv>{
            mma::cursor_col_major<Cfg::STile, Cfg::kColsS>(p_tile, 0, col_s)},
        mma::SharedTransposedB{mma::cursor_row_major<Cfg::DoTile, Cfg::kColsDv>(dout_tile, 0, col_dv)});
    mma::gemm<T, Cfg::kTileQ>(
        dk,
        mma::SharedTransposedA<smem::Cursor<Cfg::STile, Cfg::kColsS>, kMDkv>{
            mma::cursor_col_major<Cfg::STile, Cfg::kColsS>(ds_tile, 0, col_s)},
        mma::SharedTransposedB{mma::cursor_row_major<Cfg::QTile, Cfg::kColsDk>(q_tile, 0, col_dk)});
    if constexpr (Cfg::kStages == 1) {
      __syncthreads();  // all are done with Q and dO
      if (i + 1 < visits) fill();
    }

    done = visit;
    reading.advance();
    visit.advance(begin, end);
  }

  if (visits > 0) add_dq(visits - 1);
  __syncthreads();

  // dK and dV leave through the places of K and V.
  mma::scale(dk, p.scale);
  mma::store_shared<T, Cfg::KTile>(dk, k_smem, col_s, col_dk);
  mma::store_shared<T, Cfg::VTile>(dv, v_smem, col_s, col_dv);
  __syncthreads();
  T* dk_out = p.dk + batch * p.dk_batch_stride + head_kv * p.dk_head_stride + key * p.dk_row_stride;
  T* dv_out = p.dv + batch * p.dv_batch_stride + head_kv * p.dv_head_stride + key * p.dv_row_stride;
  epilogue::copy_rows<Cfg::KTile, Cfg::kTileKv, Cfg::kDim, Cfg::kThreads>(k_smem, 0, threadIdx.x, dk_out,
                                                                         p.dk_row_stride, cols);
  epilogue::copy_rows<Cfg::VTile, Cfg::kTileKv, Cfg::kDimV, Cfg::kThreads>(v_smem, 0, threadIdx.x, dv_out,
                                                                          p.dv_row_stride, cols);
}
