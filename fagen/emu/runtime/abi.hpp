// What the host calls, and the structs that cross: the ABI with fagen/emu/library.py. Each struct that may
// grow starts with its own size, which must agree on both sides.
#pragma once

#include <stdint.h>

extern "C" {

// A piece of global memory that the kernel may touch.
struct FagenEmuRange {
  const char* name;  // for messages: "q"
  uint64_t address;
  uint64_t bytes;
  uint32_t writable;  // 0 or 1
  uint32_t reserved;  // 0
};

// A piece of a CTA's dynamic shared memory: names for messages only.
struct FagenEmuBuffer {
  const char* name;  // "k"
  uint32_t offset;   // bytes from the start of dynamic shared memory
  uint32_t bytes;
};

struct FagenEmuLaunch {
  uint64_t struct_bytes;  // sizeof(FagenEmuLaunch)
  uint32_t grid[3];       // CTAs; a multiple of cluster in each dimension
  uint32_t cluster[3];    // CTAs per cluster; {1, 1, 1}: no cluster
  uint32_t block[3];      // threads per CTA; their product is a multiple of 32
  uint32_t smem_bytes;    // dynamic shared memory per CTA
  const void* params;     // the kernel's one argument, as fagen.plan.params packs it
  uint64_t params_bytes;
  const FagenEmuRange* ranges;
  uint64_t range_count;
  const FagenEmuBuffer* buffers;
  uint64_t buffer_count;
  uint64_t seed;
  double preemption;       // probability that an operation on shared memory gives way to another thread, 0..1
  uint64_t step_limit;     // scheduler steps of one cluster, after which it is a livelock; 0: none
  uint32_t os_threads;     // clusters run at once; >= 1. Results and errors do not depend on it
  uint32_t reserved;       // 0
  const char* trace_path;  // Chrome trace JSON is written here; null: no trace
  const volatile uint32_t* cancel;  // not 0: the run ends within a turn, and its report means nothing
};

// Code addresses, here and as <pc:0x...> in `text`, are offsets into the shared object, already moved back
// into the calling instruction: give them to `addr2line -i -f -C -e library.so` as they are.
struct FagenEmuReport {
  uint64_t struct_bytes;     // sizeof(FagenEmuReport)
  int32_t kind;              // 0: no error; else see fagen_emu_kind
  uint32_t block[3];         // where: blockIdx
  uint32_t thread[3];        // threadIdx
  uint32_t has_thread;       // 1: block and thread are meant
  uint32_t has_address;      // 1: shared_address is meant
  uint32_t shared_address;   // byte offset into dynamic shared memory
  uint32_t backtrace_count;  // innermost first
  uint64_t backtrace[32];
  uint64_t steps;     // turns that the schedulers gave, all clusters together
  uint64_t landings;  // asynchronous operations that completed
  char text[16384];   // UTF-8, zero-terminated: what went wrong; several lines for a deadlock
};

// Runs the grid. Returns report->kind: 0 when nothing was objected to.
int fagen_emu_run(const FagenEmuLaunch* launch, FagenEmuReport* report);

// The kind's name: "race", "uninitialised", "out_of_bounds", "misaligned", "mbarrier", "barrier",
// "divergence", "deadlock", "livelock", "proxy_fence", "async", "registers", "launch"; null beyond the last.
const char* fagen_emu_kind(int kind);

}  // extern "C"
