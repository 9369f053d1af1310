"""Kernels of the stand-in runtime: plain C++ that is handed its parameters, the launch and the report."""

from __future__ import annotations

from fagen.emit.source import Source

HEAD = "struct Params { float* out; int n; };\n"


def source(body: str = "for (int i = 0; i < p.n; ++i) p.out[i] = i;", *, name: str = "tiny") -> Source:
    """A kernel over `float* out, int n`; `body` starts at line 3."""
    text = (
        f'{HEAD}extern "C" __global__ void {name}_fwd(const Params& p, const FagenEmuLaunch& launch, '
        f"FagenEmuReport& report) {{\n{body}\n}}\n"
    )
    return Source(name, f"{name}_fwd", "sm_80", text, threads=64, smem_bytes=1024)
