"""The computed size of a batch is an upper bound for every answer that contains its messages."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from hourwheel.logs.cas import Versioned
from hourwheel.logs.codec import encode
from hourwheel.logs.rows import Row
from hourwheel.model.messages import Message, NewMessage
from hourwheel.model.pulls import Pull, PullResult, Settled
from hourwheel.pull_log.receipts import Receipt, sign_receipt
from hourwheel.pull_log.records import Position, PullRow
from hourwheel.wire.answer_size import ADDED_BYTES, LAMBDA_BYTES, PULL_BYTES, answerable, batch_size, message_size
from tests.lambdajson import as_lambda_encodes

characters = st.sampled_from(['"', "\\", "\x00", "\x1f", "\n", "a", "é", "€", "😀", "\u2028", "\x7f", "<", "/"])
short = st.text(characters, max_size=60)
bodies = st.one_of(
    st.builds(lambda text, times: {"body": text * times}, short, st.sampled_from([1, 40, 2_000, 17_000])),
    st.builds(lambda data, times: {"body_base64": data * times}, st.binary(max_size=60), st.sampled_from([1, 9_000])),
)
messages = st.builds(
    lambda body, **rest: NewMessage(**body, **rest),
    bodies,
    id=short,
    key=st.none() | short,
    tags=st.none() | st.lists(short, max_size=10),
    headers=st.none() | st.dictionaries(short, short, max_size=32),
)


def delivered(message: NewMessage) -> Message:
    """Returns the message with all fields that delivery adds."""
    moment = "2026-11-20T09:00:00.000Z"
    return Message(
        **(msgspec.structs.asdict(message) | {"queue": 63}),
        offset=2**63 - 1,
        attempt=1_000,
        produced_at=moment,
        due_at=moment,
        died_at=moment,
        reason="subject-deleted",
        dead_id=f"{'9' * 12}-{'9' * 16}-9999",
    )


def told_bytes(some: list[NewMessage]) -> int:
    """Returns how many bytes these messages add to an answer."""
    texts = [msgspec.json.encode(answerable(delivered(message))).decode() for message in some]
    return len(as_lambda_encodes({"body": ",".join(texts)})) - len(as_lambda_encodes({"body": ""}))


@settings(deadline=None, max_examples=60)
@given(st.lists(messages, min_size=1, max_size=12))
def test_no_part_of_a_batch_takes_more_than_is_said(batch: list[NewMessage]) -> None:
    size = batch_size(batch, msgspec.msgpack.encode(batch))
    if not size.cuts:
        assert told_bytes(batch) <= size.total <= PULL_BYTES
        return
    assert told_bytes(batch) <= size.total
    for start, end in zip((0, *size.cuts), (*size.cuts, len(batch)), strict=True):
        assert start < end
        assert told_bytes(batch[start:end]) <= PULL_BYTES


@settings(deadline=None, max_examples=60)
@given(messages)
def test_no_message_takes_more_than_is_said(message: NewMessage) -> None:
    assert told_bytes([message]) <= message_size(message) <= PULL_BYTES


def test_a_claim_may_go_on_from_anywhere_to_the_next_cut() -> None:
    block = encode([NewMessage(body='"' * 500_000) for _ in range(8)])
    row = Row(0, block.count, 0, 0, answer_bytes=block.answer.total, cuts=block.answer.cuts)
    assert row.cuts == (2, 4, 6)
    assert [row.together(index) for index in range(8)] == [2, 1] * 4


def test_a_thousand_small_messages_are_one_pull_whatever_is_in_them() -> None:
    block = encode([NewMessage(body="\x01" * 700, id=str(number)) for number in range(1_000)])
    assert (block.answer.total <= PULL_BYTES, block.answer.cuts) == (True, ())


def test_what_delivery_adds_is_less_than_is_said() -> None:
    bare = NewMessage(body="", id="")
    added = told_bytes([bare]) - len(as_lambda_encodes(msgspec.json.encode(bare).decode())) + 2
    assert 200 < added < ADDED_BYTES


def test_receipts_and_settlements_fit_beside_the_messages() -> None:
    name, moment = "n" * 100, "2026-11-20T09:00:00.000Z"
    most, token = 2**63 - 1, b"t" * 16

    def pull(queue: int, counts: tuple[int, ...]) -> Pull:
        row = PullRow(
            consumer=name,
            first=Position(most, 999),
            counts=counts,
            end=Position(most, 999),
            end_seq=most,
            claim=token,
            claimed_ms=most,
            lease_until_ms=most,
        )
        receipt = Receipt(name, most, name, most, queue, most, token, Versioned(row, token).value)
        return Pull(sign_receipt(token, receipt), queue, moment, [])

    # Every queue of a subject and the retries; 1,000 messages in all, and as many rows without any as a claim covers.
    pulls = [pull(queue, (200,) * 16 + (0,) * 499) for queue in range(65)]
    answer = PullResult(pulls, [Settled("extended", moment)] * 1_000)
    response = {"statusCode": 200, "headers": {"content-type": "application/json"}}
    size = len(as_lambda_encodes({**response, "body": msgspec.json.encode(answer).decode()}))
    assert size + PULL_BYTES < LAMBDA_BYTES - 1_000
