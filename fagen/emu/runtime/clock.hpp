// Vector clocks: what happened before what (Lamport's order, as in the FastTrack race detector).
#pragma once

#include <stdint.h>

#include <algorithm>
#include <vector>

namespace fagen::emu {

// Times by component; components that it does not hold yet are at time 0.
class Times {
 public:
  uint32_t operator[](uint32_t component) const { return component < times_.size() ? times_[component] : 0; }

  // Moves one component forward to `time`.
  void raise(uint32_t component, uint32_t time) {
    if (component >= times_.size()) times_.resize(component + 1);
    times_[component] = std::max(times_[component], time);
  }

  void join(const Times& other) {
    if (other.times_.size() > times_.size()) times_.resize(other.times_.size());
    uint32_t* mine = times_.data();
    const uint32_t* theirs = other.times_.data();
    for (size_t i = 0, n = other.times_.size(); i < n; ++i) mine[i] = std::max(mine[i], theirs[i]);
  }

  void clear() { times_.clear(); }

 private:
  std::vector<uint32_t> times_;
};

// What is ordered before a point of the run; and the part of it that fences have made visible to the async
// proxy.
struct Clock {
  Times seen;
  Times fenced;

  uint32_t operator[](uint32_t component) const { return seen[component]; }

  void join(const Clock& other) {
    seen.join(other.seen);
    fenced.join(other.fenced);
  }

  void clear() {
    seen.clear();
    fenced.clear();
  }
};

}  // namespace fagen::emu
