"""The first example of docs/idempotency.md runs as it is written, and bills a message once that comes twice."""

from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from hourwheel.client import Message
from hourwheel.testing import Queue
from tests.docs.pages import ROOT, examples

CODE = examples(ROOT / "docs/idempotency.md", "python")[0]


def test_the_first_example_bills_an_order_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Queue(url="http://127.0.0.1:7420") as queue:
        for _ in range(2):
            queue.producer("orders").send_batch([Message({"number": 7}, id="order-7")])
        exec(compile(CODE, "shop.py", "exec"), {"__name__": "shop"})  # its last line ends when no message is left
        assert (len(queue.sent("orders")), queue.errors) == (2, [])
    engine = create_engine("sqlite:///shop.db")
    with engine.connect() as shop:
        assert [tuple(row) for row in shop.execute(text('SELECT "order" FROM bills'))] == [(7,)]
    engine.dispose()
