"""Fragments of ``changelog.d`` become the sections of a release in the changelog."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.rooms import ROOT

CHANGELOG = ROOT / "CHANGELOG.md"
FRAGMENTS = ROOT / "changelog.d"
KINDS = {
    kind["directory"]: kind["name"]
    for kind in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]["type"]
}


def towncrier(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "towncrier", "build", "--version", "9.8.7", "--date", "2031-02-03", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Returns a folder with the changelog, its settings, and no fragment."""
    for name in ("CHANGELOG.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "changelog.d").mkdir()
    for name in ("README.md", "release.md.jinja"):
        shutil.copy(FRAGMENTS / name, tmp_path / "changelog.d")
    return tmp_path


def test_a_fragment_of_each_kind_comes_above_the_earlier_releases(copy: Path) -> None:
    for kind in KINDS:
        (copy / f"changelog.d/a-thing.{kind}.md").write_text(f"A {kind} thing.\n")
    earlier = CHANGELOG.read_text()
    done = towncrier(copy, "--yes")
    assert done.returncode == 0, done.stderr
    sections = "\n\n".join(f"### {name}\n\n- A {kind} thing." for kind, name in KINDS.items())
    head, mark, rest = earlier.partition("<!-- towncrier release notes start -->\n")
    assert (copy / "CHANGELOG.md").read_text() == f"{head}{mark}\n## 9.8.7 (2031-02-03)\n\n{sections}\n{rest}"
    assert {path.name for path in (copy / "changelog.d").iterdir()} == {"README.md", "release.md.jinja"}


def test_a_fragment_of_an_unknown_kind_is_refused(copy: Path) -> None:
    (copy / "changelog.d/a-thing.feature.md").write_text("A thing.\n")
    done = towncrier(copy, "--draft")
    assert done.returncode != 0
    assert "a-thing.feature.md" in done.stderr + done.stdout


def test_the_fragments_of_the_repository_are_understood() -> None:
    done = towncrier(ROOT, "--draft")
    assert done.returncode == 0, done.stderr


def test_the_readme_of_the_fragments_lists_their_kinds() -> None:
    lines = (FRAGMENTS / "README.md").read_text().splitlines()
    assert [line.split("`")[1] for line in lines if line.startswith("| `")] == list(KINDS)


def test_each_fragment_tells_users_something_in_sentences() -> None:
    fragments = {path.name: path.read_text().strip() for path in FRAGMENTS.glob("*.*.md")}
    assert [name for name, text in fragments.items() if not text.endswith(".")] == []
