"""The server archives while it is killed at any moment: each message that it accepted is archived once."""

from pathlib import Path

from hourwheel.adapters.files import FileBlobs
from hourwheel.retention.chain import manifests
from tests.integration.process import Server, pull, send
from tests.integration.test_crashes import Writers
from tests.unit.archive.reading import contents

LIVES = 12
MORE = 120
OFTEN = 0.02


def test_a_server_that_is_killed_archives_every_message_once(tmp_path: Path) -> None:
    writers = Writers()
    try:
        for _ in range(LIVES):
            server = Server(tmp_path, archive_seconds=OFTEN)
            writers.send_to(server.port)
            writers.until_more(MORE)
            server.kill()
    finally:
        writers.end()
    archive = FileBlobs(tmp_path / "archive")
    assert sum(1 for _ in manifests(archive)) >= LIVES // 2
    server = Server(tmp_path, archive_seconds=OFTEN)
    send(server, "last")
    while "last" not in contents(archive).bodies("orders~1/0"):
        pull(server, max_messages=1_000)  # meanwhile it archives the pull rows as well
    assert server.stop() == (0, "")
    found = contents(archive)
    assert set(found.rows.values()) == {1}
    assert set(writers.accepted) <= set(found.bodies("orders~1/0"))
