// Who runs next: the threads of a cluster take turns at random, by the cluster's own generator, so that a
// seed means one interleaving. Asynchronous operations land between turns.
#pragma once

#include "abi.hpp"
#include "deadlock.hpp"
#include "thread.hpp"

namespace fagen::emu {

// Gives the turn away; the thread goes on when someone has made it runnable again.
inline void leave_turn(Thread& thread) { thread.context.switch_to(thread.cta->cluster->scheduler); }

inline void wake(WaitQueue& queue) {
  for (Thread* thread : queue) thread->cta->cluster->runnable.push_back(thread);
  queue.clear();
}

// Waits for a `wake` of the queue. `what` is for the deadlock report.
inline void block(Thread& thread, WaitQueue& queue, const char* what) {
  thread.waits_for = what;
  queue.push_back(&thread);
  leave_turn(thread);
  thread.waits_for = nullptr;
}

// A point where another thread may get ahead.
inline void preempt() {
  Thread& thread = self();
  Cluster& cluster = *thread.cta->cluster;
  if (!cluster.random.chance(cluster.launch.preemption)) return;
  cluster.runnable.push_back(&thread);
  leave_turn(thread);
}

// A point where the others must get a turn: the body of a polling loop.
inline void yield_turn() {
  Thread& thread = self();
  thread.cta->cluster->runnable.push_back(&thread);
  leave_turn(thread);
}

// Lets a pending operation happen now.
inline void land(AsyncOp& op) {
  Cluster& cluster = *op.issuer.cta->cluster;
  size_t slot = op.slot;
  cluster.landing.push_back(std::move(cluster.pending[slot]));
  if (slot + 1 != cluster.pending.size()) {
    cluster.pending[slot] = std::move(cluster.pending.back());
    cluster.pending[slot]->slot = slot;
  }
  cluster.pending.pop_back();
  if (op.queue) op.queue->in_flight[op.time - op.queue->landed - 1] = nullptr;
  ++cluster.landings;
  op.land();
  if (is_traced(op.issuer)) cluster.trace->flight(trace_event(op.issuer, op.name(), op.start, op.site));
  cluster.landing.pop_back();
}

inline Thread& next_thread(Cluster& cluster) {
  auto& runnable = cluster.runnable;
  size_t best = cluster.random.below(static_cast<uint32_t>(runnable.size()));
  if (cluster.candidates > 1) {
    for (uint32_t i = 1; i < cluster.candidates; ++i) {
      size_t other = cluster.random.below(static_cast<uint32_t>(runnable.size()));
      if (runnable[other]->warp->rank < runnable[best]->warp->rank) best = other;
    }
    // Favourites change, so that no warp stays ahead, or behind, for the whole run.
    if (cluster.steps % 256 == 0)
      for (auto& cta : cluster.ctas)
        for (auto& warp : cta->warps) warp.rank = cluster.random.below(1u << 16);
  }
  Thread& thread = *runnable[best];
  runnable[best] = runnable.back();
  runnable.pop_back();
  return thread;
}

// Runs the cluster's threads until all have exited or one has failed.
inline void run_threads(Cluster& cluster) {
  static constexpr double kLandingRates[] = {0.01, 0.3, 0.9};
  static constexpr uint32_t kCandidates[] = {1, 2, 8};
  cluster.landing_rate = kLandingRates[cluster.random.below(3)];
  cluster.candidates = kCandidates[cluster.random.below(3)];
  try {
    while (cluster.live > 0) {
      auto& pending = cluster.pending;
      while (!pending.empty() && (cluster.runnable.empty() || cluster.random.chance(cluster.landing_rate)))
        land(*pending[cluster.random.below(static_cast<uint32_t>(pending.size()))]);
      if (cluster.runnable.empty())
        fail(Kind::deadlock, first_blocked(cluster), "no thread can go on\n" + state_text(cluster));
      ++cluster.steps;
      Thread& thread = next_thread(cluster);
      if (cluster.launch.step_limit && cluster.steps > cluster.launch.step_limit)
        fail(Kind::livelock, thread,
             message("no end within step_limit, %llu steps\n",
                     static_cast<unsigned long long>(cluster.launch.step_limit)) +
                 state_text(cluster));
      current = &thread;
      cluster.scheduler.switch_to(thread.context);
      current = nullptr;
      if (cluster.failure.kind != Kind::none || *cluster.launch.cancel) return;
    }
    while (!cluster.pending.empty()) land(*cluster.pending.back());
  } catch (const Failed&) {
    current = nullptr;
  }
}

}  // namespace fagen::emu
