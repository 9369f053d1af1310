// fagen_a100_fa1_bwd: FlashAttention backward for sm_80
//
// problem: bf16, head_dim 128, head_dim_v 128, layout bshd
// causal mask, bottom-right: query i sees key j <= i + seqlen_k - seqlen_q
//
// rows of a K/V block, by the paper's rule: 128 of 163 rows
//   Bc <= ceil(M / 2(d + dv))      128  Bc
// rows of a Q block, by the paper's rule: 64 of 128 rows
//   Br <= min(Bc, d)               64  Br
// shared memory per CTA: 131584 of 166912 bytes
//   K and V blocks              65536  Bc*bytes*(d + dv)
//   Q block, dQ staged through it    16384  Br*bytes*d
//   O and dO blocks             32768  2*Br*bytes*dv
//   P, then dS                  16384  Bc*Br*bytes
//   l, m and D of each row        512  8*Br
// registers per thread: 252 of 255 registers
//   dK and dV accumulators        128  Bc*(d + dv)/(32*warps)
//   S and dP, or dQ in their place       64  Max(2*Bc*Br, Br*d)/(32*warps)
//   fragments of two k-steps       16  16
//   addresses and counters         44  44
//   addresses of columns that cut panels        0  Min(20, Max(5*(Mod(d/warps_q, 64))*floor(d/(64*warps_q))/8, 5*(Mod(dv/warps_q, 64))*floor(dv/(64*warps_q))/8))
// threads per SM: 256 of 2048 threads
//   warps                         256  32*warps
//
// Algorithm 4 of FlashAttention (arXiv 2205.14135), whose lines the comments below name; there is no dropout
// (lines 1, 14, 15 and 18). One CTA owns a K/V head. K/V blocks are outside and keep dK and dV in registers,
// the Q blocks of every query head of the group are inside: dQ of a Q block comes from HBM and goes back at
// every step, in fp32. It is rounded to the element type once, at the end.
// Printed by fagen from the spec: change the spec or the template, not this file.

#include "fagen/attn/block_statistics.cuh"
#include "fagen/attn/gradient.cuh"
#include "fagen/attn/mask.cuh"
#include "fagen/epilogue/store_rows.cuh"
#include "fagen/epilogue/sum_tile.cuh"
#include "fagen/mma/sm80.cuh"
#include "fagen/mma/store_shared.cuh"
#include "fagen/pipe/load_tile.cuh"

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
  static constexpr int kWarpsDq = 4;  // along the rows of dQ
  static constexpr int kDim = 128;  // problem.head_dim
  static constexpr int kDimV = 128;  // problem.head_dim_v
  using Mask = fagen::attn::Mask<fagen::attn::kUnbounded, 0>;  // problem.mask

  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kWarpsKv = kWarps / kWarpsQ;
  using QTile = fagen::smem::Tile<kTileQ, 128>;     // Q; dQ at the end
  using KTile = fagen::smem::Tile<kTileKv, 128>;
  using VTile = fagen::smem::Tile<kTileKv, 128>;
  using OTile = fagen::smem::Tile<kTileQ, 128>;   // O and dO
  using STile = fagen::smem::Tile<kTileQ, kTileKv>;  // P, then dS

  // A warp's part of S and dP, of dK and dV (kColsS rows), and of dQ.
  static constexpr int kRowsS = kTileQ / kWarpsQ, kColsS = kTileKv / kWarpsKv;
  static constexpr int kColsDk = 128 / kWarpsQ, kColsDv = 128 / kWarpsQ;
  static constexpr int kRowsDq = kTileQ / kWarpsDq, kColsDq = 128 / (kWarps / kWarpsDq);
  static constexpr int kBlockDq = kTileQ * QTile::kCols;
};

extern "C" __global__ void __launch_bounds__(Cfg::kThreads)
    fagen_a100_fa1_bwd(const __grid_constant__ Params p) {
  using namespace fagen;
  const uint32_t smem = ptx::dynamic_shared();
  const uint32_t k_smem = smem + 0;
  const uint32_t v_smem = smem + 32768;
  const uint32_t q_smem = smem + 65536;
  const uint32_t out_smem = smem + 81920;
  const uint32_t dout_smem = smem + 98304;
  const uint32_t p_smem = smem + 114688;
  const uint32_t stats_smem = smem + 131072;

  const int batch = blockIdx.x / p.heads_kv, head_kv = blockIdx.x % p.heads_kv;
  const int first_head = head_kv * p.heads_per_kv, end_head = first_head + p.heads_per_kv;
  const T* q = p.q + batch * p.q_batch_stride;
  const T* out = p.out + batch * p.out_batch_stride;
  const T* dout = p.dout + batch * p.dout_batch_stride;
  const int q_blocks = (p.seqlen_q + Cfg::kTileQ - 1) / Cfg::kTileQ;
  auto dq_sums = [&](int head, int row0) {
    const int64_t pair = int64_t(batch) * p.heads_q + head;
    return p.dq_sum + (pair * q_blocks + row0 / Cfg::kTileQ) * Cfg::kBlockDq;
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

  // Line 5: dQ = 0 in HBM.
  epilogue::clear_sums<Cfg::kThreads>(dq_sums(first_head, 0),
                                      int64_t(p.heads_per_kv) * q_blocks * Cfg::kBlockDq);

  // Lines 3, 4 and 6: for each block j of K and V.
  for (int col0 = 0; col0 < p.seqlen_k; col0 += Cfg::kTileKv) {
    const int cols = min(Cfg::kTileKv, p.seqlen_k - col0);
    // The rows of Q that see some of these keys, in whole blocks, of each query head of the group.
    const int begin = mask.first_row(col0) / Cfg::kTileQ * Cfg::kTileQ, end = mask.end_row(col0 + cols - 1);
    struct Step {
      int head, row0;
    };
    const Step first{begin < end ? first_head : end_head, begin};
    auto after = [&](Step at) {
      const int row0 = at.row0 + Cfg::kTileQ;
      return row0 < end ? Step{at.head, row0} : Step{at.head + 1, begin};
    };
    // O_i comes in the group of cp.async that Q_i and dO_i make.
    auto load_q_dout = [&](Step at) {
      if (at.head < end_head) {
        q_loader.load<true>(q_smem, q + at.head * p.q_head_stride + at.row0 * p.q_row_stride, p.q_row_stride,
                            p.seqlen_q - at.row0);
        o_loader.load<true>(dout_smem, dout + at.head * p.dout_head_stride + at.row0 * p.dout_row_stride,
                            p.dout_row_stride, p.seqlen_q - at.row0);
      }
      ptx::cp_async_commit();
    };
    auto load_out = [&](Step at) {
      if (at.head < end_head)
        o_loader.load<true>(out_smem, out + at.head * p.out_head_stride + at.row0 * p.out_row_stride,
                            p.out_row_stride, p.seqlen_q - at.row0);
    };

    // Line 7: load K_j and V_j; the first Q_i, O_i and dO_i come along.
    __syncthreads();
    if (begin < end) {
      k_loader.load<true>(k_smem, k + col0 * p.k_row_stride, p.k_row_stride, cols);
      v_loader.load<true>(v_smem, v + col0 * p.v_row_stride, p.v_row_stride, cols);
    }
    load_out(first);
    load_q_dout(first);

    // Line 8: dK_j = 0 and dV_j = 0 on chip.
    mma::Accumulator<kMDkv, Cfg::kColsDk> dk_block;
    mma::Accumulator<kMDkv, Cfg::kColsDv> dv_block;
    mma::clear(dk_block);
    mma::clear(dv_block);

    // Line 9: for each block i of Q.
    for (Step at = first; at.head < end_head; at = after(at)) {
      const int row0 = at.row0;
      const int64_t pair = int64_t(batch) * p.heads_q + at.head;

      // Line 10: load Q_i, O_i, dO_i, dQ_i, l_i and m_i. The first three are on their way since last step; dQ_i
      // comes when S and dP leave registers for it.
      const attn::BlockStatistics<Cfg::kTileQ, Cfg::kThreads> statistics(
          attn::HeadStatistics<const float>(p.row_stats, int64_t(p.batch) * p.heads_q, pair, p.seqlen_q),
          p.dlse == nullptr ? nullptr : p.dlse + pair * p.seqlen_q, row0);
      ptx::cp_async_wait<0>();
      __syncthreads();

      // Line 11: S = Q_i K_j^T, unscaled; and line 19: D_i = rowsum(dO_i o O_i).
      mma::Accumulator<kM, Cfg::kColsS> s;
      mma::clear(s);
      mma::gemm<T, Cfg::QTile::kCols>(
          s, mma::SharedA<smem::Cursor<Cfg::QTile>, kM>{mma::cursor_row_major<Cfg::QTile>(q_smem, row_s)},
          mma::SharedB{mma::cursor_col_major<Cfg::KTile>(k_smem, col_s)});
      statistics.store<T, Cfg::OTile>(stats_smem, out_smem, dout_smem);
      __syncthreads();  // D_i is there, and all are done with O_i
      load_out(after(at));

      // Line 12: mask.
      if (mask.hides(row0 + row_s, row0 + row_s + Cfg::kRowsS - 1, col0 + col_s, col0 + col_s + Cfg::kColsS))
        mask.apply(s, row_s, [&](int row) { return row0 + row; }, col0 + col_s);

      // Line 13: P = diag(l_i)^-1 e^(S - m_i), in the place of S.
      attn::RowStats<kM>(stats_smem, row_s).probabilities(s, p.scale_log2);
      mma::store_shared<T, Cfg::STile>(s, p_smem, row_s, col_s);
      __syncthreads();  // P is there

      // Line 16: dV_j += P^T dO_i.
      mma::gemm<T, Cfg::kTileQ>(
          dv_block,
          mma::SharedTransposedA<smem::Cursor<Cfg::STile, Cfg::kColsS>, kMDkv>{
              mma::cursor_col_major<Cfg::STile, Cfg::kColsS>(p_smem, 0, col_s)},
          mma::SharedTransposedB{mma::cursor_row_major<Cfg::OTile, Cfg::kColsDv>(dout_smem, 0, col_dv)});

      // Line 17: dP = dO_i V_j^T.
      mma::Accumulator<kM, Cfg::kColsS> dp;
      mma::clear(dp);
      mma::gemm<T, Cfg::OTile::kCols>(
          dp, mma::SharedA<smem::Cursor<Cfg::OTile>, kM>{mma::cursor_row_major<Cfg::OTile>(dout_smem, row_s)},
          mma::SharedB{mma::cursor_col_major<Cfg::VTile>(v_smem, col_s)});

      // Line 20: dS = P o (dP - D_i), in the place of dP, and in shared memory in that of P.
      attn::RowStats<kM>(stats_smem, row_s).score_gradients(dp, s);
      __syncthreads();  // all are done with P
      mma::store_shared<T, Cfg::STile>(dp, p_smem, row_s, col_s);
      mma::Accumulator<kMDq, Cfg::kColsDq> dq_block;
      epilogue::load_own_sums(dq_block, dq_sums(at.head, row0));
      __syncthreads();  // dS is there

      // Line 22: dK_j += dS^T Q_i; the factor tau waits until the end.
      mma::gemm<T, Cfg::kTileQ>(
          dk_block,
          mma::SharedTransposedA<smem::Cursor<Cfg::STile, Cfg::kColsS>, kMDkv>{
              mma::cursor_col_major<Cfg::STile, Cfg::kColsS>(p_smem, 0, col_s)},
          mma::SharedTransposedB{mma::cursor_row_major<Cfg::QTile, Cfg::kColsDk>(q_smem, 0, col_dk)});
      __syncthreads();  // all are done with Q_i and dO_i
      load_q_dout(after(at));

      // Line 21: write dQ_i = dQ_i + tau dS K_j; tau waits until the end.
      mma::gemm<T, Cfg::kTileKv>(
          dq_block,
          mma::SharedA<smem::Cursor<Cfg::STile>, kMDq>{mma::cursor_row_major<Cfg::STile>(p_smem, row_dq)},
          mma::SharedTransposedB{mma::cursor_row_major<Cfg::KTile, Cfg::kColsDq>(k_smem, 0, col_dq)});
      epilogue::store_own_sums(dq_block, dq_sums(at.head, row0));
    }

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

  // Line 26: return dQ, through Q's place.
  T* dq = p.dq + batch * p.dq_batch_stride;
  for (int head = first_head; head < end_head; ++head)
    for (int row0 = 0; row0 < p.seqlen_q; row0 += Cfg::kTileQ) {
      mma::Accumulator<kMDq, Cfg::kColsDq> dq_block;
      epilogue::load_own_sums(dq_block, dq_sums(head, row0));
      mma::scale(dq_block, p.scale);
      __syncthreads();  // the rows before have left
      mma::store_shared<T, Cfg::QTile>(dq_block, q_smem, row_dq, col_dq);
      __syncthreads();
      epilogue::copy_rows<Cfg::QTile, Cfg::kTileQ, Cfg::kDim, Cfg::kThreads>(
          q_smem, 0, threadIdx.x, dq + head * p.dq_head_stride + row0 * p.dq_row_stride, p.dq_row_stride,
          p.seqlen_q - row0);
    }
}
