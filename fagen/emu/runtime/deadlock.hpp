// The report when all threads wait, or go on without an end: every barrier, and who waits for what.
#pragma once

#include <string>

#include "shared_address.hpp"
#include "thread.hpp"

namespace fagen::emu {

inline Thread& first_blocked(Cluster& cluster) {
  for (auto& thread : cluster.threads)
    if (!thread->exited) return *thread;
  return *cluster.threads.front();
}

// "0-31, 64": threads of one CTA by linear index.
inline std::string index_ranges(const std::vector<uint32_t>& sorted) {
  std::string text;
  for (size_t i = 0; i < sorted.size();) {
    size_t j = i;
    while (j + 1 < sorted.size() && sorted[j + 1] == sorted[j] + 1) ++j;
    text += message(i == j ? "%s%u" : "%s%u-%u", text.empty() ? "" : ", ", sorted[i], sorted[j]);
    i = j + 1;
  }
  return text;
}

inline std::string doing_text(const Thread& thread) {
  pc site(thread.site);
  std::string text = thread.waits_for      ? message("wait at %s for %s", site.str(), thread.waits_for)
                     : thread.wait_address ? message("poll at %s the mbarrier", site.str())
                                           : message("go on at %s", site.str());
  if (!thread.wait_address) return text;
  text +=
      message(" at %s, parity %u", name_of_shared(thread, thread.wait_address).c_str(), thread.wait_parity);
  if (thread.waits_for) text += message(", since phase %u", thread.wait_phase);
  return text;
}

inline std::string state_text(Cluster& cluster) {
  std::string text;
  for (auto& cta : cluster.ctas) {
    text += message("CTA (%u, %u, %u):\n", cta->index.x, cta->index.y, cta->index.z);
    std::map<std::string, std::vector<uint32_t>> doing;
    for (size_t i = 0; i < cta->threads.size(); ++i) {
      const Thread& thread = *cta->threads[i];
      doing[thread.exited ? "have exited" : doing_text(thread)].push_back(static_cast<uint32_t>(i));
    }
    for (auto& [what, threads] : doing) text += "  threads " + index_ranges(threads) + " " + what + "\n";
    for (auto& [offset, barrier] : cta->mbarriers)
      if (barrier.live)
        text += message(
            "  mbarrier at %s: phase %u (parity %u) under way, %u of %u arrivals missing, %d bytes missing\n",
            name_of_offset(cluster.launch, offset).c_str(), barrier.phase, barrier.phase & 1, barrier.pending,
            barrier.count, barrier.tx);
    for (int id = 0; id < 16; ++id) {
      const Barrier& barrier = cta->barriers[id];
      if (!barrier.arrived.empty())
        text += message("  named barrier %d: %zu of %u threads have arrived\n", id, barrier.arrived.size(),
                        barrier.expected);
    }
    auto missing = [&](const auto& group, uint32_t first, const char* what, size_t index) {
      for (auto& open : group.open) {
        std::vector<uint32_t> lanes;
        for (uint32_t lane = 0; lane < 128; ++lane)
          if ((open->expected[lane / 64] & ~open->arrived[lane / 64]) >> (lane % 64) & 1)
            lanes.push_back(first + lane);
        text +=
            message("  %s %zu: %s lacks threads %s\n", what, index, open->op, index_ranges(lanes).c_str());
      }
    };
    for (size_t i = 0; i < cta->warps.size(); ++i)
      missing(cta->warps[i], static_cast<uint32_t>(32 * i), "warp", i);
    for (size_t i = 0; i < cta->warpgroups.size(); ++i)
      missing(cta->warpgroups[i], static_cast<uint32_t>(128 * i), "warpgroup", i);
  }
  if (!cluster.barrier.arrived.empty())
    text += message("cluster barrier: %zu of %u threads have arrived\n", cluster.barrier.arrived.size(),
                    cluster.barrier.expected);
  return text;
}

}  // namespace fagen::emu
