// TMA and bulk copies: cp.async.bulk(.tensor), cp.reduce.async.bulk(.tensor).
#pragma once

#include <cstring>
#include <memory>

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

// What one instruction moves: bytes that are dense in shared memory but for the swizzle, in pieces in global
// memory. Bytes in no piece lie outside the tensor.
struct Box {
  struct Piece {
    uint32_t offset;  // in the dense box
    unsigned char* global;
    uint32_t bytes;
  };
  uint32_t bytes;
  uint32_t align;    // of its place in shared memory
  uint32_t swizzle;  // as in TensorMapBytes
  AddKind add;       // how numbers are added, if they are
  std::vector<Piece> pieces;

  // Where the byte `offset` lies: the swizzle is one of the address itself.
  uint32_t place(uint32_t smem, uint32_t offset) const {
    uint32_t address = smem + offset;
    return address ^ ((address >> 7 & ((1u << swizzle) - 1)) << 4);
  }
};

inline TensorMapBytes read_map(Thread& thread, const void* bytes) {
  if (reinterpret_cast<uintptr_t>(bytes) % 64)
    fail(Kind::misaligned, thread, "a tensor map does not start at a multiple of 64 bytes");
  TensorMapBytes map;
  memcpy(&map, bytes, sizeof map);
  if (map.mark != TensorMapBytes::kMark) fail(Kind::async, thread, "these bytes are not a tensor map");
  return map;
}

// The box whose first element is `at`. It need not lie inside the tensor.
inline Box tensor_box(Thread& thread, const void* map_bytes, uint32_t rank, const int32_t (&at)[5],
                      bool write) {
  TensorMapBytes map = read_map(thread, map_bytes);
  if (map.rank != rank)
    fail(Kind::async, thread, message("a tensor map of rank %u is used with %u coordinates", map.rank, rank));
  const TensorType& type = kTensorTypes[map.type];
  // The PTX text does not say so; an H200 answers with "illegal instruction".
  if (int64_t{at[0]} * type.bytes % 16)
    fail(Kind::misaligned, thread,
         message("coordinate 0 of a TMA box is %d, not a multiple of 16 bytes", at[0]));
  uint32_t row_bytes = map.box[0] * type.bytes, rows = map.box[1] * map.box[2] * map.box[3] * map.box[4];
  Box box{row_bytes * rows, 128, map.swizzle, type.add, {}};
  int64_t first = std::max<int64_t>(at[0], 0);
  // Reads end with the last element, writes with its 16 bytes (seen on an H200; the PTX text is silent).
  auto end = static_cast<int64_t>(map.dims[0]);
  if (write) end = (end * type.bytes + 15) / 16 * 16 / type.bytes;
  int64_t last = std::min<int64_t>(int64_t{at[0]} + map.box[0], end);
  for (uint32_t row = 0; row < rows && first < last; ++row) {
    uint64_t address = map.address + first * type.bytes;
    bool exists = true;
    for (uint32_t d = 1, rest = row; d < 5; rest /= map.box[d++]) {
      int64_t c = int64_t{at[d]} + rest % map.box[d];
      exists &= c >= 0 && c < static_cast<int64_t>(map.dims[d]);
      address += c * map.strides[d - 1];
    }
    if (!exists) continue;
    auto bytes = static_cast<uint32_t>(last - first) * type.bytes;
    auto* global = reinterpret_cast<unsigned char*>(address);
    global_check(thread, global, bytes, 1, write);
    box.pieces.push_back(
        {row * row_bytes + static_cast<uint32_t>(first - at[0]) * type.bytes, global, bytes});
  }
  return box;
}

inline Box plain_box(Thread& thread, const void* global, uint32_t bytes, bool write) {
  if (bytes % 16)
    fail(Kind::misaligned, thread, message("a bulk copy has %u bytes, not a multiple of 16", bytes));
  global_check(thread, global, bytes, 16, write);
  auto* start = static_cast<unsigned char*>(const_cast<void*>(global));
  return {bytes, 16, 0, AddKind::f32_flushed, {{0, start, bytes}}};
}

// A box on its way to shared memory of one CTA or several, then to an mbarrier in each.
struct BulkLoad : AsyncOp {
  struct Target {
    uint32_t smem, address;  // of the barrier
    Mbarrier* barrier;
    uint32_t time;  // of the barrier's phase
  };
  Box box;
  std::vector<Target> targets;

  BulkLoad(Thread& thread, Box box) : AsyncOp(thread), box(std::move(box)) {}

  void add_target(uint32_t smem, uint32_t barrier_address) {
    Mbarrier& barrier = mbarrier_for_async(issuer, barrier_address);
    uint32_t time = barrier.copied = barrier.time();
    shared_check_write(by(issuer, barrier.component, time, Proxy::async), smem, box.bytes, box.align);
    barrier.copier = &issuer;
    barrier.copy_site = site;
    targets.push_back({smem, barrier_address, &barrier, time});
  }

  void land() override {
    std::vector<unsigned char> dense(box.bytes);
    for (const Box::Piece& piece : box.pieces) memcpy(&dense[piece.offset], piece.global, piece.bytes);
    for (Target& target : targets) {
      for (uint32_t offset = 0; offset < box.bytes; offset += 16)
        shared_land(issuer, box.place(target.smem, offset), &dense[offset], 16);
      if (target.barrier->time() != target.time)
        fail_mbarrier(issuer, target.address,
                      "has ended the phase of a copy without its bytes: it expected fewer");
      complete_tx(issuer, *target.barrier, target.address, box.bytes);
    }
  }
};

// A box on its way to global memory: its source is read, and some time later its bytes are written.
struct Parcel {
  Box box;
  uint32_t smem;
  bool add;
  std::vector<unsigned char> dense;
};

struct BulkRead : AsyncOp {
  std::shared_ptr<Parcel> parcel;

  BulkRead(Thread& thread, std::shared_ptr<Parcel> parcel) : AsyncOp(thread), parcel(std::move(parcel)) {}

  void land() override {
    const Box& box = parcel->box;
    parcel->dense.resize(box.bytes);
    for (uint32_t offset = 0; offset < box.bytes; offset += 16)
      shared_fetch(issuer, site, box.place(parcel->smem, offset), &parcel->dense[offset], 16);
  }
};

struct BulkWrite : AsyncOp {
  std::shared_ptr<Parcel> parcel;

  BulkWrite(Thread& thread, std::shared_ptr<Parcel> parcel) : AsyncOp(thread), parcel(std::move(parcel)) {}

  void land() override {
    issuer.bulk.land_through(time);  // the read
    for (const Box::Piece& piece : parcel->box.pieces)
      if (parcel->add)
        atomic_add(parcel->box.add, piece.global, &parcel->dense[piece.offset], piece.bytes);
      else
        memcpy(piece.global, &parcel->dense[piece.offset], piece.bytes);
  }
};

inline void issue_store(Thread& thread, Box box, uint32_t smem, bool add) {
  if (add && box.add == AddKind::none)
    fail(Kind::async, thread, "a tensor of 8-bit elements cannot be added to");
  Access access = by(thread, component_of(thread.bulk, thread), thread.bulk.next(), Proxy::async);
  shared_check_read(access, smem, box.bytes, box.align);
  auto parcel = std::make_shared<Parcel>(Parcel{std::move(box), smem, add, {}});
  thread.bulk.issue(std::make_unique<BulkRead>(thread, parcel));
  thread.bulk_writes.issue(std::make_unique<BulkWrite>(thread, parcel));
}

FAGEN_EMU_ENTRY void tma_prefetch_map(const void* map) { read_map(FAGEN_EMU_ENTER(), map); }

FAGEN_EMU_ENTRY void tma_load(uint32_t smem, const void* map, uint32_t barrier, uint32_t rank,
                              const int32_t (&at)[5]) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  auto op = std::make_unique<BulkLoad>(thread, tensor_box(thread, map, rank, at, false));
  op->add_target(smem, barrier);
  issue(std::move(op));
}

FAGEN_EMU_ENTRY void tma_load_multicast(uint32_t smem, const void* map, uint32_t barrier, uint32_t ctas,
                                        uint32_t rank, const int32_t (&at)[5]) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  auto op = std::make_unique<BulkLoad>(thread, tensor_box(thread, map, rank, at, false));
  size_t size = thread.cta->cluster->ctas.size();
  if (ctas == 0 || ctas >> size)
    fail(Kind::async, thread, message("multicast to CTAs 0x%x of a cluster of %zu", ctas, size));
  for (uint32_t cta = 0; ctas >> cta; ++cta)
    if (ctas >> cta & 1) op->add_target(map_shared(smem, cta), map_shared(barrier, cta));
  issue(std::move(op));
}

FAGEN_EMU_ENTRY void tma_store(const void* map, uint32_t smem, bool add, uint32_t rank,
                               const int32_t (&at)[5]) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  for (uint32_t d = 0; d < rank; ++d)
    if (at[d] < 0) fail(Kind::out_of_bounds, thread, message("coordinate %u of a TMA store is %d", d, at[d]));
  issue_store(thread, tensor_box(thread, map, rank, at, true), smem, add);
}

FAGEN_EMU_ENTRY void bulk_load(uint32_t smem, const void* global, uint32_t bytes, uint32_t barrier) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  auto op = std::make_unique<BulkLoad>(thread, plain_box(thread, global, bytes, false));
  op->add_target(smem, barrier);
  issue(std::move(op));
}

FAGEN_EMU_ENTRY void bulk_store(void* global, uint32_t smem, uint32_t bytes, bool add) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  issue_store(thread, plain_box(thread, global, bytes, true), smem, add);
}

FAGEN_EMU_ENTRY void bulk_commit() {
  Thread& thread = FAGEN_EMU_ENTER();
  thread.bulk.commit();
  thread.bulk_writes.commit();
}

// `written`: the groups have reached global memory; else they have been read.
FAGEN_EMU_ENTRY void bulk_wait(uint32_t pending, bool written) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  thread.bulk.wait(thread, pending);
  if (written) thread.bulk_writes.wait(thread, pending);
}

}  // namespace fagen::emu
