"""`fagen.load`: from a spec to a callable op."""

from __future__ import annotations

import copyreg
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from fagen.errors import ArgumentError
from fagen.ops.checks import Device
from fagen.ops.op import AttentionOp
from fagen.spec.load import load_spec
from fagen.spec.model import Spec

_LOCK = Lock()
_ops: dict[tuple[str, str | None, Device], AttentionOp] = {}  # by resolved spec, arch and device


def load(
    spec: str | Path | Mapping[str, Any] | Spec,
    overrides: Mapping[str, Any] | None = None,
    arch: str | None = None,
    device: Device = None,
) -> AttentionOp:
    """The op of `spec`: a path of a YAML file, a mapping, or a Spec; needs no GPU until it is called.

    `overrides` are dotted keys, e.g. {"problem.head_dim": 64}. Left to itself the op builds its kernel for
    whatever GPU its tensors are on; `arch`, e.g. "sm_80", pins it to one and refuses every other.
    `device="emu"` makes an op on CPU tensors, which runs the same generated kernel in the emulator; on a
    machine without a GPU every op does that. The same arguments give the same op; so do copies and pickles of
    an op. Raises SpecError; PlanError if a pass of problem.passes does not fit; ArgumentError if the name
    already stands for another spec in this process.
    """
    if device not in (None, "emu"):
        raise ArgumentError(
            f'device: is {device!r}; allowed: "emu", or None for the GPU (the emulator where there is none)'
        )
    resolved = load_spec(spec, overrides)
    key = (resolved.model_dump_json(), arch, device)
    with _LOCK:
        if key not in _ops:
            _ops[key] = AttentionOp(resolved, arch, device)
        return _ops[key]


def _reduced(op: AttentionOp) -> tuple[Any, ...]:
    return load, (op.spec, None, op.arch, op.device)


# Copies of a model share its op; a process that unpickles one loads its own.
copyreg.pickle(AttentionOp, _reduced)
