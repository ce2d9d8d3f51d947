"""The roster of a data directory lists the servers that live."""

import fcntl
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hourwheel.embedded.directories.roster import Roster
from tests.processes import Child

OTHER = """
import sys
from pathlib import Path
from hourwheel.embedded.directories.roster import Roster
roster = Roster(Path(sys.argv[1]), "other")
print("entered", flush=True)
sys.stdin.read()
roster.close()
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", OTHER, str(tmp_path)]
    with Child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"entered\n"
        yield process
        process.kill()


@pytest.fixture
def roster(tmp_path: Path) -> Iterator[Roster]:
    entered = Roster(tmp_path, "ours")
    yield entered
    entered.close()


def test_a_server_that_lives_is_named_with_its_process(roster: Roster, other: subprocess.Popen[bytes]) -> None:
    assert roster.living() == {"ours", "other"}
    assert roster.processes() == [other.pid]


def test_one_that_was_killed_is_removed_from_the_roster(
    tmp_path: Path, roster: Roster, other: subprocess.Popen[bytes]
) -> None:
    other.kill()
    other.wait()
    assert roster.living() == {"ours"}
    assert [path.name for path in (tmp_path / "live").iterdir()] == ["ours"]


def test_one_that_stopped_takes_itself_off(roster: Roster, other: subprocess.Popen[bytes]) -> None:
    other.communicate()
    assert roster.living() == {"ours"}
    assert roster.processes() == []


def test_one_that_stands_still_lives(roster: Roster, other: subprocess.Popen[bytes]) -> None:
    other.send_signal(signal.SIGSTOP)
    assert roster.living() == {"ours", "other"}


def test_two_that_look_at_once_do_not_take_each_other_for_a_server(tmp_path: Path, roster: Roster) -> None:
    (tmp_path / "live" / "dead").touch()
    third = Roster(tmp_path, "third")
    with (tmp_path / "live" / "dead").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # as one does that looks at it now
        assert roster.living() == {"ours", "third"}
    third.close()


def test_what_others_see_is_closed_to_other_users(tmp_path: Path, roster: Roster) -> None:
    live = tmp_path / "live"
    assert [path.stat().st_mode & 0o777 for path in (live, live / "ours")] == [0o700, 0o600]
