// A small seeded generator (SplitMix64): the same numbers on every machine.
#pragma once

#include <stdint.h>

namespace fagen::emu {

class Random {
 public:
  Random(uint64_t seed, uint64_t stream) : state_(seed) { state_ = next() ^ (stream * 0xd1342543de82ef95u); }

  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(((next() >> 32) * bound) >> 32); }
  bool chance(double probability) { return static_cast<double>(next() >> 11) * 0x1p-53 < probability; }

 private:
  uint64_t state_;
};

}  // namespace fagen::emu
