// 32-bit addresses of shared memory: kSharedBase + offset means the own CTA; with the rank of a CTA plus one
// in the upper eight bits, that CTA of the cluster.
#pragma once

#include <string>

#include "abi.hpp"
#include "thread.hpp"

namespace fagen::emu {

inline constexpr uint32_t kSharedBase =
    1024;  // aligned for swizzles, and not 0: static tables come first on a GPU
inline constexpr uint32_t kRankShift = 24;
inline constexpr uint32_t kLocalMask = (1u << kRankShift) - 1;

// "k + 0x40 (shared byte 0x4040)"
inline std::string name_of_offset(const FagenEmuLaunch& launch, uint32_t offset) {
  for (uint64_t i = 0; i < launch.buffer_count; ++i) {
    const FagenEmuBuffer& buffer = launch.buffers[i];
    if (offset == buffer.offset) return message("%s (shared byte 0x%x)", buffer.name, offset);
    if (offset > buffer.offset && offset - buffer.offset < buffer.bytes)
      return message("%s + 0x%x (shared byte 0x%x)", buffer.name, offset - buffer.offset, offset);
  }
  return message("shared byte 0x%x", offset);
}

struct Place {
  Cta& cta;
  uint32_t offset;  // into its dynamic shared memory
};

// mapa: the address of `address` in the CTA of rank `rank`.
inline uint32_t map_shared(uint32_t address, uint32_t rank) {
  return (address & kLocalMask) | (rank + 1) << kRankShift;
}

inline Place locate(Thread& thread, uint32_t address) {
  uint32_t rank = address >> kRankShift, offset = (address & kLocalMask) - kSharedBase;
  if (rank == 0) return {*thread.cta, offset};
  Cluster& cluster = *thread.cta->cluster;
  if (rank > cluster.ctas.size())
    fail(Kind::out_of_bounds, thread,
         message("shared address 0x%x is of CTA rank %u; the cluster has %zu CTAs", address, rank - 1,
                 cluster.ctas.size()));
  Cta& cta = *cluster.ctas[rank - 1];
  if (cta.live == 0)
    fail(Kind::out_of_bounds, thread,
         message("shared address 0x%x is of CTA rank %u, which has ended", address, rank - 1));
  return {cta, offset};
}

inline std::string name_of_shared(const Thread& thread, uint32_t address) {
  std::string text = name_of_offset(thread.cta->cluster->launch, (address & kLocalMask) - kSharedBase);
  if (uint32_t rank = address >> kRankShift) text += message(" of CTA rank %u", rank - 1);
  return text;
}

}  // namespace fagen::emu
