"""Files at a location are replaced in one step."""

import os
from pathlib import Path

import pytest

from hourwheel_pipeline.lake.locations import Files


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "new/one.json"
    for data in (b"first", b"second"):
        Files(None, None).write(str(path), data)
    assert path.read_bytes() == b"second"
    assert list(path.parent.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "one.json"
    files = Files(None, None)
    files.write(str(path), b"first")

    def full(source: str, target: str) -> None:
        assert Path(source).read_bytes() == b"second"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        files.write(str(path), b"second")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]
