"""What holds for the project as a whole: packaging, pages, floors' imports."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import fagen
from fagen import paths
from fagen.support import embedded, markdown, matrix

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def wheel() -> dict:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]


def tracked() -> list[Path]:
    """Files of the checkout, tracked or not yet, less what is ignored."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_templates_and_specs_are_found_in_a_source_tree():
    assert (ROOT / "templates", ROOT / "specs") == (paths.TEMPLATES, paths.SPECS)


def test_templates_and_specs_are_found_where_the_wheel_puts_them(wheel, tmp_path):
    shutil.copytree(ROOT / "fagen", tmp_path / "fagen", ignore=shutil.ignore_patterns("__pycache__"))
    for source, target in wheel["sources"].items():
        assert source in wheel["only-include"]
        shutil.copytree(ROOT / source, tmp_path / target)
    found = importlib.util.spec_from_file_location("installed_paths", tmp_path / "fagen" / "paths.py")
    assert found and found.loader
    installed = importlib.util.module_from_spec(found)
    found.loader.exec_module(installed)
    assert (installed.TEMPLATES / "v2" / "forward.cu.j2").is_file()
    assert (installed.SPECS / "a100_fa2.yaml").is_file()
    assert (installed.SPECS / "shapes" / "models.yaml").is_file()
    assert installed.SPECS.is_relative_to(tmp_path)


def test_the_changelog_has_a_section_for_what_is_next():
    assert "\n## Unreleased\n" in (ROOT / "CHANGELOG.md").read_text()
    assert re.fullmatch(r"\d+\.\d+\.\d+", fagen.__version__)


def test_the_readme_carries_the_support_matrix():
    page = (ROOT / "README.md").read_text()
    assert page == embedded(page, markdown(matrix())), "mend with: fagen support --into README.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


def test_no_file_names_a_place_on_somebodys_machine():
    place = re.compile(rb"(?<![\w.$}])/(work|root|home|Users)/\w")
    found = [str(path) for path in tracked() if path != Path(__file__) and place.search(path.read_bytes())]
    assert not found
