// Global memory: host memory, in ranges that the launch names. Order between threads is not checked here.
#pragma once

#include <atomic>
#include <cstring>

#include "abi.hpp"
#include "async.hpp"
#include "shared.hpp"

namespace fagen::emu {

// Demands that [pointer, pointer + bytes) lies in one of the launch's ranges, aligned, and writable for a
// write.
inline void global_check(Thread& thread, const void* pointer, uint64_t bytes, uint64_t align, bool write) {
  const FagenEmuLaunch& launch = thread.cta->cluster->launch;
  auto address = reinterpret_cast<uint64_t>(pointer);
  const FagenEmuRange* nearest = nullptr;
  for (uint64_t i = 0; i < launch.range_count; ++i) {
    const FagenEmuRange& range = launch.ranges[i];
    if (address >= range.address && bytes <= range.bytes && address - range.address <= range.bytes - bytes) {
      if (write && !range.writable)
        fail(Kind::out_of_bounds, thread, message("%s is written to, but it is read-only", range.name));
      if (address % align)
        fail(Kind::misaligned, thread,
             message("%s at byte %llu is not aligned to %llu bytes", range.name,
                     static_cast<unsigned long long>(address - range.address),
                     static_cast<unsigned long long>(align)));
      return;
    }
    auto distance = [&](const FagenEmuRange& r) {
      return address < r.address             ? r.address - address
             : address < r.address + r.bytes ? 0
                                             : address - r.address - r.bytes;
    };
    if (!nearest || distance(range) < distance(*nearest)) nearest = &range;
  }
  if (!nearest)
    fail(Kind::out_of_bounds, thread,
         message("global address %p; the launch names no global memory", pointer));
  fail(Kind::out_of_bounds, thread,
       message("%llu bytes of global memory at byte %lld of %s, which has %llu bytes",
               static_cast<unsigned long long>(bytes), static_cast<long long>(address - nearest->address),
               nearest->name, static_cast<unsigned long long>(nearest->bytes)));
}

FAGEN_EMU_ENTRY void load_global(const void* from, void* to, uint32_t bytes) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  global_check(thread, from, bytes, bytes, false);
  std::memcpy(to, from, bytes);
}

FAGEN_EMU_ENTRY void store_global(void* to, const void* from, uint32_t bytes) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  global_check(thread, to, bytes, bytes, true);
  std::memcpy(to, from, bytes);
}

// Replaces *pointer by update(*pointer), indivisibly; the value before.
template <class T, class F>
FAGEN_EMU_ENTRY T atomic_global(T* pointer, F update) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  global_check(thread, pointer, sizeof(T), sizeof(T), true);
  std::atomic_ref<T> cell(*pointer);
  T before = cell.load();
  while (!cell.compare_exchange_weak(before, update(before))) {
  }
  return before;
}

}  // namespace fagen::emu
