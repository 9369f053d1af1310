"""`fagen tune` over workers without a GPU: what it prints, writes and refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "tune"))

from fake_workers import FakeWorkers  # pyright: ignore[reportMissingImports]

from fagen.cli import tune
from fagen.spec.load import load_spec

SHAPES = "short: {batch: 4, seqlen_q: 1024, heads_q: 8, head_dim: 64, mask: causal}\n"
SPEC = """\
name: mine
family: v3
arch: sm_90a
device: h200
problem: {dtype: bf16, head_dim: 64, passes: [forward]}
schedule: {tile: {q: 128, kv: 128}}
tune:
  tile.q: [64, 128, 192]
  tile.kv: [64, 128, 256]
  scheduler: [persistent, persistent_lpt]
"""


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> FakeWorkers:
    workers = FakeWorkers()
    monkeypatch.setattr(tune, "workers_of", lambda ray: workers)
    return workers


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In a directory of its own, which has specs/, with a file of shapes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "specs").mkdir()
    path = tmp_path / "specs" / "mine.yaml"
    path.write_text(SPEC)
    (tmp_path / "shapes.yaml").write_text(SHAPES)
    return path


def test_it_prints_the_winner_and_writes_its_spec(fagen, spec: Path, workers: FakeWorkers) -> None:
    result = fagen("tune", spec, "--shapes", "shapes.yaml")
    assert result.exit_code == 0
    row = next(line for line in result.stdout.splitlines() if line.strip().startswith("short"))
    assert "forward" in row and "mine" in row and " of " in row
    path = Path("specs/tuned/mine_tuned_short.yaml")
    assert str(path.parent) in result.stdout
    assert load_spec(path).problem.mask == "causal"
    # What does not fit is told with what it wants and what is allowed.
    assert "refused: mine, tile.q 64, tile.kv 256" in result.stderr
    assert "wanted" in result.stderr and "allowed" in result.stderr


def test_a_second_run_says_that_nothing_was_timed(fagen, spec: Path, workers: FakeWorkers) -> None:
    fagen("tune", spec, "--shapes", "shapes.yaml")
    workers.batches.clear()
    result = fagen("tune", spec, "--shapes", "shapes.yaml")
    assert result.exit_code == 0 and not workers.batches
    assert "known before" in result.stdout
    assert "1 of 1 results are known from before: nothing was timed for them" in result.stdout


def test_out_is_where_the_specs_go(fagen, spec: Path, workers: FakeWorkers, tmp_path: Path) -> None:
    assert fagen("tune", spec, "--shapes", "shapes.yaml", "--out", tmp_path / "here").exit_code == 0
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["mine_tuned_short.yaml"]


def test_without_shapes_those_of_the_papers_are_tuned(fagen, spec: Path, workers: FakeWorkers) -> None:
    result = fagen("tune", spec, "--seqlens", "512")
    assert result.exit_code == 0
    assert {path.stem for path in Path("specs/tuned").iterdir()} == {
        "mine_tuned_d64_none_512",
        "mine_tuned_d64_causal_512",
    }
    assert result.stdout.count(" forward ") == 2


def test_ctrl_c_says_that_a_rerun_goes_on(fagen, spec: Path, workers: FakeWorkers) -> None:
    def stop(number: int) -> None:
        if number == 1:
            raise KeyboardInterrupt

    workers.before_batch = stop
    result = fagen("tune", spec, "--shapes", "shapes.yaml", "--exhaustive")
    assert result.exit_code == 130
    assert "interrupted: what was timed is kept" in result.stderr
    workers.before_batch = lambda number: None
    first = len(workers.batches)
    assert fagen("tune", spec, "--shapes", "shapes.yaml", "--exhaustive").exit_code == 0
    timed = [(one.name, batch.rounds) for batch in workers.batches for one in batch.specs[1:]]
    assert first and len(timed) == len(set(timed))


@pytest.mark.parametrize(
    ("place", "setting"),
    [
        ("cache", "FAGEN_CACHE_DIR"),
        ("cache/tuned", "FAGEN_CACHE_DIR"),
        ("cache/tuned/store", "FAGEN_CACHE_DIR"),
        ("specs/tuned", "--out"),
    ],
)
def test_what_could_not_be_kept_is_refused_before_any_work(
    fagen, spec: Path, workers: FakeWorkers, place: str, setting: str
) -> None:
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    Path(place).write_text("a file where a directory must be")
    result = fagen("tune", spec, "--shapes", "shapes.yaml")
    assert result.exit_code == 1 and not workers.built
    assert f"error: {setting}: " in result.stderr and str(Path(place)) in result.stderr
    assert "allowed: a directory that can be written" in result.stderr


def test_a_journal_that_cannot_be_written_is_refused_before_any_work(
    fagen, spec: Path, workers: FakeWorkers
) -> None:
    Path("cache/tuned/journal.jsonl").mkdir(parents=True)
    result = fagen("tune", spec, "--shapes", "shapes.yaml")
    assert result.exit_code == 1 and not workers.built
    assert "error: FAGEN_CACHE_DIR: " in result.stderr and "journal.jsonl" in result.stderr


def test_without_a_cache_directory_nothing_is_said_to_be_kept(
    fagen, spec: Path, workers: FakeWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FAGEN_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    result = fagen("tune", spec, "--shapes", "shapes.yaml")
    assert result.exit_code == 0 and Path("specs/tuned/mine_tuned_short.yaml").is_file()
    assert "later runs will know nothing of this one; set FAGEN_CACHE_DIR" in result.stderr

    def stop(number: int) -> None:
        raise KeyboardInterrupt

    workers.before_batch = stop
    assert "is kept" not in fagen("tune", spec, "--shapes", "shapes.yaml").stderr


def test_a_problem_is_told_and_fails(fagen, spec: Path, workers: FakeWorkers) -> None:
    workers.wrong = "mine"
    result = fagen("tune", spec, "--shapes", "shapes.yaml")
    assert result.exit_code == 1
    assert "left out: mine" in result.stderr and "short, forward: no winner: " in result.stderr


def test_nothing_that_fits_is_an_error_with_both_numbers(fagen, spec: Path, workers: FakeWorkers) -> None:
    text = SPEC.split("tune:")[0].replace("kv: 128", "kv: 256")
    spec.write_text(text + "tune: {stages.kv: [4]}\n")
    result = fagen("tune", spec, "--shapes", "shapes.yaml")
    assert result.exit_code == 1
    assert "error: mine: no variant of the forward can run on sm_90a" in result.stderr
    assert "bytes wanted, 232,448 allowed" in result.stderr
    assert not workers.built


def test_without_a_gpu_it_says_so(fagen, spec: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    result = fagen("tune", spec, "--shapes", "shapes.yaml")
    assert result.exit_code == 1
    assert "needs an NVIDIA GPU" in result.stderr


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60), ("90", 90), ("5m", 300), ("1.5h", 5400), ("0.5", 0.5)]
)
def test_budgets(text: str, seconds: float) -> None:
    assert tune.parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-5s", "soon", "5d", "1e9", "nan"])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="want a time above 0"):
        tune.parse_budget(text)


def test_bad_specs_and_shapes_are_refused_before_any_work(fagen, spec: Path, broken: Path) -> None:
    assert "head_dom" in fagen("tune", broken).stderr
    Path("shapes.yaml").write_text("short: {batch: 0}\n")
    result = fagen("tune", spec, "--shapes", "shapes.yaml")
    assert result.exit_code == 1 and "shapes.yaml:1: short.batch" in result.stderr


def test_what_is_kept_lies_in_the_cache_directory(
    fagen, spec: Path, workers: FakeWorkers, tmp_path: Path
) -> None:
    fagen("tune", spec, "--shapes", "shapes.yaml")
    tuned = tmp_path / "cache" / "tuned"
    assert (tuned / "journal.jsonl").is_file()
    (entry,) = tuned.glob("store/*/*.json")
    assert json.loads(entry.read_text())["where"]["gpu"] == "NVIDIA H200"


def test_html_is_a_page_of_what_was_timed(fagen, spec: Path, workers: FakeWorkers) -> None:
    pytest.importorskip("matplotlib")
    result = fagen("tune", spec, "--shapes", "shapes.yaml", "--html", "page.html")
    assert result.exit_code == 0 and "wrote page.html" in result.stdout
    page = Path("page.html").read_text(encoding="utf-8")
    assert ">winner</text>" in page
    assert page.count(": measured ") == len({spec.name for batch in workers.batches for spec in batch.specs})


def test_html_without_matplotlib_is_refused_before_any_work(fagen, spec: Path, monkeypatch) -> None:
    monkeypatch.setattr("fagen.bench.html.plots.find_spec", lambda name: None)
    workers = FakeWorkers()
    monkeypatch.setattr(tune, "workers_of", lambda ray: workers)
    result = fagen("tune", spec, "--shapes", "shapes.yaml", "--html", "page.html")
    assert result.exit_code and "pip install 'fagen[report]'" in result.stderr
    assert not workers.batches
