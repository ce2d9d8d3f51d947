"""Signs and reads receipts, the texts that a consumer sends back to settle a pull.

A receipt contains the pull row as it was claimed (about 100 bytes), so that settling needs no read, and a keyed digest,
so that only the cell can make one. If the row has changed since the claim, the refused update returns the present row,
and a second update follows. A read before each settlement would cost a round trip each time.

    base64url(HMAC-SHA-256 of the rest, first 16 bytes ‖ msgpack array of Receipt)
"""

import base64
import binascii
import hashlib
import hmac
from functools import lru_cache

import msgspec

from hourwheel.context import Context
from hourwheel.errors import Rejected
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.model.log_names import shared_name
from hourwheel.ports.storage import Key, Table
from hourwheel.pull_log.records import PullRow

_MAC_BYTES = 16  # 128 bits: a forged receipt cannot be guessed, and the text stays short
_NO_TOKEN = bytes(16)  # tokens are random: no record ever has this one
_SECRETS = 16  # a process serves one deployment; tests have several


class Receipt(msgspec.Struct, array_like=True, frozen=True):
    """Names row ``row_no`` of the pull log of a group on queue ``queue`` (None: on the group's retry log), and contains
    the row (``value``) with the ``token`` under which it was stored. ``source`` is the log of the queue, if it is not
    the queue's first one in the home cell."""

    subject: str
    subject_generation: int
    group: str
    group_generation: int
    queue: int | None
    row_no: int
    token: bytes
    value: PullRow
    source: str = ""

    @property
    def pull_row(self) -> Versioned[PullRow]:
        return Versioned(self.value, self.token)


class Secret(msgspec.Struct, array_like=True, frozen=True):
    key: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Receipt)


def deployment_secret(context: Context) -> bytes:
    """Returns the secret that all functions of the deployment share. The first call draws and stores it."""
    record = CasRecord(context.store, context.ids, Key(Table.META, "cell", "receipts"), Secret)
    current = record.load() or record.swap(None, Secret(context.ids.token() + context.ids.token())).current
    assert current is not None
    return current.value.key


def sign_receipt(secret: bytes, receipt: Receipt) -> str:
    data = _encoder.encode(receipt)
    return base64.urlsafe_b64encode(_mac(secret, data) + data).rstrip(b"=").decode()


def open_receipt(secret: bytes, text: str, *, subject: str, group: str) -> Receipt:
    """Returns the receipt in ``text``. Raises ``Rejected`` unless this deployment issued it to this group."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        mac, data = data[:_MAC_BYTES], data[_MAC_BYTES:]
        if hmac.compare_digest(mac, _mac(secret, data)):
            receipt = _with_known_row(_decoder.decode(data), data)
            if (receipt.subject, shared_name(receipt.group)) == (subject, group):
                return receipt
    except (binascii.Error, UnicodeEncodeError, ValueError, msgspec.MsgspecError):
        pass
    raise Rejected(
        "receipt-invalid",
        f"a receipt was not issued to group {group!r} of subject {subject!r}: send back receipts as they were pulled",
        field="receipt",
    )


def _with_known_row(receipt: Receipt, data: bytes) -> Receipt:
    """Returns the receipt. If its row has fields that this version does not know, the receipt gets the token of no
    row. The first update is then refused, and the next one starts from the stored row, whose fields it keeps."""
    return receipt if _encoder.encode(receipt) == data else msgspec.structs.replace(receipt, token=_NO_TOKEN)


def _mac(secret: bytes, data: bytes) -> bytes:
    # Not ``hmac.digest``, which gives up the interpreter lock: in a busy server the thread then waits for its turn.
    mac = _keyed(secret).copy()
    mac.update(data)
    return mac.digest()[:_MAC_BYTES]


@lru_cache(_SECRETS)
def _keyed(secret: bytes) -> hmac.HMAC:
    return hmac.new(secret, digestmod=hashlib.sha256)
