"""The examples in the docstrings of the client run, and print what they say, against a server.

Each finds a subject ``orders`` that holds one message, ``paid``, a group ``billing``, and an ``Api`` named ``api``.
"""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import hourwheel.client
from hourwheel.client import Api, webhooks
from tests.docs.docstrings import run_example
from tests.docs.names import CLIENT, Public, public

EXAMPLES = [each for each in public(CLIENT) if ">>>" in each.text]


@pytest.mark.parametrize("each", EXAMPLES, ids=[each.name for each in EXAMPLES])
def test_the_example_of_the_docstring_runs(each: Public, api: Api, url: str) -> None:
    names = {name: getattr(hourwheel.client, name) for name in hourwheel.client.__all__}
    given = {**names, "api": api, "webhooks": webhooks, "UTC": UTC, "datetime": datetime, "timedelta": timedelta}
    given["asyncio"] = asyncio
    assert run_example(each, each.text.replace("http://127.0.0.1:7420", url), given) == ""
