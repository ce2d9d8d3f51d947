"""The roles of the functions allow the calls of the library, in particular the rare ones."""

from hourwheel.adapters.memory import MemoryStore
from hourwheel.model.messages import NewMessage
from hourwheel.queueing.idempotency import IdempotencyKey
from infra.permissions import TABLE_ACTIONS
from infra.tables import NAMES
from tests.support import Bench, CallByCall

ACTIONS = {
    "get": "GetItem",
    "get many": "BatchGetItem",
    "put": "PutItem",
    "delete": "DeleteItem",
    "scan": "Query",
    "add": "UpdateItem",
    "seal": "UpdateItem",
    "counter": "GetItem",
    "counters": "BatchGetItem",
}
UNPAID = ("trim", "collect")
"""Ignores removals: DynamoDB removes expired items itself."""


def refused(function: str, store: CallByCall) -> set[tuple[str, str]]:
    """Returns the calls that the function's role does not allow."""
    made = {(ACTIONS[verb], name if name in NAMES else "counters") for verb, name in store.calls if verb not in UNPAID}
    return {(action, table) for action, table in made if action not in TABLE_ACTIONS[function].get(table, ())}


def test_a_batch_with_a_key_may_make_its_subject() -> None:
    store = CallByCall(MemoryStore())
    bench = Bench(store)
    key = IdempotencyKey("one", b"digest")
    bench.cell.produce("orders", [NewMessage(body="a")], key)
    assert ("put", "keys") in store.calls
    assert refused("produce", store) == set()
