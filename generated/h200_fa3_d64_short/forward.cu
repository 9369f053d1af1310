// fagen_h200_fa3_d64_short_fwd: FlashAttention-3 forward for sm_90a
//
// problem: bf16, head_dim 64, head_dim_v 64, layout bshd
// causal mask, bottom-right: query i sees key j <= i + seqlen_k - seqlen_q
//
// shared memory per CTA: 147600 of 232448 bytes
//   Q tiles                     32768  Br*bytes*d*q_stages
//   K ring                      49152  Bc*bytes*d*stages
//   V ring                      49152  Bc*bytes*dv*stages
//   O tile                      16384  Br*bytes*dv
//   mbarriers, full and empty, of Q, K and V      128  16*q_stages + 32*stages
//   work item of each Q tile       16  8*q_stages
// registers per math thread: 154 of 240 registers
//   O accumulator                  32  dv/2
//   S accumulator                  64  Bc/2
//   P operand                      32  Bc/4
//   rows, addresses and counters       26  26
// registers per thread at launch, for the widest product: 94 of 168 registers
//   accumulator                    64  Max(Bc, dv)/2
//   operands and addresses         30  30
// register file after setmaxnreg: 64512 of 64512 registers
//   load warps                   3072  128*load_registers
//   math warps                  61440  2*Br*math_registers
// threads per SM: 384 of 2048 threads
//   load warps                    128  128
//   math warps                    256  2*Br
//
// A CTA takes work items: 128 queries of one head, 64 for each warpgroup of the math role, and the K/V
// tiles that they see, from the last to the first. The load role streams Q, K and V of item after item into
// shared memory by TMA. The math role works through the stream of K/V tiles without a break between items:
// while the tensor core multiplies P V of one tile, the softmax of the next, which may be the next item's, runs.
// Printed by fagen from the spec: change the spec or the template, not this file.

#include "fagen/attn/mask.cuh"
#include "fagen/attn/softmax.cuh"
#include "fagen/epilogue/store_lse.cuh"
#include "fagen/epilogue/warpgroup_tma.cuh"
#include "fagen/mma/scores_again.cuh"
#include "fagen/mma/sm80.cuh"
#include "fagen/mma/sm90.cuh"
#include "fagen/pipe/stream.cuh"
#include "fagen/ptx/elect.cuh"
#include "fagen/ptx/setmaxnreg.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/ptx/uniform.cuh"
#include "fagen/role/load.cuh"
#include "fagen/sched/batched.cuh"
#include "fagen/sched/counter.cuh"
#include "fagen/sched/item.cuh"
#include "fagen/sched/longest_first.cuh"

using T = __nv_bfloat16;  // problem.dtype

struct Params {
  fagen::ptx::TensorMap q_map;  // queries
  fagen::ptx::TensorMap k_map;  // keys
  fagen::ptx::TensorMap v_map;  // values
  fagen::ptx::TensorMap out_map;  // output
  float* lse;  // natural-log sum of exp, [batch, heads_q, seqlen_q]; null: not wanted
  uint32_t* counters;  // [2], zeros: the next work item, and the CTAs that are done
  int32_t batch;  // sequences
  int32_t heads_q;  // query heads
  int32_t heads_per_kv;  // query heads that share one K/V head
  int32_t seqlen_q;  // queries per sequence
  int32_t seqlen_k;  // keys per sequence
  int32_t q_tiles;  // Q tiles of the longest sequence, whole clusters of them
  int32_t heads_abreast;  // (batch, head) pairs that sched/longest_first.cuh runs side by side
  float scale_log2;  // softmax scale * log2(e)
};
static_assert(sizeof(Params) == 576, "the launch packs this struct");

struct Cfg {
  static constexpr int kTileQ = 128;    // schedule.tile.q (Br)
  static constexpr int kTileKv = 128;  // schedule.tile.kv (Bc)
  static constexpr int kWarpgroups = 2;  // schedule.roles.math.warps / 4
  static constexpr int kQStages = 2;  // schedule.stages.q
  static constexpr int kStages = 3;  // schedule.stages.kv
  static constexpr int kCluster = 1;  // schedule.cluster: CTAs that share the loads of K and V
  static constexpr int kTransposers = 0;  // warps of the load role that transpose V
  static constexpr bool kVTransposed = false;  // problem.v_transposed
  static constexpr int kLoadRegisters = 24;  // schedule.roles.load.registers
  static constexpr int kMathRegisters = 240;  // schedule.roles.math.registers
  static constexpr float kLazy = -1.0f;  // schedule.softmax.rescale: log2 of the growth left unapplied, < 0: none
  static constexpr float kGrowth = 1073741824.0f;  // schedule.softmax.rescale: growth of a row sum left unapplied
  static constexpr float kPolynomial = 0.0f;  // schedule.softmax.exp2: share of exp2 on the FMA pipe
  static constexpr bool kSpreadsExponents = true;  // measured: faster with 16 bits, not with 8
  static constexpr int kDescaleBytes = 0;
  using Mask = fagen::attn::Mask<fagen::attn::kUnbounded, 0>;  // problem.mask
  using Sequence = fagen::sched::Batched;  // problem.layout, schedule.pack_gqa

  static constexpr int kThreads = 128 + 128 * kWarpgroups;
  using QTile = fagen::smem::Tile<fagen::mma::kWarpgroupRows, 64>;  // of one warpgroup
  using KTile = fagen::smem::Tile<kTileKv, 64>;
  using VTile = fagen::smem::Tile<kTileKv, 64>;
  using OTile = fagen::smem::Tile<fagen::mma::kWarpgroupRows, 64>;

  // schedule.scheduler = persistent_lpt: who hands out items, and which one has number `index`.
  using Handout = fagen::sched::Counter;
  __device__ static fagen::sched::Work work(const Params& p, uint32_t index) {
    return fagen::sched::Work::of(p, fagen::sched::longest_first(fagen::sched::Tiles::of_queries(p), index));
  }
};

// Named barriers: 0 is __syncthreads's, then one for each warpgroup.
inline constexpr int kTurnBarrier = 1;
inline constexpr int kStoreBarrier = kTurnBarrier + Cfg::kWarpgroups;

extern "C" __global__ void __launch_bounds__(Cfg::kThreads, 1)
    fagen_h200_fa3_d64_short_fwd(const __grid_constant__ Params p) {
  using namespace fagen;
  const uint32_t smem = ptx::dynamic_shared();
  const uint32_t q_smem = smem + 0;  // 2 x [128][64]
  const uint32_t k_smem = smem + 32768;  // 3 x [128][64]
  const uint32_t v_smem = smem + 81920;  // 3 x [128][64]
  const uint32_t o_smem = smem + 131072;  // 1 x [128][64]
  const pipe::Stream<Cfg> stream(q_smem, k_smem, v_smem, smem + 147456);
  if (threadIdx.x == 0) stream.init();
  constexpr uint32_t rank = 0;
  __syncthreads();

  const int warp = ptx::uniform(threadIdx.x / 32);
  if (warp < 4) {
    ptx::release_registers_to<Cfg::kLoadRegisters>();
    if (warp == 0 && ptx::elect_one()) role::Load<Cfg, Params>(p, stream, rank).run();
  } else {
    // The math role: 64 rows of Q for each warpgroup.
    ptx::claim_registers_to<Cfg::kMathRegisters>();
    const int warpgroup = warp / 4 - 1;
    const int warp_row = warp % 4 * 16;
    const int row = warpgroup * mma::kWarpgroupRows;
    auto q_at = stream.q.first_read();
    auto k_at = stream.k.first_read();
    auto v_at = stream.v.first_read();
    mma::WarpgroupAccumulator<Cfg::kTileKv> s;
    mma::WarpgroupOperand<Cfg::kTileKv> pr;
    mma::WarpgroupAccumulator<Cfg::OTile::kCols> o;
    sched::Item<Cfg> item;
    attn::Softmax<1> softmax(p.scale_log2);
    float o_factor[1][2];  // what each row of O is to be scaled by, when the P V under way is there

    // The next item, once its Q is there; false if there is none.
    auto next_item = [&](sched::Item<Cfg>& item) {
      stream.q.wait_full(q_at);
      const bool reads = lane_id() == 0;  // the lane that releases the stage
      const uint32_t pair = ptx::broadcast(reads ? ptx::ld_shared(stream.item(q_at)) : 0);
      const uint32_t q_tile = ptx::broadcast(reads ? ptx::ld_shared(stream.item(q_at) + 4) : 0);
      if (pair == sched::kNoPair) return false;
      item = sched::Item<Cfg>(p, sched::Work::of(p, {pair, q_tile}), rank);
      return true;
    };
    auto issue_qk = [&] {
      stream.k.wait_full(k_at);
      mma::pin(s);
      ptx::wgmma_fence();
      mma::issue_qk<T, Cfg::QTile, Cfg::KTile, 64>(s, stream.q_tile(q_at, warpgroup), stream.k_tile(k_at));
      ptx::wgmma_commit();
    };
    auto issue_pv = [&](bool accumulate) {
      stream.v.wait_full(v_at);
      mma::pin(o);
      ptx::wgmma_fence();
      mma::issue_pv<T, Cfg::VTile>(o, pr, stream.v_tile(v_at), accumulate);
      ptx::wgmma_commit();
    };
    auto release_k = [&] {
      stream.k.release(k_at);
      k_at.advance();
    };
    auto release_v = [&] {
      stream.v.release(v_at);
      v_at.advance();
    };
    // Turns the scores of a tile into P. Whether O must be scaled by `o_factor`.
    auto softmax_of = [&](const sched::Item<Cfg>& item, int tile, bool is_first) {
      const int first = item.query(row), col0 = tile * Cfg::kTileKv;
      auto query = [&](int r) { return first + item.sequence.query(r); };
      const bool hides = item.mask.hides(first, query(mma::kWarpgroupRows - 1), col0, col0 + Cfg::kTileKv);
      if (!is_first && !hides) {
        float part[1][2];
        if (softmax.try_exponentiate<Cfg>(s, part)) return false;
        if (softmax.scale_down(s, part, o_factor)) return true;
        const uint32_t q_rows = stream.q_tile(q_at, warpgroup) + warp_row * Cfg::QTile::kRowBytes;
        mma::scores_of_shared_keys<T, Cfg::QTile, Cfg::KTile>(s, q_rows, stream.k_tile(k_at));
      }
      if (hides) item.mask.apply(s, warp_row, query, col0);
      float factor[1][2];
      const bool moved = softmax.advance<Cfg>(s, factor);
      if (!is_first) o_factor[0][0] = factor[0][0], o_factor[0][1] = factor[0][1];
      softmax.exponentiate<Cfg>(s);
      ptx::finish_before_wait(softmax.sum[0][0], softmax.sum[0][1]);
      return moved;
    };
    // Ends the softmax of an item, whose last P V may still be to come: the LSE, and what O is to be scaled by.
    Cfg::Sequence::QRows to;  // where that O goes
    auto finish = [&] {
      const int first = item.query(row), rows = item.rows_from(row);
      float lse[1][2];
      softmax.finish(o_factor, lse);
      if (p.lse != nullptr) {
        float* at = item.sequence.lse(p, item.work.head_q) + first;
        epilogue::store_lse(lse, warp_row, [&](int r) { return at + Cfg::Sequence::lse_offset(p, r); }, rows);
      }
      to = item.sequence.q_rows(item.work.head_q, first);
    };
    auto store = [&] {
      attn::scale(o, o_factor);
      epilogue::store_out<T, Cfg::OTile>(o, o_smem + warpgroup * Cfg::OTile::kBytes, p.out_map, to,
                                         kStoreBarrier + warpgroup);
    };

    // Prologue: S and P of the first tile.
    if (!next_item(item)) return;
    int tile = item.end - 1;
    issue_qk();
    ptx::wgmma_wait<0>();
    mma::pin(s);
    softmax_of(item, tile, true);
    release_k();
    mma::round<T>(s, pr);

    for (;;) {
      // On to the next tile, which may be the next item's first.
      const bool is_first = tile == item.end - 1, is_last = tile == item.begin;
      if (is_last) {
        stream.q.release(q_at);
        q_at.advance();
        finish();
        if (!next_item(item)) break;
        softmax = attn::Softmax<1>(p.scale_log2);
        tile = item.end;
      }
      --tile;
      issue_qk();
      issue_pv(!is_first);
      ptx::wgmma_wait<1>();
      mma::pin(s);
      const bool moved = softmax_of(item, tile, is_last);
      release_k();

      ptx::wgmma_wait<0>();
      mma::pin(o);
      release_v();
      if (is_last)
        store();
      else if (moved)
        attn::scale(o, o_factor);
      mma::round<T>(s, pr);
    }

    // The last P V of all.
    issue_pv(tile != item.end - 1);
    ptx::wgmma_wait<0>();
    mma::pin(o);
    store();
    epilogue::wait_stores();
  }
}
