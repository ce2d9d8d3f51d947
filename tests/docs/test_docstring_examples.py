"""The examples in the docstrings of the client run, and print what they say, against a server.

Each finds a subject ``orders`` that holds one message, ``paid``, a group ``billing``, and an ``Api`` named ``api``.
"""

import doctest
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

import hourwheel.client
from hourwheel.client import Api, Message, webhooks
from tests.docs.names import MODULES, Public, public
from tests.integration.process import Server

EXAMPLES = [each for each in public(MODULES) if ">>>" in each.text]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = Server(tmp_path_factory.mktemp("examples") / "data")
    yield f"http://127.0.0.1:{server.port}"
    server.stop()
    for pipe in (server.process.stdout, server.process.stderr):
        assert pipe is not None
        pipe.close()


@pytest.fixture
def api(url: str) -> Iterator[Api]:
    with Api(url) as api:
        api.put_group("orders", "billing")
        api.produce("orders", [Message("paid", key="customer-42")])
        yield api
        for subject in api.list_subjects().subjects:
            api.delete_subject(subject.subject)


@pytest.mark.parametrize("each", EXAMPLES, ids=[each.name for each in EXAMPLES])
def test_the_example_of_the_docstring_runs(each: Public, api: Api, url: str) -> None:
    names = {name: getattr(hourwheel.client, name) for name in hourwheel.client.__all__}
    given = {**names, "api": api, "webhooks": webhooks, "UTC": UTC, "datetime": datetime, "timedelta": timedelta}
    text = each.text.replace("http://127.0.0.1:7420", url)
    example = doctest.DocTestParser().get_doctest(text, given, each.name, None, None)
    told: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=told.append)
    assert told == []
