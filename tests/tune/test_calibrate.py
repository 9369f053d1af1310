"""Efficiencies fitted to records: found again, kept, and of no concern to the planner."""

import logging
import random
from dataclasses import replace

import pytest

from fagen.errors import TuneError
from fagen.plan.efficiency import SHIPPED, MmaSync
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.plan.predict import predict
from fagen.spec.load import load_spec
from fagen.tune import calibrated
from fagen.tune.calibrate import LEAST, Calibration, Errors, Fit, calibrate
from fagen.tune.journal import Record
from fagen.tune.store import Where

GPU = "NVIDIA H200"
WHERE = Where(gpu=GPU, driver="580.1", nvrtc="13.0", headers="abc")
SHAPES = [Shape(2, 4096, 4096, 16, 16), Shape(8, 1024, 1024, 16, 16), Shape(1, 16384, 16384, 8, 8)]
BASE = {"name": "c", "arch": "sm_90a", "device": "h200"}


def record(spec, shape, seconds, gpu=GPU, rounds=9, key=""):
    return Record(
        where=replace(WHERE, gpu=gpu),
        spec=spec,
        kernels=key or spec.name,
        shape=shape,
        direction="forward",
        predicted=1.0,
        rounds=rounds,
        seconds=seconds,
        reference=spec.name,
        reference_seconds=seconds,
    )


def made_up(family, efficiency, choices, noise=0.03):
    """Records of a GPU of which the model is true with these numbers, but for the noise."""
    error, found = random.Random(0), []
    for choice in choices:
        spec = load_spec({**BASE, "family": family, "problem": {"dtype": "bf16", "head_dim": 128}}, choice)
        for shape in SHAPES:
            seconds = predict(plan(spec), shape, {f"{family} forward": efficiency}).seconds
            found.append(record(spec, shape, seconds * (1 + error.gauss(0, noise))))
    return found


V2 = [
    {
        "schedule.tile.q": q,
        "schedule.tile.kv": kv,
        "schedule.roles.math.warps": q // 32,
        "schedule.stages.kv": stages,
        "schedule.ctas_per_sm": 1,
    }
    for q in (64, 128, 256)
    for kv in (32, 64)
    for stages in (2, 3)
]
V3 = [
    {"schedule.tile.q": q, "schedule.tile.kv": kv, "schedule.roles.math.pingpong": False}
    for q in (64, 128, 192)
    for kv in (48, 64, 80)
]


def test_what_the_records_say_clearly_is_found_again_through_noise():
    shipped = SHIPPED["v2 forward"]
    assert isinstance(shipped, MmaSync)
    truth = replace(shipped, exposed=0.9, latency=250.0)
    fit = calibrate(made_up("v2", truth, V2), GPU).fits["v2 forward"]
    assert isinstance(fit.efficiency, MmaSync)
    assert fit.efficiency.exposed == pytest.approx(0.9, rel=0.1)
    assert fit.efficiency.latency == pytest.approx(250, rel=0.25)
    assert fit.records == len(V2) * len(SHAPES)
    assert fit.before.rms > 0.1 > 0.04 > fit.after.rms
    assert fit.left_out.rms < 0.05


def test_the_timelines_are_fitted_as_well():
    truth = replace(SHIPPED["v3 forward"], tensor=0.75)
    fit = calibrate(made_up("v3", truth, V3), GPU).fits["v3 forward"]
    assert fit.after.rms < 0.04 < fit.before.rms


def test_one_bad_measurement_spoils_nothing():
    records = made_up("v2", SHIPPED["v2 forward"], V2, noise=0.01)
    records[0] = replace(records[0], seconds=5 * records[0].seconds)
    fit = calibrate(records, GPU).fits["v2 forward"]
    assert fit.after.worst > 1
    off = [
        predict(plan(one.spec), one.shape, {"v2 forward": fit.efficiency}).seconds / one.seconds
        for one in records[1:]
    ]
    assert max(off) < 1.1 and min(off) > 0.9


def test_too_few_records_are_refused_with_their_number():
    some = made_up("v2", SHIPPED["v2 forward"], V2)[: LEAST - 1]
    with pytest.raises(TuneError, match=rf"{GPU} in the journal: v2 forward {LEAST - 1}; at least {LEAST}"):
        calibrate(some, GPU)
    with pytest.raises(TuneError, match=r"NVIDIA A100 in the journal: none"):
        calibrate(some, "NVIDIA A100")


def test_of_the_same_kernels_on_the_same_shape_the_record_with_most_rounds_counts():
    one = made_up("v2", SHIPPED["v2 forward"], V2)[0]
    again = [replace(one, rounds=rounds) for rounds in range(LEAST)]
    with pytest.raises(TuneError, match="v2 forward 1;"):
        calibrate(again, GPU)


def test_what_is_planned_no_more_is_left_out():
    some = made_up("v2", SHIPPED["v2 forward"], V2)
    spec = some[0].spec
    large = load_spec(spec, {"schedule.tile.kv": 256, "schedule.stages.kv": 4})
    fits = calibrate([*some, record(large, SHAPES[0], 1.0)], GPU).fits
    assert fits["v2 forward"].records == len(some)


@pytest.fixture
def calibration():
    errors = Errors(rms=0.1, worst=0.2)
    fitted = replace(SHIPPED["v3 forward"], tensor=0.5)
    return Calibration(GPU, {"v3 forward": Fit(fitted, 30, errors, errors, errors)})


def test_a_calibration_is_found_by_the_name_of_its_gpu(calibration, tmp_path):
    assert calibrated.efficiencies(GPU, tmp_path) == {}
    path = calibrated.store(calibration, tmp_path)
    assert path == tmp_path / "nvidia-h200.json"
    found = calibrated.efficiencies(GPU, tmp_path)
    assert found == {"v3 forward": calibration.fits["v3 forward"].efficiency}
    assert calibrated.efficiencies("NVIDIA H100", tmp_path) == {}
    assert "v3 forward: 30 measurements; off by 10.0% rms, at worst 20.0%" in str(calibration)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("{", "", "ignored"),
        ("{", "[" * 100_000, "recursion"),
        ('"version": 1', '"version": 0', "its version is 0"),
        ('"tensor": 0.5', '"tensor": -0.5', "not above 0"),
        ('"tensor": 0.5', '"tensor": Infinity', "not above 0 and finite"),
        ('"tensor": 0.5', f'"tensor": {10**400}', "too large"),
        ('"tensor"', '"tensors"', "other numbers"),
        ("v3 forward", "v9 forward", "v9 forward"),
    ],
)
def test_a_damaged_calibration_is_ignored_with_a_line_in_the_log(
    calibration, tmp_path, caplog, old, new, reason
):
    path = calibrated.store(calibration, tmp_path)
    path.write_text(path.read_text().replace(old, new, 1))
    with caplog.at_level(logging.WARNING, "fagen"):
        assert calibrated.efficiencies(GPU, tmp_path) == {}
    assert [path.name in line and reason in line for line in caplog.messages] == [True]


def test_a_calibration_changes_what_is_predicted_and_nothing_that_is_planned(
    calibration, tmp_path, monkeypatch
):
    monkeypatch.setenv("FAGEN_CACHE_DIR", str(tmp_path))
    spec = load_spec({**BASE, "family": "v3", "problem": {"dtype": "bf16", "head_dim": 128}})
    before = plan(spec)
    calibrated.store(calibration)
    own = calibrated.efficiencies(GPU)
    assert plan(spec) == before
    assert predict(before, SHAPES[0]) == predict(before, SHAPES[0], {})
    assert predict(before, SHAPES[0], own).seconds > 1.5 * predict(before, SHAPES[0]).seconds
