import os
import pickle
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fagen.errors import SpecError
from fagen.spec.load import load_spec, parse_overrides
from fagen.spec.model import NAME_LENGTH, Growth, Spec
from fagen.spec.read import MAX_BYTES, MAX_DEPTH, MAX_VALUES

MINIMAL = {"name": "tiny", "family": "v2", "arch": "sm_80", "problem": {"dtype": "bf16", "head_dim": 64}}
TEXT = "name: tiny\nfamily: v2\narch: sm_80\nproblem: {dtype: bf16, head_dim: 64}\n"


def refusal(source: object, overrides: dict | None = None) -> str:
    with pytest.raises(SpecError) as caught:
        load_spec(source, overrides)  # type: ignore[arg-type]
    return str(caught.value)


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(TEXT)
    return path


def test_file_mapping_and_spec_give_the_same_spec(spec_file: Path) -> None:
    from_file = load_spec(spec_file)
    assert from_file == load_spec(str(spec_file)) == load_spec(MINIMAL) == load_spec(from_file)
    assert from_file.problem.head_dim == 64
    assert from_file.problem.dim_v == 64
    assert from_file.problem.mask == "none"
    assert from_file.schedule.tile.q is None


def test_mask_none_is_a_word(spec_file: Path) -> None:
    spec_file.write_text(TEXT.replace("64}", "64, mask: none}"))
    assert load_spec(spec_file).problem.mask == "none"


def test_a_spec_cannot_be_changed(spec_file: Path) -> None:
    with pytest.raises(Exception, match="frozen"):
        load_spec(spec_file).problem.head_dim = 128  # type: ignore[misc]


def test_aliases_stand_for_their_values(spec_file: Path) -> None:
    spec_file.write_text(TEXT.replace("head_dim: 64", "head_dim: &d 64, head_dim_v: *d"))
    assert load_spec(spec_file).problem.head_dim_v == 64


def test_rules_are_checked_for_a_spec_made_in_python() -> None:
    spec = load_spec(MINIMAL).model_copy(update={"device": "h200"})
    assert refusal(spec) == "<dict>: device: is h200, which is sm_90a; allowed for sm_80: a100"


def test_issues_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(_error({"name": "tiny"})))
    assert [issue.key for issue in error.issues] == ["family", "arch", "problem"]


def _error(source: dict) -> SpecError:
    with pytest.raises(SpecError) as caught:
        load_spec(source)
    return caught.value


@pytest.mark.parametrize("value", [object(), b"bf16", {1, 2}, {1: 2}], ids=lambda value: type(value).__name__)
def test_python_values_of_no_use_are_refused(value: object) -> None:
    assert "problem.dtype: is a" in refusal({**MINIMAL, "problem": {"dtype": value, "head_dim": 64}})


def test_python_keys_that_are_no_words_are_refused() -> None:
    assert "<dict>: 3: is not a key here; allowed: name, family" in refusal({**MINIMAL, 3: 4})
    assert "<dict>: tune.3" in refusal({**MINIMAL, "tune": {3: [4]}})


# Files


def test_a_missing_file_names_the_closest(spec_file: Path) -> None:
    missing = spec_file.with_name("tinny.yaml")
    assert refusal(missing) == f"{missing}: file: does not exist (did you mean `tiny.yaml`?)"
    assert "nowhere/a.yaml: file: does not exist" in refusal(spec_file.parent / "nowhere" / "a.yaml")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", ":1: file: is empty"),
        (b"\x89PNG\r\n\x1a\n\0\0", ": file: is not UTF-8 text (byte 0)"),
        (b"name: a\0b\n", ":1: file: holds the character '\\x00'"),
        (b"name: a\n\x7fELF", ":2: file: holds the character '\\x7f'"),
        ("name: a".encode("utf-16"), ": file: is not UTF-8 text"),
        (b"#" * (MAX_BYTES + 1), f": file: is larger than the {MAX_BYTES} bytes allowed"),
    ],
    ids=["empty", "binary", "nul", "control", "utf16", "large"],
)
def test_files_that_are_no_specs(spec_file: Path, data: bytes, message: str) -> None:
    spec_file.write_bytes(data)
    assert f"{spec_file}{message}" in refusal(spec_file)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert f"{tmp_path}: file: is a directory; allowed: a YAML file" in refusal(tmp_path)
    assert "is a directory" in refusal("")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    assert "is not a regular file" in refusal(tmp_path / "pipe.yaml")


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="everyone may read here")
def test_an_unreadable_file_is_refused(spec_file: Path) -> None:
    spec_file.chmod(0)
    assert "cannot be read: Permission denied" in refusal(spec_file)


@pytest.mark.parametrize("name", ["a\0b.yaml", "a" * 300 + ".yaml"], ids=["nul", "long"])
def test_a_path_that_cannot_be_is_refused(tmp_path: Path, name: str) -> None:
    assert "cannot be read" in refusal(tmp_path / name)


def test_a_path_below_a_file_is_refused(spec_file: Path) -> None:
    assert "cannot be read: Not a directory" in refusal(spec_file / "a.yaml")


def test_spaces_and_other_letters_in_paths(tmp_path: Path) -> None:
    folder = tmp_path / "a b" / "cé d"
    folder.mkdir(parents=True)
    (folder / "größe 1.yaml").write_text(TEXT)
    child = folder / "e f.yaml"
    child.write_text("name: child\nextends: größe 1\nproblem: {head_dim: 128}\n", encoding="utf-8")
    assert load_spec(child).problem.head_dim == 128
    child.write_text("name: child\nextends: größe 1\nproblem: {head_dim: 127}\n", encoding="utf-8")
    assert refusal(child).startswith(f"{child}:3: problem.head_dim: is 127")


def test_byte_order_mark_and_windows_lines(spec_file: Path) -> None:
    spec_file.write_bytes(b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())
    assert load_spec(spec_file).name == "tiny"
    spec_file.write_bytes(TEXT.replace("sm_80", "sm_81").replace("\n", "\r\n").encode())
    assert refusal(spec_file).startswith(f"{spec_file}:3: arch: ")


# YAML that is meant to do harm

LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS, f"makes more than {MAX_VALUES} values, with those that aliases repeat"),
        (f"a: [{'1,' * (MAX_VALUES + 1)}]", f"makes more than {MAX_VALUES} values"),
        ("[" * 30000, f"is nested more than {MAX_DEPTH} levels deep"),
        ("a: " + "[" * 30000, f"is nested more than {MAX_DEPTH} levels deep"),
        ("{a: " * 10000, f"is nested more than {MAX_DEPTH} levels deep"),
        ("- " * 30000, f"is nested more than {MAX_DEPTH} levels deep"),
        ("? " * 30000, f"is nested more than {MAX_DEPTH} levels deep"),
        ("".join(f"{' ' * n}k:\n" for n in range(300)), f"is nested more than {MAX_DEPTH} levels deep"),
        ("a: &a\n  b: *a\n", "an alias of what holds it"),
        ("name: " + "9" * 60000, "allowed: finite numbers in plain decimals"),
        ('name: "' + "a" * 60000 + '"', "name: is `aaa"),
        ("name: " + "1:" * 30000 + "1", "name: is `1:1:"),
        ("%TAG ! tag:yaml.org,2002:python/object/apply:\n---\nname: !os.getcwd []\n", "has the tag"),
        ("name: !!python/object/new:type [a, [], {}]\n", "has the tag `!!python/object/new:type`"),
        ("name: !!binary QQ==\n", "has the tag `!!binary`"),
        ("name: ! tiny\n", "has the tag `!`"),
    ],
    ids=lambda text: repr(text[:12]),
)
def test_harmful_yaml_is_refused_at_once(spec_file: Path, text: str, message: str) -> None:
    spec_file.write_text(text)
    start = time.perf_counter()
    said = refusal(spec_file)
    assert time.perf_counter() - start < 1
    assert message in said
    assert len(max(said.splitlines(), key=len)) < 1000


def test_no_tag_builds_an_object(spec_file: Path, tmp_path: Path) -> None:
    spec_file.write_text(f"name: !!python/object/apply:os.mkdir ['{tmp_path}/made']\n")
    refusal(spec_file)
    assert not (tmp_path / "made").exists()


# extends


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)


def test_extends_merges_section_by_section(tmp_path: Path) -> None:
    write(
        tmp_path,
        base=TEXT + "schedule:\n  tile: {q: 128, kv: 64}\n  softmax: {rescale: {lazy: 8}}\n"
        "tune:\n  tile.q: [64, 128]\n  stages.kv: [2, 3]\n",
        middle="name: middle\nextends: base\nschedule: {tile: {kv: 32}}\n",
        top="name: top\nextends: middle.yaml\nproblem: {head_dim: 128}\n"
        "schedule: {tile: {q: null}, softmax: {rescale: always}}\ntune: {tile.q: [32]}\n",
    )
    spec = load_spec(tmp_path / "top.yaml")
    assert spec.name == "top"
    assert (spec.problem.dtype, spec.problem.head_dim) == ("bf16", 128)
    assert (spec.schedule.tile.q, spec.schedule.tile.kv) == (None, 32)
    assert spec.schedule.softmax.rescale == "always"
    assert spec.tune == {"tile.q": (32,), "stages.kv": (2, 3)}


def test_extends_reaches_below_its_directory(tmp_path: Path) -> None:
    (tmp_path / "bases").mkdir()
    write(tmp_path / "bases", base="name: base\nextends: root\n", root=TEXT)
    write(tmp_path, top="name: top\nextends: bases/base\n")
    assert load_spec(tmp_path / "top.yaml").problem.head_dim == 64


@pytest.mark.parametrize(
    "name", ["../secret", "bases/../../secret", "..\\secret", "link", "links/secret", "loop"]
)
def test_extends_stays_in_its_directory(tmp_path: Path, name: str) -> None:
    write(tmp_path, secret=TEXT)
    specs = tmp_path / "specs"
    (specs / "bases").mkdir(parents=True)
    (specs / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    (specs / "links").symlink_to(tmp_path)
    (specs / "loop.yaml").symlink_to(specs / "loop.yaml")
    write(specs, top=f"name: top\nextends: '{name}'\n")
    assert f"top.yaml:2: extends: is `{name}`" in refusal(specs / "top.yaml")


def test_extends_of_an_absolute_path_is_refused(tmp_path: Path) -> None:
    write(tmp_path, base=TEXT, top=f"name: top\nextends: {tmp_path / 'base.yaml'}\n")
    assert "which may lead out of that directory" in refusal(tmp_path / "top.yaml")


def test_extends_through_a_link_to_the_spec_directory(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    write(tmp_path / "real", base=TEXT, top="name: top\nextends: base\n")
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    assert load_spec(tmp_path / "linked" / "top.yaml").name == "top"


def test_extends_needs_a_file() -> None:
    assert "<dict>: extends: is not a key here" in refusal({**MINIMAL, "extends": "a100_fa2"})


# Overrides


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ({}, "tiny"),
        ({"problem.head_dim": 64}, "tiny"),
        ({"problem.mask": "none"}, "tiny"),  # the default
        ({"problem.passes": ["forward", "backward"]}, "tiny"),
        ({"schedule.tile.q": None}, "tiny"),
        ({"tune.tile.q": [64]}, "tiny"),
        ({"problem.head_dim": 128, "problem.mask": "causal"}, "tiny__head_dim_128__mask_causal"),
        ({"problem.mask": "causal", "problem.head_dim": 128}, "tiny__head_dim_128__mask_causal"),
        ({"problem": {"head_dim": 128}}, "tiny__head_dim_128"),
        ({"arch": "sm_90a", "device": "h200"}, "tiny__arch_sm_90a__device_h200"),
        ({"schedule.tile.kv": 64, "schedule.stages.kv": 2}, "tiny__tile_kv_64__stages_kv_2"),
        ({"schedule.softmax.rescale": {"lazy": 8}}, "tiny__softmax_rescale_lazy_8"),
        ({"schedule.softmax.rescale.lazy": 0.5}, "tiny__softmax_rescale_lazy_0p5"),
        ({"schedule.softmax.rescale.lazy": 1e-5}, "tiny__softmax_rescale_lazy_1em05"),
        ({"schedule.softmax.exp2.polynomial": 0.25}, "tiny__softmax_exp2_polynomial_0p25"),
        ({"schedule.allow": ["spills", "stack"]}, "tiny__allow_spills_stack"),
        ({"name": "mine", "problem.head_dim": 128}, "mine"),
        ({"name": "tiny", "problem.head_dim": 128}, "tiny"),
    ],
    ids=str,
)
def test_overrides_name_what_they_change(overrides: dict, name: str) -> None:
    assert load_spec(MINIMAL, overrides).name == name


def test_an_override_back_to_the_default_is_named() -> None:
    pinned = {**MINIMAL, "schedule": {"tile": {"q": 128}}, "device": "a100"}
    assert load_spec(pinned, {"schedule.tile.q": None}).name == "tiny__tile_q_default"


@pytest.mark.parametrize(
    ("given", "overrides", "name"),
    [
        ({"scale": "block"}, {}, "eight"),
        (None, {"problem.fp8.scale": "block"}, "eight__fp8_scale_block"),
        ({"scale": "block"}, {"problem.fp8.scale": "head"}, "eight__fp8_scale_head"),
    ],
    ids=str,
)
def test_a_key_of_several_parts_is_named_as_it_was_given(given: Any, overrides: dict, name: str) -> None:
    problem = {"dtype": "e4m3", "head_dim": 128, "passes": ["forward"], "fp8": given}
    spec = {"name": "eight", "family": "v3", "arch": "sm_90a", "problem": problem}
    assert load_spec(spec, overrides).name == name


def test_long_names_end_in_a_hash_and_stay_apart() -> None:
    common = {"problem.mask": "causal", "problem.layout": "bhsd", "schedule.softmax.rescale": {"lazy": 8}}
    names = {load_spec(MINIMAL, {**common, "schedule.tile.q": q}).name for q in (16, 32, 64, 128)}
    assert len(names) == 4
    for name in names:
        assert len(name) <= NAME_LENGTH
        assert Spec.model_validate({**MINIMAL, "name": name}).name == name
    assert load_spec({**MINIMAL, "name": "n" * NAME_LENGTH}, common).name[:54] == "n" * 54


def test_overrides_lie_over_extends_and_replace_bad_values(tmp_path: Path) -> None:
    write(tmp_path, base=TEXT.replace("64", "63"), top="name: top\nextends: base\n")
    assert load_spec(tmp_path / "top.yaml", {"problem.head_dim": 64}).problem.head_dim == 64


def test_bad_overrides_say_that_they_are_overrides(spec_file: Path) -> None:
    spec_file.write_text(TEXT + "device: h200\n")
    said = refusal(
        spec_file, {"problem.head_dim": 65, "problem.msk": "causal", "schedule.tile.q.r": 1, "a..b": 1}
    )
    assert set(said.splitlines()) == {
        "<override>: a: is not a key here; allowed: name, family, arch, device, problem, schedule, tune",
        "<override>: problem.head_dim: is 65; allowed: multiples of 8 from 8 to 256",
        "<override>: problem.msk: is not a key here; "
        "allowed: dtype, out_dtype, fp8, v_transposed, head_dim, head_dim_v, layout, mask, softcap, dropout, "
        "deterministic, passes (did you mean `mask`?)",
        "<override>: schedule.tile.q: is a mapping; allowed: multiples of 16 from 16 to 512",
        f"{spec_file}:5: device: is h200, which is sm_90a; allowed for sm_80: a100",
    }


def test_parse_overrides_reads_values_as_yaml() -> None:
    items = [
        "problem.head_dim=64",
        "problem.mask=none",
        "schedule.softmax.rescale={lazy: 8}",
        "a=b=c",
        "b=[1, x]",
    ]
    assert parse_overrides(items) == {
        "problem.head_dim": 64,
        "problem.mask": "none",
        "schedule.softmax.rescale": {"lazy": 8},
        "a": "b=c",
        "b": (1, "x"),
    }


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("head_dim", "<override>: override: is `head_dim`; allowed: key=value, e.g. problem.head_dim=64"),
        ("=64", "<override>: override: is `=64`; allowed: key=value, e.g. problem.head_dim=64"),
        ("problem.head_dim=", "<override>: problem.head_dim: is empty; allowed: one YAML document"),
        (
            "problem.head_dim=0x40",
            "<override>: problem.head_dim: is `0x40`; allowed: finite numbers",
        ),
        (
            "problem.mask=!!python/name:os.system",
            "<override>: problem.mask: has the tag `!!python/name:os.system`",
        ),
        ("problem.mask={a: [", "<override>: problem.mask: is not valid YAML"),
    ],
)
def test_parse_overrides_refuses(item: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_overrides([item])
    assert str(caught.value).startswith(message)


def test_an_override_by_a_mapping_takes_the_place_of_another_kind_of_mapping():
    source = {"name": "a", "family": "v3", "arch": "sm_90a", "problem": {"dtype": "bf16", "head_dim": 64},
              "schedule": {"softmax": {"rescale": {"lazy": 8.0}}, "tile": {"q": 64}}}  # fmt: skip
    spec = load_spec(source, {"schedule.softmax.rescale": {"growth": 20}, "schedule.tile": {"kv": 96}})
    assert spec.schedule.softmax.rescale == Growth(growth=20)
    assert (spec.schedule.tile.q, spec.schedule.tile.kv) == (64, 96)
