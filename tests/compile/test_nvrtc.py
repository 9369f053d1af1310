from __future__ import annotations

import subprocess
import sys

import pytest
from tiny import source

from fagen.compile import nvrtc
from fagen.compile.cache import Cache
from fagen.errors import CompileError
from fagen.hw.arch import ARCHES


@pytest.mark.parametrize("arch", ARCHES)
def test_every_arch_is_compiled_to_machine_code(arch, tmp_path):
    artifact = nvrtc.compile_source(source(arch=arch), Cache(tmp_path))
    assert artifact.arch == arch
    assert artifact.cubin[:4] == b"\x7fELF"
    # sm_90a and its like are the exact chip, not its plain namesake.
    assert f"'{arch}'" in artifact.log


def test_the_architecture_specific_instructions_are_there(tmp_path):
    body = "#ifndef __CUDA_ARCH_FEAT_SM90_ALL\n#error plain sm_90\n#endif\np[0] = 1;"
    assert nvrtc.compile_source(source(body, arch="sm_90a"), Cache(tmp_path)).cubin


def test_a_refused_source_shows_where(tmp_path):
    with pytest.raises(CompileError, match=r'(?s)tiny0_fwd for sm_80: NVRTC.*tiny0/kernel.cu\(3\).*"zz"'):
        nvrtc.compile_source(source("p[0] = zz;"), Cache(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_anything_but_machine_code_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(nvrtc, "_run", lambda *_: (b"//\n.version 8.8\n", ""))
    with pytest.raises(CompileError, match="no machine code"):
        nvrtc.compile_source(source(), Cache(tmp_path))


def test_without_nvrtc_the_error_says_what_to_install(monkeypatch):
    def missing():
        raise nvrtc.DynamicLibNotFoundError("libnvrtc.so.13")

    nvrtc.nvrtc_version.cache_clear()
    monkeypatch.setattr(nvrtc.nvrtc, "nvrtcVersion", missing)
    with pytest.raises(CompileError, match="install the nvidia-cuda-nvrtc package"):
        nvrtc.nvrtc_version()


def test_compiling_does_not_import_torch():
    code = "import sys, fagen.compile.nvrtc, fagen.runtime.launch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
