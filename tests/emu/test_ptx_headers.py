"""Every header of ptx/ has two sides, assembly and emulator, that declare the same functions."""

import re

import pytest

from fagen.paths import TEMPLATES

PTX = TEMPLATES / "include" / "fagen" / "ptx"
_ASM = re.compile(r"\basm\b[^\n]*\(")
_PRIVATE = re.compile(r"namespace detail \{.*?\n\}  // namespace detail\n", re.DOTALL)
_COMMENT = re.compile(r"//.*")
_FUNCTION = re.compile(r"((?:template <[^{;]*?>\s*)?)__device__ __forceinline__ ([^{;]*\))\s*[{;]")
_NAME = re.compile(r"(\w+)(?:<[^<>]*>)?\(")

ASSEMBLY = sorted(path.name for path in PTX.glob("*.cuh") if _ASM.search(path.read_text()))


def functions(text: str) -> set[str]:
    """Declarations that others may use, each on one line."""
    public = _COMMENT.sub("", _PRIVATE.sub("", text))
    return {" ".join("".join(found).split()) for found in _FUNCTION.findall(public)}


def names(declarations: set[str]) -> set[str]:
    return {found[1] for text in declarations if (found := _NAME.search(text))}


@pytest.mark.parametrize("name", ASSEMBLY)
def test_both_sides_declare_the_same(name):
    text = (PTX / name).read_text()
    before, _, assembly = text.partition(f'#ifdef FAGEN_EMU\n#include "fagen/ptx/emu/{name}"\n#else\n')
    assert assembly, "no side for the emulator"
    assert not _ASM.search(before)
    ours, emulators = functions(assembly), functions((PTX / "emu" / name).read_text())
    assert ours
    # Macros print some assembly for every rank or shape, where the emulator has one template.
    if "#define" in assembly:
        ours, emulators = names(ours), names(emulators)
    assert ours == emulators


def test_no_header_of_the_emulator_stands_alone():
    assert {path.name for path in (PTX / "emu").glob("*.cuh")} <= set(ASSEMBLY)


def test_only_ptx_holds_assembly():
    others = [path for path in PTX.parent.rglob("*.cuh") if PTX not in path.parents]
    assert not [path.name for path in others if _ASM.search(path.read_text())]
