"""Delayed messages over the API get the right answers and refusals; a refused one is not stored."""

from typing import Any

import pytest

from hourwheel.buckets.buckets import Bucket
from hourwheel.buckets.lease import LEASE_MS, WheelOwner, owner_record
from hourwheel.times import rfc3339
from tests.support import NOON_MS
from tests.unit.api.conftest import GROUP, MESSAGES, Answer, Api

SCHEDULED = "/v1/subjects/orders/scheduled"
ORPHANS = "/v1/subjects/orders/dead"
FIRST = "messages[0]"
DELAY, DELIVER_AT, PRECISION = f"{FIRST}.delay", f"{FIRST}.deliver_at", f"{FIRST}.precision"

# The fields behind the body of the message, as JSON; Python would not write all of them.
REFUSED: dict[str, tuple[str, str, str | None]] = {
    "both": ('"delay": 1, "deliver_at": "2026-11-20T09:00:00Z"', "field-invalid", FIRST),
    "a time without a zone": ('"deliver_at": "2026-11-20T09:00:00"', "field-invalid", DELIVER_AT),
    "a day": ('"deliver_at": "2026-11-20"', "field-invalid", DELIVER_AT),
    "a week": ('"deliver_at": "2026-W47-5T09:00:00Z"', "field-invalid", DELIVER_AT),
    "a time with a NUL in it": ('"deliver_at": "2026-11-20T09:00:00\\u0000Z"', "field-invalid", DELIVER_AT),
    "a word for a time": ('"deliver_at": "tomorrow"', "field-invalid", DELIVER_AT),
    "an empty time": ('"deliver_at": ""', "field-invalid", DELIVER_AT),
    "a time of 65 characters": (f'"deliver_at": "{"1" * 65}"', "field-invalid", DELIVER_AT),
    "a time in seconds": ('"deliver_at": 1763640000', "field-invalid", DELIVER_AT),
    "30 February": ('"deliver_at": "2027-02-30T09:00:00Z"', "field-invalid", DELIVER_AT),
    "the 25th hour": ('"deliver_at": "2026-11-20T25:00:00Z"', "field-invalid", DELIVER_AT),
    "a zone of 25 hours": ('"deliver_at": "2026-11-20T09:00:00+25:00"', "field-invalid", DELIVER_AT),
    "a delay below zero": ('"delay": -1', "field-invalid", DELAY),
    "a delay just below zero": ('"delay": -0.0001', "field-invalid", DELAY),
    "a delay far below zero": ('"delay": -1e308', "field-invalid", DELAY),
    "minus 10 to the 30th": (f'"delay": {-(10**30)}', "field-invalid", DELAY),
    "a number of 400 digits below zero": (f'"delay": -{"9" * 400}', "field-invalid", DELAY),
    "a delay below zero as text": ('"delay": "-1s"', "field-invalid", DELAY),
    "NaN": ('"delay": NaN', "json-invalid", None),
    "infinity": ('"delay": Infinity', "json-invalid", None),
    "NaN as text": ('"delay": "NaN"', "field-invalid", DELAY),
    "infinity as text": ('"delay": "inf"', "field-invalid", DELAY),
    "a number that is too large for a float": ('"delay": 1e999', "field-invalid", DELAY),
    "a number of 5,000 digits": (f'"delay": {"9" * 5_000}', "field-invalid", DELAY),
    "weeks": ('"delay": "2 weeks"', "field-invalid", DELAY),
    "an empty delay": ('"delay": ""', "field-invalid", DELAY),
    "a number as text, without a unit": ('"delay": "5"', "field-invalid", DELAY),
    "a unit alone": ('"delay": "s"', "field-invalid", DELAY),
    "a space before the unit": ('"delay": "5 s"', "field-invalid", DELAY),
    "a unit in capitals": ('"delay": "5S"', "field-invalid", DELAY),
    "a line feed behind the unit": ('"delay": "5s\\n"', "field-invalid", DELAY),
    "digits of another script": ('"delay": "\u0665s"', "field-invalid", DELAY),
    "a delay of 31 characters": (f'"delay": "{"9" * 30}s"', "field-invalid", DELAY),
    "true": ('"delay": true', "field-invalid", DELAY),
    "false": ('"delay": false', "field-invalid", DELAY),
    "a list": ('"delay": [1]', "field-invalid", DELAY),
    "an object": ('"delay": {}', "field-invalid", DELAY),
    "an unknown precision": ('"delay": 1, "precision": "second"', "field-invalid", PRECISION),
    "an empty precision": ('"delay": 1, "precision": ""', "field-invalid", PRECISION),
    "a number for a precision": ('"delay": 1, "precision": 60', "field-invalid", PRECISION),
    "a precision without a time": ('"precision": "minute"', "field-invalid", PRECISION),
}

TOO_LONG = {
    "733 days": '"delay": "733d"',
    "a second over 732 days": '"delay": 63244801',
    "a millisecond over 732 days": '"delay": 63244800.001',
    "1e308": '"delay": 1e308',
    "10 to the 30th": f'"delay": {10**30}',
    "a number of 400 digits": f'"delay": {"9" * 400}',
    "as many digits as there may be": f'"delay": "{"9" * 15}d"',
    "a time in 2030": '"deliver_at": "2030-01-01T00:00:00Z"',
    "the end of time": '"deliver_at": "9999-12-31T23:59:59.999999-23:59"',
}

TAKEN = {
    "a whole number": ('"delay": 90', 90_000),
    "a fraction": ('"delay": 0.25', 250),
    "less than a millisecond": ('"delay": 1e-320', 1),
    "milliseconds": ('"delay": "1500ms"', 1_500),
    "seconds": ('"delay": "1.5s"', 1_500),
    "minutes": ('"delay": "10m"', 600_000),
    "hours": ('"delay": "2h"', 7_200_000),
    "days": ('"delay": "90d"', 90 * 86_400_000),
    "732 days": ('"delay": "732d"', 732 * 86_400_000),
    "a time": ('"deliver_at": "2025-11-20T12:00:01.5Z"', 1_500),
    "a time of another zone": ('"deliver_at": "2025-11-20T14:00:01+02:00"', 1_000),
    "a time in lower case": ('"deliver_at": "2025-11-20t12:00:01z"', 1_000),
    "a time between two milliseconds": ('"deliver_at": "2025-11-20T12:00:00.000001Z"', 1),
}

AT_ONCE = {
    "no delay": '"delay": 0',
    "minus nothing": '"delay": -0.0',
    "no minutes": '"delay": "0m"',
    "null": '"delay": null, "deliver_at": null',
    "now": f'"deliver_at": "{rfc3339(NOON_MS)}"',
    "the past": '"deliver_at": "2001-01-01T00:00:00Z"',
    "the beginning of time": '"deliver_at": "0001-01-01T00:00:00+23:59"',
}


def one(fields: str, *, subject: str = "") -> bytes:
    return f'{{"messages": [{{"body": "x"{subject}, {fields}}}]}}'.encode()


def in_each_way(api: Api, fields: str) -> list[Answer]:
    """Sends the message to its subject, in a batch that may span subjects, and with an idempotency key."""
    keyed = one(fields)[:-1] + b', "idempotency_key": "k"}'
    return [
        api.call("POST", MESSAGES, raw=one(fields)),
        api.call("POST", "/v1/messages", raw=one(fields, subject=', "subject": "orders"')),
        api.call("POST", MESSAGES, raw=keyed),
    ]


@pytest.mark.parametrize("case", REFUSED)
def test_a_delay_that_is_none_is_refused(api: Api, case: str) -> None:
    fields, slug, field = REFUSED[case]
    for answer in in_each_way(api, fields):
        assert (answer.status, answer.slug, answer.json.get("field")) == (400, slug, field), answer.json
        assert len(answer.json["detail"]) < 400
    assert api.bench.deployment.subjects.page("", 10) == ([], None), "nothing was stored"


@pytest.mark.parametrize("case", TOO_LONG)
def test_a_delay_of_more_than_two_years_is_refused_in_words(api: Api, case: str) -> None:
    for answer in in_each_way(api, TOO_LONG[case]):
        assert (answer.status, answer.slug) == (400, "delay-too-long")
        assert answer.json["field"] == (DELAY if "delay" in TOO_LONG[case] else DELIVER_AT)
        assert "732 days (two years)" in answer.json["detail"]
    assert api.bench.deployment.subjects.page("", 10) == ([], None), "nothing was stored"


@pytest.mark.parametrize("case", TOO_LONG)
def test_nor_is_it_stored_in_a_subject_that_there_is(api: Api, case: str) -> None:
    api.send("a")
    for answer in in_each_way(api, TOO_LONG[case]):
        assert (answer.status, answer.slug) == (400, "delay-too-long")
    assert [message["body"] for pull in api.pull() for message in pull["messages"]] == ["a"]
    assert api.call("GET", SCHEDULED).json["messages"] == 0
    assert api.bench.timers.ordered == []


@pytest.mark.parametrize("case", TAKEN)
def test_a_delayed_message_is_answered_with_its_time_and_an_id(api: Api, case: str) -> None:
    fields, wait_ms = TAKEN[case]
    for answer in in_each_way(api, fields):
        assert answer.status == 200, answer.json
        (result,) = answer.json["results"]
        assert set(result) == {"id", "scheduled", "scheduled_id"}
        assert result["scheduled"] == rfc3339(NOON_MS + wait_ms)
        assert api.call("GET", f"/v1/scheduled/{result['scheduled_id']}").json["deliver_at"] == result["scheduled"]


@pytest.mark.parametrize("case", AT_ONCE)
def test_a_message_whose_time_has_come_is_sent_at_once(api: Api, case: str) -> None:
    for offset, answer in enumerate(in_each_way(api, AT_ONCE[case])):
        assert answer.status == 200, answer.json
        (result,) = answer.json["results"]
        assert (set(result), result["offset"]) == ({"id", "queue", "offset"}, offset)


def test_results_come_in_the_order_of_the_messages(api: Api) -> None:
    batch = [{"body": "a", "delay": 5}, {"body": "b"}, {"body": "c", "delay": "400d"}, {"body": "d"}]
    results = api.call("POST", MESSAGES, {"messages": batch}).json["results"]
    assert ["scheduled" in result for result in results] == [True, False, True, False]
    assert [result.get("offset") for result in results] == [None, 0, None, 1]


@pytest.mark.parametrize("fields", ['"delay": "x"', '"delay": "733d"', '"deliver_at": "2030-01-01T00:00:00Z"'])
def test_one_bad_delay_refuses_the_whole_batch(api: Api, fields: str) -> None:
    good = '{"subject": "orders", "body": "a"}, {"subject": "refunds", "body": "b", "delay": 60}'
    for key in ("", ', "idempotency_key": "k"'):
        batch = f'{{"messages": [{good}, {{"subject": "orders", "body": "c", {fields}}}]{key}}}'
        answer = api.call("POST", "/v1/messages", raw=batch.encode())
        assert answer.status == 400
        assert answer.json["field"] == f"messages[2].{'delay' if 'delay' in fields else 'deliver_at'}"
    assert api.bench.deployment.subjects.page("", 10) == ([], None), "nothing was stored"
    assert api.bench.timers.ordered == []


def test_the_same_idempotency_key_gets_the_first_id_and_time(api: Api) -> None:
    batch = {"messages": [{"body": "a", "delay": 60}, {"body": "b"}], "idempotency_key": "k"}
    first = api.call("POST", MESSAGES, batch)
    api.bench.clock.pass_time(20)
    assert api.call("POST", MESSAGES, batch) == first
    batch["messages"] = [{"body": "a", "delay": 61}, {"body": "b"}]
    assert api.call("POST", MESSAGES, batch).slug == "idempotency-key-reused"


def test_a_subject_may_clamp_delays_instead(api: Api) -> None:
    assert api.call("PUT", "/v1/subjects/orders", {"clamp_delays": True}).json["clamp_delays"] is True
    assert api.call("PUT", "/v1/subjects/orders", {"queues": 2}).json["clamp_delays"] is True
    for answer in in_each_way(api, '"delay": 1e308'):
        assert answer.json["results"][0]["scheduled"] == rfc3339(NOON_MS + 732 * 86_400_000)
    assert api.call("PUT", "/v1/subjects/orders", {"clamp_delays": False}).json["clamp_delays"] is False


def look(api: Api, scheduled_id: str) -> Any:
    return api.call("GET", f"/v1/scheduled/{scheduled_id}").json


def test_a_delayed_message_is_looked_up_until_long_after_its_time(api: Api) -> None:
    scheduled_id = api.send_later("a", id="m-1", delay="20m")
    waiting = {
        "scheduled_id": scheduled_id,
        "state": "waiting",
        "id": "m-1",
        "subject": "orders",
        "deliver_at": rfc3339(NOON_MS + 1_200_000),
    }
    assert look(api, scheduled_id) == waiting
    api.bench.turn(2 * 3_600)
    told = look(api, scheduled_id)
    dispatched_at = told.pop("dispatched_at")
    assert told == {**waiting, "state": "dispatched", "queue": 0, "offset": 0}
    assert waiting["deliver_at"] <= dispatched_at <= rfc3339(NOON_MS + 1_201_000)
    api.bench.clock.pass_time(2 * 86_400)
    api.bench.deployment.sweeper.sweep()
    for method, body in (("GET", None), ("DELETE", None), ("PATCH", {"delay": 1})):
        gone = api.call(method, f"/v1/scheduled/{scheduled_id}", body)
        assert (gone.status, gone.slug, gone.json["field"]) == (404, "scheduled-unknown", "id")


@pytest.mark.parametrize("delay", ["1m", "3h"])
def test_a_message_that_waits_is_cancelled(api: Api, delay: str) -> None:
    scheduled_id = api.send_later("a", delay=delay)
    for _ in range(2):
        answer = api.call("DELETE", f"/v1/scheduled/{scheduled_id}")
        assert (answer.status, answer.json["state"]) == (200, "cancelled")
    assert look(api, scheduled_id)["state"] == "cancelled"
    moved = api.call("PATCH", f"/v1/scheduled/{scheduled_id}", {"delay": 1})
    assert (moved.status, moved.json["state"]) == (200, "cancelled")
    api.bench.turn(4 * 3_600)
    assert api.pull() == []


def test_a_message_that_was_sent_stays_sent(api: Api) -> None:
    scheduled_id = api.send_later("a", delay=5)
    api.bench.turn(10)
    for method, body in (("DELETE", None), ("PATCH", {"delay": 60})):
        answer = api.call(method, f"/v1/scheduled/{scheduled_id}", body)
        assert (answer.status, answer.json["state"], answer.json["offset"]) == (200, "dispatched", 0)
    (pull,) = api.pull()
    assert [message["body"] for message in pull["messages"]] == ["a"]


@pytest.mark.parametrize(
    ("body", "wait_ms"), [({"delay": "10m"}, 600_000), ({"deliver_at": "2025-11-20T15:30:00+01:00"}, 9_000_000)]
)
def test_a_message_is_moved_to_another_time(api: Api, body: Any, wait_ms: int) -> None:
    scheduled_id = api.send_later("a", delay="2h")
    answer = api.call("PATCH", f"/v1/scheduled/{scheduled_id}", body)
    assert (answer.status, answer.json["state"]) == (200, "moved")
    assert answer.json["deliver_at"] == rfc3339(NOON_MS + wait_ms)
    assert answer.json["scheduled_id"] != scheduled_id
    assert look(api, scheduled_id) == look(api, answer.json["scheduled_id"]) == {**answer.json, "state": "waiting"}
    api.bench.turn(wait_ms / 1_000 - 1)
    assert api.pull() == []
    api.bench.turn(2)
    (pull,) = api.pull()
    assert [message["body"] for message in pull["messages"]] == ["a"]


PATCHES: dict[str, tuple[Any, str, str | None]] = {
    "nothing": ({}, "field-invalid", None),
    "no body": (None, "json-invalid", None),
    "a list": ([], "field-invalid", None),
    "nulls": ({"delay": None, "deliver_at": None}, "field-invalid", None),
    "both": ({"delay": 1, "deliver_at": "2026-11-20T09:00:00Z"}, "field-invalid", None),
    "an unknown field": ({"delay": 1, "at": 1}, "field-invalid", "at"),
    "a delay below zero": ({"delay": -1}, "field-invalid", "delay"),
    "a truth value": ({"delay": True}, "field-invalid", "delay"),
    "weeks": ({"delay": "2 weeks"}, "field-invalid", "delay"),
    "733 days": ({"delay": "733d"}, "delay-too-long", "delay"),
    "a time in 2030": ({"deliver_at": "2030-01-01T00:00:00Z"}, "delay-too-long", "deliver_at"),
    "a time without a zone": ({"deliver_at": "2026-11-20T09:00:00"}, "field-invalid", "deliver_at"),
    "a number as a time": ({"deliver_at": 5}, "field-invalid", "deliver_at"),
}


@pytest.mark.parametrize("case", PATCHES)
def test_a_new_time_that_is_none_is_refused(api: Api, case: str) -> None:
    body, slug, field = PATCHES[case]
    scheduled_id = api.send_later("a", delay="2h")
    before = look(api, scheduled_id)
    answer = api.call("PATCH", f"/v1/scheduled/{scheduled_id}", body)
    assert (answer.status, answer.slug, answer.json.get("field")) == (400, slug, field), answer.json
    assert look(api, scheduled_id) == before


def forged(scheduled_id: str) -> dict[str, str]:
    position, _, digest = scheduled_id.rpartition("-")
    return {
        "garbage": "x",
        "no UTF-8": "%FF",
        "a slash": "a%2Fb",
        "another letter": "%C3%A9",
        "capitals": scheduled_id.upper(),
        "a line feed": f"{scheduled_id}%0A",
        "half of it": scheduled_id[:10],
        "another row": f"{position[:-3]}1-0-{digest}",
        "another digest": f"{position}-{digest[:-1]}{'0' if digest[-1] != '0' else '1'}",
        "digits of another script": scheduled_id.replace("-0-", "-%D9%A0-"),
        "very long": "9" * 5_000,
        "of another cell": Api().send_later("a", delay="2h"),
    }


@pytest.mark.parametrize("case", forged("0-0-0-0-0-0"))
def test_an_id_that_we_did_not_give_out_is_refused(api: Api, case: str) -> None:
    scheduled_id = forged(api.send_later("a", delay="2h"))[case]
    for method, body in (("GET", None), ("DELETE", None), ("PATCH", {"delay": 1})):
        answer = api.call(method, f"/v1/scheduled/{scheduled_id}", body)
        assert (answer.status, answer.slug, answer.json["field"]) == (400, "scheduled-id-invalid", "id")


def test_a_request_whose_wheel_does_not_answer_is_to_be_sent_again(api: Api) -> None:
    scheduled_id = api.send_later("a", delay="1m")
    context = api.bench.deployment.context
    bucket = Bucket.at(NOON_MS + 60_000, 60)
    record = owner_record(context, bucket)
    current = record.load()
    paused = WheelOwner(owner="paused", until_ms=NOON_MS + LEASE_MS)
    assert record.swap(current, paused).stored
    answer = api.call("DELETE", f"/v1/scheduled/{scheduled_id}")
    assert (answer.status, answer.slug) == (503, "unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert 10_000 <= api.bench.clock.ms - NOON_MS < 11_000
    api.bench.clock.pass_time(LEASE_MS / 1_000)
    api.bench.deployment.sweeper.sweep()
    api.bench.turn(1)
    assert api.call("DELETE", f"/v1/scheduled/{scheduled_id}").json["state"] == "cancelled"
    api.bench.turn(60)
    assert api.pull() == []


def test_pending_counts_by_the_hour(api: Api) -> None:
    for delay in ("10m", "20m", "3h", "71h", "100h"):
        api.send_later("a", delay=delay)
    counted = {"subject": "orders", "messages": 4}
    hours = [(0, 2), (3, 1), (71, 1)]
    listed = [{"hour": rfc3339(NOON_MS + hour * 3_600_000), "messages": messages} for hour, messages in hours]
    ten_minutes = rfc3339(NOON_MS + 600_000)
    all_of_them = {"total": 5, "complete": True, "next_at": ten_minutes}
    assert api.call("GET", SCHEDULED).json == {**counted, **all_of_them, "hours": listed}
    assert api.call("GET", f"{SCHEDULED}?hours=1").json == {"subject": "orders", "messages": 2, "hours": listed[:1]}
    assert api.call("GET", f"{SCHEDULED}?hours=744").json["messages"] == 5


@pytest.mark.parametrize("query", ["hours=0", "hours=745", "hours=-1", "hours=many", "hours=1.5", "hours=", "days=3"])
def test_pending_refuses(api: Api, query: str) -> None:
    api.call("PUT", "/v1/subjects/orders")
    answer = api.call("GET", f"{SCHEDULED}?{query}")
    assert (answer.status, answer.slug, answer.json["field"]) == (400, "field-invalid", query.split("=")[0])


def test_pending_of_no_subject_is_not_found(api: Api) -> None:
    answer = api.call("GET", SCHEDULED)
    assert (answer.status, answer.slug) == (404, "subject-unknown")


def test_messages_that_outlive_their_subject_are_listed_page_by_page(api: Api) -> None:
    assert api.call("GET", ORPHANS).json == {"messages": [], "next": None}
    api.call("POST", MESSAGES, {"messages": [{"body": body, "delay": 60} for body in "abc"]})
    assert api.call("DELETE", "/v1/subjects/orders").status == 204
    api.bench.turn(70)
    page = api.call("GET", f"{ORPHANS}?limit=2").json
    assert [one["body"] for one in page["messages"]] == ["a", "b"]
    assert {one["reason"] for one in page["messages"]} == {"subject-deleted"}
    rest = api.call("GET", f"{ORPHANS}?after={page['next']}").json
    assert ([one["body"] for one in rest["messages"]], rest["next"]) == (["c"], None)
    assert api.call("GET", "/v1/subjects/refunds/dead").json["messages"] == []


@pytest.mark.parametrize(("query", "field"), [("after=x", "after"), ("limit=0", "limit"), ("page=1", "page")])
def test_a_page_of_what_outlived_its_subject_refuses(api: Api, query: str, field: str) -> None:
    answer = api.call("GET", f"{ORPHANS}?{query}")
    assert (answer.status, answer.slug, answer.json["field"]) == (400, "field-invalid", field)


POLICY = {"first_seconds": 5.0, "factor": 2.0, "cap_seconds": 7200.0}
NO_WAIT = {**POLICY, "first_seconds": 0.0}


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ({"first_seconds": 1, "factor": 3, "cap_seconds": 60}, {"first_seconds": 1, "factor": 3, "cap_seconds": 60}),
        ({"factor": 1.5}, {**POLICY, "factor": 1.5}),
        ({"first_seconds": 0}, NO_WAIT),
        ({}, POLICY),
        ({"delays_seconds": [1, 10, 60.5]}, {"delays_seconds": [1, 10, 60.5]}),
        ({"first_seconds": 2_592_000, "factor": 100, "cap_seconds": 2_592_000}, None),
        ({"delays_seconds": [0] * 100}, None),
    ],
)
def test_a_group_has_a_policy_of_its_own(api: Api, sent: Any, shown: Any) -> None:
    assert api.call("PUT", GROUP).json["retry"] == NO_WAIT, "that of the cell"
    made = api.call("PUT", GROUP, {"retry": sent}).json
    assert made["retry"] == (sent if shown is None else shown)
    assert api.call("PUT", GROUP, {"max_attempts": 3}).json["retry"] == made["retry"]
    assert api.call("GET", GROUP).json["retry"] == made["retry"]
    assert api.call("GET", "/v1/subjects/orders/groups").json["groups"][0]["retry"] == made["retry"]


POLICIES = {
    "both kinds": ('{"delays_seconds": [1], "factor": 2}', "retry"),
    "no delays": ('{"delays_seconds": []}', "retry.delays_seconds"),
    "101 delays": (f'{{"delays_seconds": {[1] * 101}}}', "retry.delays_seconds"),
    "a delay below zero": ('{"delays_seconds": [1, -1]}', "retry.delays_seconds[1]"),
    "a delay of 31 days": ('{"delays_seconds": [2678400]}', "retry.delays_seconds[0]"),
    "a delay as text": ('{"delays_seconds": ["10m"]}', "retry.delays_seconds[0]"),
    "a start below zero": ('{"first_seconds": -1}', "retry.first_seconds"),
    "a start as a truth value": ('{"first_seconds": true}', "retry.first_seconds"),
    "a factor below one": ('{"factor": 0.5}', "retry.factor"),
    "a factor of 101": ('{"factor": 101}', "retry.factor"),
    "a factor out of range": ('{"factor": 1e999}', "retry.factor"),
    "a cap of 31 days": ('{"cap_seconds": 2678400}', "retry.cap_seconds"),
    "a cap of 400 digits": (f'{{"cap_seconds": {"9" * 400}}}', "retry.cap_seconds"),
    "an unknown field": ('{"first": 1}', "retry.first"),
    "a number": ("5", "retry"),
    "a list": ("[1, 10]", "retry"),
}


@pytest.mark.parametrize("case", POLICIES)
def test_a_policy_that_is_none_is_refused(api: Api, case: str) -> None:
    policy, field = POLICIES[case]
    answer = api.call("PUT", GROUP, raw=f'{{"retry": {policy}}}'.encode())
    assert (answer.status, answer.slug, answer.json["field"]) == (400, "field-invalid", field), answer.json
    assert api.bench.deployment.subjects.page("", 10) == ([], None), "nothing was stored"


RETRIES: dict[str, tuple[Any, str, str]] = {
    "weeks": ([0, {"index": 1, "delay": "2 weeks"}], "field-invalid", "retry[1].delay"),
    "a delay below zero": ([{"index": 1, "delay": -5}], "field-invalid", "retry[0].delay"),
    "a truth value": ([{"index": 1, "delay": True}], "field-invalid", "retry[0].delay"),
    "a detail that is no text": ([{"index": 1, "detail": 5}], "field-invalid", "retry[0].detail"),
    "733 days": ([{"index": 1, "delay": "733d"}], "delay-too-long", "retry[0].delay"),
    "1e308": ([{"index": 1, "delay": 1e308}], "delay-too-long", "retry[0].delay"),
    "no index": ([{"delay": 1}], "field-invalid", "retry[0].index"),
    "an index of 1,000": ([0, {"index": 1000, "delay": 1}], "field-invalid", "retry[1].index"),
    "an unknown field": ([{"index": 1, "delay": 1, "in": 1}], "field-invalid", "retry[0].in"),
    "an index as text": (["0"], "field-invalid", "retry[0]"),
    "null": ([None], "field-invalid", "retry[0]"),
    "an index twice": ([0, {"index": 0, "delay": 1}], "field-invalid", "retry"),
    "an index beyond the pull": ([{"index": 3, "delay": 1}], "field-invalid", "retry"),
}


@pytest.mark.parametrize("case", RETRIES)
def test_a_retry_that_makes_no_sense_is_refused_and_nothing_is_settled(api: Api, case: str) -> None:
    retry, slug, field = RETRIES[case]
    api.send("a", "b", "c")
    (pull,) = api.pull()
    entry = {"receipt": pull["receipt"], "retry": retry}
    by_pull = api.call("POST", f"{GROUP}/pull", {"consumer": "c1", "settle": [entry]})
    for answer in (api.settle(entry), by_pull):
        assert (answer.status, answer.slug, answer.json["field"]) == (400, slug, f"settle[0].{field}"), answer.json
    assert api.call("GET", f"{GROUP}/lag").json["in_flight"] == 3


def test_each_retry_may_have_a_delay_of_its_own(api: Api) -> None:
    api.send("a", "b", "c")
    (pull,) = api.pull()
    retry = [{"index": 1, "delay": "10m"}, 0, {"index": 2, "delay": 0}]
    assert api.settle({"receipt": pull["receipt"], "retry": retry}).json == {"results": [{"status": "settled"}]}
    (again,) = api.pull()
    assert [message["body"] for message in again["messages"]] == ["a", "c"]
    lag = api.call("GET", f"{GROUP}/lag").json
    assert (lag["backing_off"], lag["in_flight"]) == (1, 2)
    api.settle({"receipt": again["receipt"]})
    api.bench.turn(601)
    (later,) = api.pull()
    assert [(message["body"], message["attempt"]) for message in later["messages"]] == [("b", 2)]
    assert api.call("GET", f"{GROUP}/lag").json["backing_off"] == 0
