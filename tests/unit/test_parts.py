"""The parts in which ``make test`` runs."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import parts, rooms
from tests.parts import NICENESS, PARTS, ROOT, Ended, Part

TESTS = ROOT / "tests"


def files(part: Part) -> set[Path]:
    def within(names: tuple[str, ...]) -> set[Path]:
        paths = [TESTS / name for name in names]
        assert all(path.exists() for path in paths), names
        return {file for path in paths for file in ([path] if path.is_file() else path.rglob("test_*.py"))}

    return within(part.paths) - within(part.without)


def ended(output: str, status: int) -> Ended:
    return Ended(PARTS[0], output, status, 1.0, 1.0)


def test_each_file_of_tests_is_in_one_part() -> None:
    assert Counter(file for part in PARTS for file in files(part)) == Counter(TESTS.rglob("test_*.py"))


@pytest.mark.parametrize(
    ("output", "status", "passed", "failed"),
    [
        ("..\n12 passed in 3.20s\n", 0, 12, 0),
        ("F.\n1 failed, 1 passed, 2 errors in 3.20s\n", 1, 1, 3),
        ("Timeout (0:05:00)!\nThread 0x1\n", 1, 0, 1),
        ("\n3 deselected in 0.01s\n", 5, 0, 0),
        ("12 passed in 3.20s\nFatal Python error: Segmentation fault\n", -11, 0, 1),
    ],
)
def test_the_tests_of_a_part_are_counted(output: str, status: int, passed: int, failed: int) -> None:
    assert (ended(output, status).count("passed"), ended(output, status).failed) == (passed, failed)


def test_a_part_that_fails_makes_the_run_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_one.py").write_text("def test_fine(): pass\ndef test_wrong(): assert False\n")
    (tmp_path / "tests/test_two.py").write_text("def test_fine(): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:schemathesis -p no:hypothesispytest\n")
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    assert (parts.main(["--room", "two"]), parts.main(["--room", "one"])) == (0, 1)


@pytest.mark.parametrize(("computes", "niceness"), [(True, NICENESS), (False, 0)])
def test_a_part_that_only_computes_leaves_the_cores_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, computes: bool, niceness: int
) -> None:
    (tmp_path / "Makefile").write_text("told:\n\t@nice\n")
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    (done,) = parts.run_all([Part("told", 0, computes=computes, target="told")], [], 1)
    # The tests themselves may run at a niceness, of which 19 is the highest.
    assert (done.output.split(), done.failed) == ([str(min(os.nice(0) + niceness, 19))], 0)


def test_a_target_of_make_that_fails_makes_the_run_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Makefile").write_text("wrong:\n\t@false\n")
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    assert parts.run(Part("wrong", 0, target="wrong"), []).failed == 1


def test_each_target_of_a_part_is_one_of_the_makefile() -> None:
    targets = {part.target for part in PARTS if part.target}
    phony = next(line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith(".PHONY:"))
    assert targets == {"checks", "docs"} & set(phony.split())


def test_an_unknown_room_is_refused_with_the_names_of_the_rooms() -> None:
    with pytest.raises(
        SystemExit, match=r"no room and no folder of tests is named nowhere; the rooms are .*registry, "
    ):
        parts.main(["--room", "nowhere"])


@pytest.mark.parametrize("options", [["--part", "nowhere"], ["--part", "site", "--part", "nowhere"]])
def test_an_unknown_part_is_refused_with_the_names_of_the_parts(
    options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "run_all", lambda *_: [])
    with pytest.raises(SystemExit, match=r"no part is named nowhere; the parts are .*core, .*planted bugs, "):
        parts.main(options)


def test_a_part_that_has_no_tests_of_volume_is_refused_among_them() -> None:
    with pytest.raises(SystemExit, match="no part is named check; the parts are apps, client side, "):
        parts.main(["--volume", "--part", "check"])


def test_a_room_without_tests_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / rooms.LIBRARY / "empty").mkdir(parents=True)
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match="the room empty has no tests of its own"):
        parts.main(["--room", "empty"])


@pytest.mark.parametrize("module", ["tests.parts --room", "tests.rooms"])
def test_the_module_is_the_command_of_make(module: str) -> None:
    command = [sys.executable, "-m", *module.split(), "nowhere"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no room and no folder of tests is named nowhere; the rooms are" in done.stderr
