"""A receipt settles the pull for which it was issued, and nothing else."""

import base64

import msgspec
import pytest

from hourwheel.errors import Rejected
from hourwheel.pull_log.receipts import Receipt, open_receipt, sign_receipt
from hourwheel.pull_log.records import Position, PullRow

SECRET = b"s" * 32
RECEIPT = Receipt(
    subject="orders",
    subject_generation=2,
    group="billing",
    group_generation=3,
    queue=1,
    row_no=7,
    token=b"t" * 16,
    value=PullRow(
        consumer="c1",
        first=Position(4, 2),
        counts=(3,),
        end=Position(5),
        end_seq=40,
        claim=b"c" * 16,
        claimed_ms=1,
        lease_until_ms=30_001,
    ),
)
TEXT = sign_receipt(SECRET, RECEIPT)


def refused(text: str, *, secret: bytes = SECRET, subject: str = "orders", group: str = "billing") -> None:
    with pytest.raises(Rejected, match="a receipt was not issued to group") as error:
        open_receipt(secret, text, subject=subject, group=group)
    assert (error.value.slug, error.value.field) == ("receipt-invalid", "receipt")


def test_a_receipt_comes_back_as_it_was_signed() -> None:
    assert open_receipt(SECRET, TEXT, subject="orders", group="billing") == RECEIPT


def test_a_receipt_is_text_that_fits_into_a_url() -> None:
    assert set(TEXT) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_a_receipt_of_the_retry_log_names_no_queue() -> None:
    of_retries = msgspec.structs.replace(RECEIPT, queue=None)
    assert open_receipt(SECRET, sign_receipt(SECRET, of_retries), subject="orders", group="billing").queue is None


def test_the_receipt_of_a_consumer_is_one_of_its_broadcast_group() -> None:
    of_consumer = msgspec.structs.replace(RECEIPT, group="screens+3+hall")
    assert open_receipt(SECRET, sign_receipt(SECRET, of_consumer), subject="orders", group="screens") == of_consumer
    refused(sign_receipt(SECRET, of_consumer), group="screens+3+hall")


def test_a_receipt_of_another_subject_or_group_is_refused() -> None:
    refused(TEXT, subject="order")
    refused(TEXT, group="billings")


def test_a_receipt_of_another_cell_is_refused() -> None:
    refused(TEXT, secret=b"o" * 32)


def test_no_bit_of_a_receipt_can_be_changed() -> None:
    data = base64.urlsafe_b64decode(TEXT + "=" * (-len(TEXT) % 4))
    for at in range(len(data)):
        forged = bytes([*data[:at], data[at] ^ 1, *data[at + 1 :]])
        refused(base64.urlsafe_b64encode(forged).rstrip(b"=").decode())


@pytest.mark.parametrize(
    "text", ["", "a", "====", "ä" * 40, TEXT[:-4], TEXT[:20], TEXT + "AAAA", f" {TEXT}", f"!!!!{TEXT}"]
)
def test_a_text_that_is_no_receipt_is_refused(text: str) -> None:
    refused(text)
