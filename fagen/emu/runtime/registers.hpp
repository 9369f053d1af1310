// setmaxnreg: the registers of a CTA and who holds them (PTX ISA, "setmaxnreg").
#pragma once

#include "collective.hpp"

namespace fagen::emu {

inline constexpr uint32_t kRegistersPerSm = 64 * 1024;

// What ptxas gives a thread of a kernel with __launch_bounds__(threads, 1).
inline uint32_t registers_at_start(const Cta& cta) {
  return std::min<uint32_t>(240, kRegistersPerSm / static_cast<uint32_t>(cta.threads.size()) / 8 * 8);
}

FAGEN_EMU_ENTRY void set_max_registers(uint32_t wanted, bool increase) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  const char* op = increase ? "setmaxnreg.inc" : "setmaxnreg.dec";
  struct Args {
  } args;
  warpgroup_collective(thread, op, wanted, args, [&](Lanes<Args>) {
    Cta& cta = *thread.cta;
    Warpgroup& group = cta.warpgroups[thread.warp->index / 4];
    uint32_t held = group.registers ? group.registers : registers_at_start(cta);
    if (increase ? wanted < held : wanted > held)
      fail(Kind::registers, thread, message("%s to %u registers; the warpgroup has %u", op, wanted, held));
    if (increase) {
      while (cta.free_registers < 128 * (wanted - held)) block(thread, cta.register_waiters, op);
      cta.free_registers -= 128 * (wanted - held);
    } else {
      cta.free_registers += 128 * (held - wanted);
      wake(cta.register_waiters);
    }
    group.registers = wanted;
  });
}

}  // namespace fagen::emu
