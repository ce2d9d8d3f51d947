import pytest

from tests.support import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()
