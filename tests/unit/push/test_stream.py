"""The stream of stored rows is read while some group has a target."""

import json
from typing import Any

import pytest

from hourwheel.adapters.aws.functions import MappedStream
from hourwheel.errors import Unavailable
from hourwheel.model.groups import PushTarget
from tests.contract import wire
from tests.support import Bench

TARGET = PushTarget(kind="sqs", address="arn:aws:sqs:eu-west-1:111122223333:orders")
MAPPING = "14e0db71-5d35-4eb5-b481-8945cf9d10c2"


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_first_target_switches_the_stream_on_at_once(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing")
    assert bench.stream.heard == []
    bench.deployment.groups.put("orders", "billing", push=TARGET)
    assert bench.stream.heard == [True]


def test_the_sweep_after_the_last_target_switches_the_stream_off(bench: Bench) -> None:
    for group in ("billing", "shipping"):
        bench.deployment.groups.put("orders", group, push=TARGET)
    for group, wanted in (("billing", True), ("shipping", False)):
        bench.deployment.groups.put("orders", group, push=None)
        bench.deployment.sweeper.sweep()
        assert bench.stream.heard[-1] is wanted


def test_the_sweep_after_a_deletion_switches_the_stream_off(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", push=TARGET)
    bench.deployment.subjects.delete("orders")
    bench.deployment.sweeper.sweep()
    assert bench.stream.heard[-1] is False


def test_a_sweep_switches_the_stream_on_where_an_earlier_try_failed(bench: Bench) -> None:
    bench.stream.away = True
    bench.deployment.groups.put("orders", "billing", push=TARGET)
    assert bench.deployment.groups.get("orders", "billing").push is not None
    bench.deployment.sweeper.sweep()
    assert [name for name, _ in bench.meter.metrics if name == "WakesMissed"] == ["WakesMissed"] * 2
    bench.stream.away = False
    bench.deployment.sweeper.sweep()
    assert bench.stream.heard == [True]


class Lambda:
    """An event source mapping; ``states`` are answered one after the other."""

    def __init__(self, state: str, refusal: wire.Fault | None = None) -> None:
        self.state, self.refusal = state, refusal
        self.updates: list[Any] = []
        self.stream = MappedStream([MAPPING], region="eu-west-1", endpoint_url="http://127.0.0.1:9")
        self.stream.client.meta.events.register_first("before-send.lambda", self._sent)

    def _sent(self, request: Any, **_: Any) -> Any:
        assert request.url.endswith(f"/2015-03-31/event-source-mappings/{MAPPING}")
        if request.method == "PUT":
            self.updates.append(json.loads(request.body))
            if self.refusal is not None:
                return self.refusal(request)
        return wire.answer(request, 200, json.dumps({"State": self.state}).encode())


@pytest.fixture(autouse=True)
def _account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")


@pytest.mark.parametrize(
    ("state", "wanted", "updates"),
    [
        ("Disabled", True, [{"Enabled": True}]),
        ("Enabled", False, [{"Enabled": False}]),
        ("Enabled", True, []),
        ("Disabled", False, []),
        ("Enabling", True, []),
        ("Disabling", True, []),
        ("Creating", True, []),
    ],
)
def test_a_mapping_is_changed_only_where_it_is_at_rest_and_otherwise(
    state: str, wanted: bool, updates: list[Any]
) -> None:
    mapping = Lambda(state)
    mapping.stream.listen(wanted)
    assert mapping.updates == updates


def test_a_change_that_is_under_way_is_left_to_the_next_sweep() -> None:
    mapping = Lambda("Disabled", wire.refusal("ResourceInUseException"))
    mapping.stream.listen(True)
    assert len(mapping.updates) == 1


def test_a_service_that_is_away_raises_an_error() -> None:
    mapping = Lambda("Disabled", wire.refusal("ServiceException", 500))
    with pytest.raises(Unavailable):
        mapping.stream.listen(True)
