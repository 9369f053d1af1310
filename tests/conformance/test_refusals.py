"""What the emulator must refuse of Hopper's instructions, under every seed; a GPU need not notice."""

from __future__ import annotations

import numpy as np
import pytest
from machine import Emulator, Map

from fagen.emu import settings
from fagen.errors import EmulatorError
from fagen.plan.tensor_map import TensorMap

FAULTS = {  # kind of error, words of its message
    "another_rank": ("async", "rank 2 is used with 1 coordinates"),
    "no_tensor_map": ("async", "not a tensor map"),
    "coordinate_not_at_16_bytes": (
        "misaligned",
        "coordinate 0 of a TMA box is 8, not a multiple of 16 bytes",
    ),
    "box_not_at_128_bytes": ("misaligned", "128 bytes"),
    "box_beyond_shared_memory": ("out of bounds", "128 bytes at shared byte 9216"),
    "store_below_zero": ("out of bounds", "coordinate 0 of a TMA store is -16"),
    "add_8_bit_numbers": ("async", "8-bit"),
    "multicast_beyond_the_cluster": ("async", "multicast to CTAs 0x2 of a cluster of 1"),
    "bulk_bytes_not_of_16": ("misaligned", "24 bytes"),
    "bulk_load_beyond_the_array": ("out of bounds", "1024 bytes of global memory at byte 512 of array"),
    "store_of_bytes_never_written": ("uninitialised", "before anything was written"),
    "source_overwritten_before_it_is_read": ("race", "cp.async.bulk group of thread (0, 0, 0)"),
    "load_read_before_it_is_waited_for": ("race", "a copy that completes on an mbarrier"),
    "ends_before_a_load_lands": ("async", "none of its threads has waited for the copy"),
    "more_bytes_than_expected": ("mbarrier", "16 bytes more than its phase expected"),
    "more_copies_than_expected": ("mbarrier", "has ended the phase of a copy without its bytes"),
    "accumulators_changed_in_flight": ("registers", "accumulators"),
    "fragments_changed_in_flight": ("registers", "A's registers"),
    "accumulators_changed_after_the_fence": ("registers", "accumulators of this wgmma were written to after"),
    "fragments_changed_after_the_fence": ("registers", "A's registers of this wgmma were written to after"),
    "operand_written_in_flight": ("race", "wgmma of the warpgroup"),
    "ends_before_a_wgmma": ("async", "without having waited for its wgmmas"),
    "wgmma_by_three_warps": ("divergence", "wgmma"),
    "descriptors_differ": ("divergence", "wgmma"),
    "stmatrix_by_half_a_warp": ("divergence", "stmatrix"),
    "stmatrix_misaligned": ("misaligned", "16 bytes"),
    "waits_for_the_cluster_without_arriving": ("barrier", "without having arrived"),
    "arrives_twice_at_the_cluster": ("barrier", "twice"),
    "maps_beyond_the_cluster": ("out of bounds", "rank 1 of a cluster of 1"),
    "a_uniform_value_that_is_none": ("divergence", "0x0 in lane 0, and 0x1 in lane 17"),
    "releases_to_more_registers": ("registers", "setmaxnreg.dec to 248 registers; the warpgroup has 240"),
    "claims_registers_that_nobody_released": ("deadlock", "setmaxnreg.inc"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_emulator_refuses(fault):
    kind, words = FAULTS[fault]
    tensor, out = np.zeros((8, 16), np.uint8), np.zeros(1024, np.uint8)
    fields = [
        Map(tensor, TensorMap("e4m3", (16, 8), (16,), (16, 8))),
        np.zeros(1024, np.uint8),
        out,
        list(FAULTS).index(fault),
    ]
    entries = " ".join(f"ENTRY({name})" for name in FAULTS)
    for seed in range(5):
        with settings.override(seed=seed), pytest.raises(EmulatorError) as caught:
            Emulator().run(
                "refusals",
                fields,
                grid=1,
                smem_bytes=8192 + 1024,
                defines={"FAULTS": entries},
            )
        text = str(caught.value)
        assert text.startswith(f"conformance_refusals: {kind} in the emulator") and words in text, text
