from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.conftest import no_account

from .system import ARCHIVE_MINUTES, System, deployed
from .template import ACCOUNT, REGION, ROOT, synthesised

__all__ = ["no_account"]

TARGETS = (
    f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:airline-*",
    f"arn:aws:sqs:{REGION}:{ACCOUNT}:airline-*",
    f"arn:aws:events:{REGION}:{ACCOUNT}:event-bus/airport",
)


def assert_built(layer: Path, source: Path) -> None:
    """Checks that the built layer contains the code of the repository, which the tests are to deploy."""
    for path in layer.rglob("*.py"):
        same = path.read_bytes() == (source / path.relative_to(layer)).read_bytes()
        assert same, f"{path.relative_to(layer)} has changed since: run `make layers`"


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory, no_account: None) -> Iterator[System]:
    assert_built(ROOT / "build/layers/hourwheel", ROOT / "layers/hourwheel")
    settings = {"push_targets": ",".join(TARGETS), "pipeline": "true", "archive_minutes": str(ARCHIVE_MINUTES)}
    template = synthesised(tmp_path_factory.mktemp("synthesised"), settings)
    with deployed(template, tmp_path_factory.mktemp("deployed")) as found:
        yield found
