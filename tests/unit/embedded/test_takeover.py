"""A server takes over the work of another server of its data directory that has ended."""

from contextlib import closing
from pathlib import Path

import pytest

from hourwheel.adapters.sqlite.writer import SqliteWriter
from hourwheel.buckets.buckets import Bucket
from hourwheel.buckets.lease import LEASE_MS, WheelOwner, owner_record
from hourwheel.embedded.directories.roster import Roster
from hourwheel.embedded.options import ServeOptions
from hourwheel.embedded.runtime import Runtime
from hourwheel.errors import Throttled


def refuse(*_: object) -> None:
    raise Throttled("another process keeps the database locked")


def test_a_take_over_that_could_not_write_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Roster(tmp_path, "other")
    with closing(Runtime(ServeOptions(data=tmp_path))) as runtime:
        context = runtime.deployment.context
        now_ms = context.clock.now_ms()
        record = owner_record(context, Bucket.at(now_ms, 60))
        record.swap(None, WheelOwner(owner="other", until_ms=now_ms + LEASE_MS))
        other.close()
        with monkeypatch.context() as patched:
            patched.setattr(SqliteWriter, "begin", refuse)
            with pytest.raises(Throttled):
                runtime._watch_others()
        runtime._watch_others()
        current = record.load()
    assert current is not None
    assert not current.value.alive(now_ms)
