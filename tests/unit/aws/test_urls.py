"""Requests through function URLs: routes, callers and tokens."""

import hashlib
import hmac
import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.api.grants import AccessGrant, OpenedGrant, SigningKeys, renewed, sign_grant
from hourwheel.aws.urls import GRANT_HEADER, identity
from hourwheel.context import Settings
from hourwheel.ports.storage import Key, Table
from tests.function_urls import OPERATOR, OPERATOR_SESSION, SERVICE_SESSION, UrlDeployment, url_event
from tests.support import Bench, CallByCall, HandClock, NoWakeups
from tests.unit.api.conftest import Answer

ORDERS, PAID = "/v1/subjects/orders/messages", "/v1/subjects/paid/messages"
BILLING = "/v1/subjects/orders/groups/billing"


class Urls:
    """Calls functions as the service ``shop``, or as an operator."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.deployment = UrlDeployment(bench.deployment)

    def call(
        self,
        name: str,
        method: str,
        target: str,
        body: Any = None,
        *,
        token: str | None = None,
        caller: str = SERVICE_SESSION,
    ) -> Answer:
        headers = {"content-type": "application/json"} | ({} if token is None else {GRANT_HEADER: token})
        text = None if body is None else json.dumps(body)
        return self.answer(name, url_event(method, target, text, caller=caller, headers=headers))

    def answer(self, name: str, event: dict[str, Any]) -> Answer:
        response = self.deployment.respond(name, event)
        text = response["body"]
        return Answer(response["statusCode"], response["headers"], json.loads(text) if text else None)

    def grant(self, **body: Any) -> str:
        answer = self.call("meta", "POST", "/v1/grants", body, caller=OPERATOR_SESSION)
        assert answer.status == 200, answer
        return str(answer.json["token"])

    def send(self, path: str, token: str | None, *bodies: str) -> Answer:
        return self.call("produce", "POST", path, {"messages": [{"body": body} for body in bodies]}, token=token)


@dataclass
class LongWaits(NoWakeups):
    """Each wait of a pull takes its whole time, and lets ``meanwhile`` run."""

    clock: HandClock = field(kw_only=True)
    meanwhile: Callable[[], None] = lambda: None

    def wait(self, subject: str, group: str, *, since: int, tries: int, seconds: float) -> bool:
        self.meanwhile()
        self.clock.pass_time(seconds)
        return False


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def urls(bench: Bench) -> Urls:
    return Urls(bench)


def test_a_producer_and_a_consumer_with_tokens_exchange_messages(urls: Urls) -> None:
    producer, consumer = urls.grant(produce=["orders"]), urls.grant(pull=["orders/billing"])
    urls.call("meta", "PUT", BILLING, {}, caller=OPERATOR_SESSION)
    assert urls.send(ORDERS, producer, "a", "b").status == 200
    pulled = urls.call("pull", "POST", f"{BILLING}/pull", {"consumer": "c"}, token=consumer)
    assert [message["body"] for message in pulled.json["pulls"][0]["messages"]] == ["a", "b"]
    settle = {"settle": [{"receipt": pulled.json["pulls"][0]["receipt"]}]}
    assert urls.call("ack", "POST", f"{BILLING}/ack", settle, token=consumer).status == 200
    assert urls.call("meta", "GET", f"{BILLING}/lag", token=consumer).json["waiting"] == 0


def test_an_operator_needs_no_token_and_anybody_else_does(urls: Urls) -> None:
    body = {"messages": [{"body": "x"}]}
    assert urls.call("produce", "POST", ORDERS, body, caller=OPERATOR_SESSION).status == 200
    refused = urls.call("produce", "POST", ORDERS, body)
    assert (refused.status, refused.slug) == (401, "grant-missing")
    event = url_event("POST", ORDERS, json.dumps(body), caller=OPERATOR_SESSION, headers={})
    event["requestContext"]["authorizer"] = None
    assert urls.answer("produce", event).slug == "grant-missing"


@pytest.mark.parametrize(
    "caller", ["arn:aws:sts::999988887777:assumed-role/operator/x", f"{OPERATOR}-of-shop", "", "*"]
)
def test_who_only_looks_like_an_operator_is_none(urls: Urls, caller: str) -> None:
    assert urls.call("meta", "GET", "/v1/subjects", caller=caller).status == 401


@pytest.mark.parametrize(
    ("name", "method", "target"),
    [
        ("produce", "POST", PAID),
        ("pull", "POST", "/v1/subjects/orders/groups/other/pull"),
        ("pull", "POST", "/v1/subjects/paid/groups/billing/pull"),
        ("ack", "POST", "/v1/subjects/orders/groups/other/ack"),
        ("meta", "GET", "/v1/subjects/orders/groups/other/lag"),
        ("meta", "DELETE", "/v1/subjects/orders"),
        ("meta", "GET", "/v1/subjects"),
        ("meta", "GET", "/v1/scheduled/abc"),
        ("meta", "POST", f"{BILLING}/seek"),
        ("meta", "POST", "/v1/grants"),
        ("meta", "POST", "/v1/grants/rotate"),
    ],
)
def test_a_token_allows_its_subjects_and_groups_and_nothing_else(
    urls: Urls, name: str, method: str, target: str
) -> None:
    token = urls.grant(produce=["orders"], pull=["orders/billing"])
    refused = urls.call(name, method, target, {"messages": [{"body": "x"}]}, token=token)
    assert (refused.status, refused.slug) == (403, "grant-insufficient")


def test_a_batch_with_one_subject_that_is_not_granted_is_refused_whole(urls: Urls) -> None:
    token = urls.grant(produce=["orders"])
    body = {"messages": [{"subject": "orders", "body": "a"}, {"subject": "paid", "body": "b"}]}
    refused = urls.call("produce", "POST", "/v1/messages", body, token=token)
    assert (refused.status, refused.slug, refused.json["field"]) == (403, "grant-insufficient", "messages[1].subject")
    assert "nothing was stored" in refused.json["detail"]
    assert urls.call("meta", "GET", "/v1/subjects", caller=OPERATOR_SESSION).json["subjects"] == []
    body["messages"].pop()
    assert urls.call("produce", "POST", "/v1/messages", body, token=token).status == 200


SHOP = "arn:aws:iam::111122223333:role/services/shop"
"""The role of ``SERVICE_SESSION``, with its path."""


def test_a_token_of_one_role_is_refused_to_any_other(urls: Urls) -> None:
    urls.call("meta", "PUT", BILLING, {}, caller=OPERATOR_SESSION)
    token = urls.grant(produce=["orders"], pull=["orders/billing"], caller=SHOP)
    others = ("arn:aws:sts::111122223333:assumed-role/thief/i-1", "arn:aws:sts::999988887777:assumed-role/shop/i-1", "")
    body = {"messages": [{"body": "x"}]}
    for name, target, content in (
        ("produce", ORDERS, body),
        ("produce", "/v1/messages", {"messages": [{"subject": "orders", "body": "x"}]}),
        ("pull", f"{BILLING}/pull", {"consumer": "c"}),
    ):
        for other in others:
            refused = urls.call(name, "POST", target, content, token=token, caller=other)
            assert (refused.status, refused.slug) == (403, "grant-foreign")
        assert urls.call(name, "POST", target, content, token=token).status == 200
    assert urls.call("meta", "GET", f"{BILLING}/lag", caller=OPERATOR_SESSION).json["in_flight"] == 2, "one of each"


def test_the_token_that_follows_is_of_the_same_role(urls: Urls) -> None:
    token = urls.grant(produce=["orders"], seconds=3_600, renew_seconds=9_000, caller=SHOP)
    urls.bench.clock.pass_time(1_900)
    token = urls.send(ORDERS, token, "x").headers[GRANT_HEADER]
    urls.bench.clock.pass_time(1_900)
    assert urls.send(ORDERS, token, "x").status == 200
    body, other = {"messages": [{"body": "x"}]}, "arn:aws:sts::111122223333:assumed-role/thief/i-1"
    assert urls.call("produce", "POST", ORDERS, body, token=token, caller=other).slug == "grant-foreign"


def test_a_star_stands_for_the_rest_of_a_name(urls: Urls) -> None:
    token = urls.grant(produce=["shop-*"], pull=["*/audit"])
    assert urls.send("/v1/subjects/shop-orders/messages", token, "x").status == 200
    assert urls.send(ORDERS, token, "x").status == 403
    assert urls.call("pull", "POST", "/v1/subjects/any/groups/audit/pull", {"consumer": "c"}, token=token).status == 200
    assert (
        urls.call("pull", "POST", "/v1/subjects/any/groups/audits/pull", {"consumer": "c"}, token=token).status == 403
    )


def test_a_token_too_long_to_be_taken_is_not_created(urls: Urls) -> None:
    names = [f"{number:02d}{'x' * 98}" for number in range(20)]
    body = {"produce": names, "pull": [f"{name}/{name}" for name in names]}
    refused = urls.call("meta", "POST", "/v1/grants", body, caller=OPERATOR_SESSION)
    assert (refused.status, refused.slug) == (400, "field-invalid")
    assert "create several tokens" in refused.json["detail"]


def changed(token: str) -> str:
    return token[:-2] + ("A" if token[-2] != "A" else "B") + token[-1]


@pytest.mark.parametrize(
    "token", ["", "hwg_", "hwg_!!!", "Bearer x", "hwg_" + "A" * 60, "hwg_" + "A" * 5_000, "hwg_\xff"]
)
def test_text_that_is_no_token_is_refused(urls: Urls, token: str) -> None:
    refused = urls.send(ORDERS, token, "x")
    assert (refused.status, refused.slug) == (401, "grant-invalid")


def test_a_changed_token_and_one_of_another_deployment_are_refused(urls: Urls) -> None:
    token = urls.grant(produce=["orders"])
    foreign = Urls(Bench()).grant(produce=["orders"])
    for each in (changed(token), foreign):
        assert urls.send(ORDERS, each, "x").slug == "grant-invalid"
    assert urls.send(ORDERS, token, "x").status == 200


def test_a_token_ends_with_its_time(urls: Urls) -> None:
    token = urls.grant(produce=["orders"], seconds=3_600)
    urls.bench.clock.pass_time(3_599)
    assert urls.send(ORDERS, token, "x").status == 200
    urls.bench.clock.pass_time(1)
    refused = urls.send(ORDERS, token, "x")
    assert (refused.status, refused.slug) == (401, "grant-expired")


def test_a_token_is_renewed_by_the_answers_to_its_requests_until_its_end(urls: Urls) -> None:
    token = urls.grant(produce=["orders"], seconds=3_600, renew_seconds=9_000)
    urls.bench.clock.pass_time(1_700)
    assert GRANT_HEADER not in urls.send(ORDERS, token, "x").headers, "less than half of its time is over"
    urls.bench.clock.pass_time(200)
    token = urls.send(ORDERS, token, "x").headers[GRANT_HEADER]
    for _ in range(2):
        urls.bench.clock.pass_time(1_900)
        token = urls.send(ORDERS, token, "x").headers[GRANT_HEADER]
    urls.bench.clock.pass_time(3_299)
    assert GRANT_HEADER not in urls.send(ORDERS, token, "x").headers
    urls.bench.clock.pass_time(1)
    assert urls.send(ORDERS, token, "x").slug == "grant-expired"


def test_a_token_is_not_renewed_unless_that_was_granted(urls: Urls) -> None:
    token = urls.grant(produce=["orders"], seconds=3_600)
    urls.bench.clock.pass_time(3_000)
    assert GRANT_HEADER not in urls.send(ORDERS, token, "x").headers
    grant = AccessGrant(version=0, expires_s=3_600, lifetime_s=3_600, until_s=3_600)
    assert renewed(OpenedGrant(grant, 0), 0, 3_000_000) is None


def test_a_rotation_keeps_the_tokens_before_and_a_second_one_ends_them(urls: Urls) -> None:
    token = urls.grant(produce=["orders"], seconds=86_400)
    for status in (200, 401):
        assert urls.call("meta", "POST", "/v1/grants/rotate", {}, caller=OPERATOR_SESSION).status == 200
        urls.bench.clock.pass_time(60)  # by then every process has read the version
        assert urls.send(ORDERS, token, "x").status == status
    assert urls.send(ORDERS, urls.grant(produce=["orders"]), "x").status == 200


def test_a_revocation_ends_every_token_within_a_minute(urls: Urls) -> None:
    token = urls.grant(produce=["orders"], seconds=86_400)
    assert urls.send(ORDERS, token, "x").status == 200
    urls.call("meta", "POST", "/v1/grants/rotate", {"revoke": True}, caller=OPERATOR_SESSION)
    urls.bench.clock.pass_time(60)
    refused = urls.send(ORDERS, token, "x")
    assert (refused.status, refused.slug) == (401, "grant-expired")


@pytest.mark.parametrize("revokes", [[True], [False, False], [False]], ids=["revoked", "rotated twice", "rotated once"])
def test_a_pull_that_outlasts_a_rotation_brings_no_token(revokes: list[bool]) -> None:
    clock = HandClock()
    urls = Urls(Bench(clock=clock, wakeups=(wakeups := LongWaits(clock=clock))))
    urls.call("meta", "PUT", BILLING, {}, caller=OPERATOR_SESSION)
    token = urls.grant(pull=["orders/billing"], seconds=3_600, renew_seconds=22 * 86_400)
    clock.pass_time(3_400)
    assert GRANT_HEADER in urls.call("pull", "POST", f"{BILLING}/pull", {"consumer": "c"}, token=token).headers
    clock.pass_time(59)  # the function reads the version again during its next pull

    def rotate() -> None:
        for revoke in revokes:
            body = {"revoke": revoke}
            assert urls.call("meta", "POST", "/v1/grants/rotate", body, caller=OPERATOR_SESSION).status == 200

    wakeups.meanwhile = rotate
    waiting = {"consumer": "c", "wait_seconds": 20}
    pulled = urls.call("pull", "POST", f"{BILLING}/pull", waiting, token=token)
    assert (pulled.status, pulled.json["pulls"]) == (200, [])
    assert GRANT_HEADER not in pulled.headers
    renewed_later = urls.call("pull", "POST", f"{BILLING}/pull", {"consumer": "c"}, token=token)
    assert (GRANT_HEADER in renewed_later.headers) == (revokes == [False]), "a plain rotation ends no renewable token"
    assert renewed_later.status == (200 if revokes == [False] else 401)


def test_a_process_that_has_not_read_the_version_takes_a_newer_token_at_once(urls: Urls) -> None:
    assert urls.send(ORDERS, urls.grant(produce=["orders"]), "x").status == 200
    urls.call("meta", "POST", "/v1/grants/rotate", {"revoke": True}, caller=OPERATOR_SESSION)
    assert urls.send(ORDERS, urls.grant(produce=["orders"]), "x").status == 200


def stored_keys(urls: Urls) -> SigningKeys:
    record = urls.bench.store.get(Key(Table.META, "cell", "grant-keys"))
    assert record is not None
    return msgspec.msgpack.decode(record.value, type=SigningKeys)


def forged(urls: Urls, version: int, key: bytes) -> str:
    """Returns a token for ``orders`` of this version, signed with this key."""
    now_s = urls.bench.clock.now_ms() // 1_000
    grant = AccessGrant(version=version, expires_s=now_s + 600, lifetime_s=600, until_s=now_s + 600, produce=["orders"])
    return sign_grant(SigningKeys(version, key), grant)


def test_the_secret_of_the_deployment_signs_no_token(urls: Urls) -> None:
    urls.grant(produce=["orders"])
    secret = urls.bench.deployment.secret
    for version in range(4):
        for key in (secret, hmac.digest(secret, f"grant {version}".encode(), hashlib.sha256)):
            assert urls.send(ORDERS, forged(urls, version, key), "x").slug == "grant-invalid"


def test_a_key_that_became_known_signs_no_token_after_a_revocation(urls: Urls) -> None:
    urls.grant(produce=["orders"])
    known = stored_keys(urls)
    assert urls.send(ORDERS, forged(urls, known.version, known.key), "x").status == 200
    urls.call("meta", "POST", "/v1/grants/rotate", {"revoke": True}, caller=OPERATOR_SESSION)
    urls.bench.clock.pass_time(60)
    for version, slug in ((known.version, "grant-expired"), (known.version + 1, "grant-invalid")):
        assert urls.send(ORDERS, forged(urls, version, known.key), "x").slug == slug
    assert urls.send(ORDERS, forged(urls, known.version + 2, known.key), "x").slug == "grant-invalid"


def test_each_version_has_a_key_of_its_own_and_two_are_kept_at_most(urls: Urls) -> None:
    urls.grant(produce=["orders"])
    seen = [stored_keys(urls)]
    for revoke in (False, False, True):
        urls.call("meta", "POST", "/v1/grants/rotate", {"revoke": revoke}, caller=OPERATOR_SESSION)
        seen.append(stored_keys(urls))
    assert [keys.version for keys in seen] == [1, 2, 3, 4]
    assert [keys.previous for keys in seen] == [None, seen[0].key, seen[1].key, None]
    assert len({keys.key for keys in seen}) == 4
    assert all(len(keys.key) == 32 for keys in seen)


def test_a_token_of_a_version_that_never_was_is_refused(urls: Urls) -> None:
    assert urls.send(ORDERS, forged(urls, 7, b"k"), "x").slug == "grant-invalid"
    urls.grant(produce=["orders"])
    assert urls.send(ORDERS, forged(urls, 7, stored_keys(urls).key), "x").slug == "grant-invalid"


def test_tokens_of_later_versions_cost_a_bounded_number_of_reads() -> None:
    store = CallByCall(MemoryStore())
    urls = Urls(Bench(store, settings=Settings(registry_seconds=600)))
    token = urls.grant(produce=["orders"])
    assert urls.send(ORDERS, token, "x").status == 200
    store.calls.clear()
    for version in range(10, 110):
        assert urls.send(ORDERS, forged(urls, version, b"k"), "x").slug == "grant-invalid"
    assert 0 < store.calls.count(("get", "meta")) <= 10
    assert urls.send(ORDERS, token, "x").status == 200
    urls.call("meta", "POST", "/v1/grants/rotate", {"revoke": True}, caller=OPERATOR_SESSION)
    urls.bench.clock.pass_time(60)
    assert urls.send(ORDERS, urls.grant(produce=["orders"]), "x").status == 200
    assert urls.send(ORDERS, token, "x").slug == "grant-expired"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, None),
        ({"produce": ["a b"]}, "produce[0]"),
        ({"produce": ["a*b"]}, "produce[0]"),
        ({"produce": [""]}, "produce[0]"),
        ({"produce": ["a\n"]}, "produce[0]"),
        ({"produce": ["a"] * 21}, "produce"),
        ({"pull": ["orders"]}, "pull[0]"),
        ({"pull": ["orders/"]}, None),
        ({"pull": ["/billing"]}, None),
        ({"produce": ["a"], "seconds": 59}, "seconds"),
        ({"produce": ["a"], "seconds": 8 * 86_400}, "seconds"),
        ({"produce": ["a"], "renew_seconds": 401 * 86_400}, "renew_seconds"),
        ({"produce": ["a"], "admin": True}, "admin"),
        ({"produce": ["a"], "caller": ""}, "caller"),
        ({"produce": ["a"], "caller": "arn:aws:iam::111122223333:root"}, "caller"),
        ({"produce": ["a"], "caller": "arn:aws:iam::111122223333:role/*"}, "caller"),
        ({"produce": ["a"], "caller": SERVICE_SESSION}, "caller"),
    ],
)
def test_a_wrong_grant_is_refused(urls: Urls, body: dict[str, Any], field: str | None) -> None:
    refused = urls.call("meta", "POST", "/v1/grants", body, caller=OPERATOR_SESSION)
    assert (refused.status, refused.json.get("field")) == (400, field)


def test_delayed_messages_are_looked_up_by_tokens_that_say_so(urls: Urls) -> None:
    token = urls.grant(produce=["orders"], delayed=True)
    body = {"messages": [{"body": "x", "delay": 60}]}
    (result,) = urls.call("produce", "POST", ORDERS, body, token=token).json["results"]
    target = f"/v1/scheduled/{result['scheduled_id']}"
    assert urls.call("meta", "GET", target, token=token).json["state"] == "waiting"
    assert urls.call("meta", "GET", target, token=urls.grant(produce=["orders"])).status == 403
    assert urls.call("meta", "GET", "/v1/subjects/paid/scheduled", token=token).status == 403


def test_delayed_messages_are_listed_by_tokens_of_their_subject_that_say_so(urls: Urls) -> None:
    token = urls.grant(produce=["orders"], delayed=True)
    for subject in ("orders", "paid"):
        target, body = f"/v1/subjects/{subject}/messages", {"messages": [{"body": "x", "delay": 60}]}
        assert urls.call("produce", "POST", target, body, caller=OPERATOR_SESSION).status == 200
    listed = urls.call("meta", "GET", "/v1/subjects/orders/delayed", token=token)
    assert [message["subject"] for message in listed.json["messages"]] == ["orders"]
    for target in ("/v1/subjects/paid/delayed", "/v1/delayed"):
        assert urls.call("meta", "GET", target, token=token).slug == "grant-insufficient"
    without = urls.grant(produce=["orders"])
    assert urls.call("meta", "GET", "/v1/subjects/orders/delayed", token=without).slug == "grant-insufficient"
    everything = urls.call("meta", "GET", "/v1/delayed", caller=OPERATOR_SESSION).json["messages"]
    assert sorted(message["subject"] for message in everything) == ["orders", "paid"]


def test_each_function_serves_its_own_routes(urls: Urls) -> None:
    for name, method, target, status in (
        ("produce", "POST", f"{BILLING}/pull", 404),
        ("meta", "POST", ORDERS, 404),
        ("pull", "GET", "/v1/health", 404),
        ("meta", "GET", "/v1/nothing", 404),
        ("produce", "GET", "/v1/messages", 405),
    ):
        assert urls.call(name, method, target, caller=OPERATOR_SESSION).status == status
    many = "/v1/subjects?" + "&".join(f"a{number}=1" for number in range(40))
    assert urls.call("meta", "GET", many, caller=OPERATOR_SESSION).status == 400


def test_health_and_the_urls_of_the_functions_need_no_token(urls: Urls) -> None:
    assert urls.call("meta", "GET", "/v1/health").json == {"status": "ok"}
    assert urls.call("meta", "GET", "/v1/health", caller=OPERATOR_SESSION).json["version"]
    assert urls.call("meta", "GET", "/v1/endpoints").json == {"produce": "https://p.example"}


def test_an_encoded_slash_in_a_name_leads_to_no_other_route(urls: Urls) -> None:
    token = urls.grant(pull=["orders/billing"])
    answer = urls.call(
        "pull", "POST", "/v1/subjects/orders%2Fgroups/groups/billing/pull", {"consumer": "c"}, token=token
    )
    assert answer.status == 403
    answer = urls.call("pull", "POST", "/v1/subjects/%6Frders/groups/billing/pull", {"consumer": "c"}, token=token)
    assert answer.status == 200


def test_a_body_in_base64_is_decoded(urls: Urls) -> None:
    text = b64encode(json.dumps({"messages": [{"body": "x"}]}).encode()).decode()
    event = url_event("POST", ORDERS, text, caller=OPERATOR_SESSION, headers={}, encoded=True)
    assert urls.answer("produce", event).status == 200
    large = "x" * 6_000_001
    event = url_event("POST", ORDERS, large, caller=OPERATOR_SESSION, headers={})
    assert urls.answer("produce", event).slug == "request-too-large"


def test_a_request_of_the_http_api_is_not_asked_for_a_token(urls: Urls) -> None:
    event = url_event("POST", ORDERS, json.dumps({"messages": [{"body": "x"}]}), caller=SERVICE_SESSION, headers={})
    event |= {"routeKey": "POST /v1/subjects/{subject}/messages", "pathParameters": {"subject": "orders"}}
    assert urls.answer("produce", event).status == 200


def test_tokens_are_checked_without_a_read_but_for_the_version_once_a_minute() -> None:
    store = CallByCall(MemoryStore())
    urls = Urls(Bench(store, settings=Settings(registry_seconds=600)))
    token = urls.grant(produce=["orders"])
    urls.send(ORDERS, token, "x")
    for seconds, reads in ((0, 0), (59, 0), (1, 1)):
        urls.bench.clock.pass_time(seconds)
        store.calls.clear()
        assert urls.send(ORDERS, token, "x").status == 200
        assert store.calls.count(("get", "meta")) == reads


@pytest.mark.parametrize(
    ("arn", "found"),
    [
        (OPERATOR_SESSION, OPERATOR),
        ("arn:aws:iam::111122223333:role/aws-reserved/sso.amazonaws.com/operator", OPERATOR),
        ("arn:aws:iam::111122223333:user/ops/anna", "arn:aws:iam::111122223333:user/anna"),
        ("arn:aws-cn:sts::111122223333:assumed-role/a/b", "arn:aws-cn:iam::111122223333:role/a"),
        ("arn:aws:iam::111122223333:root", "arn:aws:iam::111122223333:root"),
    ],
)
def test_the_role_of_a_caller(arn: str, found: str) -> None:
    assert identity(arn) == found
