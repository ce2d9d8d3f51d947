"""Each behaviour holds call by call, and in the transactions of a store that has them."""

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from tests.support import AT_ONCE, Bench, CallByCall


@pytest.fixture(params=["call by call", "transactions"])
def bench(request: pytest.FixtureRequest) -> Bench:
    store = MemoryStore()
    settings = Settings(retry=AT_ONCE, registry_seconds=0)
    return Bench(CallByCall(store) if request.param == "call by call" else store, settings=settings)
