// The transposing warps of the load role: V's rows as TMA brings them become V^T, which is what wgmma takes
// of 8-bit elements.
#pragma once

#include "fagen/pipe/stream.cuh"
#include "fagen/ptx/fence.cuh"
#include "fagen/ptx/shared.cuh"
#include "fagen/smem/transpose.cuh"

namespace fagen::role {

// Warp `warp` of Cfg::kTransposers, from the first tile of V to the end that the loading thread sends.
template <typename Cfg>
__device__ __forceinline__ void transpose(const pipe::Stream<Cfg>& stream, int warp) {
  auto v_at = stream.v.first_read();
  auto vt_at = stream.vt.first_fill();
  for (;;) {
    stream.v.wait_full(v_at);
    if (ptx::ld_shared(stream.v_end(v_at))) return;
    stream.vt.begin_fill(vt_at);
    smem::transpose<typename Cfg::VTile, typename Cfg::VtTile, Cfg::kTransposers>(
        stream.v_tile(v_at), stream.vt_tile(vt_at), warp);
    ptx::fence_proxy_async();  // wgmma will read what this thread has written
    __syncwarp();
    stream.v.release(v_at);
    stream.vt.end_fill(vt_at);
    v_at.advance();
    vt_at.advance();
  }
}

}  // namespace fagen::role
