"""Provides the fixtures of the contract suite, and proves on which adapters the suite ran."""

from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from hourwheel.adapters.aws import s3
from hourwheel.adapters.aws.dynamodb import DynamoStore, client, create_tables
from hourwheel.ports.storage import Blobs, Store, Transactional
from tests.simulation.pages import small_pages

from .push_targets import Wire
from .services import SqliteProcess, ministack
from .stores import BLOBS, BUCKET, PREFIX, STORES, STORES_FOR_THREADS, TRANSACTIONAL_STORES, open_dynamodb
from .timers import TIMERS, Opened

HERE = Path(__file__).parent
EXPECTED = {"store": set(STORES), "blobs": set(BLOBS), "timers": set(TIMERS)}

_passed: dict[str, Counter[str]] = {port: Counter() for port in EXPECTED}
_skipped: list[str] = []
_deselected: list[str] = []
_subjects = count()


@pytest.fixture(scope="session", autouse=True)
def no_account() -> Iterator[None]:
    """Keeps every test from a real account."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setenv("AWS_CONFIG_FILE", "/dev/null")
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("NO_PROXY", "127.0.0.1")
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def ministack_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ministack(tmp_path_factory.mktemp("ministack")) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def dynamodb_client(ministack_endpoint: str) -> Iterator[Any]:
    opened = open_dynamodb(ministack_endpoint)
    create_tables(opened, PREFIX)
    yield opened
    opened.close()


@pytest.fixture
def own_client(dynamodb_client: Any, ministack_endpoint: str) -> Iterator[Any]:
    """Returns a client whose requests a test may spoil. It uses the tables of the session."""
    opened = open_dynamodb(ministack_endpoint)
    yield opened
    opened.close()


@pytest.fixture
def dynamodb(own_client: Any) -> DynamoStore:
    return DynamoStore(own_client, prefix=PREFIX)


@pytest.fixture(scope="session")
def moto_client() -> Iterator[Any]:
    opened = client(region="us-east-1")
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def s3_client(ministack_endpoint: str) -> Iterator[Any]:
    opened = s3.client(region="us-east-1", endpoint_url=ministack_endpoint)
    opened.create_bucket(Bucket=BUCKET)
    yield opened
    opened.close()


@pytest.fixture
def on_wire() -> Iterator[Wire]:
    opened = Wire()
    yield opened
    opened.targets.close()


@pytest.fixture(scope="session")
def sqlite_process() -> Iterator[SqliteProcess]:
    process = SqliteProcess()
    yield process
    process.close()


@pytest.fixture
def partition() -> str:
    """Returns a name of the test's own: tests share the tables of a session."""
    return f"{next(_subjects)}-subject"


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    yield from _opened(request, "store", STORES)


@pytest.fixture(params=STORES_FOR_THREADS)
def shared_store(request: pytest.FixtureRequest) -> Iterator[Store]:
    yield from _opened(request, "store", STORES_FOR_THREADS)


@pytest.fixture(params=TRANSACTIONAL_STORES)
def transactional_store(request: pytest.FixtureRequest) -> Iterator[Transactional]:
    yield from _opened(request, "store", TRANSACTIONAL_STORES)


@pytest.fixture(params=[name for name in TRANSACTIONAL_STORES if name in STORES_FOR_THREADS])
def shared_transactional_store(request: pytest.FixtureRequest) -> Iterator[Transactional]:
    yield from _opened(request, "store", TRANSACTIONAL_STORES)


@pytest.fixture(params=BLOBS)
def blobs(request: pytest.FixtureRequest) -> Iterator[Blobs]:
    yield from _opened(request, "blobs", BLOBS)


@pytest.fixture(params=TIMERS)
def timers(request: pytest.FixtureRequest) -> Iterator[Opened]:
    yield from _opened(request, "timers", TIMERS)


@pytest.fixture
def pages(request: pytest.FixtureRequest) -> Iterator[None]:
    """Lowers the pages, blocks and steps of the library for "small", so that a test of a few messages goes beyond
    them."""
    with small_pages() if request.param == "small" else nullcontext():
        yield


def _opened(request: pytest.FixtureRequest, port: str, adapters: dict[str, Any]) -> Iterator[Any]:
    request.node.user_properties.append((port, request.param))
    if port == "store" and ("ministack" in request.param or "asked again" in request.param):
        request.getfixturevalue("dynamodb_client")  # creates the tables
    with adapters[request.param](request) as adapter:
        yield adapter


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if not Path(report.nodeid.split("::")[0]).is_relative_to("tests/contract"):
        return
    if report.skipped:
        _skipped.append(report.nodeid)
    if report.when == "call" and report.passed:
        for port, adapter in report.user_properties:
            if port in _passed:
                _passed[port][str(adapter)] += 1


def pytest_deselected(items: list[pytest.Item]) -> None:
    _deselected.extend(item.nodeid for item in items)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _complaints(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for port, passed in _passed.items():
        ran = ", ".join(f"{adapter} ({passed[adapter]})" for adapter in passed) or "none"
        terminalreporter.write_line(f"contract: {port} adapters that ran: {ran}")
    for complaint in _complaints(config):
        terminalreporter.write_line(f"contract: {complaint}", red=True)


def _complaints(config: pytest.Config) -> list[str]:
    """Returns the reason why the run proves less than it seems to prove. A worker of xdist leaves this to its
    controller."""
    if hasattr(config, "workerinput") or config.option.collectonly:
        return []
    complaints = [f"skipped: {test}" for test in _skipped]
    if _whole_folder_selected(config):
        complaints += [
            f"no test passed on {port} adapter {adapter}"
            for port, adapters in EXPECTED.items()
            for adapter in sorted(adapters - set(_passed[port]))
        ]
    return complaints


def _whole_folder_selected(config: pytest.Config) -> bool:
    chosen = [(config.invocation_params.dir / argument).resolve() for argument in config.args]
    return not _deselected and any(HERE.is_relative_to(path) for path in chosen)
