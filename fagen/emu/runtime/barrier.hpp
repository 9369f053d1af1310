// Barriers that count threads: __syncthreads and the named barriers of a CTA (PTX ISA, "barrier"), and what
// cluster barriers are made of.
#pragma once

#include <algorithm>

#include "scheduler.hpp"

namespace fagen::emu {

inline constexpr uint32_t kNamedBarriers = 16;

inline void complete_if_done(Thread& thread, Barrier& barrier, const char* name) {
  if (barrier.arrived.empty() || barrier.arrived.size() < barrier.expected) return;

  // Barriers count warps: a warp of which only a part has come is a kernel that diverged. Only the cluster's
  // does without threads that have exited.
  bool is_clusters = &barrier == &thread.cta->cluster->barrier;
  for (const Thread* one : barrier.arrived)
    for (const Thread* lane : one->warp->threads)
      if (!(is_clusters && lane->exited) && (one->lane == 0 || one == barrier.arrived.back()))
        if (std::find(barrier.arrived.begin(), barrier.arrived.end(), lane) == barrier.arrived.end())
          fail(Kind::divergence, thread,
               message("%s is complete without %s, whose warp came", name, name_of(*lane).c_str()));
  std::swap(barrier.complete, barrier.arriving);
  barrier.arriving.clear();
  barrier.arrived.clear();
  ++barrier.generation;
  // Now, since others may complete the next generation before these get a turn.
  for (Thread* waiter : barrier.waiters) acquire(*waiter, barrier.complete);
  wake(barrier.waiters);
}

// Arrives as one of `expected` threads and releases; the generation to wait for.
inline uint64_t arrive(Thread& thread, Barrier& barrier, uint32_t expected, const char* name) {
  if (barrier.arrived.empty()) barrier.expected = expected;
  if (barrier.expected != expected)
    fail(Kind::barrier, thread,
         message("%s is used with %u threads, while others of this generation said %u", name, expected,
                 barrier.expected));
  if (std::find(barrier.arrived.begin(), barrier.arrived.end(), &thread) != barrier.arrived.end())
    fail(Kind::barrier, thread, message("arrives twice at one generation of %s", name));
  uint64_t generation = barrier.generation;
  barrier.arrived.push_back(&thread);
  release(thread, barrier.arriving);
  complete_if_done(thread, barrier, name);
  return generation;
}

// Waits until the generation is complete, and acquires.
inline void wait(Thread& thread, Barrier& barrier, uint64_t generation, const char* name) {
  uint64_t start = thread.cta->cluster->steps;
  if (barrier.generation == generation)
    block(thread, barrier.waiters, name);
  else
    acquire(thread, barrier.complete);
  trace_span(thread, name, start);
}

inline const char* name_of_barrier(uint32_t id) {
  static constexpr const char* kNames[kNamedBarriers] = {
      "__syncthreads (barrier 0)", "named barrier 1",  "named barrier 2",  "named barrier 3",
      "named barrier 4",           "named barrier 5",  "named barrier 6",  "named barrier 7",
      "named barrier 8",           "named barrier 9",  "named barrier 10", "named barrier 11",
      "named barrier 12",          "named barrier 13", "named barrier 14", "named barrier 15"};
  return kNames[id];
}

inline Barrier& named_barrier(Thread& thread, uint32_t id, uint32_t threads) {
  if (id >= kNamedBarriers)
    fail(Kind::barrier, thread, message("there is no barrier %u; a CTA has %u", id, kNamedBarriers));
  if (threads == 0 || threads % 32 || threads > thread.cta->threads.size())
    fail(Kind::barrier, thread,
         message("barrier %u of %u threads: not a multiple of 32 up to the CTA's %zu", id, threads,
                 thread.cta->threads.size()));
  return thread.cta->barriers[id];
}

FAGEN_EMU_ENTRY void barrier_sync(uint32_t id, uint32_t threads) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  Barrier& barrier = named_barrier(thread, id, threads);
  wait(thread, barrier, arrive(thread, barrier, threads, name_of_barrier(id)), name_of_barrier(id));
}

FAGEN_EMU_ENTRY void barrier_arrive(uint32_t id, uint32_t threads) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  arrive(thread, named_barrier(thread, id, threads), threads, name_of_barrier(id));
}

// __syncthreads.
FAGEN_EMU_ENTRY void barrier_sync_all() {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  Barrier& barrier = thread.cta->barriers[0];
  auto threads = static_cast<uint32_t>(thread.cta->threads.size());
  wait(thread, barrier, arrive(thread, barrier, threads, name_of_barrier(0)), name_of_barrier(0));
}

}  // namespace fagen::emu
