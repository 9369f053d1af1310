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
  Barrier& barrier = cluster.barrier;
  uint32_t expected = barrier.arrived.empty() ? cluster.live : barrier.expected;
  thread.cluster_generation = arrive(thread, barrier, expected, kClusterBarrier);
  thread.arrived_at_cluster = true;
}

// The barrier is one of those threads that have not exited.
inline void exit_cluster(Thread& thread) {
  Cluster& cluster = *thread.cta->cluster;
  Barrier& barrier = cluster.barrier;
  --cluster.live;
  if (thread.arrived_at_cluster && thread.cluster_generation == barrier.generation) return;
  --barrier.expected;
  complete_if_done(thread, barrier, kClusterBarrier);
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
