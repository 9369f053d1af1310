// Emulation of ptx/elect.cuh.
#pragma once

#include "elect.hpp"

namespace fagen::ptx {

__device__ __forceinline__ bool elect_one() { return emu::elect_one(); }

}  // namespace fagen::ptx
