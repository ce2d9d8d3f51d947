"""Each call that a function makes to a service fails in each way, once or from then on: no message is lost.

The function answers, or asks for a retry. The test retries as a client or Lambda does, with the services repaired. Then
time passes, the sweeper, wheels and pushes run, and each message is where it should be, and nowhere else.
"""

import importlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import botocore.endpoint
import pytest
from botocore import UNSIGNED, useragent
from botocore.config import Config

from hourwheel.adapters.aws import dynamodb
from hourwheel.adapters.aws.clients import session
from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.api.router import Match, Router, make_event
from hourwheel.aws.services import ARCHIVE_PREFIX
from hourwheel.errors import Unavailable
from hourwheel.system import SystemClock
from tests.support import NOON_MS, HandClock
from tests.unit.archive.reading import contents

from .fakes import FAULTS, Fault, Services
from .template import ACCOUNT, REGION

_FUNCTION = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:cell-{{}}"
_QUEUE = f"arn:aws:sqs:{REGION}:{ACCOUNT}:target"
_VARIABLES = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    "AWS_DEFAULT_REGION": REGION,
    "HOURWHEEL_TABLE_PREFIX": "cell",
    "HOURWHEEL_BUCKET": "batches",
    "HOURWHEEL_INLINE_BYTES": "1024",
    "HOURWHEEL_WHEEL_FUNCTION": _FUNCTION.format("wheel"),
    "HOURWHEEL_LAKE_BUCKET": "lake",
    "HOURWHEEL_SWEEP_FUNCTION": _FUNCTION.format("sweep"),
    "HOURWHEEL_PUSH_FUNCTION": _FUNCTION.format("push"),
    "HOURWHEEL_PUSH_TARGETS": _QUEUE,
    "HOURWHEEL_TIMER_GROUP": "cell",
    "HOURWHEEL_TIMER_ROLE": f"arn:aws:iam::{ACCOUNT}:role/timers",
}
_LARGE = "".join(chr(0x100 + i * i % 5_000) for i in range(2_000))
_GROUP = "/v1/subjects/orders/groups/billing"
_PUSHED = "/v1/subjects/orders/groups/pushed"
_HOUR = 3_600


class Again(Exception):
    """The function asked for a retry, as it should."""


class Invocation:
    def __init__(self, clock: HandClock, seconds: int) -> None:
        self._clock, self._ends_ms = clock, clock.ms + seconds * 1_000

    def get_remaining_time_in_millis(self) -> int:
        return self._ends_ms - self._clock.ms


@dataclass
class Deployment:
    """The functions over the faked services. ``restart`` gives every function a new process."""

    services: Services
    clock: HandClock
    _router: Router = field(default_factory=Router)
    _loaded: dict[str, ModuleType] = field(default_factory=dict)

    def restart(self) -> None:
        self._loaded.clear()

    def invoke(self, function: str, event: Mapping[str, Any]) -> Any:
        if function not in self._loaded:
            sys.modules.pop(f"functions.{function}.handler", None)
            self._loaded[function] = importlib.import_module(f"functions.{function}.handler")
        return self._loaded[function].handler(event, Invocation(self.clock, 900 if function in TASKS else 29))

    def task(self, function: str, event: Mapping[str, Any]) -> Any:
        try:
            return self.invoke(function, event)
        except Unavailable as error:
            raise Again from error

    def call(self, method: str, path: str, body: Any = None) -> Any:
        match = self._router.find(method, path)
        assert isinstance(match, Match)
        data = b"" if body is None else json.dumps(body).encode()
        event = make_event(match, path=path, query="", headers=(), body=data, request_id="r", source="127.0.0.1")
        response = self.invoke(match.route.function, event)
        if response["statusCode"] == 503:
            assert response["headers"]["retry-after"] == "1"
            raise Again
        assert response["statusCode"] in (200, 204), response
        return json.loads(response["body"]) if response["body"] else None

    def send(self, *messages: Mapping[str, Any], **more: Any) -> list[Any]:
        return list(self.call("POST", "/v1/subjects/orders/messages", {"messages": messages, **more})["results"])

    def pull(self, **how: Any) -> list[Any]:
        return list(self.call("POST", f"{_GROUP}/pull", {"consumer": "c", "lease_seconds": 60, **how})["pulls"])

    def settle_down(self, until_ms: int) -> list[str]:
        """Lets time pass until then, with sweeps, and runs every started or scheduled function. Returns the bodies that
        were pulled."""
        found: list[str] = []
        for times in (1, 2, 3):
            self.clock.ms = max(self.clock.ms + 61_000, self.clock.ms + (until_ms - self.clock.ms) * times // 3)
            self._started()
            self.invoke("delayed", {"source": "aws.scheduler"})
            self._started()
            for one in self.pull():
                found += [message["body"] for message in one["messages"]]
                self.call("POST", f"{_GROUP}/ack", {"settle": [{"receipt": one["receipt"]}]})
        return found

    def _started(self) -> None:
        services = self.services
        for name, schedule in list(services.schedules.items()):
            if int(name.rpartition("-")[2]) * 1_000 <= self.clock.ms:
                services.started.append(("wheel", json.loads(schedule["Target"]["Input"])))
                del services.schedules[name]
        while services.started:
            events = {json.dumps(started): started for started in services.started}
            services.started.clear()
            for function, event in events.values():
                self.invoke(function, event)


TASKS = ("delayed", "sweep", "wheel", "push", "archive")


@dataclass(frozen=True)
class Scenario:
    """A call with its expected effects. ``act`` gets the result of ``prepare``. ``wanted`` returns how many times each
    body is pulled at least and at most, and ``pushed`` how many times the target gets it; both are told whether
    ``act`` was repeated. ``after`` checks the rest, ``hours`` later."""

    prepare: Callable[[Deployment], Any]
    act: Callable[[Deployment, Any], Any]
    wanted: Callable[[bool], Mapping[str, tuple[int, int]]]
    hours: float = 0.1
    pushed: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    after: Callable[[Deployment, Any], None] = lambda deployment, prepared: None


def once(*bodies: str) -> Callable[[bool], dict[str, tuple[int, int]]]:
    return lambda repeated: dict.fromkeys(bodies, (1, 1))


def nothing(deployment: Deployment) -> None:
    deployment.call("PUT", _GROUP, {"retry": {"first_seconds": 0}})


def three_pulled(deployment: Deployment) -> Any:
    nothing(deployment)
    deployment.send({"body": "a"}, {"body": _LARGE}, {"body": "c"})
    (one,) = deployment.pull()
    return one["receipt"]


def retried_and_dead(receipt: str) -> dict[str, Any]:
    return {"receipt": receipt, "retry": [{"index": 0, "delay": "3s"}, 1], "dead": [2]}


def dead_letters(deployment: Deployment, *bodies: str) -> None:
    deployment.clock.ms += 3_000
    found = deployment.call("GET", f"{_GROUP}/dead")["messages"]
    assert sorted(message["body"] for message in found) == sorted(bodies)


def one_dead(deployment: Deployment) -> None:
    receipt = three_pulled(deployment)
    settle = {"receipt": receipt, "dead": [0, 1, 2]}
    deployment.call("POST", f"{_GROUP}/ack", {"settle": [settle]})


def delayed(seconds: int, *bodies: str) -> Callable[[Deployment], Any]:
    def prepare(deployment: Deployment) -> Any:
        nothing(deployment)
        accepted = deployment.send(*({"body": body, "delay": seconds} for body in bodies))
        deployment.services.started.clear()
        return [one["scheduled_id"] for one in accepted]

    return prepare


def due(deployment: Deployment) -> Any:
    delayed(1, "a", _LARGE)(deployment)
    deployment.clock.ms += 2_000
    return {"bucket": f"{NOON_MS // 3_600_000 * 3_600_000}-60/000"}


def leased(deployment: Deployment) -> Any:
    nothing(deployment)
    deployment.send({"body": "a"}, {"body": _LARGE})
    deployment.pull(lease_seconds=1)
    deployment.clock.ms += 2_000


def to_be_pushed(deployment: Deployment) -> Any:
    nothing(deployment)
    deployment.call("PUT", _PUSHED, {"push": {"kind": "sqs", "arn": _QUEUE, "concurrency": 1}})
    deployment.clock.ms += 3_000
    deployment.send({"body": "a"}, {"body": "b"})
    return {"push": {"subject": "orders", "group": "pushed"}}


def put_pushed(deployment: Deployment, _: Any) -> None:
    deployment.call("PUT", _PUSHED, {"push": {"kind": "sqs", "arn": _QUEUE, "concurrency": 1}})


def cancelled(deployment: Deployment, ids: Any) -> None:
    assert deployment.call("DELETE", f"/v1/scheduled/{ids[0]}")["state"] == "cancelled"


def archived(deployment: Deployment, _: Any) -> None:
    """Checks that every row is archived once, including those that another run had begun with."""
    deployment.clock.ms += 3_600_000
    while not deployment.task("archive", {})["complete"]:
        pass
    blobs = MemoryBlobs()
    for key, data in deployment.services.objects.items():
        if key.startswith(ARCHIVE_PREFIX):
            blobs.put(key.removeprefix(ARCHIVE_PREFIX), data)
    found = contents(blobs)
    assert set(found.rows.values()) == {1}
    assert found.bodies("orders~1/0") == ["a", _LARGE]
    assert found.pulls


PLAIN = [{"body": "a"}, {"body": "b", "key": "k"}]
SCENARIOS = {
    "produce": Scenario(
        nothing,
        lambda deployment, _: deployment.send(*PLAIN),
        lambda repeated: {"a": (1, 2), "b": (1, 2)} if repeated else {"a": (1, 1), "b": (1, 1)},
    ),
    "produce with an idempotency key": Scenario(
        nothing, lambda deployment, _: deployment.send(*PLAIN, idempotency_key="i"), once("a", "b")
    ),
    "produce, large, with an idempotency key": Scenario(
        nothing, lambda deployment, _: deployment.send({"body": _LARGE}, idempotency_key="i"), once(_LARGE)
    ),
    "produce for later, with an idempotency key": Scenario(
        nothing,
        lambda deployment, _: deployment.send(
            {"body": "a", "delay": "3s"}, {"body": _LARGE, "delay": "2h"}, idempotency_key="i"
        ),
        once("a", _LARGE),
        hours=2.5,
    ),
    "pull": Scenario(
        lambda deployment: (nothing(deployment), deployment.send({"body": "a"}, {"body": _LARGE})),
        lambda deployment, _: [
            deployment.call("POST", f"{_GROUP}/ack", {"settle": [{"receipt": one["receipt"], "release": [0, 1]}]})
            for one in deployment.pull()
        ],
        once("a", _LARGE),
    ),
    "ack": Scenario(
        three_pulled,
        lambda deployment, receipt: deployment.call("POST", f"{_GROUP}/ack", {"settle": [retried_and_dead(receipt)]}),
        once("a", _LARGE),
        after=lambda deployment, _: dead_letters(deployment, "c"),
    ),
    "pull that settles": Scenario(
        three_pulled,
        lambda deployment, receipt: deployment.pull(settle=[retried_and_dead(receipt)], max_messages=1),
        once("a", _LARGE),
        after=lambda deployment, _: dead_letters(deployment, "c"),
    ),
    "put a group with a target": Scenario(
        lambda deployment: (nothing(deployment), deployment.send({"body": "a"})),
        put_pushed,
        once("a"),
        pushed={"a": (1, 1)},
    ),
    "cancel": Scenario(delayed(600, "a", "b"), cancelled, once("b"), hours=0.3),
    "reschedule": Scenario(
        delayed(7_200, _LARGE),
        lambda deployment, ids: deployment.call("PATCH", f"/v1/scheduled/{ids[0]}", {"delay": "3s"}),
        once(_LARGE),
        hours=0.3,
    ),
    "redrive": Scenario(
        one_dead,
        lambda deployment, _: deployment.call("POST", f"{_GROUP}/dead/redrive", {"all": True}),
        once("a", _LARGE, "c"),
        after=lambda deployment, _: dead_letters(deployment),
    ),
    "sweep": Scenario(leased, lambda deployment, _: deployment.task("sweep", {}), once("a", _LARGE)),
    "archive": Scenario(
        lambda deployment: deployment.send({"body": "a"}, {"body": _LARGE}),
        lambda deployment, _: deployment.task("archive", {}),
        once("a", _LARGE),
        after=archived,
    ),
    "wheel": Scenario(due, lambda deployment, event: deployment.task("wheel", event), once("a", _LARGE)),
    "push": Scenario(
        to_be_pushed,
        lambda deployment, event: deployment.task("push", event),
        once("a", "b"),
        pushed={"a": (1, 3), "b": (1, 3)},
        hours=0.5,
    ),
}


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    clock, services = HandClock(NOON_MS + 600_000), Services()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "HOURWHEEL_CELL", "HOURWHEEL_SHARDS"):
            patch.delenv(name, raising=False)
        for name, text in _VARIABLES.items():
            patch.setenv(name, text)
        patch.setattr(SystemClock, "now_ms", lambda _: clock.now_ms())
        patch.setattr(SystemClock, "sleep", lambda _, seconds: clock.sleep(seconds))
        # The SDK pauses by this function.
        patch.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=clock.sleep))
        session.cache_clear()
        made: dict[str, Any] = {}
        create = session().create_client

        def create_client(service: str, **how: Any) -> Any:
            """Makes one client for all processes: making a client takes longer than all calls of a test."""
            if service not in made:
                # Signing a request would take longer than all that the functions do for it, and nobody checks.
                how["config"] = Config(signature_version=UNSIGNED).merge(how["config"])
                made[service] = create(service, **how)
                made[service].meta.events.register(f"before-send.{service}", services.send)
            return made[service]

        patch.setattr(session(), "create_client", create_client)
        named = cache(useragent.sanitize_user_agent_string_component)
        patch.setattr(useragent, "sanitize_user_agent_string_component", named)  # some dozen times for each request
        patch.setattr(dynamodb, "client", cache(dynamodb.client))
        yield Deployment(services, clock)
        session.cache_clear()
        for client in made.values():
            client.close()


@dataclass
class Spoiling:
    """A fault at the request of number ``at``, and with ``down`` at all later ones to its service. ``seen`` counts the
    requests."""

    services: Services
    at: int = -1
    fault: Fault | None = None
    down: bool = False
    seen: int = 0
    _service: str = ""

    def __call__(self, service: str, request: Any) -> Any:
        self.seen += 1
        if self.seen - 1 == self.at:
            self._service = service
        elif not (self.down and service == self._service):
            return None
        assert self.fault is not None
        return self.fault(service, request, lambda: self.services.answered(service, request))


def spoilt(deployment: Deployment, scenario: Scenario, prepared: Any, spoiling: Spoiling) -> bool:
    """Returns whether the call asked for a retry."""
    deployment.restart()
    deployment.services.before = spoiling
    try:
        scenario.act(deployment, prepared)
    except Again:
        return True
    finally:
        deployment.services.before = lambda service, request: None
    return False


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_fault_at_any_call_loses_nothing(deployment: Deployment, name: str) -> None:
    """Each call has one of the faults: all of them come in turn."""
    assert wrong_ends(deployment, name, lambda at, number: number == at // 2 % 3) == []


@pytest.mark.volume
@pytest.mark.parametrize("name", SCENARIOS)
def test_each_kind_of_fault_at_any_call_loses_nothing(deployment: Deployment, name: str) -> None:
    assert wrong_ends(deployment, name, lambda at, number: True) == []


def wrong_ends(deployment: Deployment, name: str, chosen: Callable[[int, int], bool]) -> list[str]:
    """Plays the scenario once for each chosen fault, by the numbers of the request and of the kind of fault. Returns
    the faults after which not every message was where it should be."""
    scenario = SCENARIOS[name]
    services, clock = deployment.services, deployment.clock
    services.restore(({}, {}, {}, [], []))
    deployment.restart()
    clock.ms = NOON_MS + 600_000
    prepared = scenario.prepare(deployment)
    state, began_ms = services.state(), clock.ms
    whole = Spoiling(services)
    assert not spoilt(deployment, scenario, prepared, whole)
    assert whole.seen
    wrong = []
    for at in range(whole.seen):
        # One fault of each kind: refused, or lost on the way there; failed; carried out without an answer.
        for number, fault in enumerate(FAULTS[at % 2 :: 2]):
            if not chosen(at, number):
                continue
            down = (at // 2 + number) % 2 == 1
            services.restore(state)
            clock.ms = began_ms
            told = f"request {at}, {fault.__name__}{', and down from then on' if down else ''}"
            try:
                _recovered(deployment, scenario, prepared, Spoiling(services, at, fault, down))
            except AssertionError as error:
                wrong.append(f"{told}: {error}")
    return wrong


def _recovered(deployment: Deployment, scenario: Scenario, prepared: Any, spoiling: Spoiling) -> None:
    until_ms = deployment.clock.ms + round(scenario.hours * _HOUR * 1_000)
    repeated = spoilt(deployment, scenario, prepared, spoiling)
    if repeated:
        deployment.restart()
        scenario.act(deployment, prepared)
    found = Counter(deployment.settle_down(until_ms))
    pushed = Counter(json.loads(body)["body"] for body in deployment.services.sent)
    for what, counted, wanted in (
        ("pulled", found, scenario.wanted(repeated)),
        ("pushed", pushed, scenario.pushed),
    ):
        shown = {body[:10]: count for body, count in counted.items()}
        assert counted.keys() == wanted.keys(), f"{what} {shown}"
        assert all(least <= counted[body] <= most for body, (least, most) in wanted.items()), f"{what} {shown}"
    scenario.after(deployment, prepared)
