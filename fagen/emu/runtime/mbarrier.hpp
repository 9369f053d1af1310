// mbarriers: phases, arrivals and bytes (PTX ISA, "mbarrier"). The state lives beside the shared memory; the
// eight bytes themselves may not be touched as data while the barrier is live.
#pragma once

#include "async.hpp"
#include "shared.hpp"

namespace fagen::emu {

inline constexpr uint32_t kMostArrivals = (1u << 20) - 1;
inline constexpr int32_t kMostBytes = (1 << 20) - 1;

[[noreturn, gnu::noinline]] inline void fail_mbarrier(Thread& thread, uint32_t address, std::string text) {
  fail(Kind::mbarrier, thread, locate(thread, address).offset,
       "the mbarrier at " + name_of_shared(thread, address) + " " + std::move(text));
}

// Whether a fence followed the initialisation, and the thread is ordered after it.
inline bool knows_init_fence(const Thread& thread, const Mbarrier& barrier) {
  return barrier.init_fenced && thread.clock[barrier.init_thread] >= barrier.init_fenced;
}

// The barrier at `address`, made, and made known to the thread.
inline Mbarrier& find_mbarrier(Thread& thread, uint32_t address) {
  Place place = locate_checked(thread, address, 8, 8);
  auto found = place.cta.mbarriers.find(place.offset);
  if (found == place.cta.mbarriers.end() || !found->second.live)
    fail_mbarrier(thread, address, "is used before it is initialised");
  Mbarrier& barrier = found->second;
  if (thread.clock[barrier.init_thread] < barrier.init_time)
    fail_mbarrier(thread, address,
                  message("is used by a thread that is not ordered after its initialisation at %s",
                          pc(barrier.init_site).str()));
  if (&place.cta != thread.cta && !knows_init_fence(thread, barrier))
    fail_mbarrier(thread, address,
                  "is used from another CTA, but no fence.mbarrier_init followed its initialisation");
  return barrier;
}

// The same for an operation of the async proxy.
inline Mbarrier& mbarrier_for_async(Thread& thread, uint32_t address) {
  Mbarrier& barrier = find_mbarrier(thread, address);
  if (!knows_init_fence(thread, barrier))
    fail_mbarrier(thread, address,
                  "is used by the async proxy, but no fence.mbarrier_init or fence.proxy.async followed its "
                  "initialisation");
  return barrier;
}

inline void complete_if_done(Thread& thread, Mbarrier& barrier, uint32_t address) {
  if (barrier.pending > 0) return;
  if (barrier.tx < 0)
    fail_mbarrier(thread, address, message("received %d bytes more than its phase expected", -barrier.tx));
  if (barrier.tx > 0) return;
  for (const Thread* waiter : barrier.waiters)
    if (waiter->wait_phase != barrier.phase)
      fail_mbarrier(thread, address,
                    message("is two phases ahead of %s, which still waits at %s for phase %u",
                            name_of(*waiter).c_str(), pc(waiter->site).str(), waiter->wait_phase));
  barrier.complete.join(barrier.arriving);
  barrier.complete.seen.raise(barrier.component, barrier.time());
  barrier.arriving.clear();
  barrier.pending = barrier.count;
  ++barrier.phase;
  for (const Thread* waiter : barrier.waiters)
    waiter->cta->cluster->runnable.push_back(const_cast<Thread*>(waiter));
}

// `count` arrivals by `thread` (for messages), which release `past`.
inline void arrive(Thread& thread, Mbarrier& barrier, uint32_t address, uint32_t count, const Clock& past) {
  if (count > barrier.pending)
    fail_mbarrier(thread, address,
                  message("gets %u arrivals, but phase %u lacks %u of %u", count, barrier.phase,
                          barrier.pending, barrier.count));
  barrier.pending -= count;
  barrier.arriving.join(past);
  complete_if_done(thread, barrier, address);
}

inline void expect_tx(Thread& thread, Mbarrier& barrier, uint32_t address, uint32_t bytes) {
  if (bytes > static_cast<uint32_t>(kMostBytes) || barrier.tx > kMostBytes - static_cast<int32_t>(bytes))
    fail_mbarrier(thread, address,
                  message("is told to expect %u bytes beyond %d: too many", bytes, barrier.tx));
  barrier.tx += static_cast<int32_t>(bytes);
  complete_if_done(thread, barrier, address);
}

// `bytes` of a copy that `thread` has issued are in shared memory.
inline void complete_tx(Thread& thread, Mbarrier& barrier, uint32_t address, uint32_t bytes) {
  if (bytes > static_cast<uint32_t>(kMostBytes) || barrier.tx < -kMostBytes + static_cast<int32_t>(bytes))
    fail_mbarrier(thread, address, message("receives %u bytes beyond %d: too many", bytes, -barrier.tx));
  barrier.tx -= static_cast<int32_t>(bytes);
  complete_if_done(thread, barrier, address);
}

// Before a CTA ends: its shared memory may not be written to any more.
inline void check_copies_awaited(const Cta& cta) {
  for (auto& [offset, barrier] : cta.mbarriers)
    if (std::none_of(cta.threads.begin(), cta.threads.end(), [&](const Thread* thread) {
          return thread->clock[barrier.component] >= barrier.copied;
        }))
      fail(Kind::async, *barrier.copier,
           message("the CTA ends, and none of its threads has waited for the copy of %s",
                   pc(barrier.copy_site).str()));
}

// Calls f(granule) for both granules of a barrier.
template <class F>
inline void for_barrier_granules(Place place, F f) {
  f(place.cta.shared.shadow[place.offset / kGranule]);
  f(place.cta.shared.shadow[place.offset / kGranule + 1]);
}

FAGEN_EMU_ENTRY void mbarrier_init(uint32_t address, uint32_t count) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  Place place = locate_checked(thread, address, 8, 8);
  if (&place.cta != thread.cta) fail_mbarrier(thread, address, "is initialised from another CTA");
  Mbarrier& barrier = place.cta.mbarriers[place.offset];
  if (barrier.live) fail_mbarrier(thread, address, "is initialised twice without mbarrier.inval");
  if (count == 0 || count > kMostArrivals)
    fail_mbarrier(thread, address,
                  message("is initialised to %u arrivals; allowed: 1 to %u", count, kMostArrivals));
  shared_check_write(by(thread), address, 8, 8);
  for_barrier_granules(place, [](Granule& granule) { granule.barrier = true; });
  if (!barrier.component)
    barrier.component = place.cta.cluster->add_component("a copy that completes on an mbarrier", nullptr);
  barrier.base += barrier.phase;
  barrier.count = barrier.pending = count;
  barrier.tx = 0;
  barrier.phase = 0;
  barrier.live = true;
  barrier.init_fenced = 0;
  barrier.init_thread = thread.id;
  barrier.init_time = thread.now();
  barrier.init_site = thread.site;
}

FAGEN_EMU_ENTRY void mbarrier_inval(uint32_t address) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  Mbarrier& barrier = find_mbarrier(thread, address);
  if (!barrier.waiters.empty()) fail_mbarrier(thread, address, "is invalidated while threads wait for it");
  barrier.live = false;
  ++barrier.phase;  // copies still under way belong to a time of their own
  for_barrier_granules(locate(thread, address), [](Granule& granule) { granule.barrier = false; });
  shared_check_write(by(thread), address, 8, 8);  // who uses the bytes next is ordered after this
}

// fence.mbarrier_init: the barriers that the thread has initialised so far are known to all who are ordered
// after.
inline void fence_inits(Thread& thread) {
  for (auto& [offset, barrier] : thread.cta->mbarriers)
    if (barrier.init_thread == thread.id && !barrier.init_fenced) barrier.init_fenced = thread.now();
}

FAGEN_EMU_ENTRY void fence_mbarrier_init() { fence_inits(FAGEN_EMU_ENTER()); }

FAGEN_EMU_ENTRY void fence_proxy_async_entry() {
  Thread& thread = FAGEN_EMU_ENTER();
  fence_inits(thread);
  fence_proxy_async(thread);
}

inline void arrive_and_release(Thread& thread, Mbarrier& barrier, uint32_t address, uint32_t count) {
  trace_span(thread, "mbarrier arrive", thread.cta->cluster->steps);
  arrive(thread, barrier, address, count, thread.clock);
  thread.clock.seen.raise(thread.id, thread.now() + 1);
}

FAGEN_EMU_ENTRY void mbarrier_arrive(uint32_t address, uint32_t count = 1) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  arrive_and_release(thread, find_mbarrier(thread, address), address, count);
}

FAGEN_EMU_ENTRY void mbarrier_expect_tx(uint32_t address, uint32_t bytes) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  expect_tx(thread, find_mbarrier(thread, address), address, bytes);
}

FAGEN_EMU_ENTRY void mbarrier_arrive_expect_tx(uint32_t address, uint32_t bytes) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  Mbarrier& barrier = find_mbarrier(thread, address);
  expect_tx(thread, barrier, address, bytes);
  arrive_and_release(thread, barrier, address, 1);
}

// The arrival of cp.async.mbarrier.arrive: comes after the copies that its thread had issued, and makes only
// those known.
struct ArriveAfterCopies : AsyncOp {
  uint32_t address, through;
  Clock past;

  ArriveAfterCopies(Thread& issuer, uint32_t address)
      : AsyncOp(issuer), address(address), through(issuer.copies.issued) {}

  const char* name() const override { return "cp.async.mbarrier.arrive"; }

  void land() override {
    issuer.copies.land_through(through);
    Mbarrier& barrier = find_mbarrier(issuer, address);
    if (issuer.copies.component) past.seen.raise(issuer.copies.component, through);
    arrive(issuer, barrier, address, 1, past);
  }
};

// cp.async.mbarrier.arrive; `counted` (.noinc): the arrival is among those that init was told of.
FAGEN_EMU_ENTRY void mbarrier_arrive_after_copies(uint32_t address, bool counted = true) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  Mbarrier& barrier = find_mbarrier(thread, address);
  if (!counted) ++barrier.pending;
  issue(std::make_unique<ArriveAfterCopies>(thread, address));
}

// Whether the phase of this parity is the last complete one. True: the thread is ordered after it.
inline bool phase_is_complete(Thread& thread, Mbarrier& barrier, uint32_t parity) {
  if ((barrier.phase & 1) == parity) return false;
  acquire(thread, barrier.complete);
  return true;
}

// One look; false gives way to others, since its caller will look again.
FAGEN_EMU_ENTRY bool mbarrier_test_wait(uint32_t address, uint32_t parity) {
  Thread& thread = FAGEN_EMU_ENTER();
  thread.wait_address = address;
  thread.wait_parity = parity;
  preempt();
  bool complete = phase_is_complete(thread, find_mbarrier(thread, address), parity);
  if (!complete) yield_turn();
  thread.wait_address = 0;
  return complete;
}

FAGEN_EMU_ENTRY void mbarrier_wait(uint32_t address, uint32_t parity) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  Mbarrier& barrier = find_mbarrier(thread, address);
  if (phase_is_complete(thread, barrier, parity)) return;
  // Stays among the waiters until it runs again, so that a barrier which gets two phases ahead is noticed.
  thread.wait_address = address;
  thread.wait_parity = parity;
  thread.wait_phase = barrier.phase;
  uint64_t start = thread.cta->cluster->steps;
  block(thread, barrier.waiters, "the mbarrier");
  std::erase(barrier.waiters, &thread);
  thread.wait_address = 0;
  trace_span(thread, "mbarrier wait", start);
  phase_is_complete(thread, barrier, parity);
}

}  // namespace fagen::emu
