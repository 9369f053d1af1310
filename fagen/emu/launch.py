"""The launches of an op's kernels in the emulator: called like `fagen.runtime.launch.Launcher`."""

from __future__ import annotations

from fagen.emit.render import render
from fagen.emu import kernel
from fagen.emu.kernel import Kernel, Range
from fagen.emu.run import run
from fagen.emu.tensormap import encode
from fagen.plan.arguments import Arguments
from fagen.plan.kernels import KernelPlan
from fagen.plan.launch import Grid, Launch
from fagen.plan.params import pack

SMS = 4  # of the emulated GPU: few, so that persistent CTAs have several work items at small sizes, too


class Emulated:
    """A planned kernel, compiled for the emulator."""

    def __init__(self, planned: KernelPlan):
        """Compile and load it. Raises CompileError."""
        self.kernel = kernel.load(render(planned), kernel.shared_buffers(planned))

    def launcher(self, launch: Launch, arguments: Arguments) -> Launcher:
        """Launches of the kernel."""
        return Launcher(self.kernel, launch, arguments)


class Launcher:
    """One kernel at one grid and one set of shapes and strides; a call takes addresses and runs it all."""

    def __init__(self, kernel: Kernel, launch: Grid, arguments: Arguments):
        self._kernel = kernel
        self._launch = launch
        self._arguments = arguments

    def __call__(self, stream: int, *addresses: int) -> None:
        """Run the kernel to its end; addresses are of this process, and there are no streams.

        They are those of Arguments.addresses, 0 for what there is not. The kernel may touch what its
        parameters lead to, and nothing else. Raises EmulatorError.
        """
        given = self._arguments
        named = dict(zip(given.addresses, addresses, strict=True))
        ranges = [
            Range(name, address, given.extents[name], writable=any(p.is_written for p in leading))
            for name, address in named.items()
            if address and (leading := [param for param in given.params if param.leads_to(name)])
        ]
        maps = {f"{name}_map": encode(tensor_map, named[name]) for name, tensor_map in given.maps.items()}
        params = pack(given.params, {**given.numbers, **named, **maps})
        run(self._kernel, (self._launch.grid, 1, 1), params, ranges, (self._launch.cluster, 1, 1))
