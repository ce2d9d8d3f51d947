"""Whatever is sent, no answer is a fault of ours."""

from typing import Any
from urllib.parse import quote

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from hourwheel.api.routes import ROUTES
from tests.unit.api.conftest import GROUP, MESSAGES, Api

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
NAMES = """messages body body_base64 key tags headers id subject idempotency_key consumer max_messages wait_seconds
lease_seconds settle receipt ack retry dead extend_seconds queues retention_seconds start max_attempts to time queue
offset all ids from"""
words = st.sampled_from(NAMES.split())
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words | st.text(max_size=5), inner, max_size=5),
    max_leaves=20,
)


def encoded(document: Any) -> bytes:
    return msgspec.json.encode(document)


bodies = st.binary(max_size=200) | documents.map(encoded)
api = Api()
api.call("PUT", GROUP)


@settings(deadline=None, max_examples=300)
@given(body=bodies, route=st.sampled_from(ROUTES))
def test_no_body_is_a_fault_of_ours(body: bytes, route: Any) -> None:
    target = route.template.format(subject="orders", group="billing", dead_id="0-0")
    answer = api.call(route.method, target, raw=body)
    assert answer.status < 500, (answer, api.log.getvalue())


@settings(deadline=None, max_examples=200)
@given(fields=st.fixed_dictionaries({}, optional=dict.fromkeys(("body", "key", "tags", "headers", "id"), documents)))
def test_no_message_is_a_fault_of_ours(fields: dict[str, Any]) -> None:
    answer = api.call("POST", MESSAGES, raw=encoded({"messages": [fields]}))
    assert answer.status in {200, 400}, (answer, api.log.getvalue())


@settings(deadline=None, max_examples=200)
@given(text=st.text(max_size=30), query=st.text(max_size=30))
def test_no_path_is_a_fault_of_ours(text: str, query: str) -> None:
    name = quote(text, safe="", errors="replace") or "x"
    for target in [
        f"/v1/subjects/{name}",
        f"{GROUP}/dead/{name}",
        f"{GROUP}/dead?after={quote(query, errors='replace')}",
    ]:
        assert api.call("GET", target).status < 500, (target, api.log.getvalue())
