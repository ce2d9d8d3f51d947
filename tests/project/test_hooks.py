"""The hooks of a commit refuse what continuous integration would refuse, with the tools of the environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.rooms import ROOT

CONFIG = ROOT / ".pre-commit-config.yaml"
TOOLS = Path(sys.executable).parent


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a repository with the hooks, the tools of this environment, and one file of Python."""
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "cache"))
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "clone"
    for command in (["init", "--quiet"], ["config", "user.name", "A"], ["config", "user.email", "a@example.org"]):
        folder.mkdir(exist_ok=True)
        subprocess.run(["git", *command], cwd=folder, check=True)
    (folder / ".venv").symlink_to(TOOLS.parent)
    (folder / "tests").mkdir()
    for name in (".pre-commit-config.yaml", "pyproject.toml", "tests/commits.py"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    (folder / ".gitignore").write_text(".venv\n")
    assert run(folder, str(TOOLS / "pre-commit"), "install").returncode == 0
    return folder


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def commit(folder: Path, subject: str) -> subprocess.CompletedProcess[str]:
    assert run(folder, "git", "add", "--all").returncode == 0
    return run(folder, "git", "-c", "commit.gpgsign=false", "commit", "--message", subject)


def test_a_commit_that_is_right_passes(clone: Path) -> None:
    done = commit(clone, "Keep a message")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "subject", "told"),
    [
        ("one = 1\n", f"Keep {'a' * 60}", "a subject of 65 characters"),
        ("one  =  1\n", "Keep a message", "files were modified by this hook"),
        ("import os\n", "Keep a message", "F401"),
    ],
    ids=["a long subject", "another format", "lint"],
)
def test_a_commit_that_is_wrong_is_refused_and_told(clone: Path, text: str, subject: str, told: str) -> None:
    (clone / "one.py").write_text(text)
    done = commit(clone, subject)
    assert done.returncode != 0
    assert told in done.stdout + done.stderr
    assert run(clone, "git", "log", "--oneline").stdout == ""


def test_each_hook_runs_a_tool_of_the_environment_and_none_is_fetched() -> None:
    config = yaml.safe_load(CONFIG.read_text())
    assert [repository["repo"] for repository in config["repos"]] == ["local"]
    for hook in config["repos"][0]["hooks"]:
        tool = hook["entry"].split()[0]
        assert hook["language"] == "unsupported"
        assert tool.startswith(".venv/bin/")
        assert (TOOLS / Path(tool).name).is_file()
