// TMA and bulk copies: cp.async.bulk(.tensor), cp.reduce.async.bulk(.tensor).
#pragma once

#include <cstring>

#include "async.hpp"
#include "atomic_add.hpp"
#include "global.hpp"
#include "mbarrier.hpp"
#include "shared.hpp"

namespace fagen::emu {

// The 128 bytes that fagen/emu/tensormap.py makes. Dimensions beyond the rank have one element.
struct [[gnu::packed]] TensorMapBytes {
  static constexpr uint32_t kMark = 0x7a3df46e;

  uint32_t mark;
  uint8_t rank;
  uint8_t type;     // index into kTypes
  uint8_t swizzle;  // span is 16 bytes << swizzle; 0: none
  uint8_t reserved;
  uint64_t address;
  uint64_t dims[5];     // elements, innermost first
  uint64_t strides[4];  // bytes, of dims[1..4]
  uint16_t box[5];      // elements
};
static_assert(sizeof(TensorMapBytes) <= 128);

struct TensorType {
  uint32_t bytes;
  AddKind add;
};
inline constexpr TensorType kTensorTypes[] = {// e4m3, e5m2, fp16, bf16, fp32
                                              {1, AddKind::none},
                                              {1, AddKind::none},
                                              {2, AddKind::f16},
                                              {2, AddKind::bf16},
                                              {4, AddKind::f32}};

struct TensorMapView {
  TensorMapBytes map;

  TensorMapView(Thread& thread, const void* bytes) {
    if (reinterpret_cast<uintptr_t>(bytes) % 64)
      fail(Kind::misaligned, thread, "a tensor map starts at a multiple of 64 bytes");
    memcpy(&map, bytes, sizeof map);
    if (map.mark != TensorMapBytes::kMark) fail(Kind::async, thread, "these bytes are not a tensor map");
  }
  TensorMapView(Thread& thread, const void* bytes, uint32_t rank) : TensorMapView(thread, bytes) {
    if (map.rank != rank)
      fail(Kind::async, thread,
           message("a tensor map of rank %u is used with %u coordinates", map.rank, rank));
  }

  const TensorType& type() const { return kTensorTypes[map.type]; }
  uint32_t row_bytes() const { return map.box[0] * type().bytes; }
  uint32_t box_bytes() const {
    uint32_t bytes = row_bytes();
    for (int i = 1; i < 5; ++i) bytes *= map.box[i];
    return bytes;
  }

  // Where the byte `offset` of the dense box lies: the swizzle is one of the address itself.
  uint32_t place(uint32_t smem, uint32_t offset) const {
    uint32_t address = smem + offset;
    return address ^ ((address >> 7 & ((1u << map.swizzle) - 1)) << 4);
  }

  // Calls f(offset in the box, global address, bytes) for every part of a row that lies inside the tensor.
  template <class F>
  void inside(const int32_t (&at)[5], F f) const {
    int64_t first = std::max<int64_t>(at[0], 0);
    int64_t last = std::min<int64_t>(int64_t{at[0]} + map.box[0], static_cast<int64_t>(map.dims[0]));
    if (first >= last) return;
    uint32_t i[5] = {};
    for (uint32_t row = 0;; ++row) {
      uint64_t address = map.address + first * type().bytes;
      bool exists = true;
      for (int d = 1; d < 5; ++d) {
        int64_t c = int64_t{at[d]} + i[d];
        exists &= c >= 0 && c < static_cast<int64_t>(map.dims[d]);
        address += c * map.strides[d - 1];
      }
      if (exists)
        f(row * row_bytes() + static_cast<uint32_t>(first - at[0]) * type().bytes, address,
          static_cast<uint32_t>(last - first) * type().bytes);
      int d = 1;
      while (d < 5 && ++i[d] == map.box[d]) i[d++] = 0;
      if (d == 5) return;
    }
  }
};

// Global bytes on their way to shared memory of one CTA or several, then to an mbarrier in each.
struct BulkLoad : AsyncOp {
  struct Target {
    uint32_t smem, address;  // of the barrier
    Mbarrier* barrier;
  };
  std::vector<Target> targets;

  explicit BulkLoad(Thread& thread) : AsyncOp(thread) {}

  void add_target(uint32_t smem, uint32_t barrier_address, uint32_t bytes, uint32_t align) {
    Mbarrier& barrier = mbarrier_for_async(issuer, barrier_address);
    shared_check_write(by(issuer, barrier.component, barrier.time(), Proxy::async), smem, bytes, align);
    barrier.copied = barrier.time();
    barrier.copier = &issuer;
    barrier.copy_site = site;
    targets.push_back({smem, barrier_address, &barrier});
  }
};

struct TensorLoad : BulkLoad {
  TensorMapView view;
  int32_t at[5];

  TensorLoad(Thread& thread, const TensorMapView& view, const int32_t (&at)[5])
      : BulkLoad(thread), view(view) {
    memcpy(this->at, at, sizeof at);
    view.inside(at, [&](uint32_t, uint64_t address, uint32_t bytes) {
      global_check(thread, reinterpret_cast<void*>(address), bytes, 1, false);
    });
  }

  void land() override {
    std::vector<unsigned char> box(view.box_bytes());
    view.inside(at, [&](uint32_t offset, uint64_t address, uint32_t bytes) {
      memcpy(box.data() + offset, reinterpret_cast<void*>(address), bytes);
    });
    for (Target& target : targets) {
      for (uint32_t offset = 0; offset < box.size(); offset += 16)
        shared_land(issuer, view.place(target.smem, offset), box.data() + offset, 16);
      complete_tx(issuer, *target.barrier, target.address, view.box_bytes());
    }
  }
};

struct PlainLoad : BulkLoad {
  const void* global;
  uint32_t bytes;

  PlainLoad(Thread& thread, const void* global, uint32_t bytes)
      : BulkLoad(thread), global(global), bytes(bytes) {
    global_check(thread, global, bytes, 16, false);
  }

  void land() override {
    for (Target& target : targets) {
      shared_land(issuer, target.smem, global, bytes);
      complete_tx(issuer, *target.barrier, target.address, bytes);
    }
  }
};

// Shared bytes on their way to global memory, as part of a bulk group.
struct BulkStore : AsyncOp {
  uint32_t smem, bytes;

  BulkStore(Thread& thread, uint32_t smem, uint32_t bytes, uint32_t align)
      : AsyncOp(thread), smem(smem), bytes(bytes) {
    uint32_t component = component_of(thread.bulk, thread);
    shared_check_read(by(thread, component, thread.bulk.next(), Proxy::async), smem, bytes, align);
  }
};

struct TensorStore : BulkStore {
  TensorMapView view;
  int32_t at[5];
  bool add;

  TensorStore(Thread& thread, const TensorMapView& view, const int32_t (&at)[5], uint32_t smem, bool add)
      : BulkStore(thread, smem, view.box_bytes(), 128), view(view), add(add) {
    memcpy(this->at, at, sizeof at);
    for (uint32_t d = 0; d < view.map.rank; ++d)
      if (at[d] < 0)
        fail(Kind::out_of_bounds, thread, message("coordinate %u of a TMA store is %d", d, at[d]));
    if (add && view.type().add == AddKind::none)
      fail(Kind::async, thread, "a tensor of 8-bit elements cannot be added to");
    view.inside(at, [&](uint32_t, uint64_t address, uint32_t bytes) {
      global_check(thread, reinterpret_cast<void*>(address), bytes, 1, true);
    });
  }

  void land() override {
    std::vector<unsigned char> box(bytes);
    for (uint32_t offset = 0; offset < bytes; offset += 16)
      shared_fetch(issuer, site, view.place(smem, offset), box.data() + offset, 16);
    view.inside(at, [&](uint32_t offset, uint64_t address, uint32_t count) {
      void* to = reinterpret_cast<void*>(address);
      if (add)
        atomic_add(view.type().add, to, box.data() + offset, count);
      else
        memcpy(to, box.data() + offset, count);
    });
  }
};

struct PlainStore : BulkStore {
  void* global;
  bool add;  // fp32

  PlainStore(Thread& thread, void* global, uint32_t smem, uint32_t bytes, bool add)
      : BulkStore(thread, smem, bytes, 16), global(global), add(add) {
    global_check(thread, global, bytes, 16, true);
  }

  void land() override {
    std::vector<unsigned char> data(bytes);
    shared_fetch(issuer, site, smem, data.data(), bytes);
    if (add)
      atomic_add(AddKind::f32_flushed, global, data.data(), bytes);
    else
      memcpy(global, data.data(), bytes);
  }
};

inline void check_bulk_bytes(Thread& thread, uint32_t bytes) {
  if (bytes % 16)
    fail(Kind::misaligned, thread, message("a bulk copy has %u bytes, not a multiple of 16", bytes));
}

FAGEN_EMU_ENTRY void tma_prefetch_map(const void* map) {
  Thread& thread = FAGEN_EMU_ENTER();
  TensorMapView(thread, map);
}

FAGEN_EMU_ENTRY void tma_load(uint32_t smem, const void* map, uint32_t barrier, uint32_t rank,
                              const int32_t (&at)[5]) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  TensorMapView view(thread, map, rank);
  auto op = std::make_unique<TensorLoad>(thread, view, at);
  op->add_target(smem, barrier, view.box_bytes(), 128);
  issue(std::move(op));
}

FAGEN_EMU_ENTRY void tma_load_multicast(uint32_t smem, const void* map, uint32_t barrier, uint32_t ctas,
                                        uint32_t rank, const int32_t (&at)[5]) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  TensorMapView view(thread, map, rank);
  auto op = std::make_unique<TensorLoad>(thread, view, at);
  if (ctas == 0 || ctas >> thread.cta->cluster->ctas.size())
    fail(Kind::async, thread,
         message("multicast to CTAs 0x%x of a cluster of %zu", ctas, thread.cta->cluster->ctas.size()));
  for (uint32_t cta = 0; ctas >> cta; ++cta)
    if (ctas >> cta & 1)
      op->add_target(map_shared(smem, cta), map_shared(barrier, cta), view.box_bytes(), 128);
  issue(std::move(op));
}

FAGEN_EMU_ENTRY void tma_store(const void* map, uint32_t smem, bool add, uint32_t rank,
                               const int32_t (&at)[5]) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  thread.bulk.issue(std::make_unique<TensorStore>(thread, TensorMapView(thread, map, rank), at, smem, add));
}

FAGEN_EMU_ENTRY void bulk_load(uint32_t smem, const void* global, uint32_t bytes, uint32_t barrier) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  check_bulk_bytes(thread, bytes);
  auto op = std::make_unique<PlainLoad>(thread, global, bytes);
  op->add_target(smem, barrier, bytes, 16);
  issue(std::move(op));
}

FAGEN_EMU_ENTRY void bulk_store(void* global, uint32_t smem, uint32_t bytes, bool add) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  check_bulk_bytes(thread, bytes);
  thread.bulk.issue(std::make_unique<PlainStore>(thread, global, smem, bytes, add));
}

FAGEN_EMU_ENTRY void bulk_commit() { FAGEN_EMU_ENTER().bulk.commit(); }

// Waits for reads and writes alike: wait_group.read is not told apart, since global memory has no shadow.
FAGEN_EMU_ENTRY void bulk_wait(uint32_t pending) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  thread.bulk.wait(thread, pending);
}

}  // namespace fagen::emu
