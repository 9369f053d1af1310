"""A stand-in for the runtime: the C ABI with nothing behind it, which compiles in no time."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from fagen.emu import host

sys.path.insert(0, str(Path(__file__).parent))  # stubbed.py

STUB = """
#pragma once
#include "abi.hpp"
#include <dlfcn.h>
#include <cstdio>
#include <cstring>
#define __global__
__attribute__((noinline)) inline uint64_t offset_of_caller() {
  char* caller = static_cast<char*>(__builtin_return_address(0));
  Dl_info info;
  dladdr(caller, &info);
  return caller - 1 - static_cast<char*>(info.dli_fbase);
}
#define FAGEN_EMU_KERNEL(kernel)                                                                     \\
  extern "C" __attribute__((visibility("default")))                                                  \\
  int fagen_emu_run(const FagenEmuLaunch* launch, FagenEmuReport* report) {                          \\
    if (launch->struct_bytes != sizeof(*launch) || report->struct_bytes != sizeof(*report))          \\
      return report->kind = 2;                                                                       \\
    report->steps = launch->seed;                                                                    \\
    kernel(*static_cast<const Params*>(launch->params), *launch, *report);                           \\
    return report->kind;                                                                             \\
  }                                                                                                  \\
  extern "C" __attribute__((visibility("default"))) const char* fagen_emu_kind(int kind) {           \\
    return kind == 1 ? "out_of_bounds" : "launch";                                                   \\
  }
"""


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directory of a runtime that calls the kernel once, with its parameters, the launch and the report."""
    directory = tmp_path / "runtime"
    directory.mkdir()
    shutil.copy(host.RUNTIME / "abi.hpp", directory)
    (directory / "launch.hpp").write_text(STUB)
    monkeypatch.setattr(host, "RUNTIME", directory)
    return directory
