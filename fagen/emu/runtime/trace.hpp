// Who did what when, in steps of the scheduler: events of Chrome's trace format.
#pragma once

#include <stdint.h>

#include <cstdio>
#include <string>

#include "report.hpp"

namespace fagen::emu {

struct TraceEvent {
  const char* name;
  uint64_t cta;
  uint32_t warp;
  uint64_t start, end;  // steps
  Site site;
};

// The file. A launch with a trace runs its clusters one after the other.
class Trace {
 public:
  explicit Trace(const char* path) : file_(fopen(path, "w")) {
    if (file_) fputs("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [", file_);
  }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  ~Trace() {
    if (!file_) return;
    fputs("\n]}\n", file_);
    fclose(file_);
  }

  bool open() const { return file_ != nullptr; }

  // What a warp did, one thing after the other.
  void span(const TraceEvent& event) {
    write(event, event.start,
          message("\"ph\": \"X\", \"dur\": %llu", static_cast<unsigned long long>(event.end - event.start)));
  }

  // What went on in the background.
  void flight(const TraceEvent& event) {
    ++flights_;
    write(event, event.start, message("\"ph\": \"b\", \"cat\": \"async\", \"id\": %u", flights_));
    write(event, event.end, message("\"ph\": \"e\", \"cat\": \"async\", \"id\": %u", flights_));
  }

 private:
  void write(const TraceEvent& event, uint64_t at, const std::string& phase) {
    fprintf(
        file_,
        "%s\n{\"name\": \"%s\", \"pid\": %llu, \"tid\": %u, \"ts\": %llu, %s, \"args\": {\"pc\": \"%s\"}}",
        first_ ? "" : ",", event.name, static_cast<unsigned long long>(event.cta), event.warp,
        static_cast<unsigned long long>(at), phase.c_str(), pc(event.site).str());
    first_ = false;
  }

  FILE* file_;
  bool first_ = true;
  unsigned flights_ = 0;
};

}  // namespace fagen::emu
