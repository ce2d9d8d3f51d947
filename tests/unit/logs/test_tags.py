"""Summaries of the tags of a batch decide about filters, and take a bounded number of bytes."""

from itertools import product
from random import Random

import pytest

from hourwheel.errors import Corrupt
from hourwheel.logs.index_sets import every, indexes_of, pack, pack_indexes, set_of, unpack, unpack_indexes
from hourwheel.logs.rows import LargeBatchRef, Row, to_record
from hourwheel.logs.tags import decode_summary, encode_summary, has_none_of, with_tags
from hourwheel.model.groups import TagFilter
from hourwheel.model.messages import NewMessage
from hourwheel.wire.answer_size import message_size

LOG = "orders~1/0"


def tagged(*tags: str | None) -> list[NewMessage]:
    """Returns messages with these tags; a blank divides the tags of a message."""
    return [NewMessage(body="b", tags=text.split() if text else None) for text in tags]


def row(block: bytes = b"", large_batch: LargeBatchRef | None = None) -> Row:
    return Row(
        first_seq=0,
        count=1,
        at_ms=1_763_640_000_000,
        expires_ms=1_763_640_000_000,
        block=block,
        large_batch=large_batch,
    )


@pytest.mark.parametrize(
    "members", [0, 1, every(8), every(1_000), 1 << 999, set_of(range(0, 1_000, 7)), set_of([3, 400, 999])]
)
def test_a_set_of_indexes_is_read_back(members: int) -> None:
    assert unpack(pack(members)) == members
    assert set_of(indexes_of(members)) == members
    assert pack_indexes(indexes_of(members)) == pack(members)
    assert unpack_indexes(pack(members)) == indexes_of(members)


def test_few_of_many_messages_take_a_byte_or_three_each() -> None:
    assert pack(set_of([0, 100, 900])) == (0, 99, 799)
    assert len(pack(set_of(range(0, 1_000, 2)))) == 125


@pytest.mark.parametrize("packed", [b"\x01" * 126, (1_000,), (999, 0), (-1,), (10**12,)])
def test_a_set_that_reaches_beyond_the_largest_batch_is_refused(packed: bytes | tuple[int, ...]) -> None:
    for read in (unpack, unpack_indexes):
        with pytest.raises(Corrupt):
            read(packed)


@pytest.mark.parametrize("room", [1_000, 60, 30, 16])
def test_a_summary_says_what_the_messages_say_or_that_they_have_to_be_read(room: int) -> None:
    rng = Random(room)
    names = ["a", "b", "c", "d"]
    for _ in range(100):
        batch = tagged(*(" ".join(rng.sample(names, rng.randint(0, 3))) for _ in range(rng.randint(1, 40))))
        if not any(message.tags for message in batch):
            continue
        data = encode_summary(batch, room)
        summary = decode_summary(data)
        for some, every_one, none in product(((), ("a",), ("a", "x")), ((), ("b",), ("b", "c")), ((), ("d", "y"))):
            wanted = TagFilter(tags_any=some, tags_all=every_one, tags_none=none)
            found = summary.matching(wanted, len(batch))
            expected = set_of(index for index, message in enumerate(batch) if wanted.takes(message.tags))
            named = [tag.encode() for tag in some]
            if named and has_none_of(data, named):
                assert expected == 0
            assert found in ((expected,) if room == 1_000 else (expected, None))


def test_a_summary_that_has_no_room_for_indexes_tells_the_tags() -> None:
    batch = tagged(*(f"t{index % 7}" for index in range(100)))
    summary = decode_summary(encode_summary(batch, 40))
    assert summary.where == ()
    assert summary.matching(TagFilter(tags_any=("other",)), 100) == 0
    assert summary.matching(TagFilter(tags_none=("other",)), 100) == every(100)
    assert summary.matching(TagFilter(tags_any=("t1",)), 100) is None


def test_bytes_that_are_nowhere_in_the_tags_show_that_no_message_has_the_tag() -> None:
    data = encode_summary(tagged("région", "ab", None), 100)
    assert has_none_of(data, [b"r\xc3\xa9gime", b"abc"])
    assert not has_none_of(data, [b"abc", "région".encode()])
    assert not has_none_of(data, [b"b"])


@pytest.mark.parametrize(
    "data", [encode_summary(tagged(*(f"t{number}" for number in range(99))), 20), b"", b"\x91\x04"]
)
def test_a_summary_without_its_tags_shows_nothing(data: bytes) -> None:
    assert not has_none_of(data, [b"other"])


def test_a_summary_leaves_out_the_commonest_tags_first() -> None:
    batch = tagged(*("rare" if index == 700 else f"t{index % 7}" for index in range(1_000)))
    summary = decode_summary(encode_summary(batch, 500))
    assert summary.matching(TagFilter(tags_any=("rare",)), 1_000) == 1 << 700
    told = [summary.matching(TagFilter(tags_any=(f"t{tag}",)), 1_000) for tag in range(7)]
    assert 0 < told.count(None) < 7


def test_a_summary_bounds_the_largest_message_in_an_answer() -> None:
    batch = [NewMessage(body='"\x00é' * size, tags=["a"]) for size in (1, 500, 20)]
    assert decode_summary(encode_summary(batch, 1_000)).largest >= max(map(message_size, batch))


def test_a_batch_without_tags_costs_no_byte() -> None:
    plain = row(b"x" * 500)
    assert with_tags(plain, LOG, tagged(None, None)) is plain


@pytest.mark.parametrize("size", [0, 200, 800, 850, 1_000, 5_000, 11_900])
@pytest.mark.parametrize("tags", [1, 4, 60])
def test_a_summary_needs_no_further_unit_of_a_write(size: int, tags: int) -> None:
    large_batch = (
        None if size else LargeBatchRef("batches/001763640000000/0197f00d-0000-7000-8000-0123456789ab", 0, 99_999)
    )
    plain = row(b"x" * size, large_batch)
    batch = tagged(*(f"region-{index % tags}" for index in range(200)))

    def units(stored: Row) -> int:
        record = to_record(stored, b"t" * 16, 86_400_000)
        names = len("pk" + LOG + "sk" + "0" * 16 + "v" + "t" + "x") + 10
        return -(-(len(record.value) + len(record.token) + names) // 1_024)

    assert units(with_tags(plain, LOG, batch)) == units(plain)


def test_a_summary_takes_spare_bytes_beyond_the_last_unit() -> None:
    batch = tagged(*(f"region-{index % 60}" for index in range(200)))
    plain = row(b"x" * 850)  # leaves no room for 60 tags in its unit
    eu = TagFilter(tags_any=("region-7",))
    narrow, wide = (decode_summary(with_tags(plain, LOG, batch, spare_bytes).meta) for spare_bytes in (0, 1_024))
    assert narrow.matching(eu, 200) is None
    assert wide.matching(eu, 200) == set_of(range(7, 200, 60))


@pytest.mark.parametrize("data", [b"\xc1", b"\x91\x04", b"\x94\x03\x01\x91\xa1a\x92\xc4\x00\xc4\x00"])
def test_bytes_that_are_no_summary_are_refused(data: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_summary(data)
