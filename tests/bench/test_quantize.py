"""The table of quantising speeds."""

from __future__ import annotations

from rich.console import Console

from fagen.bench.quantize import Rate, table


def test_a_row_says_how_much_of_a_copys_bandwidth_a_call_has():
    rate = Rate(128, {"scale": "block", "hadamard": True}, 3 * 10**9, seconds=1e-3, copy_seconds=0.9e-3)
    console = Console(width=120)
    with console.capture() as captured:
        console.print(table([rate]))
    row = captured.get().splitlines()[-1].split()
    assert row == ["128", "scale=block,", "hadamard=True", "1,000.0", "3,000", "3,333", "90%"]
