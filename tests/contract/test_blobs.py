"""Blobs are complete, write-once objects."""

import pytest

from hourwheel.errors import Corrupt, NotFound
from hourwheel.ports.storage import Blobs

from .records import at_once

DATA = bytes(range(256))
KEY = "segments/2030-01-01/0a1b.bin"

NOT_KEYS = [
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "...",
    "../a",
    "a/../b",
    "a/./b",
    "a b",
    "a\\b",
    "é",
    "a\n",
    "~a",
    "a=",
]


def test_a_stored_object_is_read_back_exactly(blobs: Blobs) -> None:
    blobs.put(KEY, DATA)
    assert blobs.get(KEY) == DATA


def test_an_empty_object_is_an_object(blobs: Blobs) -> None:
    blobs.put(KEY, b"")
    assert blobs.get(KEY) == b""
    assert blobs.get(KEY, offset=0, length=0) == b""
    assert blobs.list("") == [KEY]


def test_megabytes_are_stored_and_read_back_exactly(blobs: Blobs) -> None:
    large = DATA * 4096 * 5
    blobs.put(KEY, large)
    assert blobs.get(KEY) == large
    assert blobs.get(KEY, offset=len(large) - 300, length=300) == large[-300:]


def test_the_same_put_again_has_no_effect(blobs: Blobs) -> None:
    blobs.put(KEY, DATA)
    blobs.put(KEY, DATA)
    assert blobs.get(KEY) == DATA
    assert blobs.list("") == [KEY]


def test_an_object_once_written_never_changes(blobs: Blobs) -> None:
    blobs.put(KEY, DATA)
    blobs.put(KEY, b"other")
    assert blobs.get(KEY) == DATA


def test_writers_that_meet_leave_one_whole_object(blobs: Blobs) -> None:
    offered = [bytes([thread]) * 100_000 for thread in range(8)]
    at_once(lambda thread: blobs.put(KEY, offered[thread]))
    assert blobs.get(KEY) in offered
    assert blobs.list("") == [KEY]


@pytest.mark.parametrize(("offset", "length"), [(0, 1), (0, 256), (10, 20), (255, 1), (0, 0), (100, 0), (256, 0)])
def test_a_range_is_exact(blobs: Blobs, offset: int, length: int) -> None:
    blobs.put(KEY, DATA)
    assert blobs.get(KEY, offset=offset, length=length) == DATA[offset : offset + length]


@pytest.mark.parametrize("offset", [0, 1, 255, 256])
def test_a_range_without_a_length_goes_to_the_end(blobs: Blobs, offset: int) -> None:
    blobs.put(KEY, DATA)
    assert blobs.get(KEY, offset=offset) == DATA[offset:]


@pytest.mark.parametrize(("offset", "length"), [(0, 257), (255, 2), (256, 1), (257, 0), (300, 10), (257, None)])
def test_an_object_that_ends_before_the_range_is_corrupt(blobs: Blobs, offset: int, length: int | None) -> None:
    blobs.put(KEY, DATA)
    with pytest.raises(Corrupt, match=KEY):
        blobs.get(KEY, offset=offset, length=length)


@pytest.mark.parametrize(("offset", "length"), [(-1, None), (-1, 2), (0, -1)])
def test_a_negative_range_is_an_error(blobs: Blobs, offset: int, length: int | None) -> None:
    blobs.put(KEY, DATA)
    with pytest.raises(ValueError, match="not a range"):
        blobs.get(KEY, offset=offset, length=length)


@pytest.mark.parametrize(("offset", "length"), [(0, None), (0, 0), (5, 5), (5, None)])
def test_an_object_that_is_not_there_is_not_found(blobs: Blobs, offset: int, length: int | None) -> None:
    blobs.put(f"{KEY}/below", DATA)
    with pytest.raises(NotFound, match=KEY):
        blobs.get(KEY, offset=offset, length=length)


def test_a_key_may_begin_with_another_key(blobs: Blobs) -> None:
    objects = {"a": b"1", "a/b": b"2", "a/b/c": b"3", "a.b": b"4"}
    for key, data in objects.items():
        blobs.put(key, data)
    assert {key: blobs.get(key) for key in blobs.list("")} == objects
    blobs.delete("a/b")
    assert blobs.list("") == ["a", "a.b", "a/b/c"]


def test_a_list_is_sorted_and_holds_every_key_with_the_prefix(blobs: Blobs) -> None:
    keys = sorted(["a/1", "a/10", "a/2", "a/b/1", "a-1", "b/1", "A/1"])
    for key in reversed(keys):
        blobs.put(key, DATA)
    for prefix in ["", "a", "a/", "a/1", "a/b", "a/b/", "b/1", "c", "a/1/", "/", "../", "a/../b"]:
        assert blobs.list(prefix) == [key for key in keys if key.startswith(prefix)]


def test_a_list_of_nothing_is_empty(blobs: Blobs) -> None:
    assert blobs.list("") == []
    assert blobs.list("a/b") == []


def test_a_list_goes_on_beyond_a_thousand_keys(blobs: Blobs) -> None:
    keys = [f"a/{number:04d}" for number in range(1_003)]
    for key in keys:
        blobs.put(key, b"")
    assert blobs.list("a/") == keys


def test_a_deleted_object_is_gone_and_can_be_deleted_again(blobs: Blobs) -> None:
    blobs.put(KEY, DATA)
    blobs.put(f"{KEY}.next", DATA)
    blobs.delete(KEY)
    blobs.delete(KEY)
    with pytest.raises(NotFound):
        blobs.get(KEY)
    assert blobs.list("") == [f"{KEY}.next"]


def test_deleting_what_was_never_there_is_no_error(blobs: Blobs) -> None:
    blobs.put(f"{KEY}/below", DATA)
    blobs.delete(KEY)
    assert blobs.list("") == [f"{KEY}/below"]


@pytest.mark.parametrize("key", NOT_KEYS)
def test_what_is_no_key_is_an_error_and_nothing_is_stored(blobs: Blobs, key: str) -> None:
    with pytest.raises(ValueError, match="not a blob key"):
        blobs.put(key, DATA)
    with pytest.raises(ValueError, match="not a blob key"):
        blobs.get(key)
    with pytest.raises(ValueError, match="not a blob key"):
        blobs.delete(key)
    assert blobs.list("") == []
