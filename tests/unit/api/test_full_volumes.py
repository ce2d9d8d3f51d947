"""The answer to a request that meets a full volume says which volume it is, and what was carried out."""

from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.context import Settings
from hourwheel.ports.storage import CellStorage
from tests.failing import FailingStore, FailingTransactions
from tests.support import AT_ONCE, Bench
from tests.unit.api.conftest import MESSAGES, Answer, Api

SUBJECT = "/v1/subjects/orders"
AGAIN = "free some space on the volume, then send the request again"
NOTHING = f" and nothing was stored: {AGAIN}"
PARTLY = f", and at most a part of the batch was stored: {AGAIN}, with the same idempotency key if it had one"
PERHAPS = f": {AGAIN}, as it was not carried out, or not completely"
HOME, FAST = "the server's volume is full", "the volume of cell fast is full"


class Volumes:
    """An API with a queue in the home cell and one in cell ``fast``, whose volumes may be full."""

    def __init__(self, *, transactions: bool) -> None:
        kind = FailingTransactions if transactions else FailingStore
        self.home, self.fast = kind(), kind()
        cells = {"fast": CellStorage(self.fast, MemoryBlobs())}
        self.api = Api(Bench(self.home, settings=Settings(retry=AT_ONCE, registry_seconds=0), cells=cells))
        assert self.api.call("PUT", "/v1/cells/fast", {"kinds": ["real-time"]}).status == 200
        assert self.api.call("PUT", SUBJECT, {"queues": 2}).status == 200
        assert self.move(1, "fast").status == 200

    def move(self, queue: int, cell: str) -> Answer:
        return self.api.call("POST", f"{SUBJECT}/queues/{queue}/move", {"cell": cell})

    def send(self, *queues: int, **more: Any) -> Answer:
        """Sends a batch with a message for each of these queues."""
        return self.api.call(
            "POST", MESSAGES, {"messages": [{"body": "m", "queue": queue} for queue in queues], **more}
        )

    def stored(self) -> list[int]:
        """Returns the number of messages in each queue."""
        self.home.recover()
        self.fast.recover()
        peeks = [self.api.call("GET", f"{SUBJECT}/queues/{queue}/messages?offset=0") for queue in (0, 1)]
        return [len(peek.json["messages"]) for peek in peeks]


@pytest.fixture(params=[True, False], ids=["transactions", "call by call"])
def volumes(request: pytest.FixtureRequest) -> Volumes:
    return Volumes(transactions=request.param)


def full(answer: Answer) -> str:
    """Returns the detail of an answer that says that a volume is full."""
    assert (answer.status, answer.slug) == (507, "storage-full"), answer
    return str(answer.json["detail"])


@pytest.mark.parametrize("more", [{}, {"idempotency_key": "k"}], ids=["without a key", "with a key"])
@pytest.mark.parametrize("queues", [(0,), (1,), (0, 1), (1, 0)], ids=str)
@pytest.mark.parametrize("after", range(5))
@pytest.mark.parametrize("where", ["home", "fast"])
def test_a_send_says_truly_whether_a_part_of_it_was_stored(
    volumes: Volumes, where: str, after: int, queues: tuple[int, ...], more: dict[str, Any]
) -> None:
    getattr(volumes, where).fail("full", after)
    answer = volumes.send(*queues, **more)
    stored = volumes.stored()
    if answer.status == 200:
        assert stored == [queues.count(0), queues.count(1)]
        return
    volume = HOME if where == "home" else FAST
    assert full(answer) == volume + (PARTLY if sum(stored) or more else NOTHING)
    if more:
        assert volumes.send(*queues, **more).status == 200
        assert volumes.stored() == [queues.count(0), queues.count(1)]


def test_a_repetition_does_not_say_that_nothing_was_stored() -> None:
    volumes = Volumes(transactions=False)
    volumes.fast.fail("full", 1)
    key = {"idempotency_key": "k"}
    assert full(volumes.send(0, 1, **key)) == FAST + PARTLY
    volumes.fast.fail("full")
    assert full(volumes.send(0, 1, **key)) == FAST + PARTLY
    assert sum(volumes.stored()) == 1


def test_a_move_to_a_full_cell_says_that_the_queue_stays(volumes: Volumes) -> None:
    volumes.fast.fail("full")
    assert full(volumes.move(0, "fast")) == f"{FAST}; queue 0 stays where it is{PERHAPS}"


def test_requests_that_send_nothing_do_not_say_that_nothing_was_done(volumes: Volumes) -> None:
    volumes.home.fail("full")
    assert full(volumes.move(1, "home")) == HOME + PERHAPS
    assert full(volumes.api.call("POST", "/v1/cells/fast/drain", {})) == HOME + PERHAPS
    assert full(volumes.api.call("PUT", "/v1/subjects/other", {})) == HOME + PERHAPS
