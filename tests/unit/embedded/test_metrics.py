"""``/metrics``, read by Prometheus' own parser."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hourwheel import __version__
from hourwheel.embedded.application import Application
from hourwheel.embedded.http.bodies import SizedBody
from hourwheel.embedded.http.heads import parse_head
from hourwheel.embedded.http.requests import Request
from hourwheel.embedded.options import ServeOptions
from hourwheel.embedded.prometheus import _labels
from hourwheel.embedded.runtime import Runtime
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, RetryLater, Settlement
from hourwheel.system import SystemClock
from tests.support import NOON_MS, HandClock


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str

    def families(self) -> dict[str, Any]:
        return {family.name: family for family in text_string_to_metric_families(self.text)}

    def value(self, name: str, **labels: str) -> float:
        (found,) = [
            sample.value
            for family in self.families().values()
            for sample in family.samples
            if sample.name == name and sample.labels == labels
        ]
        return float(found)


class Server:
    """The application without a socket."""

    def __init__(self, data: Path, token: str | None = None, **given: Any) -> None:
        options = ServeOptions(data=data, tokens=() if token is None else (token,), **given)
        self.runtime = Runtime(options)
        self.application = Application(self.runtime, options)

    def get(self, path: str = "/metrics", *, method: str = "GET", **headers: str) -> Answer:
        given = {"host": "127.0.0.1:7420", **headers}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in given.items())]
        head = parse_head("\r\n".join(lines).encode())
        request = Request(head, SizedBody(0), lambda: None, client="127.0.0.1", secure=False)
        answer = asyncio.run(self.application.respond(request))
        return Answer(answer.status, answer.headers, answer.body.decode())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    hand = HandClock(NOON_MS)
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: hand.now_ms())
    return hand


@pytest.fixture
def server(tmp_path: Path, clock: HandClock) -> Iterator[Server]:
    opened = Server(tmp_path)
    yield opened
    opened.runtime.close()


def test_the_page_is_in_prometheus_text_format(server: Server) -> None:
    answer = server.get()
    assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    families = answer.families()
    assert all(family.documentation for family in families.values())
    assert {family.type for family in families.values()} == {"counter", "gauge", "histogram"}
    assert all(name.startswith("hourwheel_") for name in families.keys() - {"process_start_time_seconds"})
    assert answer.text.endswith("\n")


def test_counters_gauges_and_groups_are_told(server: Server, clock: HandClock) -> None:
    deployment = server.runtime.deployment
    deployment.produce("orders", [NewMessage(body=body) for body in "abcdef"])
    (pull,) = deployment.pull("orders", "billing", PullRequest(consumer="c1", max_messages=4)).pulls
    deployment.settle("orders", "billing", [Settlement(receipt=pull.receipt, ack=[0], dead=[1])])
    clock.pass_time(30)
    answer = server.get()
    told = {name: answer.value(f"hourwheel_{name}_total") for name in ("accepted", "delivered", "settled")}
    assert told == {"accepted": 6, "delivered": 4, "settled": 2}
    assert answer.value("hourwheel_dead_letters_total") == 1
    names = ("waiting", "in_flight", "retrying", "dead", "held_keys", "oldest_seconds")
    group = {name: answer.value(f"hourwheel_group_{name}", subject="orders", group="billing") for name in names}
    assert group == {"waiting": 2, "in_flight": 2, "retrying": 0, "dead": 1, "held_keys": 0, "oldest_seconds": 30}
    assert answer.value("hourwheel_waiting_pulls") == 0
    assert answer.value("hourwheel_wheels_turning") == 0
    assert answer.value("hourwheel_build_info", version=__version__) == 1
    assert answer.value("process_start_time_seconds") == NOON_MS / 1_000


def test_what_waits_for_a_delay_pauses_and_consumers_are_told(server: Server, clock: HandClock) -> None:
    deployment = server.runtime.deployment
    deployment.produce("orders", [NewMessage(body="a"), NewMessage(body="later", delay="2h")])
    for consumer in ("c1", "c2"):
        for pull in deployment.pull("orders", "billing", PullRequest(consumer=consumer)).pulls:
            retry = [RetryLater(index=0, delay="1h")]
            deployment.settle("orders", "billing", [Settlement(receipt=pull.receipt, retry=retry)])
    deployment.groups.pause("orders", "billing", paused=True)
    clock.pass_time(6)
    answer = server.get()
    names = ("backing_off", "paused", "consumers", "retrying")
    group = {name: answer.value(f"hourwheel_group_{name}", subject="orders", group="billing") for name in names}
    assert group == {"backing_off": 1, "paused": 1, "consumers": 2, "retrying": 0}
    assert answer.value("hourwheel_delayed") == 1


def test_lateness_is_a_histogram_of_seconds(server: Server) -> None:
    for late_ms in (20, 400, 7_200_000):
        server.runtime.meter.record("DispatchLateness", late_ms, unit="Milliseconds")
    answer = server.get()
    buckets = {
        bound: answer.value("hourwheel_dispatch_lateness_seconds_bucket", le=bound)
        for bound in ("0.1", "0.25", "0.5", "3600", "+Inf")
    }
    assert buckets == {"0.1": 1, "0.25": 1, "0.5": 2, "3600": 2, "+Inf": 3}
    assert answer.value("hourwheel_dispatch_lateness_seconds_count") == 3
    assert answer.value("hourwheel_dispatch_lateness_seconds_sum") == pytest.approx(7_200.42)


def test_how_far_the_archive_is_behind_is_told_where_there_is_one(
    server: Server, tmp_path: Path, clock: HandClock
) -> None:
    assert "hourwheel_archive_behind_seconds" not in server.get().text
    archiving = Server(tmp_path / "archived", archive_seconds=1)
    archiving.runtime._archive()
    assert archiving.get().value("hourwheel_archive_behind_seconds") == 0
    clock.pass_time(90)
    assert archiving.get().value("hourwheel_archive_behind_seconds") == 90
    archiving.runtime.close()


def test_groups_are_looked_at_every_five_seconds_at_most(server: Server, clock: HandClock) -> None:
    deployment = server.runtime.deployment
    deployment.groups.put("orders", "billing")

    def waiting() -> float:
        return server.get().value("hourwheel_group_waiting", subject="orders", group="billing")

    assert waiting() == 0
    deployment.produce("orders", [NewMessage(body="a")])
    clock.ms += 4_999
    assert waiting() == 0
    assert server.get().value("hourwheel_accepted_total") == 1, "counters are those of now"
    clock.ms += 1
    assert waiting() == 1
    clock.ms -= 3_600_000
    deployment.produce("orders", [NewMessage(body="b")])
    assert waiting() == 2, "the clock was set back"


def test_deleted_groups_are_no_longer_told(server: Server, clock: HandClock) -> None:
    for subject in ("orders", "refunds"):
        for group in ("billing", "audit"):
            server.runtime.deployment.groups.put(subject, group)
    server.runtime.deployment.groups.delete("orders", "audit")
    server.runtime.deployment.subjects.delete("refunds")
    samples = server.get().families()["hourwheel_group_waiting"].samples
    assert [sample.labels for sample in samples] == [{"subject": "orders", "group": "billing"}]


def test_a_damaged_group_does_not_hide_the_others(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for group in ("audit", "billing"):
        server.runtime.deployment.groups.put("orders", group)
    metrics = server.application._exporter._metrics
    monkeypatch.setattr(
        server.application._exporter,
        "_metrics",
        lambda subject, group: 1 // 0 if group.name == "audit" else metrics(subject, group),
    )
    answer = server.get()
    samples = answer.families()["hourwheel_group_dead"].samples
    assert [sample.labels["group"] for sample in samples] == ["billing"]
    assert server.get().value("hourwheel_faults_total") == 1


def test_only_the_largest_groups_have_series_of_their_own(tmp_path: Path, clock: HandClock) -> None:
    server = Server(tmp_path, metrics_groups=2)
    deployment = server.runtime.deployment
    for subject, count in (("a", 1), ("b", 3), ("c", 0), ("d", 2)):
        deployment.groups.put(subject, "billing")
        if count:
            deployment.produce(subject, [NewMessage(body="x")] * count)
    answer = server.get()
    samples = answer.families()["hourwheel_group_waiting"].samples
    assert [(sample.labels["subject"], sample.value) for sample in samples] == [("b", 3), ("d", 2)]
    assert answer.value("hourwheel_series_dropped") == 18, "nine of each of two groups"
    server.runtime.close()


def test_an_ordered_group_has_its_held_keys_among_its_series(server: Server, clock: HandClock) -> None:
    deployment = server.runtime.deployment
    deployment.groups.put("orders", "billing", ordered=True, retry=RetryPolicy(first_seconds=600))
    deployment.produce("orders", [NewMessage(body=name, key=name[0]) for name in ("a1", "a2", "b1")])
    (pull,) = deployment.pull("orders", "billing", PullRequest(consumer="c1", max_messages=1)).pulls
    deployment.pull("orders", "billing", PullRequest(consumer="c2", max_messages=1))
    deployment.settle("orders", "billing", [Settlement(receipt=pull.receipt, retry=[0])])
    answer = server.get()
    names = ("held_keys", "waiting", "in_flight", "retrying")
    group = {name: answer.value(f"hourwheel_group_{name}", subject="orders", group="billing") for name in names}
    assert group == {"held_keys": 1, "waiting": 1, "in_flight": 1, "retrying": 0}


def test_each_consumer_of_a_broadcast_group_has_series_of_its_own(server: Server, clock: HandClock) -> None:
    deployment = server.runtime.deployment
    deployment.groups.put("orders", "screens", broadcast=True)
    deployment.produce("orders", [NewMessage(body=body) for body in "abc"])
    for consumer, count in (("hall", 1), ("lobby", 3)):
        deployment.pull("orders", "screens", PullRequest(consumer=consumer, max_messages=count))
    samples = server.get().families()["hourwheel_group_waiting"].samples
    assert [(sample.labels, sample.value) for sample in samples] == [
        ({"subject": "orders", "group": "screens", "consumer": "hall"}, 2),
        ({"subject": "orders", "group": "screens", "consumer": "lobby"}, 0),
    ]


def test_the_page_wants_the_token_and_no_web_page(tmp_path: Path, server: Server, clock: HandClock) -> None:
    assert server.get(origin="http://evil.example").status == 403
    assert server.get(host="evil.example").status == 403
    assert server.get(method="POST").status == 405
    assert server.get("/v1/metrics").status == 404
    guarded = Server(tmp_path / "guarded", token="s3cret")
    assert guarded.get().status == 401
    assert guarded.get(authorization="Bearer wrong").status == 401
    assert guarded.get(authorization="Bearer s3cret").status == 200
    guarded.runtime.close()


def test_label_values_are_escaped() -> None:
    ugly = 'a"b\\c\nd'
    (family,) = text_string_to_metric_families(f"# TYPE x gauge\nx{_labels({'name': ugly})} 1\n")
    assert family.samples[0].labels == {"name": ugly}
