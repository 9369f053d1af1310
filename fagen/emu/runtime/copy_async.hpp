// cp.async: copies from global to shared memory, in groups (PTX ISA, "cp.async").
#pragma once

#include "global.hpp"

namespace fagen::emu {

struct CopyAsync : AsyncOp {
  uint32_t shared;
  const void* global;
  uint32_t bytes, from_global;  // the rest is zeros

  CopyAsync(Thread& issuer, uint32_t shared, const void* global, uint32_t bytes, uint32_t from_global)
      : AsyncOp(issuer), shared(shared), global(global), bytes(bytes), from_global(from_global) {}

  const char* name() const override { return "cp.async"; }

  void land() override {
    unsigned char value[16] = {};
    std::memcpy(value, global, from_global);
    shared_land(issuer, shared, value, bytes);
  }
};

// Copies `from_global` bytes and fills up to `bytes` (4, 8 or 16) with zeros.
FAGEN_EMU_ENTRY void copy_async(uint32_t shared, const void* global, uint32_t bytes, uint32_t from_global) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  uint32_t component = component_of(thread.copies, thread);
  if (reinterpret_cast<uint64_t>(global) % bytes)
    fail(Kind::misaligned, thread,
         message("the source %p of cp.async is not aligned to %u bytes", global, bytes));
  if (from_global) global_check(thread, global, from_global, 1, false);
  shared_check_write(by(thread, component, thread.copies.next(), Proxy::generic), shared, bytes, bytes);
  thread.copies.issue(std::make_unique<CopyAsync>(thread, shared, global, bytes, from_global));
}

FAGEN_EMU_ENTRY void copy_async_commit() { FAGEN_EMU_ENTER().copies.commit(); }

// Waits until at most the `newest` latest groups are in flight.
FAGEN_EMU_ENTRY void copy_async_wait(uint32_t newest) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  thread.copies.wait(thread, newest);
}

// cp.async.wait_all: also what no commit has put into a group.
FAGEN_EMU_ENTRY void copy_async_wait_all() {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  thread.copies.commit();
  thread.copies.wait(thread, 0);
}

}  // namespace fagen::emu
