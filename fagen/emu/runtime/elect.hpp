// elect.sync (PTX ISA).
#pragma once

#include "collective.hpp"

namespace fagen::emu {

// Whether this lane is the one that its warp always elects; which one that is depends on the seed.
FAGEN_EMU_ENTRY bool elect_one() {
  Thread& thread = FAGEN_EMU_ENTER();
  struct Args {
  } args;
  warp_collective(thread, "elect.sync", 0, ~0u, args, [](Lanes<Args>) {});
  const Cluster& cluster = *thread.cta->cluster;
  return thread.lane == Random(cluster.launch.seed, thread.id / 32).below(32);
}

}  // namespace fagen::emu
