"""v2's budget: FlashAttention-2's published tiles fit, one step larger does not, and the maxima are true."""

import pytest

from fagen.hw.arch import ARCHES
from fagen.plan.budget import SMEM_CTA, values
from fagen.plan.ir import Account, Tiling
from fagen.plan.symbols import Bc, Br, ctas, stages, warps
from fagen.plan.v2_budget import BUDGET, REGISTERS, SMEM_SM

# (head_dim, Br, Bc, warps): csrc/flash_attn/src/flash_fwd_launch_template.h. FA2 holds one K and one V tile.
FA2_A100 = [
    (32, 128, 128, 4),
    (64, 128, 128, 4),
    (96, 128, 64, 4),
    (128, 128, 64, 4),
    (192, 128, 64, 8),
    (256, 128, 64, 8),
]
FA2_99_KB = [(96, 64, 64, 4), (128, 128, 32, 4), (128, 64, 64, 4), (192, 128, 64, 8), (256, 64, 64, 4)]


def tiling(q: int, kv: int, warps: int, stages: int = 1, ctas: int = 1, q_operand: str = "shared") -> Tiling:
    return Tiling(q, kv, warps, stages, ctas, q_operand, None, "in_order")


def accounts(choice: Tiling, arch: str, dim: int, dim_v: int | None = None) -> dict[str, Account]:
    at = values(choice, dim, dim_v or dim, 2, ARCHES[arch])
    return {account.resource: account for account in BUDGET.accounts(choice, at, ARCHES[arch])}


def fits(choice: Tiling, arch: str, dim: int) -> bool:
    return all(account.fits for account in accounts(choice, arch, dim).values())


@pytest.mark.parametrize(
    ("arch", "tile"),
    [("sm_80", tile) for tile in FA2_A100] + [("sm_89", tile) for tile in FA2_99_KB],
    ids=str,
)
def test_fa2_tiles_fit(arch: str, tile: tuple[int, int, int, int]):
    dim, q, kv, warps = tile
    assert fits(tiling(q, kv, warps), arch, dim)


def test_shared_memory_of_fa2s_largest_tile_and_of_the_next():
    smem = accounts(tiling(128, 64, 8), "sm_80", 256)[SMEM_CTA]
    assert [term.value for term in smem.terms] == [65_536, 32_768, 32_768, 16]
    assert (smem.used, smem.allowed) == (131_088, 166_912)
    assert accounts(tiling(128, 128, 8), "sm_80", 256)[SMEM_CTA].used == 196_624
    assert not fits(tiling(128, 128, 8), "sm_80", 256)
    assert not fits(tiling(128, 64, 8), "sm_89", 256)  # 99 KB: FA2 falls back to 64 x 64


def test_two_64x64_ctas_of_head_dim_256_share_an_h100_but_not_an_a100():
    # The very condition by which FA2 chooses between 128 x 64 and 64 x 64.
    pair = tiling(64, 64, 4, ctas=2)
    assert not accounts(pair, "sm_80", 256)[SMEM_SM].fits
    assert accounts(pair, "sm_90a", 256)[SMEM_SM].fits
    assert accounts(pair, "sm_90a", 256)[SMEM_SM].used == 2 * (98_304 + 16 + 1_024)


def test_registers_of_fa2s_tile_and_of_the_next():
    registers = accounts(tiling(128, 64, 4), "sm_80", 128)[REGISTERS]
    assert {term.name: term.value for term in registers.terms}["O accumulator"] == 128
    assert (registers.used, registers.allowed) == (252, 255)
    assert accounts(tiling(128, 80, 4), "sm_80", 128)[REGISTERS].used == 268


@pytest.mark.parametrize(("warps", "ctas", "allowed"), [(4, 1, 255), (4, 3, 168), (8, 2, 128), (12, 1, 168)])
def test_registers_allowed_come_in_eights(warps: int, ctas: int, allowed: int):
    # 65,536 registers of an SM over its threads; the 168 and 128 are ptxas's own for 384 and 512 threads.
    choice = tiling(16 * warps, 16, warps, ctas=ctas)
    assert accounts(choice, "sm_80", 64)[REGISTERS].allowed == allowed


def test_a_wide_v_widens_the_q_tile_that_o_is_staged_through():
    q, k, v, barriers = accounts(tiling(64, 32, 4, stages=2), "sm_80", 64, 128)[SMEM_CTA].terms
    assert (q.value, k.value, v.value) == (64 * 128 * 2, 2 * 32 * 64 * 2, 2 * 32 * 128 * 2)
    assert barriers.value == 2 * 2 * 8  # full and empty, of each stage
    assert (q.formula, k.formula) == ("Br*bytes*Max(d, dv)", "Bc*bytes*d*stages")


@pytest.mark.parametrize(
    ("symbol", "choices", "over", "arch", "most"),
    [
        (Br, range(128, 513, 128), tiling(256, 64, 8, stages=2), "sm_89", 128),  # rings of 64 KiB, of 99
        (Bc, range(16, 129, 16), tiling(128, 128, 8, stages=2), "sm_89", 64),
        (Bc, range(16, 129, 16), tiling(128, 96, 4), "sm_80", 64),  # registers: 252 of 255
        (stages, range(2, 9), tiling(128, 64, 4, stages=8), "sm_80", 4),
        (stages, range(2, 9), tiling(512, 64, 16, stages=8), "sm_80", None),  # Q alone takes 128 KiB
        (ctas, range(1, 9), tiling(64, 64, 4, stages=2, ctas=8), "sm_90a", 2),  # 81 KiB each, of 228
        (ctas, range(1, 9), tiling(16, 16, 1, stages=2, ctas=8), "sm_80", 7),  # 21 KiB each, of 164
        (ctas, range(1, 9), tiling(128, 16, 8, ctas=8), "sm_80", 2),  # registers: 136 of 65,536 / 512 threads
        (warps, (2, 4, 8), tiling(128, 64, 2), "sm_80", 8),  # 64 rows a warp: registers
    ],
    ids=str,
)
def test_largest_that_fits(symbol, choices, over: Tiling, arch: str, most: int | None):
    at = values(over, 128, 128, 2, ARCHES[arch])
    assert BUDGET.largest(symbol, choices, over, at, ARCHES[arch]) == most


def test_overrun_names_every_term_and_what_would_fit():
    choice = tiling(128, 80, 8, stages=2)
    message = BUDGET.overrun(choice, values(choice, 128, 128, 2, ARCHES["sm_89"]), ARCHES["sm_89"])
    assert "shared memory per CTA: 114,720 bytes wanted, 101,376 allowed" in message
    assert "K ring = Bc*bytes*d*stages = 40,960" in message
    assert "schedule.tile.kv: 64 (is 80)" in message
    assert "schedule.stages.kv: none from 2 up (is 2)" in message
    assert "registers" not in message  # they fit


def test_the_tile_that_would_fit_is_one_that_the_rules_take():
    choice = tiling(256, 16, 4, stages=2, ctas=4)  # 48 rows a warp would fit; only 16, 32 and 64 may be
    message = BUDGET.overrun(choice, values(choice, 16, 16, 2, ARCHES["sm_90a"]), ARCHES["sm_90a"])
    assert "schedule.tile.q: 128 (is 256)" in message


def test_too_many_ctas_are_named_with_how_many_would_fit():
    choice = tiling(128, 64, 8, stages=2, ctas=8)
    message = BUDGET.overrun(choice, values(choice, 64, 64, 2, ARCHES["sm_80"]), ARCHES["sm_80"])
    assert "registers per thread: 108 registers wanted, 32 allowed" in message
    assert "schedule.ctas_per_sm: 2 (is 8)" in message
    assert "schedule.tile.kv: none from 16 up (is 64)" in message


def test_a_waived_resource_is_neither_listed_nor_in_the_way():
    choice = tiling(128, 96, 4, stages=3)  # over 255 registers as well as over 163 KiB
    at = values(choice, 128, 128, 2, ARCHES["sm_80"])
    strict = BUDGET.overrun(choice, at, ARCHES["sm_80"])
    waived = BUDGET.overrun(choice, at, ARCHES["sm_80"], (REGISTERS,))
    assert "registers per thread" in strict and "schedule.stages.kv: none from 2 up (is 3)" in strict
    assert "registers per thread" not in waived and "schedule.stages.kv: 2 (is 3)" in waived
