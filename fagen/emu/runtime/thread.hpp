// The state of a running cluster: its CTAs, warps and threads, and what belongs to each. What is done with a
// part stands in the header named after it.
#pragma once

#include <stdint.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "clock.hpp"
#include "fiber.hpp"
#include "random.hpp"
#include "report.hpp"
#include "trace.hpp"
#include "vector_types.hpp"

struct FagenEmuLaunch;

namespace fagen::emu {

struct Thread;
struct Warp;
struct Cta;
struct Cluster;

using WaitQueue = std::vector<Thread*>;

// Something that happens later than it was asked for.
struct AsyncOp {
  Thread& issuer;
  Site site;

  explicit AsyncOp(Thread& issuer);
  virtual ~AsyncOp() = default;
  virtual void land() = 0;                                               // self() need not be the issuer
  virtual const char* name() const { return "asynchronous operation"; }  // in the trace

  struct AsyncQueue* queue = nullptr;  // it belongs to, and its time there
  uint32_t time = 0;
  size_t slot = 0;     // in Cluster::pending
  uint64_t start = 0;  // step of its issue
};

// Asynchronous operations in the order of their issue, cut into groups by `commit` (async.hpp). Its
// component's time t is the t-th operation.
struct AsyncQueue {
  const char* name;
  uint32_t component = 0;
  uint32_t issued = 0;              // time of the newest operation
  uint32_t waited = 0;              // operations up to here have been waited for
  std::deque<uint32_t> groups;      // last time of each closed group that was not waited for
  uint32_t landed = 0;              // operations up to here have landed
  std::vector<AsyncOp*> in_flight;  // by time, those above `landed`; null: landed out of order

  explicit AsyncQueue(const char* name) : name(name) {}
  uint32_t next() const { return issued + 1; }
  uint32_t issue(std::unique_ptr<AsyncOp> op);
  void commit();
  void wait(Thread& thread, uint32_t newest);
  void land_through(uint32_t time);
  void known_to(Thread& thread, uint32_t time);
};

// Where a number of threads meets (barrier.hpp).
struct Barrier {
  uint32_t expected = 0;  // threads, of the generation under way; 0: none has come yet
  uint64_t generation = 0;
  std::vector<Thread*> arrived;
  Clock arriving, complete;
  WaitQueue waiters;
};

// An mbarrier's state, kept beside its eight bytes in shared memory (mbarrier.hpp).
struct Mbarrier {
  uint32_t count = 0;  // arrivals per phase
  uint32_t pending = 0;
  int32_t tx = 0;
  uint32_t phase = 0;  // the phase under way; its parity is phase & 1
  uint32_t base = 0;   // phases of earlier lives: times of the component go on growing
  uint32_t component = 0;
  bool live = false;
  uint32_t init_fenced =
      0;  // time of the fence that shows it to the async proxy and to other CTAs; 0: none yet
  uint32_t init_thread = 0, init_time = 0;
  Site init_site = 0;
  uint32_t copied =
      0;  // of the newest copy that completes here: its time of the component, its issuer, where
  Thread* copier = nullptr;
  Site copy_site = 0;
  Clock arriving, complete;
  WaitQueue waiters;

  // Of the component, once the phase under way is complete.
  uint32_t time() const { return base + phase + 1; }
};

enum class Proxy : uint8_t { generic, async };

struct Touch {
  uint32_t component, time;
  Site site;
  uint8_t bytes;  // mask over the granule
  Proxy proxy;
};

// The shadow of four bytes of shared memory.
struct Granule {
  Touch write{};
  std::vector<Touch> reads;  // since the last write, the last one of each component
  uint8_t valid = 0;         // mask of bytes that hold something
  bool barrier = false;      // bytes of an mbarrier
};

struct Shared {
  std::vector<unsigned char> data;
  std::vector<Granule> shadow;
};

// Lanes that wait for each other in one collective instruction (collective.hpp).
struct Rendezvous {
  const char* op;
  uint64_t key;
  uint64_t expected[2], arrived[2];  // masks of lanes
  void* args[128];
  uint64_t start[4];  // step at which lane 0 of each warp came
  WaitQueue waiters;
};

struct Thread {
  uint32_t id;    // in the cluster; also the thread's component
  uint32_t lane;  // in the warp
  uint3 index;    // threadIdx
  Warp* warp = nullptr;
  Cta* cta = nullptr;
  Clock clock;
  Site site = 0;
  bool exited = false;
  const char* waits_for = nullptr;  // for reports: what, and if it is an mbarrier, which and how;
  uint32_t wait_address = 0, wait_parity = 0, wait_phase = 0;  // without `waits_for`, it is polled
  AsyncQueue copies{"cp.async"};
  AsyncQueue bulk{"cp.async.bulk group"};  // reads of shared memory,
  AsyncQueue bulk_writes{""};              // and what becomes of them in global memory, one for one
  uint32_t wgmmas = 0;                     // that own registers of it
  bool arrived_at_cluster = false;         // at its barrier, without having waited
  uint64_t cluster_generation = 0;
  Context context;
  const Stack* stack = nullptr;

  uint32_t now() const { return clock.seen[id]; }
};

struct Warp {
  Cta* cta;
  uint32_t index;
  Thread* threads[32];
  std::vector<std::unique_ptr<Rendezvous>> open;
  uint32_t rank = 0;  // for skewed schedules
};

struct WgmmaPipe;  // wgmma.hpp

// Four neighbouring warps.
struct Warpgroup {
  Thread* threads[128];
  std::vector<std::unique_ptr<Rendezvous>> open;
  std::shared_ptr<WgmmaPipe> wgmma;
  uint32_t registers = 0;  // per thread; 0: as at the start (registers.hpp)
};

struct Cta {
  Cluster* cluster;
  uint32_t rank;  // in the cluster
  uint3 index;    // blockIdx
  std::vector<Thread*> threads;
  uint32_t live = 0;  // threads that have not exited
  std::vector<Warp> warps;
  std::vector<Warpgroup> warpgroups;
  Shared shared;
  std::map<uint32_t, Mbarrier> mbarriers;  // by offset
  Barrier barriers[16];
  uint32_t free_registers = 0;  // given back by setmaxnreg
  WaitQueue register_waiters;
};

struct Failure {
  Kind kind = Kind::none;
  std::string text;
  const Thread* thread = nullptr;
  bool has_address = false;
  uint32_t address = 0;
  std::vector<Site> backtrace;
};

// What an (invented) component of the vector clocks stands for.
struct Component {
  const char* name;
  const Thread* thread;  // null: not one thread's
};

struct Cluster {
  const FagenEmuLaunch& launch;
  uint64_t index;
  uint3 grid, block, size;  // gridDim, blockDim, CTAs per cluster
  Random random;
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<std::unique_ptr<Cta>> ctas;
  std::vector<Component> components;
  std::vector<std::unique_ptr<AsyncOp>> pending;
  std::vector<std::unique_ptr<AsyncOp>> landing;  // innermost last
  std::vector<Thread*> runnable;
  uint32_t live = 0;
  uint64_t steps = 0, landings = 0;
  double landing_rate = 0;  // chance that a pending operation lands before a turn is given
  uint32_t candidates = 1;  // threads that compete for a turn by the rank of their warp; 1: plain chance
  Failure failure;
  Context scheduler;
  Trace* trace = nullptr;
  Barrier barrier;  // of the whole cluster

  Cluster(const FagenEmuLaunch& launch, uint64_t index, uint64_t seed)
      : launch(launch), index(index), random(seed, index) {}

  uint32_t add_component(const char* name, const Thread* thread) {
    components.push_back({name, thread});
    return static_cast<uint32_t>(components.size() - 1);
  }
};

inline thread_local Thread* current = nullptr;  // null: the scheduler runs

inline Thread& self() { return *current; }

inline AsyncOp::AsyncOp(Thread& issuer) : issuer(issuer), site(issuer.site) {}

struct Failed {};  // thrown where a failure meets the scheduler's own stack

// Where `thread` is in the kernel's code, innermost first: of the thread that runs with the calls that led
// there, from saved frame pointers; of an asynchronous operation where it was issued.
inline std::vector<Site> backtrace(const Thread& thread) {
  const auto& landing = thread.cta->cluster->landing;
  if (!landing.empty() && &landing.back()->issuer == &thread) return {landing.back()->site};
  std::vector<Site> sites{thread.site};
  if (&thread != current) return sites;
  auto low = reinterpret_cast<uintptr_t>(thread.stack->low()),
       high = reinterpret_cast<uintptr_t>(thread.stack->high());
  bool found = false;
  for (auto frame = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
       frame > low && frame + 16 <= high && frame % 8 == 0 && sites.size() < 32;) {
    auto* words = reinterpret_cast<uintptr_t*>(frame);
    if (words[1] == 0) break;
    Site site = site_of(reinterpret_cast<void*>(words[1]));
    if (found) sites.push_back(site);
    found |= site == thread.site;  // frames of the runtime itself are left out
    if (words[0] <= frame) break;
    frame = words[0];
  }
  return sites;
}

// Ends the cluster's run with an error that `thread` made.
[[noreturn, gnu::noinline]] inline void fail(Kind kind, Thread& thread, std::string text) {
  Cluster& cluster = *thread.cta->cluster;
  cluster.failure.kind = kind;
  cluster.failure.text = std::move(text);
  cluster.failure.thread = &thread;
  cluster.failure.backtrace = backtrace(thread);
  if (current == nullptr) throw Failed{};
  current->context.switch_to(cluster.scheduler);
  __builtin_unreachable();
}

[[noreturn, gnu::noinline]] inline void fail(Kind kind, Thread& thread, uint32_t offset, std::string text) {
  Failure& failure = thread.cta->cluster->failure;
  failure.has_address = true;
  failure.address = offset;
  fail(kind, thread, std::move(text));
}

// "thread (3, 0, 0) of CTA (0, 0, 0)"
inline std::string name_of(const Thread& thread) {
  const uint3 &t = thread.index, &b = thread.cta->index;
  return message("thread (%u, %u, %u) of CTA (%u, %u, %u)", t.x, t.y, t.z, b.x, b.y, b.z);
}

// In the trace lane 0 stands for its warp.
inline bool is_traced(const Thread& thread) { return thread.cta->cluster->trace && thread.lane == 0; }

inline TraceEvent trace_event(const Thread& thread, const char* name, uint64_t start, Site site) {
  const Cluster& cluster = *thread.cta->cluster;
  return {
      name, cluster.index * cluster.ctas.size() + thread.cta->rank, thread.warp->index, start, cluster.steps,
      site};
}

// Notes in the trace, if there is one, what the thread did since step `start`.
inline void trace_span(const Thread& thread, const char* name, uint64_t start) {
  if (is_traced(thread)) thread.cta->cluster->trace->span(trace_event(thread, name, start, thread.site));
}

// Publishes what `thread` has done and seen; what it does from now on is not part of it.
inline void release(Thread& thread, Clock& clock) {
  clock.join(thread.clock);
  thread.clock.seen.raise(thread.id, thread.now() + 1);
}

inline void acquire(Thread& thread, const Clock& clock) { thread.clock.join(clock); }

// fence.proxy.async: generic writes of the thread itself, its finished cp.async copies included.
inline void fence_proxy_async(Thread& thread) {
  thread.clock.fenced.raise(thread.id, thread.now());
  if (thread.copies.component)
    thread.clock.fenced.raise(thread.copies.component, thread.clock[thread.copies.component]);
  thread.clock.seen.raise(thread.id, thread.now() + 1);  // what it writes from now on is not fenced
}

// For functions that `ptx` calls: see README.md, "Entry points".
#define FAGEN_EMU_ENTRY [[gnu::noinline]] inline

[[gnu::always_inline]] inline Thread& enter_from(const void* return_address) {
  Thread& thread = self();
  thread.site = site_of(return_address);
  return thread;
}
#define FAGEN_EMU_ENTER() ::fagen::emu::enter_from(__builtin_return_address(0))

}  // namespace fagen::emu
