// Clusters: their barrier, and what the cluster's registers say (PTX ISA, "barrier.cluster",
// "%cluster_ctarank").
#pragma once

#include "barrier.hpp"

namespace fagen::emu {

inline constexpr char kClusterBarrier[] = "the cluster's barrier";

FAGEN_EMU_ENTRY uint32_t cluster_rank() { return FAGEN_EMU_ENTER().cta->rank; }

FAGEN_EMU_ENTRY uint32_t map_to_rank(uint32_t address, uint32_t rank) {
  Thread& thread = FAGEN_EMU_ENTER();
  if (size_t ctas = thread.cta->cluster->ctas.size(); rank >= ctas)
    fail(Kind::out_of_bounds, thread, message("mapa to CTA rank %u of a cluster of %zu", rank, ctas));
  return map_shared(address, rank);
}

FAGEN_EMU_ENTRY void cluster_arrive() {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  if (thread.arrived_at_cluster)
    fail(Kind::barrier, thread, "arrives twice at the cluster's barrier, without waiting");
  Cluster& cluster = *thread.cta->cluster;
  thread.cluster_generation =
      arrive(thread, cluster.barrier, static_cast<uint32_t>(cluster.threads.size()), kClusterBarrier);
  thread.arrived_at_cluster = true;
}

FAGEN_EMU_ENTRY void cluster_wait() {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  if (!thread.arrived_at_cluster)
    fail(Kind::barrier, thread, "waits at the cluster's barrier, without having arrived");
  wait(thread, thread.cta->cluster->barrier, thread.cluster_generation, kClusterBarrier);
  thread.arrived_at_cluster = false;
}

}  // namespace fagen::emu
