// wgmma: the matrix product of a warpgroup, asynchronous (PTX ISA, "Asynchronous warpgroup level matrix
// instructions"). Operands in shared memory are found through their descriptors and read when the operation
// lands; registers that it owns are poisoned until a wait delivers them.
#pragma once

#include <deque>

#include "async.hpp"
#include "collective.hpp"
#include "float8.hpp"
#include "shared.hpp"

namespace fagen::emu {

// A signalling NaN: arithmetic does not leave it as it is.
inline constexpr uint32_t kRegisterPoison = 0x7fa0dead;

enum class Element : uint8_t { fp16, bf16, e4m3, e5m2 };

inline float decode(Element element, const unsigned char* bytes) {
  uint16_t bits;
  switch (element) {
    case Element::e4m3:
      return float_of_e4m3(*bytes);
    case Element::e5m2:
      return float_of_e5m2(*bytes);
    default:
      std::memcpy(&bits, bytes, 2);
      return element == Element::fp16 ? float_of_fp16(bits) : float_of_bf16(bits);
  }
}

struct WgmmaShape {
  uint32_t n;
  Element a, b;
  bool a_mn_major, b_mn_major;

  uint32_t element_bytes() const { return a == Element::fp16 || a == Element::bf16 ? 2 : 1; }
  uint32_t k() const { return 32 / element_bytes(); }
};

// An operand of rows along M or N (rows) and K in shared memory, 16 bytes at a time.
struct WgmmaOperand {
  uint32_t start, leading, stride;  // bytes
  uint32_t span;                    // of the swizzle; 16: none
  bool mn_major;
  uint32_t rows, k, element_bytes;

  WgmmaOperand(Thread& thread, uint64_t bits, bool mn_major, uint32_t rows, const WgmmaShape& shape)
      : mn_major(mn_major), rows(rows), k(shape.k()), element_bytes(shape.element_bytes()) {
    auto field = [&](int low) { return static_cast<uint32_t>(bits >> low & 0x3fff) << 4; };
    start = field(0);
    leading = field(16);
    stride = field(32);
    static constexpr uint32_t kSpans[] = {16, 128, 64, 32};
    span = kSpans[bits >> 62];
    if (bits >> 46 & 0xffff)
      fail(Kind::async, thread,
           message("bits 46 to 61 of a wgmma descriptor (0x%llx) are not 0",
                   static_cast<unsigned long long>(bits)));
  }

  // Calls f(address, row, k) for every 16 bytes: 16 bytes of K of one row, or, MN-major, as many rows of one
  // k.
  template <class F>
  void chunks(F f) const {
    uint32_t in_chunk = 16 / element_bytes, in_span = span / element_bytes;
    for (uint32_t row = 0; row < rows; row += mn_major ? in_chunk : 1)
      for (uint32_t x = 0; x < k; x += mn_major ? 1 : in_chunk) {
        uint32_t offset;
        if (!mn_major)
          offset = span == 16 ? row / 8 * stride + row % 8 * 16 + x / in_chunk * leading
                              : row / 8 * stride + row % 8 * span + x * element_bytes;
        else
          offset = span == 16 ? row / in_chunk * stride + x / 8 * leading + x % 8 * 16
                              : row / in_span * leading + row % in_span * element_bytes + x / 8 * stride +
                                    x % 8 * span;
        uint32_t address = start + offset;
        f(address ^ ((address >> 7 & (span / 16 - 1)) << 4), row, x);
      }
  }

  void check(const Access& access) const {
    chunks([&](uint32_t address, uint32_t, uint32_t) { shared_check_read(access, address, 16, 16); });
  }

  // [rows][k]
  std::vector<float> fetch(Thread& thread, Site site, Element element) const {
    std::vector<float> values(rows * k);
    chunks([&](uint32_t address, uint32_t row, uint32_t x) {
      unsigned char bytes[16];
      shared_fetch(thread, site, address, bytes, 16);
      for (uint32_t i = 0; i < 16 / element_bytes; ++i)
        values[mn_major ? (row + i) * k + x : row * k + x + i] = decode(element, bytes + i * element_bytes);
    });
    return values;
  }
};

// One wgmma between its issue and its delivery to the last of the four warps.
struct Wgmma {
  WgmmaShape shape;
  Site site;
  uint32_t time;  // in the queue
  bool accumulate;
  float* d[128];                // the registers it owns
  uint32_t* a[128];             // null: A is in shared memory
  std::vector<float> before;    // D at its issue, [thread][n / 2]; unless it continues an earlier one
  uint32_t fragments[128][4];   // of A
  std::vector<double> product;  // [64][n], once it has landed
};

// The wgmmas of one warpgroup.
struct WgmmaPipe {
  AsyncQueue queue{"wgmma of the warpgroup of"};
  std::deque<std::shared_ptr<Wgmma>> open;  // by time
  std::vector<uint32_t> groups;             // last time of each closed group
  uint32_t delivered[4] = {};               // time, by warp
  bool fenced[128] = {};                    // wgmma_fence came after the last wait
  std::vector<char> frames[128];            // at the newest one the thread's stack, where its registers are
};

inline WgmmaPipe& wgmma_pipe(Warpgroup& group) {
  if (!group.wgmma) {
    group.wgmma = std::make_shared<WgmmaPipe>();
    component_of(group.wgmma->queue, *group.threads[0]);
  }
  return *group.wgmma;
}

inline Warpgroup& warpgroup_of(Thread& thread, const char* op) {
  uint32_t group = thread.warp->index / 4;
  if (group >= thread.cta->warpgroups.size())
    fail(Kind::divergence, thread,
         message("%s by warp %u: it is in no whole warpgroup", op, thread.warp->index));
  return thread.cta->warpgroups[group];
}

struct WgmmaProduct : AsyncOp {
  std::shared_ptr<Wgmma> wgmma;
  WgmmaOperand b;
  std::unique_ptr<WgmmaOperand> a;  // null: in registers

  WgmmaProduct(Thread& thread, std::shared_ptr<Wgmma> wgmma, const WgmmaOperand& b)
      : AsyncOp(thread), wgmma(std::move(wgmma)), b(b) {}

  std::vector<float> left() const {
    const WgmmaShape& shape = wgmma->shape;
    if (a) return a->fetch(issuer, site, shape.a);
    uint32_t each = 4 / shape.element_bytes();
    std::vector<float> values(64 * shape.k());
    for (uint32_t thread = 0; thread < 128; ++thread)
      for (uint32_t r = 0; r < 4; ++r)
        for (uint32_t i = 0; i < each; ++i) {
          uint32_t row = thread / 32 * 16 + thread % 32 / 4 + r % 2 * 8;
          uint32_t k = r / 2 * 4 * each + thread % 4 * each + i;
          auto* bytes = reinterpret_cast<const unsigned char*>(&wgmma->fragments[thread][r]);
          values[row * shape.k() + k] = decode(shape.a, bytes + i * shape.element_bytes());
        }
    return values;
  }

  void land() override {
    const WgmmaShape& shape = wgmma->shape;
    std::vector<float> x = left(), y = b.fetch(issuer, site, shape.b);
    wgmma->product.resize(64 * shape.n);
    for (uint32_t m = 0; m < 64; ++m)
      for (uint32_t n = 0; n < shape.n; ++n) {
        double sum = 0;
        for (uint32_t k = 0; k < shape.k(); ++k) sum += double{x[m * shape.k() + k]} * y[n * shape.k() + k];
        wgmma->product[m * shape.n + n] = sum;
      }
  }
};

// What is ordered before all of the warpgroup's threads.
inline Clock common_past(const Warpgroup& group) {
  Clock past;
  auto components = static_cast<uint32_t>(group.threads[0]->cta->cluster->components.size());
  for (uint32_t c = 0; c < components; ++c) {
    uint32_t seen = ~0u, fenced = ~0u;
    for (const Thread* thread : group.threads) {
      seen = std::min(seen, thread->clock.seen[c]);
      fenced = std::min(fenced, thread->clock.fenced[c]);
    }
    if (seen) past.seen.raise(c, seen);
    if (fenced) past.fenced.raise(c, fenced);
  }
  return past;
}

inline bool is_poisoned(const void* registers, uint32_t count) {
  auto* words = static_cast<const uint32_t*>(registers);
  return std::all_of(words, words + count, [](uint32_t word) { return word == kRegisterPoison; });
}

[[noreturn, gnu::noinline]] inline void fail_touched(Thread& thread, const char* which, Site site) {
  fail(
      Kind::registers, thread,
      message("%s of the wgmma at %s were written to before a wgmma_wait covered it", which, pc(site).str()));
}

// Whether registers hold what they held at the thread's newest wgmma_fence. Some may have another home than
// the stack, which has no record then.
inline bool same_as_fenced(const Thread& thread, const std::vector<char>& frames, const void* registers,
                           uint32_t count) {
  auto* bytes = static_cast<const char*>(registers);
  const char* low = thread.stack->high() - frames.size();
  return bytes < low || bytes >= thread.stack->high() ||
         !std::memcmp(frames.data() + (bytes - low), bytes, 4 * count);
}

struct WgmmaArgs {
  float* d;
  uint32_t* a;
};

inline void take_registers(Warpgroup& group, WgmmaPipe& pipe, Wgmma& wgmma, Lanes<WgmmaArgs> lanes) {
  uint32_t registers = wgmma.shape.n / 2;
  wgmma.before.resize(128 * registers);
  for (uint32_t i = 0; i < 128; ++i) {
    Thread& thread = *group.threads[i];
    float* d = wgmma.d[i] = lanes[i]->d;
    uint32_t* a = wgmma.a[i] = lanes[i]->a;
    ++thread.wgmmas;
    const Wgmma *d_owner = nullptr,
                *a_owner = nullptr;  // the newest in flight, not yet delivered to this warp
    for (auto& other : pipe.open) {
      if (other->time <= pipe.delivered[i / 32]) continue;
      if (other->d[i] == d) d_owner = other.get();
      if (a && other->a[i] == a) a_owner = other.get();
    }
    if (!(d_owner && (!a || a_owner)) && !pipe.fenced[i])
      fail(Kind::registers, thread,
           "registers of this wgmma are not its predecessor's, and no wgmma_fence came before it");
    if (!d_owner && !same_as_fenced(thread, pipe.frames[i], d, registers))
      fail(Kind::registers, thread, "accumulators of this wgmma were written to after the wgmma_fence");
    if (a && !a_owner && !same_as_fenced(thread, pipe.frames[i], a, 4))
      fail(Kind::registers, thread, "A's registers of this wgmma were written to after the wgmma_fence");
    if (d_owner) {
      if (d_owner->shape.n != wgmma.shape.n)
        fail(Kind::registers, thread,
             message("accumulators of the wgmma at %s, in flight, are used with another N",
                     pc(d_owner->site).str()));
      if (!is_poisoned(d, registers)) fail_touched(thread, "accumulators", d_owner->site);
    } else {
      std::memcpy(&wgmma.before[i * registers], d, 4 * registers);
      std::fill_n(reinterpret_cast<uint32_t*>(d), registers, kRegisterPoison);
    }
    if (a_owner) {
      if (!is_poisoned(a, 4)) fail_touched(thread, "A's registers", a_owner->site);
      std::memcpy(wgmma.fragments[i], a_owner->fragments[i], 16);
    } else if (a) {
      std::memcpy(wgmma.fragments[i], a, 16);
      std::fill_n(a, 4, kRegisterPoison);
    }
  }
}

// Gives the thread its registers back: sums where no later wgmma goes on with them.
inline void deliver(Thread& thread, WgmmaPipe& pipe, Wgmma& wgmma, uint32_t index) {
  uint32_t registers = wgmma.shape.n / 2, lane = index % 32;
  --thread.wgmmas;
  Wgmma *next = nullptr, *next_of_a = nullptr;
  for (auto& other : pipe.open) {
    if (other->time <= wgmma.time) continue;
    if (!next && other->d[index] == wgmma.d[index]) next = other.get();
    if (!next_of_a && wgmma.a[index] && other->a[index] == wgmma.a[index]) next_of_a = other.get();
  }
  if (!is_poisoned(wgmma.d[index], registers)) fail_touched(thread, "accumulators", wgmma.site);
  float* sums = next ? &next->before[index * registers] : wgmma.d[index];
  for (uint32_t i = 0; i < registers; ++i) {
    uint32_t row = index / 32 * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    double sum = wgmma.product[row * wgmma.shape.n + column];
    if (wgmma.accumulate) sum += wgmma.before[index * registers + i];
    sums[i] = static_cast<float>(sum);
  }
  if (wgmma.a[index] && !next_of_a) {
    if (!is_poisoned(wgmma.a[index], 4)) fail_touched(thread, "A's registers", wgmma.site);
    std::memcpy(wgmma.a[index], wgmma.fragments[index], 16);
  }
}

// `a`: null, or the thread's four registers of A; then `a_descriptor` is not used.
FAGEN_EMU_ENTRY void wgmma_issue(const WgmmaShape& shape, float* d, uint32_t* a, uint64_t a_descriptor,
                                 uint64_t b_descriptor, bool accumulate) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  Warpgroup& group = warpgroup_of(thread, "wgmma");
  WgmmaArgs args{d, a};
  uint64_t variant =
      (a ? 0 : a_descriptor) ^ b_descriptor * 0x9e3779b97f4a7c15u ^ (shape.n << 1 | accumulate);
  warpgroup_collective(thread, "wgmma", variant, args, [&](Lanes<WgmmaArgs> lanes) {
    WgmmaPipe& pipe = wgmma_pipe(group);
    auto wgmma = std::make_shared<Wgmma>();
    wgmma->shape = shape;
    wgmma->site = thread.site;
    wgmma->time = pipe.queue.next();
    wgmma->accumulate = accumulate;
    take_registers(group, pipe, *wgmma, lanes);

    Clock past = common_past(group);
    Access access{past, pipe.queue.component, wgmma->time, thread.site, Proxy::async, thread};
    WgmmaOperand b(thread, b_descriptor, shape.b_mn_major, shape.n, shape);
    b.check(access);
    auto op = std::make_unique<WgmmaProduct>(thread, wgmma, b);
    if (!a) {
      op->a = std::make_unique<WgmmaOperand>(thread, a_descriptor, shape.a_mn_major, 64, shape);
      op->a->check(access);
    }
    pipe.open.push_back(std::move(wgmma));
    pipe.queue.issue(std::move(op));
  });
}

FAGEN_EMU_ENTRY void wgmma_fence() {
  Thread& thread = FAGEN_EMU_ENTER();
  Warpgroup& group = warpgroup_of(thread, "wgmma.fence");
  WgmmaPipe& pipe = wgmma_pipe(group);
  uint32_t index = thread.warp->index % 4 * 32 + thread.lane;
  pipe.fenced[index] = true;
  pipe.frames[index].assign(static_cast<char*>(__builtin_frame_address(0)), thread.stack->high());
}

FAGEN_EMU_ENTRY void wgmma_commit() {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  struct Args {
  } args;
  warpgroup_collective(thread, "wgmma.commit_group", 0, args, [&](Lanes<Args>) {
    WgmmaPipe& pipe = wgmma_pipe(warpgroup_of(thread, "wgmma.commit_group"));
    pipe.groups.push_back(pipe.queue.issued);
  });
}

// Waits until at most the `newest` latest closed groups are in flight.
FAGEN_EMU_ENTRY void wgmma_wait(uint32_t newest) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  Warpgroup& group = warpgroup_of(thread, "wgmma.wait_group");
  struct Args {
  } args;
  warp_collective(thread, "wgmma.wait_group", newest, ~0u, args, [&](Lanes<Args>) {
    WgmmaPipe& pipe = wgmma_pipe(group);
    uint32_t warp = thread.warp->index % 4;
    std::fill_n(pipe.fenced + 32 * warp, 32, false);
    if (pipe.groups.size() <= newest) return;
    uint32_t time = pipe.groups[pipe.groups.size() - newest - 1];
    pipe.queue.land_through(time);
    for (uint32_t lane = 0; lane < 32; ++lane) pipe.queue.known_to(*thread.warp->threads[lane], time);
    for (auto& wgmma : pipe.open)
      if (wgmma->time > pipe.delivered[warp] && wgmma->time <= time)
        for (uint32_t lane = 0; lane < 32; ++lane)
          deliver(*thread.warp->threads[lane], pipe, *wgmma, 32 * warp + lane);
    pipe.delivered[warp] = std::max(pipe.delivered[warp], time);
    uint32_t done = *std::min_element(pipe.delivered, pipe.delivered + 4);
    while (!pipe.open.empty() && pipe.open.front()->time <= done) pipe.open.pop_front();
  });
}

}  // namespace fagen::emu
