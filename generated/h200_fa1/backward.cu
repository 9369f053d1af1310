// fagen_h200_fa1_bwd: FlashAttention backward for sm_90a
//
// problem: bf16, head_dim 128, head_dim_v 128, layout bshd
// causal mask, bottom-right: query i sees key j <= i + seqlen_k - seqlen_q
//
// rows of a K/V block, by the paper's rule: 128 of 227 rows
//   Bc <= ceil(M / 2(d + dv))      128  Bc
// rows of a Q block, by the paper's rule: 64 of 128 rows
//   Br <= min(Bc, d)               64  Br
// shared memory per CTA: 213528 of 232448 bytes
//   K and V blocks              65536  Bc*bytes*(d + dv)
//   Q blocks, dQ staged through    32768  Br*bytes*d*stages
//   O block and dO blocks       49152  Br*bytes*dv*(stages + 1)
//   P and dS blocks             65536  2*Bc*Br*bytes*stages
//   l, m and D of each row        512  8*Br
//   mbarriers                      24  8*stages + 8
// registers per thread: 252 of 255 registers
//   dK and dV accumulators        128  Bc*(d + dv)/(32*warps)
//   S and dP, or dQ in their place       64  Max(2*Bc*Br, Br*d)/(32*warps)
//   fragments of two k-steps       16  16
//   addresses and counters         44  44
//   addresses of columns that cut panels        0  Min(20, Max(5*(Mod(d/warps_q, 64 - Mod(d, 64)))*floor(d/(warps_q*(64 - Mod(d, 64))))/8, 5*(Mod(dv/warps_q, 64 - Mod(dv, 64)))*floor(dv/(warps_q*(64 - Mod(dv, 64))))/8))
// threads per SM: 256 of 2048 threads
//   warps                         256  32*warps
//
// Algorithm 4 of FlashAttention (arXiv 2205.14135), whose lines the comments below name; there is no dropout
// (lines 1, 14, 15 and 18). One CTA owns a K/V head. K/V blocks are outside and keep dK and dV in registers,
// the Q blocks of every query head of the group are inside: dQ of a Q block is added to in HBM at every step,
// in fp32. It is rounded to the element type once, at the end.
// Printed by fagen from the spec: change the spec or the template, not this file.

#include "fagen/attn/block_statistics.cuh"
#include "fagen/attn/gradient.cuh"
#include "fagen/attn/mask.cuh"
#include "fagen/epilogue/store_rows.cuh"
#include "fagen/epilogue/sum_tile.cuh"
#include "fagen/mma/sm80.cuh"
#include "fagen/mma/store_shared.cuh"
#include "fagen/pipe/arrivals.cuh"
#include "fagen/pipe/load_tile.cuh"
#include "fagen/pipe/split_barrier.cuh"
#include "fagen/sched/q_blocks.cuh"

using T = __nv_bfloat16;  // problem.dtype

struct Params {
  const T* q;  // queries
  const T* k;  // keys
  const T* v;  // values
  const T* out;  // the forward's output
  const T* dout;  // gradient of out
  const float* dlse;  // gradient of the LSE, [batch, heads_q, seqlen_q]; null: none
  float* dq_sum;  // [batch][heads_q][ceil(seqlen_q / Br)][Br][d]: unscaled dQ between K/V blocks, a block in the order of its fragments
  const float* row_stats;  // [2][batch][heads_q][seqlen_q]: m, the maxima of the scaled scores, and l, the sums of e^(score - m)
  T* dq;  // gradient of q
  T* dk;  // gradient of k
  T* dv;  // gradient of v
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
  int64_t dout_batch_stride;  // elements between neighbours of dout along batch
  int64_t dout_row_stride;  // elements between neighbours of dout along row
  int64_t dout_head_stride;  // elements between neighbours of dout along head
  int64_t dq_batch_stride;  // elements between neighbours of dq along batch
  int64_t dq_row_stride;  // elements between neighbours of dq along row
  int64_t dq_head_stride;  // elements between neighbours of dq along head
  int64_t dk_batch_stride;  // elements between neighbours of dk along batch
  int64_t dk_row_stride;  // elements between neighbours of dk along row
  int64_t dk_head_stride;  // elements between neighbours of dk along head
  int64_t dv_batch_stride;  // elements between neighbours of dv along batch
  int64_t dv_row_stride;  // elements between neighbours of dv along row
  int64_t dv_head_stride;  // elements between neighbours of dv along head
  int32_t heads_kv;  // K/V heads
  int32_t batch;  // sequences
  int32_t heads_q;  // query heads
  int32_t heads_per_kv;  // query heads that share one K/V head
  int32_t seqlen_q;  // queries per sequence
  int32_t seqlen_k;  // keys per sequence
  float scale;  // softmax scale (tau)
  float scale_log2;  // softmax scale * log2(e)
};
static_assert(sizeof(Params) == 312, "the launch packs this struct");

struct Cfg {
  // Line 2. The forward's blocks (Bc = ceil(M / 2(d + dv)), Br = min(Bc, d)), or what fits of them.
  static constexpr int kTileQ = 64;    // Br
  static constexpr int kTileKv = 128;  // Bc
  static constexpr int kWarps = 8;
  static constexpr int kWarpsQ = 2;  // along the rows of S; along the columns of dK and dV
  static constexpr int kWarpsDq = 2;  // along the rows of dQ
  static constexpr int kStages = 2;  // blocks of each of Q, dO, P and dS in shared memory
  static constexpr int kDim = 128;  // problem.head_dim
  static constexpr int kDimV = 128;  // problem.head_dim_v
  using Mask = fagen::attn::Mask<fagen::attn::kUnbounded, 0>;  // problem.mask

  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kWarpsKv = kWarps / kWarpsQ;
  using QTile = fagen::smem::Tile<kTileQ, 128>;     // Q; dQ at the end
  using KTile = fagen::smem::Tile<kTileKv, 128>;
  using VTile = fagen::smem::Tile<kTileKv, 128>;
  using OTile = fagen::smem::Tile<kTileQ, 128>;   // O and dO
  using STile = fagen::smem::Tile<kTileQ, kTileKv>;  // P and dS

  // A warp's part of S and dP, of dK and dV (kColsS rows), and of dQ.
  static constexpr int kRowsS = kTileQ / kWarpsQ, kColsS = kTileKv / kWarpsKv;
  static constexpr int kColsDk = 128 / kWarpsQ, kColsDv = 128 / kWarpsQ;
  static constexpr int kRowsDq = kTileQ / kWarpsDq, kColsDq = 128 / (kWarps / kWarpsDq);
  static constexpr int kBlockDq = kTileQ * QTile::kCols;
};

extern "C" __global__ void __launch_bounds__(Cfg::kThreads)
    fagen_h200_fa1_bwd(const __grid_constant__ Params p) {
  using namespace fagen;
  const uint32_t smem = ptx::dynamic_shared();
  const uint32_t k_smem = smem + 0;
  const uint32_t v_smem = smem + 32768;
  const uint32_t q_smem = smem + 65536;
  const uint32_t out_smem = smem + 98304;
  const uint32_t dout_smem = smem + 114688;
  const uint32_t p_smem = smem + 147456;
  const uint32_t ds_smem = smem + 180224;
  const uint32_t stats_smem = smem + 212992;

  const int batch = blockIdx.x / p.heads_kv, head_kv = blockIdx.x % p.heads_kv;
  // The query heads of the group, with all of their rows.
  const sched::QBlocks<Cfg::kTileQ> all{head_kv * p.heads_per_kv, (head_kv + 1) * p.heads_per_kv, 0, p.seqlen_q};
  const T* q = p.q + batch * p.q_batch_stride;
  const T* out = p.out + batch * p.out_batch_stride;
  const T* dout = p.dout + batch * p.dout_batch_stride;
  const int q_blocks = (p.seqlen_q + Cfg::kTileQ - 1) / Cfg::kTileQ;
  auto dq_sums = [&](sched::QBlock at) {
    const int64_t pair = int64_t(batch) * p.heads_q + at.head;
    return p.dq_sum + (pair * q_blocks + at.row0 / Cfg::kTileQ) * Cfg::kBlockDq;
  };
  const T* k = p.k + batch * p.k_batch_stride + head_kv * p.k_head_stride;
  const T* v = p.v + batch * p.v_batch_stride + head_kv * p.v_head_stride;
  const Cfg::Mask mask(p.seqlen_q, p.seqlen_k);

  // Where this warp's parts start.
  const int along_q = warp_id() % Cfg::kWarpsQ;
  const int row_s = along_q * Cfg::kRowsS, col_s = warp_id() / Cfg::kWarpsQ * Cfg::kColsS;
  const int col_dk = along_q * Cfg::kColsDk, col_dv = along_q * Cfg::kColsDv;  // from row col_s on
  const int row_dq = warp_id() % Cfg::kWarpsDq * Cfg::kRowsDq;
  const int col_dq = warp_id() / Cfg::kWarpsDq * Cfg::kColsDq;
  constexpr int kM = Cfg::kRowsS / 16, kMDkv = Cfg::kColsS / 16, kMDq = Cfg::kRowsDq / 16;

  const pipe::TileLoader<Cfg::QTile, Cfg::kDim, Cfg::kThreads> q_loader;
  const pipe::TileLoader<Cfg::KTile, Cfg::kDim, Cfg::kThreads> k_loader;
  const pipe::TileLoader<Cfg::VTile, Cfg::kDimV, Cfg::kThreads> v_loader;
  const pipe::TileLoader<Cfg::OTile, Cfg::kDimV, Cfg::kThreads> o_loader;
  pipe::SplitBarrier<Cfg::kThreads> meeting(smem + 213504 + 8 * Cfg::kStages);
  const pipe::Arrivals<Cfg::kStages, Cfg::kThreads> arrivals(smem + 213504);
  auto filling = pipe::Position<Cfg::kStages>::first_read(), reading = filling;
  attn::BlockStatistics<Cfg::OTile, Cfg::kThreads> statistics;

  // Line 21, a step late: dQ_i += dS K_j in HBM; the factor tau waits until the end.
  auto add_dq = [&](sched::QBlock done) {
    if (!all.has(done)) return;
    const int stage = (reading.stage + Cfg::kStages - 1) % Cfg::kStages;
    mma::Accumulator<kMDq, Cfg::kColsDq> dq_block;
    mma::clear(dq_block);
    mma::gemm<T, Cfg::kTileKv>(
        dq_block,
        mma::SharedA<smem::Cursor<Cfg::STile>, kMDq>{
            mma::cursor_row_major<Cfg::STile>(ds_smem + stage * Cfg::STile::kBytes, row_dq)},
        mma::SharedTransposedB{mma::cursor_row_major<Cfg::KTile, Cfg::kColsDq>(k_smem, 0, col_dq)});
    epilogue::add_to_sums(dq_block, dq_sums(done));
  };
  // The two warps of a scheduler do it at different times: one multiplies while the other takes exponentials.
  const bool dq_first = Cfg::kStages == 1 || warp_id() < Cfg::kWarps / 2;

  // Line 5: dQ = 0 in HBM.
  epilogue::clear_sums<Cfg::kThreads>(dq_sums(all.first()),
                                      int64_t(p.heads_per_kv) * q_blocks * Cfg::kBlockDq);

  // Lines 3, 4 and 6: for each block j of K and V.
  for (int col0 = 0; col0 < p.seqlen_k; col0 += Cfg::kTileKv) {
    const int cols = min(Cfg::kTileKv, p.seqlen_k - col0);
    // The rows that see some of these keys, in whole blocks.
    const sched::QBlocks<Cfg::kTileQ> seeing{all.begin_head, all.end_head,
                                             mask.first_row(col0) / Cfg::kTileQ * Cfg::kTileQ,
                                             mask.end_row(col0 + cols - 1)};
    auto load_tiles = [&](sched::QBlock at) {
      if (!seeing.has(at)) return;
      const int rows = p.seqlen_q - at.row0;
      q_loader.load<true>(q_smem + filling.stage * Cfg::QTile::kBytes,
                          q + at.head * p.q_head_stride + at.row0 * p.q_row_stride, p.q_row_stride, rows);
      o_loader.load<true>(dout_smem + filling.stage * Cfg::OTile::kBytes,
                          dout + at.head * p.dout_head_stride + at.row0 * p.dout_row_stride, p.dout_row_stride, rows);
      o_loader.load<true>(out_smem, out + at.head * p.out_head_stride + at.row0 * p.out_row_stride, p.out_row_stride,
                          rows);
      arrivals.arrive(filling);
      filling.advance();
    };
    auto load_statistics = [&](sched::QBlock at) {
      if (!seeing.has(at)) return;
      const int64_t pair = int64_t(batch) * p.heads_q + at.head;
      statistics.load(
          attn::HeadStatistics<const float>(p.row_stats, int64_t(p.batch) * p.heads_q, pair, p.seqlen_q),
          p.dlse == nullptr ? nullptr : p.dlse + pair * p.seqlen_q, at.row0);
    };

    // Line 7: load K_j and V_j; what the first step needs comes along.
    __syncthreads();  // dK and dV of the block before have left
    if (seeing.has(seeing.first())) {
      k_loader.load<true>(k_smem, k + col0 * p.k_row_stride, p.k_row_stride, cols);
      v_loader.load<true>(v_smem, v + col0 * p.v_row_stride, p.v_row_stride, cols);
    }
    load_tiles(seeing.first());
    load_statistics(seeing.first());

    // Line 8: dK_j = 0 and dV_j = 0 on chip.
    mma::Accumulator<kMDkv, Cfg::kColsDk> dk_block;
    mma::Accumulator<kMDkv, Cfg::kColsDv> dv_block;
    mma::clear(dk_block);
    mma::clear(dv_block);

    // Line 9: for each block i of Q.
    sched::QBlock done{all.end_head, 0};  // the one before
    for (auto at = seeing.first(); seeing.has(at); done = at, at = seeing.after(at)) {
      const int row0 = at.row0;
      const uint32_t q_tile = q_smem + reading.stage * Cfg::QTile::kBytes;
      const uint32_t dout_tile = dout_smem + reading.stage * Cfg::OTile::kBytes;
      const uint32_t p_tile = p_smem + reading.stage * Cfg::STile::kBytes;
      const uint32_t ds_tile = ds_smem + reading.stage * Cfg::STile::kBytes;

      if (dq_first) add_dq(done);

      // Line 10: load Q_i, O_i, dO_i, l_i and m_i. They are on their way since last step.
      arrivals.wait(reading);

      // Line 19: D_i = rowsum(dO_i o O_i).
      statistics.store<T>(stats_smem, out_smem, dout_tile);
      meeting.arrive();

      // Line 11: S = Q_i K_j^T, unscaled.
      mma::Accumulator<kM, Cfg::kColsS> s;
      mma::clear(s);
      mma::gemm<T, Cfg::QTile::kCols>(
          s, mma::SharedA<smem::Cursor<Cfg::QTile>, kM>{mma::cursor_row_major<Cfg::QTile>(q_tile, row_s)},
          mma::SharedB{mma::cursor_col_major<Cfg::KTile>(k_smem, col_s)});

      // Line 17: dP = dO_i V_j^T.
      mma::Accumulator<kM, Cfg::kColsS> dp;
      mma::clear(dp);
      mma::gemm<T, Cfg::OTile::kCols>(
          dp, mma::SharedA<smem::Cursor<Cfg::OTile>, kM>{mma::cursor_row_major<Cfg::OTile>(dout_tile, row_s)},
          mma::SharedB{mma::cursor_col_major<Cfg::VTile>(v_smem, col_s)});
      meeting.wait();  // D_i is there, and Q and dO of the step before are used up
      if (Cfg::kStages > 1) load_tiles(seeing.after(at));

      // Line 12: mask.
      if (mask.hides(row0 + row_s, row0 + row_s + Cfg::kRowsS - 1, col0 + col_s, col0 + col_s + Cfg::kColsS))
        mask.apply(s, row_s, [&](int row) { return row0 + row; }, col0 + col_s);

      // Line 13: P = diag(l_i)^-1 e^(S - m_i), in the place of S.
      const attn::RowStats<kM> row_stats(stats_smem, row_s);
      row_stats.probabilities(s, p.scale_log2);
      mma::store_shared<T, Cfg::STile>(s, p_tile, row_s, col_s);

      // Line 20: dS = P o (dP - D_i), in the place of dP.
      row_stats.score_gradients(dp, s);
      mma::store_shared<T, Cfg::STile>(dp, ds_tile, row_s, col_s);
      if (!dq_first) add_dq(done);
      load_statistics(seeing.after(at));
      __syncthreads();  // P and dS are there, and all are done with D_i

      // Line 16: dV_j += P^T dO_i.
      mma::gemm<T, Cfg::kTileQ>(
          dv_block,
          mma::SharedTransposedA<smem::Cursor<Cfg::STile, Cfg::kColsS>, kMDkv>{
              mma::cursor_col_major<Cfg::STile, Cfg::kColsS>(p_tile, 0, col_s)},
          mma::SharedTransposedB{mma::cursor_row_major<Cfg::OTile, Cfg::kColsDv>(dout_tile, 0, col_dv)});

      // Line 22: dK_j += dS^T Q_i; the factor tau waits until the end.
      mma::gemm<T, Cfg::kTileQ>(
          dk_block,
          mma::SharedTransposedA<smem::Cursor<Cfg::STile, Cfg::kColsS>, kMDkv>{
              mma::cursor_col_major<Cfg::STile, Cfg::kColsS>(ds_tile, 0, col_s)},
          mma::SharedTransposedB{mma::cursor_row_major<Cfg::QTile, Cfg::kColsDk>(q_tile, 0, col_dk)});
      if constexpr (Cfg::kStages == 1) {
        __syncthreads();  // all are done with Q_i and dO_i
        load_tiles(seeing.after(at));
      }
      reading.advance();
    }
    add_dq(done);

    // Line 24: write dK_j and dV_j, through the places of K_j and V_j.
    __syncthreads();
    mma::scale(dk_block, p.scale);
    mma::store_shared<T, Cfg::KTile>(dk_block, k_smem, col_s, col_dk);
    mma::store_shared<T, Cfg::VTile>(dv_block, v_smem, col_s, col_dv);
    __syncthreads();
    T* dk = p.dk + batch * p.dk_batch_stride + head_kv * p.dk_head_stride + col0 * p.dk_row_stride;
    T* dv = p.dv + batch * p.dv_batch_stride + head_kv * p.dv_head_stride + col0 * p.dv_row_stride;
    epilogue::copy_rows<Cfg::KTile, Cfg::kTileKv, Cfg::kDim, Cfg::kThreads>(k_smem, 0, threadIdx.x, dk,
                                                                            p.dk_row_stride, cols);
    epilogue::copy_rows<Cfg::VTile, Cfg::kTileKv, Cfg::kDimV, Cfg::kThreads>(v_smem, 0, threadIdx.x, dv,
                                                                             p.dv_row_stride, cols);
  }

  // Line 26: return dQ, through Q's place; the sums of the next block come while these leave.
  T* dq = p.dq + batch * p.dq_batch_stride;
  mma::Accumulator<kMDq, Cfg::kColsDq> dq_block;
  epilogue::load_sums(dq_block, dq_sums(all.first()));
  for (auto at = all.first(); all.has(at); at = all.after(at)) {
    mma::scale(dq_block, p.scale);
    __syncthreads();  // the rows before have left
    mma::store_shared<T, Cfg::QTile>(dq_block, q_smem, row_dq, col_dq);
    if (all.has(all.after(at))) epilogue::load_sums(dq_block, dq_sums(all.after(at)));
    __syncthreads();
    epilogue::copy_rows<Cfg::QTile, Cfg::kTileQ, Cfg::kDim, Cfg::kThreads>(
        q_smem, 0, threadIdx.x, dq + at.head * p.dq_head_stride + at.row0 * p.dq_row_stride, p.dq_row_stride,
        p.seqlen_q - at.row0);
  }
}
