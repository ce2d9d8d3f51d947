"""Rooms are found by their folders, with their tests."""

from pathlib import Path

import pytest

from tests import rooms
from tests.rooms import LIBRARY, ROOT


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Returns a repository of three rooms and two loose modules, whose tests lie in several folders."""
    library, tests = tmp_path / LIBRARY, tmp_path / "tests"
    for path in (
        *(library / name for name in ("times.py", "queueing/pull.py", "apps/celery/broker.py", "client/aio/task.py")),
        *(tests / name for name in ("unit/queueing/test_pull.py", "pipeline/test_queueing.py", "unit/test_times.py")),
        *(tests / name for name in ("apps/celery/test_broker.py", "contract/test_stores.py")),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (library / "queueing/__pycache__").mkdir()
    return tmp_path


def test_the_rooms_are_the_folders_of_the_library_that_hold_modules(root: Path) -> None:
    assert rooms.names(root) == ["aio", "celery", "queueing"]


@pytest.mark.parametrize(
    ("name", "code", "tests"),
    [
        ("queueing", ["queueing"], ["unit/queueing"]),
        ("celery", ["apps/celery"], ["apps/celery"]),
        ("aio", ["client/aio"], []),
        ("times", ["times.py"], ["unit/test_times.py"]),
        ("contract", [], ["contract"]),
    ],
    ids=["unit tests are enough", "tests elsewhere", "no tests", "a module", "a folder of tests"],
)
def test_a_room_has_its_code_and_its_tests(root: Path, name: str, code: list[str], tests: list[str]) -> None:
    room = rooms.find(name, root)
    assert [str(path.relative_to(root / LIBRARY)) for path in room.code] == code
    assert [str(path.relative_to(root / "tests")) for path in room.tests] == tests


@pytest.mark.parametrize("name", rooms.names(ROOT))
def test_each_room_can_be_checked(name: str) -> None:
    for command in rooms.find(name, ROOT).checks(ROOT):
        assert Path(command[0]).is_file()
        assert all((ROOT / argument).exists() for argument in command if argument.startswith(("layers/", "tests/")))


@pytest.mark.parametrize(("text", "status"), [("one = 1\n", 0), ("import os\n", 1), ("one  =  1\n", 1)])
def test_a_room_that_ruff_refuses_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, status: int
) -> None:
    folder = tmp_path / LIBRARY / "queueing"
    folder.mkdir(parents=True)
    (folder / "pull.py").write_text(text)
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.mypy]\nfiles = "{folder}"\n[tool.importlinter]\nroot_package = "tests"\n'
        '[[tool.importlinter.contracts]]\nname = "Apart"\ntype = "independence"\nmodules = ["tests"]\n'
    )
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/__init__.py").touch()
    monkeypatch.setattr(rooms, "ROOT", tmp_path)
    assert rooms.main(["queueing"]) == status
