"""A commit message tells one thing in a short subject, and the why in its body."""

import subprocess
from pathlib import Path

import pytest

from tests import commits


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("Keep a message", None),
        ("Keep a message\n\nBecause it was lost.\n# a comment of git\n", None),
        (f"K{'e' * 59}", None),
        (f"K{'e' * 60}", "a subject of 61 characters"),
        ("Keep a message.", "full stop"),
        ("keep a message", "capital letter"),
        ("Keep a message\nBecause it was lost.", "no empty line"),
        ("# only comments\n", "no subject"),
        ("", "no subject"),
        (f"Merge branch '{'m' * 80}'", None),
        (f'Revert "{"K" * 60}"', None),
        ("Keep a message\n# ------------------------ >8 ------------------------\ndiff\nof.", None),
    ],
)
def test_a_message_is_judged_by_its_subject_and_the_line_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], message: str, fault: str | None
) -> None:
    (tmp_path / "MESSAGE").write_text(message)
    assert commits.main([str(tmp_path / "MESSAGE")]) == (0 if fault is None else 1)
    assert (fault or "") in capsys.readouterr().err


def test_the_commits_since_a_revision_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    git("init", "--quiet")
    for subject in ("wrong.", "Keep a message", "wrong too", "Drop a message"):
        git("commit", "--quiet", "--allow-empty", "--message", subject)
    assert commits.main(["--since", "HEAD~1"]) == 0
    assert commits.main(["--since", "HEAD~3"]) == 1
    assert capsys.readouterr().err == "'wrong too' does not begin with a capital letter\n"
    with pytest.raises(SystemExit, match="unknown revision"):
        commits.main(["--since", "nowhere"])


def git(*arguments: str) -> None:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *arguments], check=True)
