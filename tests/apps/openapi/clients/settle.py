"""Sends, pulls and settles by a generated client, in an environment without the library."""

import sys

from generated.api.produce import produce
from generated.api.pull import pull, settle
from generated.api.subjects import get_subject
from generated.client import Client
from generated.models import (
    NewMessage,
    Problem,
    ProduceRequest,
    Pulled,
    PullRequest,
    SendResults,
    Settlement,
    SettleRequest,
    SettleResult,
)

told: list[str] = []
with Client(base_url=sys.argv[1]) as client:
    messages = [NewMessage(body="one", key="customer-42"), NewMessage(body="two", delay="90d")]
    sent = produce.sync("orders", client=client, body=ProduceRequest(messages=messages))
    assert isinstance(sent, SendResults)
    pulled = pull.sync("orders", "billing", client=client, body=PullRequest(consumer="host-1"))
    assert isinstance(pulled, Pulled)
    for each in pulled.pulls:
        told += [f"{message.body} {message.key} {message.offset}" for message in each.messages]
        request = SettleRequest(settle=[Settlement(receipt=each.receipt)])
        settled = settle.sync("orders", "billing", client=client, body=request)
        assert isinstance(settled, SettleResult)
        told += [result.status for result in settled.results]
    told.append("string" if isinstance(sent.results[1].scheduled_id, str) else "nothing")
    refused = get_subject.sync("nothing", client=client)
    assert isinstance(refused, Problem)
    told.append(f"{refused.status} {refused.type_}")
sys.stdout.write("\n".join(told))
