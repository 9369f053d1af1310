// Emulation of ptx/setmaxnreg.cuh.
#pragma once

#include "registers.hpp"

namespace fagen::ptx {

template <int kRegisters>
__device__ __forceinline__ void release_registers_to() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
  emu::set_max_registers(kRegisters, false);
}

template <int kRegisters>
__device__ __forceinline__ void claim_registers_to() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
  emu::set_max_registers(kRegisters, true);
}

}  // namespace fagen::ptx
