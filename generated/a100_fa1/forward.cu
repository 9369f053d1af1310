// fagen_a100_fa1_fwd: FlashAttention forward for sm_80
//
// problem: bf16, head_dim 128, head_dim_v 128, layout bshd
// causal mask, bottom-right: query i sees key j <= i + seqlen_k - seqlen_q
//
// rows of a K/V block, by the paper's rule: 160 of 163 rows
//   Bc <= ceil(M / 2(d + dv))      160  Bc
// rows of a Q block, by the paper's rule: 128 of 128 rows
//   Br <= min(Bc, d)              128  Br
// shared memory per CTA: 114688 of 166912 bytes
//   K block                     40960  Bc*bytes*d
//   V block                     40960  Bc*bytes*dv
//   Q block, O staged through it    32768  Br*bytes*Max(d, dv)
// registers per thread: 212 of 255 registers
//   S accumulator, then P          80  Bc*Br/(32*warps)
//   O accumulator                  64  Br*dv/(32*warps)
//   fragments of two k-steps       16  Br/(2*warps) + 8
//   l, m and what follows from them       16  Br/warps
//   addresses and counters         36  36
// threads per SM: 256 of 2048 threads
//   warps                         256  32*warps
//
// Algorithm 1 of FlashAttention (arXiv 2205.14135), whose lines the comments below name. One CTA owns a head.
// K/V blocks are outside, Q blocks inside: O, l and m of a Q block come from HBM and go back at every step, all
// fp32. O is rounded to the element type once, at the end.
// The warps split the rows of a Q block, and no warp needs another one's rows: they meet at K/V blocks only.
// Printed by fagen from the spec: change the spec or the template, not this file.

#include "fagen/attn/block_softmax.cuh"
#include "fagen/attn/mask.cuh"
#include "fagen/epilogue/store_rows.cuh"
#include "fagen/epilogue/sum_tile.cuh"
#include "fagen/mma/sm80.cuh"
#include "fagen/pipe/load_tile.cuh"
#include "fagen/pipe/warp_rows.cuh"

using T = __nv_bfloat16;  // problem.dtype

struct Params {
  const T* q;  // queries
  const T* k;  // keys
  const T* v;  // values
  T* out;  // output
  float* lse;  // natural-log sum of exp, [batch, heads_q, seqlen_q]; null: not wanted
  float* o_sum;  // [batch][heads_q][ceil(seqlen_q / Br)][Br][dv]: O between K/V blocks, a block in the order of its fragments
  float* row_stats;  // [2][batch][heads_q][seqlen_q]: m, the maxima of the scaled scores, and l, the sums of e^(score - m)
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
  float scale;  // softmax scale (tau)
};
static_assert(sizeof(Params) == 176, "the launch packs this struct");

struct Cfg {
  // Line 1. The paper's rule: Bc = ceil(M / 2(d + dv)), Br = min(Bc, d); M: 16-bit elements of shared memory. It
  // counts O_i, which is in registers here.
  static constexpr int kTileQ = 128;    // schedule.tile.q (Br)
  static constexpr int kTileKv = 160;  // schedule.tile.kv (Bc)
  static constexpr int kWarps = 8;  // schedule.roles.math.warps
  static constexpr int kDim = 128;  // problem.head_dim
  static constexpr int kDimV = 128;  // problem.head_dim_v
  using Mask = fagen::attn::Mask<fagen::attn::kUnbounded, 0>;  // problem.mask

  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kRows = kTileQ / kWarps;  // of a Q block, per warp
  static constexpr int kM = kRows / 16;          // 16-row blocks per warp
  using QTile = fagen::smem::Tile<kTileQ, 128>;
  using KTile = fagen::smem::Tile<kTileKv, 128>;
  using VTile = fagen::smem::Tile<kTileKv, 128>;
  using OTile = fagen::smem::Tile<kTileQ, 128>;
  static constexpr int kBlockO = kTileQ * OTile::kCols;
};

extern "C" __global__ void __launch_bounds__(Cfg::kThreads)
    fagen_a100_fa1_fwd(const __grid_constant__ Params p) {
  using namespace fagen;
  const uint32_t smem = ptx::dynamic_shared();
  const uint32_t k_smem = smem + 0;
  const uint32_t v_smem = smem + 40960;
  const uint32_t q_smem = smem + 81920;

  const int batch = blockIdx.x / p.heads_q, head_q = blockIdx.x % p.heads_q;
  const int head_kv = head_q / p.heads_per_kv;
  const T* q = p.q + batch * p.q_batch_stride + head_q * p.q_head_stride;
  const T* k = p.k + batch * p.k_batch_stride + head_kv * p.k_head_stride;
  const T* v = p.v + batch * p.v_batch_stride + head_kv * p.v_head_stride;
  T* out = p.out + batch * p.out_batch_stride + head_q * p.out_head_stride;
  const int q_blocks = (p.seqlen_q + Cfg::kTileQ - 1) / Cfg::kTileQ;
  float* o_sum = p.o_sum + int64_t(blockIdx.x) * q_blocks * Cfg::kBlockO;
  const int64_t heads = int64_t(p.batch) * p.heads_q;
  const attn::HeadStatistics<float> statistics(p.row_stats, heads, blockIdx.x, p.seqlen_q);
  const Cfg::Mask mask(p.seqlen_q, p.seqlen_k);

  const int warp_row = warp_id() * Cfg::kRows;
  const pipe::TileLoader<Cfg::KTile, Cfg::kDim, Cfg::kThreads> k_loader;
  const pipe::TileLoader<Cfg::VTile, Cfg::kDimV, Cfg::kThreads> v_loader;

  // Line 2: O = 0, l = 0, m = -inf in HBM.
  epilogue::clear_sums<Cfg::kThreads>(o_sum, int64_t(q_blocks) * Cfg::kBlockO);
  for (int row = threadIdx.x; row < p.seqlen_q; row += Cfg::kThreads) {
    ptx::st_global(statistics.m + row, -kInf);
    ptx::st_global(statistics.l + row, 0.0f);
  }

  // Lines 3 to 5: for each block j of K and V.
  for (int col0 = 0; col0 < p.seqlen_k; col0 += Cfg::kTileKv) {
    const int cols = min(Cfg::kTileKv, p.seqlen_k - col0);
    // The blocks i of Q in which this warp has a row that sees one of these keys.
    const int begin = (mask.first_row(col0) - warp_row - Cfg::kRows + Cfg::kTileQ) / Cfg::kTileQ;
    const int end = (mask.end_row(col0 + cols - 1) - warp_row + Cfg::kTileQ - 1) / Cfg::kTileQ;

    // This warp's rows of Q_i.
    auto load_q = [&](int i) {
      const int row0 = i * Cfg::kTileQ + warp_row;
      if (i < end)
        pipe::load_rows<Cfg::QTile, Cfg::kRows, Cfg::kDim>(q_smem, warp_row, q + row0 * p.q_row_stride,
                                                           p.q_row_stride, p.seqlen_q - row0);
      ptx::cp_async_commit();
    };

    // Line 6: load K_j and V_j; the first Q_i comes along.
    __syncthreads();
    k_loader.load<true>(k_smem, k + col0 * p.k_row_stride, p.k_row_stride, cols);
    v_loader.load<true>(v_smem, v + col0 * p.v_row_stride, p.v_row_stride, cols);
    load_q(begin);
    ptx::cp_async_wait<0>();
    __syncthreads();

    // Line 7: for each block i of Q.
    for (int i = begin; i < end; ++i) {
      const int row0 = i * Cfg::kTileQ + warp_row;
      // Line 8: load Q_i, O_i, l_i and m_i. Q_i has been on its way since the step before; O_i, which takes as
      // many registers as S leaves, comes while P~ is computed.
      attn::RowStatistics<Cfg::kM> row_statistics(statistics, row0);
      ptx::cp_async_wait<0>();
      __syncwarp();

      // Line 9: S = Q_i K_j^T, unscaled.
      mma::Accumulator<Cfg::kM, Cfg::kTileKv> s;
      mma::clear(s);
      const mma::SharedA<smem::Cursor<Cfg::QTile>, Cfg::kM> q_operand{
          mma::cursor_row_major<Cfg::QTile>(q_smem, warp_row)};
      mma::gemm<T, Cfg::KTile::kCols>(s, q_operand,
                                      mma::SharedB{mma::cursor_col_major<Cfg::KTile>(k_smem)});
      __syncwarp();
      load_q(i + 1);
      float* o_block = o_sum + int64_t(i) * Cfg::kBlockO;
      mma::Accumulator<Cfg::kM, Cfg::OTile::kCols> o;
      epilogue::load_own_sums(o, o_block);
      if (mask.hides(row0, row0 + Cfg::kRows - 1, col0, col0 + Cfg::kTileKv))
        mask.apply(s, row0, [](int row) { return row; }, col0);

      // Line 10: m~ = rowmax(S), P~ = e^(S - m~), l~ = rowsum(P~). S turns into P~ in place.
      const attn::BlockSoftmax<Cfg::kM> block(s, p.scale);

      // Line 11: m_new = max(m_i, m~), l_new = e^(m_i - m_new) l_i + e^(m~ - m_new) l~.
      float keep[Cfg::kM][2], add[Cfg::kM][2], inverse[Cfg::kM][2];
      row_statistics.merge(block, keep, add, inverse);

      // Line 12: write O_i = diag(l_new)^-1 (diag(l_i) e^(m_i - m_new) O_i + e^(m~ - m_new) P~ V_j). The
      // product is added to what is kept of O_i; its factor goes into P~.
      attn::scale(o, keep);
      // Without the branch the compiler sums P~ after the product, and keeps all of it in registers until then.
      if (block.sees_keys()) {
        attn::scale(s, add);
        mma::gemm<T, Cfg::kTileKv>(o, mma::as_operand<T>(s),
                                   mma::SharedTransposedB{mma::cursor_row_major<Cfg::VTile>(v_smem)});
      }
      attn::scale(o, inverse);
      epilogue::store_own_sums(o, o_block);

      // Line 13: write l_i = l_new and m_i = m_new.
      row_statistics.store(statistics, row0);
    }
  }

  // Line 16: return O, through Q's place.
  __syncthreads();
  for (int i = 0; i < q_blocks; ++i) {
    const int row0 = i * Cfg::kTileQ;
    mma::Accumulator<Cfg::kM, Cfg::OTile::kCols> o;
    epilogue::load_own_sums(o, o_sum + int64_t(i) * Cfg::kBlockO);
    epilogue::store_out<T, Cfg::OTile, Cfg::kDimV>(o, q_smem, warp_row, out + row0 * p.out_row_stride,
                                                   p.out_row_stride, p.seqlen_q - row0);
  }
  // Autograd and `return_lse` want LSE = m + ln(l) as well.
  if (p.lse != nullptr) {
    float* lse = p.lse + int64_t(blockIdx.x) * p.seqlen_q;
    for (int row = threadIdx.x; row < p.seqlen_q; row += Cfg::kThreads) {
      const float m = ptx::ld_global(statistics.m + row), l = ptx::ld_global(statistics.l + row);
      ptx::st_global(lse + row, m + kLn2 * ptx::log2(l));
    }
  }
}
