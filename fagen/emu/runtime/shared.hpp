// Shared memory with a shadow: every access is checked for bounds, alignment, missing order, missing proxy
// fences and for bytes that nobody has written. See README.md.
#pragma once

#include <cstring>

#include "scheduler.hpp"
#include "shared_address.hpp"

namespace fagen::emu {

inline constexpr uint32_t kGranule = 4;
inline constexpr unsigned char kPoison = 0xff;  // NaN in every floating-point format

// Who touches shared memory, and what is ordered before.
struct Access {
  const Clock& past;
  uint32_t component, time;
  Site site;
  Proxy proxy;
  Thread& thread;
};

inline Access by(Thread& thread) {
  return {thread.clock, thread.id, thread.now(), thread.site, Proxy::generic, thread};
}

inline Access by(Thread& thread, uint32_t component, uint32_t time, Proxy proxy) {
  return {thread.clock, component, time, thread.site, proxy, thread};
}

inline std::string name_of(const Cluster& cluster, const Touch& touch) {
  const Component& component = cluster.components[touch.component];
  if (!component.thread) return component.name;
  std::string thread = name_of(*component.thread);
  return touch.component == component.thread->id ? thread : std::string(component.name) + " of " + thread;
}

[[noreturn, gnu::noinline]] inline void fail_race(const Access& access, uint32_t address, const char* what,
                                                  const Touch& other, const char* others) {
  const Cluster& cluster = *access.thread.cta->cluster;
  Place place = locate(access.thread, address);
  Touch mine{access.component, access.time, access.site, 0, access.proxy};
  fail(Kind::race, access.thread, place.offset,
       message("%s: the %s by %s at %s is not ordered after the %s by %s at %s",
               name_of_shared(access.thread, address).c_str(), what, name_of(cluster, mine).c_str(),
               pc(access.site).str(), others, name_of(cluster, other).c_str(), pc(other.site).str()));
}

[[noreturn, gnu::noinline]] inline void fail_proxy(const Access& access, uint32_t address,
                                                   const Touch& write) {
  fail(Kind::proxy_fence, access.thread, locate(access.thread, address).offset,
       message(
           "%s: the async proxy at %s meets the write by %s at %s, which no fence.proxy.async of the writer "
           "has followed",
           name_of_shared(access.thread, address).c_str(), pc(access.site).str(),
           name_of(*access.thread.cta->cluster, write).c_str(), pc(write.site).str()));
}

[[noreturn, gnu::noinline]] inline void fail_unwritten(Thread& thread, Site site, uint32_t address) {
  fail(Kind::uninitialised, thread, locate(thread, address).offset,
       message("%s is read at %s before anything was written to it", name_of_shared(thread, address).c_str(),
               pc(site).str()));
}

// Bounds and alignment.
inline Place locate_checked(Thread& thread, uint32_t address, uint32_t bytes, uint32_t align) {
  Place place = locate(thread, address);
  if (size_t size = place.cta.shared.data.size(); place.offset > size || bytes > size - place.offset)
    fail(Kind::out_of_bounds, thread, place.offset,
         message("%u bytes at shared byte %d; the CTA has %zu", bytes, static_cast<int>(place.offset), size));
  if (address % align)
    fail(Kind::misaligned, thread, place.offset,
         message("%s is not aligned to %u bytes", name_of_shared(thread, address).c_str(), align));
  return place;
}

// Calls f(granule, mask of its bytes, address) for all granules of a range.
template <class F>
inline void for_granules(Place place, uint32_t address, uint32_t bytes, F f) {
  uint32_t first = place.offset, end = first + bytes;
  while (first < end) {
    uint32_t from = first % kGranule, to = std::min(kGranule, from + end - first);
    f(place.cta.shared.shadow[first / kGranule], static_cast<uint8_t>((1u << to) - (1u << from)),
      address + (first - place.offset));
    first += to - from;
  }
}

inline void check_data(const Access& access, const Granule& granule, uint32_t address) {
  if (granule.barrier)
    fail(Kind::mbarrier, access.thread, locate(access.thread, address).offset,
         message("%s holds an mbarrier and is accessed as data",
                 name_of_shared(access.thread, address).c_str()));
}

// What both kinds of accesses demand of the last write.
inline void check_after_write(const Access& access, const Granule& granule, uint8_t mask, uint32_t address,
                              const char* what) {
  const Touch& write = granule.write;
  if (!(write.bytes & mask)) return;
  if (access.past[write.component] < write.time) fail_race(access, address, what, write, "write");
  if (access.proxy == Proxy::async && write.proxy == Proxy::generic &&
      access.past.fenced[write.component] < write.time)
    fail_proxy(access, address, write);
}

// Checks and notes a read; the bytes themselves come with `shared_fetch`.
inline void shared_check_read(const Access& access, uint32_t address, uint32_t bytes, uint32_t align) {
  Place place = locate_checked(access.thread, address, bytes, align);
  for_granules(place, address, bytes, [&](Granule& granule, uint8_t mask, uint32_t at) {
    check_data(access, granule, at);
    check_after_write(access, granule, mask, at, "read");
    for (Touch& read : granule.reads)
      if (read.component == access.component) {
        read.bytes = read.time == access.time ? read.bytes | mask : mask;
        read.time = access.time;
        read.site = access.site;
        return;
      }
    granule.reads.push_back({access.component, access.time, access.site, mask, access.proxy});
  });
}

// Checks and notes a write, and poisons the bytes until `shared_land`.
inline void shared_check_write(const Access& access, uint32_t address, uint32_t bytes, uint32_t align) {
  Place place = locate_checked(access.thread, address, bytes, align);
  for_granules(place, address, bytes, [&](Granule& granule, uint8_t mask, uint32_t at) {
    check_data(access, granule, at);
    check_after_write(access, granule, mask, at, "write");
    for (const Touch& read : granule.reads)
      if (read.bytes & mask && access.past[read.component] < read.time)
        fail_race(access, at, "write", read, "read");
    // Reads and writes of other bytes of the granule are forgotten here: they may hide a race, not invent
    // one.
    granule.reads.clear();
    granule.write = {access.component, access.time, access.site, mask, access.proxy};
    granule.valid &= static_cast<uint8_t>(~mask);
  });
  std::memset(place.cta.shared.data.data() + place.offset, kPoison, bytes);
}

// Copies bytes that have been written. `thread` and `site` are to blame where they have not.
inline void shared_fetch(Thread& thread, Site site, uint32_t address, void* to, uint32_t bytes) {
  Place place = locate(thread, address);
  for_granules(place, address, bytes, [&](const Granule& granule, uint8_t mask, uint32_t at) {
    if (mask & ~granule.valid) fail_unwritten(thread, site, at);
  });
  std::memcpy(to, place.cta.shared.data.data() + place.offset, bytes);
}

// The bytes of a checked write arrive.
inline void shared_land(Thread& issuer, uint32_t address, const void* from, uint32_t bytes) {
  Place place = locate(issuer, address);
  for_granules(place, address, bytes,
               [](Granule& granule, uint8_t mask, uint32_t) { granule.valid |= mask; });
  std::memcpy(place.cta.shared.data.data() + place.offset, from, bytes);
}

// A plain load by the thread itself; `align` is what the instruction asks for.
inline void shared_read(Thread& thread, uint32_t address, void* to, uint32_t bytes, uint32_t align) {
  shared_check_read(by(thread), address, bytes, align);
  shared_fetch(thread, thread.site, address, to, bytes);
}

// A plain store by the thread itself.
inline void shared_write(Thread& thread, uint32_t address, const void* from, uint32_t bytes, uint32_t align) {
  shared_check_write(by(thread), address, bytes, align);
  shared_land(thread, address, from, bytes);
}

FAGEN_EMU_ENTRY void load_shared(uint32_t address, void* to, uint32_t bytes) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  shared_read(thread, address, to, bytes, bytes);
}

FAGEN_EMU_ENTRY void store_shared(uint32_t address, const void* from, uint32_t bytes) {
  Thread& thread = FAGEN_EMU_ENTER();
  preempt();
  shared_write(thread, address, from, bytes, bytes);
}

}  // namespace fagen::emu
