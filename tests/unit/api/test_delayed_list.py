"""The list of delayed messages shows them in order, page by page, with a bounded number of reads."""

import base64
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.buckets.buckets import Bucket
from hourwheel.errors import NotFound
from hourwheel.logs.rows import sort_of
from hourwheel.model.fields import BATCH_MESSAGES
from hourwheel.model.messages import NewMessage
from hourwheel.ports.storage import Key, Record, Table
from hourwheel.times import rfc3339
from tests.support import NOON_MS, Bench, CallByCall
from tests.unit.api.conftest import MESSAGES, Answer, Api

ALL, OF_ORDERS = "/v1/delayed", "/v1/subjects/orders/delayed"
HOUR_MS = 3_600_000


def ask(api: Api, target: str = ALL, **query: Any) -> Answer:
    parameters = {name.rstrip("_"): value for name, value in query.items() if value is not None}
    return api.call("GET", target + "?" + "&".join(f"{name}={quote(str(text))}" for name, text in parameters.items()))


def listed(api: Api, target: str = ALL, **query: Any) -> list[Any]:
    """Returns the messages of all pages."""
    messages, after = [], None
    for _ in range(200):
        page = ask(api, target, after=after, **query)
        assert page.status == 200, page
        messages += page.json["messages"]
        after = page.json["next"]
        if after is None:
            return messages
    raise AssertionError("the pages do not end")


def ids(messages: list[Any]) -> list[str]:
    return [message["id"] for message in messages]


def send(api: Api, subject: str, *messages: dict[str, Any]) -> list[Any]:
    answer = api.call("POST", f"/v1/subjects/{subject}/messages", {"messages": list(messages)})
    assert answer.status == 200, answer
    return list(answer.json["results"])


def test_each_message_is_listed_with_its_time_and_what_describes_it(api: Api) -> None:
    sent = {"body": "grün", "id": "m-1", "key": "k", "tags": ["eu"], "headers": {"h": "v"}, "delay": "20m"}
    (result,) = send(api, "orders", {**sent, "precision": "minute"})
    assert ask(api).json == {
        "messages": [
            {
                "scheduled_id": result["scheduled_id"],
                "subject": "orders",
                "deliver_at": result["scheduled"],
                "state": "waiting",
                "id": "m-1",
                "produced_at": rfc3339(NOON_MS),
                "key": "k",
                "tags": ["eu"],
                "size": len("grün".encode()) + len("keuhv"),
                "precision": "minute",
            }
        ],
        "next": None,
    }


def test_bodies_come_when_asked_for_and_only_their_beginnings(api: Api) -> None:
    data = bytes(range(256)) * 4
    send(
        api,
        "orders",
        {"id": "short", "body": "a", "delay": 60},
        {"id": "long", "body": "ä" * 1_001, "delay": 61},
        {"id": "bytes", "body_base64": base64.b64encode(data).decode(), "delay": 62},
        {"id": "empty", "body": "", "delay": 63},
    )
    short, long, in_bytes, empty = ask(api, bodies="true").json["messages"]
    assert (short["body"], short.get("shortened")) == ("a", None)
    assert (long["body"], long["shortened"], long["size"]) == ("ä" * 1_000, True, 2_002)
    assert base64.b64decode(in_bytes["body_base64"]) == data[:1_000]
    assert in_bytes["shortened"]
    assert (empty["body"], empty["size"]) == ("", 0)
    assert not any("body" in message or "body_base64" in message for message in ask(api).json["messages"])


def test_messages_come_in_the_order_of_their_due_times_across_hours_and_pages(api: Api) -> None:
    delays = [(number * 7_919) % 20_000 for number in range(1, 60)]
    for delay in delays:
        send(api, "orders", {"id": f"at-{delay}", "body": "x", "delay": delay})
    expected = [f"at-{delay}" for delay in sorted(delays)]
    for limit in (1, 7, 58, 100):
        assert ids(listed(api, limit=limit)) == expected
    assert ids(listed(api, bodies="true", limit=13)) == expected


def test_messages_of_one_time_come_once_each_however_small_the_pages(api: Api) -> None:
    send(api, "orders", *({"id": f"m-{i}", "body": "x", "delay": 60} for i in range(9)))
    send(api, "orders", *({"id": f"n-{i}", "body": "x", "delay": 60} for i in range(3)))
    found = ids(listed(api, limit=2))
    assert sorted(found) == sorted([*(f"m-{i}" for i in range(9)), *(f"n-{i}" for i in range(3))])


def test_a_span_takes_its_beginning_and_leaves_out_its_end(api: Api) -> None:
    for minutes in (10, 20, 30, 90, 150):
        send(api, "orders", {"id": f"{minutes}m", "body": "x", "delay": f"{minutes}m"})

    def between(first: int, end: int | None) -> list[str]:
        to = None if end is None else rfc3339(NOON_MS + end * 60_000)
        return ids(listed(api, from_=rfc3339(NOON_MS + first * 60_000), to=to))

    assert between(20, 30) == ["20m"]
    assert between(20, 91) == ["20m", "30m", "90m"]
    assert between(31, None) == ["90m", "150m"]
    assert between(200, 800_000) == []
    assert ids(listed(api, to=rfc3339(NOON_MS + 15 * 60_000))) == ["10m"]
    assert ids(listed(api, from_="1970-01-01T00:00:00Z", to="9999-12-31T23:59:59Z")) == ids(listed(api))


def test_messages_are_chosen_by_key_tag_and_the_id_of_their_sender_on_every_page(api: Api) -> None:
    for start in range(0, 30, 10):
        named = [{"id": f"m-{n}", "key": f"k-{n % 3}", "tags": ["eu", f"t-{n % 2}"]} for n in range(start, start + 10)]
        send(api, "orders", *({**each, "body": "x", "delay": f"{20 + start}m"} for each in named))
    send(api, "paid", {"id": "m-0", "key": "k-0", "body": "x", "delay": "3h"})
    assert ids(listed(api, OF_ORDERS, key="k-1", limit=2)) == [f"m-{n}" for n in range(30) if n % 3 == 1]
    assert len(listed(api, OF_ORDERS, tag="eu", limit=7)) == 30
    assert ids(listed(api, tag="t-1", key="k-0", limit=1)) == ["m-3", "m-9", "m-15", "m-21", "m-27"]
    assert [each["subject"] for each in listed(api, id="m-0")] == ["orders", "paid"]
    assert listed(api, key="k-9") == []
    after = ask(api, key="k-1", limit=2).json["next"]
    assert ask(api, key="k-2", limit=2, after=after).status == 400, "a cursor goes on with its own choice alone"


def test_a_filter_whose_time_is_over_goes_on_behind_what_it_looked_at(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourwheel.delay.lists.delayed_list._SEARCH_MS", 0)
    send(api, "orders", *({"id": f"m-{n}", "body": "x", "delay": f"{n + 1}m"} for n in range(5)))
    first = ask(api, OF_ORDERS, id="m-4").json
    assert (first["messages"], first["next"] is None) == ([], False)
    assert ids(listed(api, OF_ORDERS, id="m-4")) == ["m-4"]
    assert ids(listed(api, OF_ORDERS, id="m-1")) == ["m-1"]


def test_a_list_of_a_subject_has_the_messages_of_no_other(api: Api) -> None:
    send(api, "orders", {"id": "o-1", "body": "x", "delay": 60})
    send(api, "paid", {"id": "p-1", "body": "x", "delay": 50})
    send(api, "order", {"id": "q-1", "body": "x", "delay": 40})
    assert ids(listed(api, OF_ORDERS)) == ["o-1"]
    assert [(each["id"], each["subject"]) for each in listed(api)] == [
        ("q-1", "order"),
        ("p-1", "paid"),
        ("o-1", "orders"),
    ]
    assert ids(listed(api, OF_ORDERS, limit=1)) == ["o-1"]


def test_messages_of_a_deleted_subject_are_in_the_list_of_all_and_not_in_that_of_its_successor(api: Api) -> None:
    send(api, "orders", {"id": "old", "body": "x", "delay": 60})
    assert api.call("DELETE", "/v1/subjects/orders").status == 204
    send(api, "orders", {"id": "new", "body": "x", "delay": 70})
    assert ids(listed(api, OF_ORDERS)) == ["new"]
    assert ids(listed(api)) == ["old", "new"]


def test_retries_that_wait_for_their_delay_are_not_listed(api: Api) -> None:
    api.send("a")
    (pull,) = api.pull()
    assert api.settle({"receipt": pull["receipt"], "retry": [{"index": 0, "delay": "10m"}]}).status == 200
    send(api, "orders", {"id": "m-1", "body": "x", "delay": "10m"})
    assert ids(listed(api)) == ids(listed(api, OF_ORDERS)) == ["m-1"]


def test_cancelled_and_moved_messages_say_so(api: Api) -> None:
    results = send(api, "orders", *({"id": f"m-{i}", "body": "x", "delay": 600 + i} for i in range(4)))
    first, second, third, _ = (result["scheduled_id"] for result in results)
    api.call("DELETE", f"/v1/scheduled/{first}")
    api.call("PATCH", f"/v1/scheduled/{second}", {"delay": "3h"})
    api.call("PATCH", f"/v1/scheduled/{third}", {"delay": "30m"})
    assert [(each["id"], each["state"]) for each in listed(api, limit=3)] == [
        ("m-0", "cancelled"),
        ("m-1", "moved"),
        ("m-2", "moved"),
        ("m-3", "waiting"),
        ("m-2", "waiting"),
        ("m-1", "waiting"),
    ]
    for each in listed(api):
        if each["state"] == "waiting":
            shown = api.call("GET", f"/v1/scheduled/{each['scheduled_id']}").json
            assert (shown["state"], shown["id"], shown["deliver_at"]) == ("waiting", each["id"], each["deliver_at"])


def test_messages_that_were_sent_say_so_until_their_bucket_is_removed(api: Api) -> None:
    delays = (5, 20 * 60, 40 * 60)
    results = send(api, "orders", *({"id": f"m-{i}", "body": "x", "delay": delay} for i, delay in enumerate(delays)))
    api.call("DELETE", f"/v1/scheduled/{results[1]['scheduled_id']}")
    api.bench.turn(600)
    assert [each["state"] for each in listed(api)] == ["dispatched", "cancelled", "waiting"]
    api.bench.turn(2 * 3_600)
    assert listed(api) == [], "the list begins with the current hour"
    since = rfc3339(NOON_MS)
    assert [each["state"] for each in listed(api, from_=since)] == ["dispatched", "cancelled", "dispatched"]
    api.bench.clock.pass_time(2 * 86_400)
    api.bench.deployment.sweeper.sweep()
    assert listed(api, from_=since) == []


def test_messages_that_were_sent_say_so_after_the_clock_was_set_back(api: Api) -> None:
    send(api, "orders", *({"id": f"m-{i}", "body": "x", "delay": delay} for i, delay in enumerate((5, 40 * 60))))
    api.bench.turn(600)
    api.bench.clock.pass_time(-598)
    assert [each["state"] for each in listed(api)] == ["dispatched", "waiting"]
    api.bench.turn(3 * 3_600)
    since = rfc3339(NOON_MS)
    assert [each["state"] for each in listed(api, from_=since)] == ["dispatched", "dispatched"]
    api.bench.clock.pass_time(-4 * 3_600)
    assert [each["state"] for each in listed(api, from_=since)] == ["dispatched", "dispatched"]


def test_overdue_messages_that_no_wheel_sends_are_waiting(api: Api) -> None:
    send(api, "orders", {"id": "m-1", "body": "x", "delay": 60})
    api.bench.clock.pass_time(3_000)
    assert [(each["id"], each["state"]) for each in listed(api)] == [("m-1", "waiting")]


def test_a_message_that_came_too_late_for_its_hour_is_listed_in_the_next(api: Api) -> None:
    bucket = Bucket.at(NOON_MS, 60)
    api.bench.deployment.context.log(bucket.log).seal()
    send(api, "orders", {"id": "late", "body": "x", "delay": 60})
    assert ids(listed(api, to=rfc3339(bucket.end_ms))) == []
    assert ids(listed(api, from_=rfc3339(bucket.end_ms))) == ["late"]


def test_a_bucket_of_many_rows_is_listed_by_stretches_and_each_message_once(api: Api) -> None:
    """In a bucket of 2,300 rows a page that has a message reads at most 2,000 of them."""
    for number in range(2_300):
        api.bench.deployment.produce("orders", [NewMessage(body="", id=f"m-{number}", delay=3_000 - number % 100)])
    messages = listed(api)
    assert sorted(ids(messages)) == sorted(f"m-{number}" for number in range(2_300))
    first = messages[:1_000]
    assert [each["deliver_at"] for each in first] == sorted(each["deliver_at"] for each in first)
    assert {int(each["id"].removeprefix("m-")) // 1_000 for each in first} == {0}
    # A span of which only the last row of the bucket has a message.
    api.bench.deployment.produce("orders", [NewMessage(body="", id="last", delay=3_500)])
    span = {"from_": rfc3339(NOON_MS + 3_400_000), "to": rfc3339(NOON_MS + HOUR_MS)}
    assert ids(ask(api, **span).json["messages"]) == ["last"]


def test_large_rows_make_short_stretches(api: Api) -> None:
    for batch in range(3):
        messages = [NewMessage(body="x", id=f"m-{batch}-{i}", delay=3_000 - i) for i in range(BATCH_MESSAGES)]
        api.bench.deployment.produce("orders", messages)
    found = ids(listed(api))
    assert found[:2] == ["m-0-999", "m-0-998"]
    assert len(found) == len(set(found)) == 3 * BATCH_MESSAGES


def test_a_page_ends_before_its_rows_take_too_much_memory() -> None:
    api = Api(Bench())
    for number in range(8):
        messages = [{"id": f"m-{number}", "body": "x" * 1_000_000, "delay": 60}]
        messages += [{"body": "x" * 1_000_000, "delay": 60 + number} for _ in range(3)]
        send(api, "orders", *messages)
    pages, after = [], None
    while not pages or after is not None:
        page = ask(api, after=after, bodies="true").json
        pages.append(len(page["messages"]))
        after = page["next"]
    assert sum(pages) == 32
    assert max(pages) < 32


def test_messages_that_are_stored_while_a_reader_goes_on_change_nothing_for_the_others(api: Api) -> None:
    send(api, "orders", *({"id": f"m-{i}", "body": "x", "delay": 60 + i} for i in range(6)))
    page = ask(api, limit=3).json
    send(api, "orders", {"id": "early", "body": "x", "delay": 1}, {"id": "late", "body": "x", "delay": 1_000})
    rest = listed_from(api, page["next"])
    assert ids(page["messages"]) + ids(rest)[:3] == [f"m-{i}" for i in range(6)]
    assert "late" in ids(rest)


def listed_from(api: Api, after: str) -> list[Any]:
    messages = []
    following: str | None = after
    while following is not None:
        page = ask(api, after=following, limit=3).json
        messages += page["messages"]
        following = page["next"]
    return messages


def test_a_message_that_cannot_be_read_says_why_and_hides_no_other(api: Api) -> None:
    send(api, "orders", {"id": "m-1", "body": "a", "delay": 60})
    send(api, "orders", {"id": "m-2", "body": "b", "delay": 61})
    send(api, "orders", {"id": "m-3", "body": "c", "delay": 62})
    store, log = api.bench.store, Bucket.at(NOON_MS + 60_000, 60).log
    row = api.bench.deployment.context.log(log).get(0)
    assert row is not None
    for row_no, damage in ((0, b"\xff"), (1, None)):
        key = Key(Table.SCHEDULE, log, sort_of(row_no))
        record = store.get(key)
        assert record is not None
        value = b"no row" if damage is None else record.value.replace(row.block[-4:], b"\xff\xff\xff\xff")
        assert value != record.value
        assert store.put(key, Record(value, b"t" * 16), expect=record.token) is None
    damaged, good = listed(api, bodies="true")
    assert "checksum" in damaged["damaged"]
    assert (damaged["state"], "id" in damaged, "size" in damaged) == ("waiting", False, False)
    assert good["id"] == "m-3"


WRONG: dict[str, tuple[str, str]] = {
    "an empty span": ("from=2026-11-20T09:00:00Z&to=2026-11-20T09:00:00Z", "to"),
    "a span backwards": ("from=2026-11-20T10:00:00Z&to=2026-11-20T09:00:00Z", "to"),
    "an end that is over": ("to=2001-01-01T00:00:00Z", "to"),
    "a time without a zone": ("from=2026-11-20T09:00:00", "from"),
    "a word for a time": ("to=tomorrow", "to"),
    "no messages": ("limit=0", "limit"),
    "101 messages": ("limit=101", "limit"),
    "a limit of words": ("limit=many", "limit"),
    "bodies of another kind": ("bodies=some", "bodies"),
    "an unknown parameter": ("subject=orders", "subject"),
    "an empty cursor": ("after=", "after"),
    "a cursor of nothing": ("after=x", "after"),
    "a cursor that nobody signed": ("after=69204e80-60-0-0-1-1-0-0-0123456789abcdef", "after"),
    "a cursor in another script": ("after=%D9%A0-60-0-0-1-1-0-0-0123456789abcdef", "after"),
    "a long cursor": (f"after={'9' * 151}", "after"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_request_is_refused_by_the_name_of_its_parameter(api: Api, case: str) -> None:
    query, field = WRONG[case]
    send(api, "orders", {"body": "x", "delay": 60})
    for target in (ALL, OF_ORDERS):
        answer = api.call("GET", f"{target}?{query}")
        assert (answer.status, answer.slug, answer.json.get("field")) == (400, "field-invalid", field), answer.json


def test_a_cursor_goes_on_with_its_own_list_only(api: Api) -> None:
    for subject in ("orders", "paid"):
        send(api, subject, *({"body": "x", "delay": 60 + i} for i in range(3)))
    span = {"from_": rfc3339(NOON_MS), "to": rfc3339(NOON_MS + HOUR_MS)}
    cursor = ask(api, OF_ORDERS, limit=1, **span).json["next"]
    assert ask(api, OF_ORDERS, after=cursor, **span).status == 200
    assert ask(api, OF_ORDERS, after=cursor, limit=2, bodies="true", **span).status == 200
    others: list[tuple[str, dict[str, Any]]] = [
        ("/v1/subjects/paid/delayed", span),
        (ALL, span),
        (OF_ORDERS, {}),
        (OF_ORDERS, {**span, "to": rfc3339(NOON_MS + 2 * HOUR_MS)}),
        (OF_ORDERS, {**span, "from_": rfc3339(NOON_MS - 1)}),
    ]
    for target, query in others:
        answer = ask(api, target, after=cursor, **query)
        assert (answer.status, answer.slug, answer.json["field"]) == (400, "field-invalid", "after")
    changed = cursor[:-1] + ("0" if cursor[-1] != "0" else "1")
    assert ask(api, OF_ORDERS, after=changed, **span).status == 400
    assert ask(Api(), ALL, after=cursor, **span).status == 400, "a cursor of another deployment"


def test_a_subject_that_there_is_not_is_404_and_a_wrong_name_400(api: Api) -> None:
    assert (ask(api, OF_ORDERS).status, ask(api, OF_ORDERS).slug) == (404, "subject-unknown")
    assert ask(api, "/v1/subjects/a%20b/delayed").slug == "name-invalid"
    assert ask(api).json == {"messages": [], "next": None}
    with pytest.raises(NotFound):
        api.bench.deployment.subjects.get("orders")  # asking creates nothing


def test_a_page_costs_few_reads_and_writes_nothing() -> None:
    bench = Bench(CallByCall(Bench().store))
    api = Api(bench)
    for hour in range(3):
        for i in range(50):
            send(api, "orders", {"id": f"{hour}-{i}", "body": "x", "delay": 3_600 * (hour + 1) + i})
    assert isinstance(bench.store, CallByCall)
    listed(api)  # reads the secret of the cell
    bench.store.calls.clear()
    assert len(ask(api).json["messages"]) == 100
    # The buckets; for each of two of them three reads of rows, one of changes, and one of the dispatch log.
    assert bench.store.calls == [
        ("scan", "meta"),
        *[("scan", "schedule")] * 3,
        ("get many", "schedule"),
        ("scan", "dispatch"),
        *[("scan", "schedule")] * 3,
        ("get many", "schedule"),
        ("scan", "dispatch"),
    ]
    far = rfc3339(NOON_MS + 3 * HOUR_MS)
    bench.store.calls.clear()
    assert len(ask(api, from_=far).json["messages"]) == 50
    assert len(bench.store.calls) == 6


def test_a_page_is_empty_only_at_the_end_of_the_list(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_BUCKETS", 3), ("_STRETCH_ROWS", 2)):
        monkeypatch.setattr(f"hourwheel.delay.lists.delayed_list.{name}", value)
    for hour in range(12):
        for _ in range(3):
            send(api, "other", {"body": "x", "delay": f"{hour + 1}h"})
    send(api, "orders", {"id": "far", "body": "x", "delay": "12h"})
    page = ask(api, OF_ORDERS)
    assert (ids(page.json["messages"]), page.json["next"]) == (["far"], None)
    assert ask(api, OF_ORDERS, from_=rfc3339(NOON_MS + 13 * HOUR_MS)).json == {"messages": [], "next": None}
    after, sizes = None, []
    while not sizes or after is not None:
        page = ask(api, after=after, limit=5)
        sizes.append(len(page.json["messages"]))
        after = page.json["next"]
    assert sum(sizes) == 37
    assert 0 not in sizes[:-1]


def test_a_search_that_takes_too_long_ends_with_an_empty_page_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(CallByCall(MemoryStore()))
    api = Api(bench)
    monkeypatch.setattr("hourwheel.delay.lists.delayed_list._BUCKETS", 2)
    for hour in range(12):
        send(api, "other", {"body": "x", "delay": f"{hour + 1}h"})
    send(api, "orders", {"id": "far", "body": "x", "delay": "13h"})
    store = bench.store
    assert isinstance(store, CallByCall)
    monkeypatch.setattr(store, "scan", slowly(store.scan, bench))
    page = ask(api, OF_ORDERS).json
    assert (page["messages"], page["next"] is None) == ([], False)
    assert ids(listed(api, OF_ORDERS)) == ["far"]


def slowly(read: Callable[..., Any], bench: Bench) -> Callable[..., Any]:
    """Returns the call as one that takes a second."""

    def call(*args: Any, **options: Any) -> Any:
        bench.clock.pass_time(1)
        return read(*args, **options)

    return call


def test_an_idempotent_batch_and_a_batch_of_many_subjects_are_listed(api: Api) -> None:
    body = {"messages": [{"subject": "a", "id": "1", "body": "x", "delay": 60}, {"subject": "b", "body": "y"}]}
    assert api.call("POST", "/v1/messages", body).status == 200
    assert api.call("POST", MESSAGES, {"messages": [{"body": "x", "delay": 61}], "idempotency_key": "k"}).status == 200
    first, second = listed(api)
    assert (first["id"], first["subject"], second["subject"]) == ("1", "a", "orders")
    assert second["id"], "an id that Hourwheel gave"
