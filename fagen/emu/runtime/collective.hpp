// Instructions that the lanes of a warp, or of a warpgroup, execute together.
#pragma once

#include <cstring>

#include "scheduler.hpp"

namespace fagen::emu {

// The arguments of all lanes, null where a lane does not take part.
template <class Args>
struct Lanes {
  void* const* args;
  Args* operator[](uint32_t lane) const { return static_cast<Args*>(args[lane]); }
};

inline bool has_lane(const uint64_t (&mask)[2], uint32_t lane) { return mask[lane / 64] >> (lane % 64) & 1; }

// `lane` meets those of `expected` in its group; the last one runs `f`.
template <class Group, class Args, class F>
void meet(Thread& thread, Group& group, uint32_t lane, const char* op, uint64_t key,
          const uint64_t (&expected)[2], Args& args, F f) {
  if (!has_lane(expected, lane))
    fail(Kind::divergence, thread, message("lane %u is not in its own mask of %s", lane, op));
  size_t slot = 0;
  for (; slot < group.open.size(); ++slot) {
    const Rendezvous& other = *group.open[slot];
    bool same = other.expected[0] == expected[0] && other.expected[1] == expected[1];
    if (same && other.key == key && (other.op == op || !std::strcmp(other.op, op))) break;
    if ((other.expected[0] & expected[0]) | (other.expected[1] & expected[1]))
      fail(Kind::divergence, thread,
           message("%s (variant 0x%llx, lanes 0x%llx) while other lanes of the warp wait in %s (variant "
                   "0x%llx, lanes 0x%llx)",
                   op, static_cast<unsigned long long>(key), static_cast<unsigned long long>(expected[0]),
                   other.op, static_cast<unsigned long long>(other.key),
                   static_cast<unsigned long long>(other.expected[0])));
  }
  if (slot == group.open.size()) {
    for (Thread* other : group.threads)
      if (other->exited && has_lane(expected, other->id - group.threads[0]->id))
        fail(Kind::divergence, thread,
             message("%s waits for %s, which has exited", op, name_of(*other).c_str()));
    group.open.push_back(std::make_unique<Rendezvous>());
    Rendezvous& fresh = *group.open.back();
    fresh.op = op;
    fresh.key = key;
    fresh.expected[0] = expected[0];
    fresh.expected[1] = expected[1];
  }
  Rendezvous& here = *group.open[slot];
  here.args[lane] = &args;
  if (lane % 32 == 0) here.start[lane / 32] = thread.cta->cluster->steps;
  here.arrived[lane / 64] |= uint64_t{1} << (lane % 64);
  if (here.arrived[0] != here.expected[0] || here.arrived[1] != here.expected[1])
    return block(thread, here.waiters, op);
  f(Lanes<Args>{here.args});
  for (uint32_t first = 0; first < 128; first += 32)
    if (has_lane(expected, first)) trace_span(*group.threads[first], op, here.start[first / 32]);
  wake(here.waiters);
  group.open.erase(group.open.begin() + static_cast<ptrdiff_t>(slot));
}

// See README.md, "Collectives".
template <class Args, class F>
void warp_collective(Thread& thread, const char* op, uint64_t key, uint32_t mask, Args& args, F f) {
  meet(thread, *thread.warp, thread.lane, op, key, {mask, 0}, args, f);
}

template <class Args, class F>
void warpgroup_collective(Thread& thread, const char* op, uint64_t key, Args& args, F f) {
  uint32_t group = thread.warp->index / 4;
  if (group >= thread.cta->warpgroups.size())
    fail(Kind::divergence, thread,
         message("%s by warp %u: it is in no whole warpgroup", op, thread.warp->index));
  uint32_t lane = thread.warp->index % 4 * 32 + thread.lane;
  meet(thread, thread.cta->warpgroups[group], lane, op, key, {~uint64_t{0}, ~uint64_t{0}}, args, f);
}

// Before a thread exits: nobody may be waiting for it.
template <class Group>
void check_not_awaited(Thread& thread, Group& group, uint32_t lane) {
  for (auto& open : group.open)
    if (has_lane(open->expected, lane))
      fail(Kind::divergence, thread,
           message("%s exits while other lanes wait for it in %s", name_of(thread).c_str(), open->op));
}

}  // namespace fagen::emu
