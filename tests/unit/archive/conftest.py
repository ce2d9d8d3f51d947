import pytest

from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.context import Settings
from tests.support import AT_ONCE, Bench


@pytest.fixture
def bench() -> Bench:
    return Bench(settings=Settings(retry=AT_ONCE, archive=True))


@pytest.fixture
def archive() -> MemoryBlobs:
    return MemoryBlobs()
