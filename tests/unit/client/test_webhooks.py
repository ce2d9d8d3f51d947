import base64
import hashlib
import hmac

import pytest

from hourwheel.client.webhooks import Unverified, verify
from hourwheel.wire.signatures import signed_headers

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SECONDS = 1_614_265_330
BODY = b'{"test": 2432232314}'


class ClockAt:
    def __init__(self, seconds: float) -> None:
        self._ms = round(seconds * 1_000)

    def now_ms(self) -> int:
        return self._ms

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here sleeps")


def signature(content: bytes, secret: str = SECRET) -> str:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    return base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()


def headers(body: bytes = BODY, **other: str) -> dict[str, str]:
    signed = {"webhook-id": "msg_1", "webhook-timestamp": str(SECONDS)}
    signed["webhook-signature"] = "v1," + signature(f"msg_1.{SECONDS}.".encode() + body)
    return {**signed, **{f"webhook-{name}": value for name, value in other.items()}}


def check(given: dict[str, str], body: bytes | str = BODY, *, now: float = SECONDS, tolerance: int = 300) -> None:
    verify(SECRET, given, body, tolerance_seconds=tolerance, clock=ClockAt(now))


def test_a_known_signature() -> None:
    # The pair that the libraries of Standard Webhooks are tested with.
    known = {"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": str(SECONDS)}
    known["webhook-signature"] = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    check(known)


def test_a_request_as_it_was_sent() -> None:
    check(headers())
    check(headers(), BODY.decode())
    check({name.title(): value for name, value in headers().items()})
    check(headers(b"\0\xff"), b"\0\xff")
    check(headers(b""), b"")


def test_what_the_server_signs() -> None:
    sent = signed_headers((SECRET, "whsec_b3RoZXIsIG9sZGVyIG9uZQ=="), "d-1", SECONDS * 1_000, BODY)
    check(sent)
    verify("whsec_b3RoZXIsIG9sZGVyIG9uZQ==", sent, BODY, clock=ClockAt(SECONDS))
    with pytest.raises(Unverified):
        verify("whsec_b3RoZXI=", sent, BODY, clock=ClockAt(SECONDS))


def test_one_right_signature_is_enough() -> None:
    right = headers()["webhook-signature"]
    other = "v1," + signature(b"other")
    for entries in ([other, right], [right, other], ["v1a," + other, "v1,%%%", "v2", "", "v1,ä", right]):
        check(headers(signature=" ".join(entries)))


@pytest.mark.parametrize(
    ("given", "body", "says"),
    [
        ({}, BODY + b" ", "another secret, or another body"),
        ({}, b"", "another secret, or another body"),
        ({"id": "msg_2"}, BODY, "another secret"),
        ({"id": "msg_1\udcff"}, BODY, "another secret"),
        ({"timestamp": str(SECONDS + 1)}, BODY, "another secret"),
        ({"signature": "v1," + signature(b"other")}, BODY, "another secret"),
        ({"signature": signature(f"msg_1.{SECONDS}.".encode() + BODY)}, BODY, "another secret"),
        ({"signature": "v1a," + signature(f"msg_1.{SECONDS}.".encode() + BODY)}, BODY, "another secret"),
        ({"signature": headers()["webhook-signature"] + "%"}, BODY, "another secret"),
        ({"signature": "v1,"}, BODY, "another secret"),
        ({"signature": "v1,ä"}, BODY, "another secret"),
        ({"signature": ""}, BODY, "webhook-signature is missing"),
        ({"id": ""}, BODY, "webhook-id is missing"),
        ({"timestamp": ""}, BODY, "webhook-timestamp is missing"),
        ({"timestamp": f"{SECONDS}.0"}, BODY, "Unix seconds"),
        ({"timestamp": "-1"}, BODY, "Unix seconds"),
        ({"timestamp": "٣"}, BODY, "Unix seconds"),
        ({"timestamp": "9" * 400}, BODY, "Unix seconds"),
    ],
)
def test_what_is_not_to_be_trusted(given: dict[str, str], body: bytes, says: str) -> None:
    with pytest.raises(Unverified, match=says):
        check(headers(**given), body)


def test_headers_that_are_not_there() -> None:
    with pytest.raises(Unverified, match="webhook-id is missing"):
        check({})


def test_time() -> None:
    check(headers(), now=SECONDS + 300)
    check(headers(), now=SECONDS - 300)
    check(headers(), now=SECONDS + 900, tolerance=900)
    with pytest.raises(Unverified, match="too old: webhook-timestamp is 301 s from now"):
        check(headers(), now=SECONDS + 301)
    with pytest.raises(Unverified, match="too new"):
        check(headers(), now=SECONDS - 301)
    with pytest.raises(Unverified, match="too old"):
        verify(SECRET, headers(), BODY)  # by the clock of this machine


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_%", "whsec_ä", SECRET.removeprefix("whsec_"), "whsk_AAAA"])
def test_a_secret_that_is_none(secret: str) -> None:
    with pytest.raises(ValueError, match="whsec_"):
        verify(secret, headers(), BODY)
