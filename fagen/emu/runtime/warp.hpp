// Shuffles, votes and __syncwarp.
#pragma once

#include <cstring>

#include "collective.hpp"

namespace fagen::emu {

// Each lane gives a value and takes that of lane `source`, its own where there is no such lane in the mask.
FAGEN_EMU_ENTRY uint64_t shuffle_bits(const char* op, uint32_t mask, uint64_t value, uint32_t source) {
  struct Args {
    uint64_t value, result;
    uint32_t source;
  };
  Thread& thread = FAGEN_EMU_ENTER();
  Args args{value, value, source};
  warp_collective(thread, op, 0, mask, args, [&](Lanes<Args> lanes) {
    for (uint32_t lane = 0; lane < 32; ++lane) {
      if (!lanes[lane]) continue;
      uint32_t from = lanes[lane]->source;
      if (!lanes[from])
        fail(Kind::divergence, thread,
             message("lane %u takes the value of lane %u, which is not in the mask of %s", lane, from, op));
      lanes[lane]->result = lanes[from]->value;
    }
  });
  return args.result;
}

template <class T>
[[gnu::always_inline]] inline T shuffle(const char* op, uint32_t mask, T value, uint32_t source) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = shuffle_bits(op, mask, bits, source);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// What the kernel says is the same in all lanes.
FAGEN_EMU_ENTRY uint32_t uniform(uint32_t value) {
  Thread& thread = FAGEN_EMU_ENTER();
  warp_collective(thread, "redux.sync", 0, ~0u, value, [&](Lanes<uint32_t> lanes) {
    for (uint32_t lane = 1; lane < 32; ++lane)
      if (*lanes[lane] != *lanes[0])
        fail(
            Kind::divergence, thread,
            message("a uniform value is 0x%x in lane 0, and 0x%x in lane %u", *lanes[0], *lanes[lane], lane));
  });
  return value;
}

struct Ballot {
  bool predicate;
  uint32_t result;
};

// The mask of lanes whose predicate holds.
FAGEN_EMU_ENTRY uint32_t vote(const char* op, uint32_t mask, bool predicate) {
  Thread& thread = FAGEN_EMU_ENTER();
  Ballot args{predicate, 0};
  warp_collective(thread, op, 0, mask, args, [&](Lanes<Ballot> lanes) {
    uint32_t result = 0;
    for (uint32_t lane = 0; lane < 32; ++lane)
      if (lanes[lane] && lanes[lane]->predicate) result |= 1u << lane;
    for (uint32_t lane = 0; lane < 32; ++lane)
      if (lanes[lane]) lanes[lane]->result = result;
  });
  return args.result;
}

// All of `mask` are ordered after each other's past.
FAGEN_EMU_ENTRY void sync_warp(uint32_t mask) {
  struct Args {
    Thread& thread;
  };
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  Args args{thread};
  warp_collective(thread, "__syncwarp", 0, mask, args, [&](Lanes<Args> lanes) {
    Clock all;
    for (uint32_t lane = 0; lane < 32; ++lane)
      if (lanes[lane]) release(lanes[lane]->thread, all);
    for (uint32_t lane = 0; lane < 32; ++lane)
      if (lanes[lane]) acquire(lanes[lane]->thread, all);
  });
}

}  // namespace fagen::emu
