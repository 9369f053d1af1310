// What can be wrong with a kernel, and where in its code.
#pragma once

#include <dlfcn.h>
#include <stdint.h>

#include <cstdarg>
#include <cstdio>
#include <string>

namespace fagen::emu {

enum class Kind {
  none,
  race,           // two accesses to shared memory that nothing orders
  uninitialised,  // shared memory read before anything was written to it
  out_of_bounds,
  misaligned,
  mbarrier,    // misuse of an mbarrier
  barrier,     // misuse of a named barrier
  divergence,  // callers of a collective disagree
  deadlock,
  livelock,
  proxy_fence,  // generic write seen through the async proxy without a fence
  async,        // misuse of an asynchronous operation or its groups
  registers,    // registers read or written while an instruction in flight owns them, or never granted
  launch,       // the launch itself
};

inline constexpr const char* kKindNames[] = {
    "none",       "race",     "uninitialised", "out_of_bounds", "misaligned", "mbarrier",  "barrier",
    "divergence", "deadlock", "livelock",      "proxy_fence",   "async",      "registers", "launch"};

// A place in the kernel's code: an offset into the shared object, inside the calling instruction.
using Site = uint32_t;

inline uintptr_t image_base() {
  static const uintptr_t base = [] {
    Dl_info info;
    return dladdr(reinterpret_cast<void*>(&image_base), &info) ? reinterpret_cast<uintptr_t>(info.dli_fbase)
                                                               : 0;
  }();
  return base;
}

inline Site site_of(const void* return_address) {
  return static_cast<Site>(reinterpret_cast<uintptr_t>(return_address) - image_base() - 1);
}

// printf into a string.
[[gnu::format(printf, 1, 2)]] inline std::string message(const char* format, ...) {
  va_list list, again;
  va_start(list, format);
  va_copy(again, list);
  std::string text(static_cast<size_t>(vsnprintf(nullptr, 0, format, list)), '\0');
  vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  va_end(list);
  return text;
}

// How a message names a place; the host turns it into file:line.
struct pc {
  char text[24];
  explicit pc(Site site) { snprintf(text, sizeof text, "<pc:0x%x>", site); }
  operator const char*() const { return text; }
  const char* str() const { return text; }
};

}  // namespace fagen::emu
