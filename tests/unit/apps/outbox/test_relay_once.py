"""``Relay.run_once``, which cron calls, sends the committed rows and ends."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from hourwheel import outbox
from hourwheel.apps.testing.clock import SimulatedClock
from hourwheel.testing import Queue


def _shop(path: Path, **bodies: list[str]) -> str:
    """Commits rows for each subject, each with a key of its own, and returns the URL of the database."""
    shop = sqlite3.connect(path)
    outbox.create_table(shop)
    for subject, texts in bodies.items():
        for body in texts:
            outbox.send(shop, subject, body, key=body)
    shop.commit()
    shop.close()
    return f"sqlite:///{path}"


def test_rows_behind_a_subject_that_takes_none_are_sent(tmp_path: Path, hourwheel_queue: Queue) -> None:
    hourwheel_queue.api.put_subject("closed", read_only=True)
    database = _shop(tmp_path / "shop.db", closed=[*map(str, range(40))], orders=["paid"])
    assert outbox.Relay(database, url=hourwheel_queue.url).run_once() == 1
    assert hourwheel_queue.assert_sent("orders", "paid")


def test_rows_that_were_kept_long_enough_are_removed(tmp_path: Path, hourwheel_queue: Queue) -> None:
    database = _shop(tmp_path / "shop.db", orders=["paid"])
    clock = SimulatedClock(1_800_000_000_000)
    relay = outbox.Relay(database, url=hourwheel_queue.url, keep_days=1, clock=clock)
    assert relay.run_once() == 1
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        assert outbox.status(shop).kept == 1
        clock.sleep(86_401)
        assert relay.run_once() == 0
        assert outbox.status(shop).kept == 0
    shop.close()
