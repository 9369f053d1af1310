// Asynchronous operations: issued now, landing at a random later step, ordered for those who waited.
#pragma once

#include "scheduler.hpp"

namespace fagen::emu {

// Lands some time, at the latest when nothing else can run.
inline void issue(std::unique_ptr<AsyncOp> op) {
  auto& pending = op->issuer.cta->cluster->pending;
  op->slot = pending.size();
  op->start = op->issuer.cta->cluster->steps;
  pending.push_back(std::move(op));
}

// The queue's component, made at first use: most threads never need one.
inline uint32_t component_of(AsyncQueue& queue, Thread& owner) {
  if (!queue.component) queue.component = owner.cta->cluster->add_component(queue.name, &owner);
  return queue.component;
}

// `component_of` comes first.
inline uint32_t AsyncQueue::issue(std::unique_ptr<AsyncOp> op) {
  op->queue = this;
  op->time = ++issued;
  in_flight.push_back(op.get());
  emu::issue(std::move(op));
  return issued;
}

// Closes the group of all operations since the last one; an empty group counts too.
inline void AsyncQueue::commit() { groups.push_back(issued); }

inline void AsyncQueue::land_through(uint32_t time) {
  if (time <= landed) return;
  for (uint32_t t = landed + 1; t <= time; ++t)
    if (AsyncOp* op = in_flight[t - landed - 1]) land(*op);
  in_flight.erase(in_flight.begin(), in_flight.begin() + (time - landed));
  landed = time;
}

inline void AsyncQueue::known_to(Thread& thread, uint32_t time) {
  if (component) thread.clock.seen.raise(component, time);
}

// Waits until at most the `newest` latest closed groups are in flight.
inline void AsyncQueue::wait(Thread& thread, uint32_t newest) {
  if (groups.size() > newest) {
    waited = groups[groups.size() - newest - 1];
    groups.erase(groups.begin(), groups.end() - newest);
    land_through(waited);
  }
  known_to(thread, waited);
}

}  // namespace fagen::emu
