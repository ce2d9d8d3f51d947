"""Signatures of deliveries equal those of the reference implementation of Standard Webhooks."""

from base64 import b64decode, b64encode
from typing import Any

import msgspec
import pytest

from hourwheel.client.webhooks import Unverified, verify
from hourwheel.model.groups import Group, PushTarget
from hourwheel.wire.signatures import group_secret, secrets_of, signed_headers
from tests.support import NOON_MS, HandClock

CELL_SECRET = bytes(range(32))
GROUP = Group(
    subject="orders",
    subject_generation=1,
    name="billing",
    generation=1,
    start="earliest",
    max_attempts=16,
    created_ms=0,
    push=PushTarget(kind="https", address="https://example.com/"),
)


@pytest.mark.parametrize(
    ("secret", "delivery_id", "seconds", "body", "signature"),
    [
        (
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            '{"test": 2432232314}',
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        ),
        (
            "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
            "0123456789abcdef",
            1_763_640_000,
            '{"body":"ü\U0001f600"}',
            "v1,rE/XX9o1eRUStjEB2CeWPr/9cox5XWvKlADp6sgEAco=",
        ),
    ],
)
def test_signatures_that_the_reference_implementation_made(
    secret: str, delivery_id: str, seconds: int, body: str, signature: str
) -> None:
    assert signed_headers((secret,), delivery_id, seconds * 1_000 + 999, body.encode()) == {
        "webhook-id": delivery_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": signature,
    }


def test_a_secret_is_one_that_libraries_take() -> None:
    secret = group_secret(CELL_SECRET, GROUP, 1)
    key = b64decode(secret.removeprefix("whsec_"), validate=True)
    assert secret == f"whsec_{b64encode(key).decode()}"
    assert 24 <= len(key) <= 64


def test_a_secret_is_the_same_each_time_and_another_one_for_everything_else() -> None:
    assert group_secret(CELL_SECRET, GROUP, 1) == group_secret(CELL_SECRET, msgspec.structs.replace(GROUP), 1)
    changes: list[dict[str, Any]] = [
        {"subject": "order"},
        {"name": "billing2"},
        {"subject_generation": 2},
        {"generation": 2},
        {"subject": "orders~1/billing"},
    ]
    others = [group_secret(CELL_SECRET, msgspec.structs.replace(GROUP, **change), 1) for change in changes]
    others += [group_secret(CELL_SECRET, GROUP, 2), group_secret(CELL_SECRET, GROUP, 11)]
    others += [group_secret(bytes(32), GROUP, 1)]
    assert len({group_secret(CELL_SECRET, GROUP, 1), *others}) == len(others) + 1


def with_version(version: int, kind: Any = "https") -> Group:
    return msgspec.structs.replace(GROUP, push=PushTarget(kind=kind, address="x", secret_version=version))


@pytest.mark.parametrize(
    ("version", "signing"), [(1, [1]), (2, [2, 1]), (3, [3, 2]), (1_000_000, [1_000_000, 999_999])]
)
def test_a_new_secret_signs_beside_the_one_before(version: int, signing: list[int]) -> None:
    group = with_version(version)
    assert secrets_of(CELL_SECRET, group) == tuple(group_secret(CELL_SECRET, group, each) for each in signing)


def test_a_receiver_changes_its_secret_without_losing_a_delivery() -> None:
    for version in (2, 3):
        headers = signed_headers(secrets_of(CELL_SECRET, with_version(version)), "id", NOON_MS, b"body")
        verify(group_secret(CELL_SECRET, GROUP, 2), headers, b"body", clock=HandClock())
    headers = signed_headers(secrets_of(CELL_SECRET, with_version(4)), "id", NOON_MS, b"body")
    with pytest.raises(Unverified):
        verify(group_secret(CELL_SECRET, GROUP, 2), headers, b"body", clock=HandClock())


@pytest.mark.parametrize("kind", ["lambda", "sqs", "eventbridge", "notify", "python"])
def test_nothing_else_is_signed(kind: str) -> None:
    assert secrets_of(CELL_SECRET, with_version(1, kind)) == ()
    assert secrets_of(CELL_SECRET, msgspec.structs.replace(GROUP, push=None)) == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [("webhook-id", "jd"), ("webhook-timestamp", str(NOON_MS // 1_000 + 1)), ("webhook-signature", "v1,AAAA")],
)
def test_what_was_changed_on_the_way_is_noticed(name: str, value: str) -> None:
    secrets = secrets_of(CELL_SECRET, GROUP)
    headers = signed_headers(secrets, "id", NOON_MS, b"body")
    verify(secrets[0], headers, b"body", clock=HandClock())
    with pytest.raises(Unverified):
        verify(secrets[0], headers | {name: value}, b"body", clock=HandClock())
    with pytest.raises(Unverified):
        verify(secrets[0], headers, b"Body", clock=HandClock())
