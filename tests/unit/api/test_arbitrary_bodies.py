"""No request makes the server answer with a fault of its own."""

from collections import Counter
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.api.routes import ROUTES, HttpRoute
from hourwheel.ports.storage import CellStorage
from hourwheel.times import rfc3339
from tests.support import NOON_MS, Bench
from tests.unit.api.conftest import GROUP, MESSAGES, Api

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
NAMES = """messages body body_base64 key tags headers id subject idempotency_key consumer max_messages wait_seconds
lease_seconds settle receipt ack retry release dead extend_seconds queues retention_seconds start max_attempts to
time queue offset all ids push kind arn url name batch from delay deliver_at clamp_delays index first_seconds
factor cap_seconds delays_seconds cell cells dry_run kinds state"""
words = st.sampled_from(NAMES.split())
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words | st.text(max_size=5), inner, max_size=5),
    max_leaves=20,
)


RECEIPT = "the receipt of a pull of two messages"
DEAD_ID = "the id of a dead letter"


def valid_fields(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=optional)


times = st.integers(0, 4_000_000_000_000).map(rfc3339)
delays = (
    st.integers(0, 10_000)
    | st.floats(0, 10_000)
    | st.builds("{}{}".format, st.integers(0, 700), st.sampled_from(["ms", "s", "m", "h", "d"]))
)


def valid_batch(**more: Any) -> st.SearchStrategy[dict[str, Any]]:
    text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
    message = st.fixed_dictionaries(
        {"body": text, **more},
        optional={
            "key": text,
            "tags": st.lists(text, max_size=3, unique=True),
            "headers": st.dictionaries(text, text, max_size=3),
            "id": text,
        },
    )
    message = st.one_of(message, st.builds(dict, message, delay=delays), st.builds(dict, message, deliver_at=times))
    return st.fixed_dictionaries(
        {"messages": st.lists(message, min_size=1, max_size=3)}, optional={"idempotency_key": text}
    )


@st.composite
def valid_settlement(draw: st.DrawFn) -> dict[str, Any]:
    """Draws a settlement with each of the two messages in one list or none."""
    if draw(st.integers(0, 9)) == 0:
        return {"receipt": RECEIPT, "extend_seconds": draw(st.integers(1, 43_200))}
    entry: dict[str, Any] = {"receipt": RECEIPT}
    for index in (0, 1):
        name = draw(st.sampled_from(["ack", "retry", "release", "dead", None]))
        if name == "retry" and draw(st.booleans()):
            entry.setdefault(name, []).append({"index": index, "delay": draw(delays)})
        elif name is not None:
            entry.setdefault(name, []).append(index)
    return entry


names = st.text("abc.-_1", min_size=1, max_size=5).filter(lambda name: name not in {".", ".."})
settlements = st.lists(valid_settlement(), min_size=1, max_size=2, unique_by=str)
selections = (
    st.just({"all": True})
    | st.fixed_dictionaries(
        {"ids": st.lists(st.just(DEAD_ID) | st.from_regex("[0-9]{1,9}-[0-9]{1,3}", fullmatch=True))}
    )
    | valid_fields(**{"from": times, "to": times})
)
choices = st.just({"all": True}) | st.fixed_dictionaries({"id": names}, optional={"key": names, "tag": names})
seconds = st.floats(0, 2_592_000)
policies = valid_fields(first_seconds=seconds, factor=st.floats(1, 100), cap_seconds=seconds) | st.fixed_dictionaries(
    {"delays_seconds": st.lists(seconds, min_size=1, max_size=5)}
)
targets = st.fixed_dictionaries(
    {"kind": st.sampled_from(["lambda", "sqs", "eventbridge", "notify"]), "arn": st.text(min_size=1, max_size=50)},
    optional={
        "batch": st.integers(1, 1_000),
        "concurrency": st.integers(1, 20),
        "timeout_seconds": st.integers(1, 300),
    },
)
CELLS = ("fast", "quick", "swift")
dry_runs = {"dry_run": st.booleans()}
_GROUP = "/v1/subjects/{subject}/groups/{group}"
VALID: dict[str, st.SearchStrategy[Any]] = {
    "POST /v1/messages": valid_batch(subject=names),
    "POST /v1/subjects/{subject}/messages": valid_batch(),
    f"POST {_GROUP}/pull": st.fixed_dictionaries(
        {"consumer": names},
        optional={
            "max_messages": st.integers(1, 1_000),
            "wait_seconds": st.floats(0, 20),
            "lease_seconds": st.integers(1, 43_200),
            "settle": settlements,
        },
    ),
    f"POST {_GROUP}/held": st.fixed_dictionaries(
        {"then": st.sampled_from(("retry", "dead")), "keys": st.lists(names, min_size=1)}
    ),
    f"POST {_GROUP}/ack": st.fixed_dictionaries({"settle": settlements}),
    "PUT /v1/subjects/{subject}": valid_fields(
        queues=st.integers(1, 64),
        retention_seconds=st.integers(60, 2_592_000),
        clamp_delays=st.booleans(),
        read_only=st.just(False),
    ),
    f"PUT {_GROUP}": valid_fields(
        start=st.just("earliest"),
        max_attempts=st.integers(1, 1_000),
        max_in_flight=st.integers(0, 1_000_000),
        messages_per_second=st.floats(0, 1_000_000),
        retry=policies,
        push=targets | st.none(),
    ),
    "PATCH /v1/scheduled/{id}": st.fixed_dictionaries({"delay": delays})
    | st.fixed_dictionaries({"deliver_at": st.integers(0, NOON_MS + 700 * 86_400_000).map(rfc3339)}),
    f"POST {_GROUP}/seek": st.fixed_dictionaries({"to": st.sampled_from(["start", "end"])})
    | st.fixed_dictionaries({"time": times})
    | st.fixed_dictionaries({"queue": st.just(0), "offset": st.integers(0, 4)}),
    f"POST {_GROUP}/dead/redrive": selections,
    f"DELETE {_GROUP}/dead": selections,
    "POST /v1/subjects/{subject}/delayed/cancel": choices,
    "POST /v1/subjects/{subject}/delayed/move": st.builds(
        dict, choices, deliver_at=st.integers(0, NOON_MS + 700 * 86_400_000).map(rfc3339)
    ),
    f"POST {_GROUP}/retries": st.just({"all": True})
    | st.fixed_dictionaries({"key": names}, optional={"detail": names}),
    "POST /v1/subjects/{subject}/queues": st.fixed_dictionaries({"queues": st.integers(1, 64)}, optional=dry_runs),
    "POST /v1/subjects/{subject}/queues/{queue}/move": st.fixed_dictionaries(
        {"cell": st.sampled_from(CELLS)}, optional=dry_runs
    ),
    "POST /v1/subjects/{subject}/spread": valid_fields(
        cells=st.lists(st.sampled_from(("home", *CELLS)), min_size=1, unique=True), **dry_runs
    ),
    "PUT /v1/cells/{cell}": valid_fields(
        kinds=st.lists(st.sampled_from(["real-time", "delay"]), min_size=1, unique=True), **dry_runs
    )
    | st.fixed_dictionaries(
        {"state": st.sampled_from(["normal", "read_only", "draining", "offline"])}, optional=dry_runs
    ),
    "POST /v1/cells/{cell}/drain": valid_fields(**dry_runs),
}


@st.composite
def near(draw: st.DrawFn, valid: st.SearchStrategy[Any]) -> Any:
    """Draws a valid document with up to two changes."""
    document = draw(valid)
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        document = changed(draw, document)
    return document


def changed(draw: st.DrawFn, document: Any) -> Any:
    """Drops, replaces or redraws one part of the document."""
    if isinstance(document, list) and document:
        position = draw(st.integers(0, len(document) - 1))
        after = [] if draw(st.booleans()) and draw(st.booleans()) else [changed(draw, document[position])]
        return [*document[:position], *after, *document[position + 1 :]]
    if isinstance(document, dict) and document and draw(st.booleans()):
        name = draw(st.sampled_from(sorted(document)))
        return {**document, name: changed(draw, document[name])}
    if isinstance(document, dict):
        name = draw(st.sampled_from(sorted(document)) | words) if document else draw(words)
        rest = {key: value for key, value in document.items() if key != name}
        return rest if draw(st.booleans()) else {**rest, name: draw(documents)}
    return draw(documents)


def encoded(document: Any) -> bytes:
    return msgspec.json.encode(document)


def bodies_of(route: HttpRoute) -> st.SearchStrategy[bytes]:
    anything = st.binary(max_size=200) | documents.map(encoded)
    valid = VALID.get(route.key, st.just({}))  # a call without a body takes an empty object
    # Half of them begin as a valid document: the handlers are to be reached, not the parser alone.
    return st.booleans().flatmap(lambda close: near(valid).map(encoded) if close else anything)


def furnished() -> tuple[Api, str, str, str]:
    """Creates a subject with messages, one of them delayed, and a group with a target, a lease of two of them and a
    dead letter. The subject's queue may move to any of ``CELLS``; the cell ``old`` is drained."""
    api = Api(Bench(cells={name: CellStorage(MemoryStore(), MemoryBlobs()) for name in (*CELLS, "old")}))
    for cell in CELLS:
        api.bench.deployment.cells.add(cell)
    api.bench.deployment.cells.add("old")
    api.bench.deployment.cells.drain("old")
    api.call("PUT", GROUP, {"ordered": True, "push": {"kind": "https", "url": "https://example.org"}})
    api.call("PUT", "/v1/subjects/orders/groups/mail")
    api.bury("dead")
    dead_id = api.call("GET", f"{GROUP}/dead").json["messages"][0]["dead_id"]
    api.send("leased", "leased too")
    (pull,) = api.pull()
    api.send("new")
    return api, pull["receipt"], dead_id, api.send_later("later", delay="2h")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.key)
def test_no_body_is_a_fault_of_ours(route: HttpRoute) -> None:
    answers = _answers_to_bodies(route, examples=40)
    assert answers[True] >= 3, "hardly any body was near a valid one"
    assert answers[False] >= 3 or route.key == "GET /v1/health"


@pytest.mark.volume
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.key)
def test_no_body_of_many_is_a_fault_of_ours(route: HttpRoute) -> None:
    answers = _answers_to_bodies(route, examples=160)
    assert answers[True] >= 15, "hardly any body was near a valid one"
    assert answers[False] >= 15 or route.key == "GET /v1/health"


def _answers_to_bodies(route: HttpRoute, *, examples: int) -> Counter[bool]:
    """Sends bodies that Hypothesis makes, and returns how many were near a valid one, and how many were not."""
    answers: Counter[bool] = Counter()

    @settings(deadline=None, max_examples=examples, derandomize=True, database=None)
    @given(body=bodies_of(route))
    def send(body: bytes) -> None:
        api, receipt, dead_id, scheduled_id = furnished()
        body = body.replace(RECEIPT.encode(), receipt.encode()).replace(DEAD_ID.encode(), dead_id.encode())
        target = route.template.format(
            subject="orders",
            group="mail" if route.call == "retry_now" else "billing",  # an ordered group refuses all of these
            dead_id=dead_id,
            id=scheduled_id,
            queue="0",
            consumer="c",
            cell="old" if route.method == "DELETE" else "fast",
        )
        answer = api.call(route.method, target, raw=body)
        assert answer.status < 500, (answer, api.log.getvalue())
        # No key of the group is stopped, so a valid decision about some keys gets as far as this refusal.
        answers[answer.status < 300 or answer.slug == "key-not-stopped"] += 1

    send()
    return answers


api = Api()
api.call("PUT", GROUP)


@settings(deadline=None, max_examples=200)
@given(
    fields=st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("body", "key", "tags", "headers", "id", "delay", "deliver_at"), documents)
    )
)
def test_no_message_is_a_fault_of_ours(fields: dict[str, Any]) -> None:
    answer = api.call("POST", MESSAGES, raw=encoded({"messages": [fields]}))
    assert answer.status in {200, 400}, (answer, api.log.getvalue())


@settings(deadline=None, max_examples=200)
@given(text=st.text(max_size=30), query=st.text(max_size=30))
def test_no_path_is_a_fault_of_ours(text: str, query: str) -> None:
    name = quote(text, safe="", errors="replace") or "x"
    assume(name != "redrive")  # a route of its own
    for target in [
        f"/v1/subjects/{name}",
        f"{GROUP}/dead/{name}",
        f"/v1/scheduled/{name}",
        f"/v1/subjects/orders/queues/{name}/messages",
        f"/v1/subjects/orders/messages/{name}",
        f"/v1/subjects/orders/messages/{name}?from=2020-01-01T00:00:00Z&after={quote(query, errors='replace')}",
        f"/v1/subjects/orders/queues/0/messages?offset={quote(query, errors='replace')}",
        f"/v1/subjects/orders/dead?after={quote(query, errors='replace')}",
        f"{GROUP}/dead?after={quote(query, errors='replace')}",
    ]:
        assert api.call("GET", target).status < 500, (target, api.log.getvalue())
