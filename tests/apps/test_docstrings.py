"""Every public name of the integrations has a docstring in the format of those of the client."""

from types import ModuleType

import pytest

import hourwheel.dramatiq
import hourwheel.idempotency
import hourwheel.outbox
from tests.docs.docstrings import faults
from tests.docs.names import public


@pytest.mark.parametrize("module", [hourwheel.dramatiq, hourwheel.idempotency, hourwheel.outbox])
def test_each_docstring_has_the_format(module: ModuleType) -> None:
    assert [f"{each.name}: {fault}" for each in public([module]) for fault in faults(each)] == []
