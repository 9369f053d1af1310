// Runs one kernel's whole grid. A translation unit of the emulator is
//     #include "launch.hpp"
//     #include "kernel.cu"
//     FAGEN_EMU_KERNEL(symbol_of_the_kernel)
// compiled with -std=c++20 -O1 -g -fPIC -shared -pthread -fno-strict-aliasing -fno-omit-frame-pointer
// -fvisibility=hidden -DFAGEN_EMU=<as __CUDA_ARCH__> -I <this directory> -I templates/include. Hidden,
// because the loader would share the state of this runtime among all kernels of a process.
#pragma once

#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

#include "abi.hpp"
#include "cluster.hpp"
#include "cuda.hpp"

namespace fagen::emu {

using Body = void (*)(const void* params);  // runs the kernel, as one thread

inline thread_local Body body = nullptr;

// Where a fiber starts.
inline void run_thread() {
  Thread& thread = self();
  body(thread.cta->cluster->launch.params);
  check_not_awaited(thread, *thread.warp, thread.lane);
  if (uint32_t group = thread.warp->index / 4; group < thread.cta->warpgroups.size())
    check_not_awaited(thread, thread.cta->warpgroups[group], thread.warp->index % 4 * 32 + thread.lane);
  if (thread.bulk.waited < thread.bulk.issued)
    fail(Kind::async, thread,
         message("%s exits without having waited for its bulk copies", name_of(thread).c_str()));
  if (thread.wgmmas)
    fail(Kind::async, thread,
         message("%s exits without having waited for its wgmmas", name_of(thread).c_str()));
  thread.exited = true;
  if (--thread.cta->live == 0) check_copies_awaited(*thread.cta);
  exit_cluster(thread);
  leave_turn(thread);
  __builtin_unreachable();
}

inline uint3 position(uint64_t index, const uint3& size) {
  return {static_cast<uint32_t>(index % size.x), static_cast<uint32_t>(index / size.x % size.y),
          static_cast<uint32_t>(index / size.x / size.y)};
}

inline uint32_t volume(const uint3& size) { return size.x * size.y * size.z; }

// The cluster's CTAs, warps and threads, ready to run.
inline void populate(Cluster& cluster, std::vector<Stack>& stacks) {
  const FagenEmuLaunch& launch = cluster.launch;
  auto triple = [](const uint32_t (&v)[3]) { return uint3{v[0], v[1], v[2]}; };
  cluster.grid = triple(launch.grid);
  cluster.block = triple(launch.block);
  cluster.size = triple(launch.cluster);
  uint3 clusters{cluster.grid.x / cluster.size.x, cluster.grid.y / cluster.size.y,
                 cluster.grid.z / cluster.size.z};
  uint3 at = position(cluster.index, clusters);
  uint32_t per_cta = volume(cluster.block), ctas = volume(cluster.size);
  while (stacks.size() < size_t{ctas} * per_cta) stacks.emplace_back();

  for (uint32_t rank = 0; rank < ctas; ++rank) {
    Cta& cta = *cluster.ctas.emplace_back(std::make_unique<Cta>());
    cta.cluster = &cluster;
    cta.rank = rank;
    uint3 inner = position(rank, cluster.size);
    cta.index = {at.x * cluster.size.x + inner.x, at.y * cluster.size.y + inner.y,
                 at.z * cluster.size.z + inner.z};
    cta.shared.data.assign(launch.smem_bytes, kPoison);
    cta.shared.shadow.resize((launch.smem_bytes + kGranule - 1) / kGranule);
    cta.warps.resize(per_cta / 32);
    cta.warpgroups.resize(per_cta / 128);
    for (uint32_t i = 0; i < per_cta; ++i) {
      Thread& thread = *cluster.threads.emplace_back(std::make_unique<Thread>());
      thread.id = cluster.add_component("thread", &thread);
      thread.clock.seen.raise(thread.id, 1);
      thread.lane = i % 32;
      thread.index = position(i, cluster.block);
      thread.cta = &cta;
      thread.warp = &cta.warps[i / 32];
      thread.warp->cta = &cta;
      thread.warp->index = i / 32;
      thread.warp->threads[i % 32] = &thread;
      if (i / 128 < cta.warpgroups.size()) cta.warpgroups[i / 128].threads[i % 128] = &thread;
      thread.stack = &stacks[thread.id];
      thread.context.prepare(*thread.stack, run_thread);
      cta.threads.push_back(&thread);
      cluster.runnable.push_back(&thread);
    }
    cta.live = per_cta;
    for (Warp& warp : cta.warps) warp.rank = cluster.random.below(1u << 16);
  }
  cluster.live = static_cast<uint32_t>(cluster.threads.size());
}

inline void copy_failure(const Failure& failure, FagenEmuReport& report) {
  report.kind = static_cast<int32_t>(failure.kind);
  snprintf(report.text, sizeof report.text, "%s", failure.text.c_str());
  if (const Thread* thread = failure.thread) {
    const uint3 &b = thread->cta->index, &t = thread->index;
    uint32_t block[3] = {b.x, b.y, b.z}, index[3] = {t.x, t.y, t.z};
    memcpy(report.block, block, sizeof block);
    memcpy(report.thread, index, sizeof index);
    report.has_thread = 1;
  }
  report.has_address = failure.has_address;
  report.shared_address = failure.address;
  report.backtrace_count =
      static_cast<uint32_t>(std::min<size_t>(failure.backtrace.size(), std::size(report.backtrace)));
  for (uint32_t i = 0; i < report.backtrace_count; ++i) report.backtrace[i] = failure.backtrace[i];
}

inline Failure launch_failure(std::string text) {
  Failure failure;
  failure.kind = Kind::launch;
  failure.text = std::move(text);
  return failure;
}

// What is wrong with the launch itself; empty: nothing.
inline std::string check(const FagenEmuLaunch& launch) {
  uint64_t threads = uint64_t{1} * launch.block[0] * launch.block[1] * launch.block[2];
  if (threads == 0 || threads % 32 || threads > 1024)
    return message("%llu threads per CTA; allowed: a multiple of 32 up to 1024",
                   static_cast<unsigned long long>(threads));
  for (int i = 0; i < 3; ++i)
    if (launch.cluster[i] == 0 || launch.grid[i] % launch.cluster[i])
      return message("a grid of %u CTAs in dimension %d is no multiple of %u per cluster", launch.grid[i], i,
                     launch.cluster[i]);
  if (launch.smem_bytes > kLocalMask - kSharedBase)
    return message("%u bytes of shared memory", launch.smem_bytes);
  if (launch.os_threads == 0) return "os_threads is 0";
  return {};
}

// Clusters are handed out in order and none after one that failed, so that the first failure, in the order of
// clusters, is found whatever the number of OS threads.
inline void run_grid(const FagenEmuLaunch& launch, FagenEmuReport& report, Body kernel) {
  uint64_t count = 1;
  for (int i = 0; i < 3; ++i) count *= launch.grid[i] / launch.cluster[i];
  std::unique_ptr<Trace> trace;
  if (launch.trace_path) {
    trace = std::make_unique<Trace>(launch.trace_path);
    if (!trace->open()) {
      copy_failure(launch_failure(message("cannot write the trace to %s", launch.trace_path)), report);
      return;
    }
  }
  std::atomic<uint64_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  uint64_t failed_cluster = count;
  auto work = [&] {
    body = kernel;
    std::vector<Stack> stacks;
    for (uint64_t index; !failed && !*launch.cancel && (index = next++) < count;) {
      Cluster cluster(launch, index, launch.seed);
      cluster.trace = trace.get();
      populate(cluster, stacks);
      run_threads(cluster);
      std::lock_guard lock(mutex);
      report.steps += cluster.steps;
      report.landings += cluster.landings;
      if (cluster.failure.kind == Kind::none) continue;
      failed = true;
      if (index < failed_cluster) {
        failed_cluster = index;
        copy_failure(cluster.failure, report);
      }
    }
  };
  std::vector<std::thread> helpers;
  uint64_t workers = trace ? 1 : std::min<uint64_t>(launch.os_threads, count);
  for (uint64_t i = 1; i < workers; ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
}

inline int run(const FagenEmuLaunch* launch, FagenEmuReport* report, size_t params_bytes, Body kernel) {
  if (launch->struct_bytes != sizeof(FagenEmuLaunch) || report->struct_bytes != sizeof(FagenEmuReport)) {
    report->kind = static_cast<int32_t>(Kind::launch);
    return report->kind;
  }
  std::memset(report, 0, sizeof *report);
  report->struct_bytes = sizeof *report;
  std::string wrong = check(*launch);
  if (wrong.empty() && launch->params_bytes != params_bytes)
    wrong = message("%llu bytes of parameters; the kernel takes %zu",
                    static_cast<unsigned long long>(launch->params_bytes), params_bytes);
  if (wrong.empty())
    run_grid(*launch, *report, kernel);
  else
    copy_failure(launch_failure(wrong), *report);
  return report->kind;
}

// The kernel's parameter type, from its address.
template <class Params>
Params params_of(void (*)(Params));

}  // namespace fagen::emu

#define FAGEN_EMU_EXPORT extern "C" __attribute__((visibility("default")))

#define FAGEN_EMU_KERNEL(symbol)                                                                         \
  FAGEN_EMU_EXPORT int fagen_emu_run(const FagenEmuLaunch* launch, FagenEmuReport* report) {             \
    using Params = decltype(::fagen::emu::params_of(symbol));                                            \
    return ::fagen::emu::run(launch, report, sizeof(Params), [](const void* bytes) {                     \
      alignas(Params) unsigned char aligned[sizeof(Params)];                                             \
      std::memcpy(aligned, bytes, sizeof aligned);                                                       \
      symbol(reinterpret_cast<const Params&>(aligned));                                                  \
    });                                                                                                  \
  }                                                                                                      \
  FAGEN_EMU_EXPORT const char* fagen_emu_kind(int kind) {                                                \
    return kind >= 0 && kind < int(std::size(::fagen::emu::kKindNames)) ? ::fagen::emu::kKindNames[kind] \
                                                                        : nullptr;                       \
  }
