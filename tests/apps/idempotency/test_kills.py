"""A consumer that is killed between its effect and the acknowledgement, as a process, with a server."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine, select

from hourwheel.client import Api, Message, RetryPolicy
from hourwheel.idempotency.sqlalchemy import create_table
from tests.apps.idempotency.killed import BILLS
from tests.docs.pages import ROOT
from tests.integration.process import SECONDS, Server


@pytest.mark.parametrize("database", ["postgresql", "sqlite"])
def test_a_killed_consumer_has_billed_each_order_once(
    request: pytest.FixtureRequest, tmp_path: Path, database: str
) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    if database == "postgresql":
        url = request.getfixturevalue("postgres").replace("postgresql://", "postgresql+psycopg://", 1)
    engine = create_engine(url)
    BILLS.create(engine)
    create_table(engine)
    server = Server(tmp_path / "data")
    try:
        command = [sys.executable, "-m", "tests.apps.idempotency.killed", f"http://127.0.0.1:{server.port}", url]
        with Api(f"http://127.0.0.1:{server.port}") as api:
            api.put_group("orders", "billing", retry=RetryPolicy(first_seconds=0), ordered=True)
            api.produce("orders", [Message({"number": number}, key="one") for number in (1, 0)])
        killed = subprocess.run([*command, "killed"], cwd=ROOT, timeout=SECONDS, check=False)
        assert killed.returncode == -signal.SIGKILL
        ended = subprocess.run([*command, "lives"], cwd=ROOT, timeout=SECONDS, check=False)
        assert ended.returncode == 0
    finally:
        server.stop()
    with engine.connect() as connection:
        assert list(connection.scalars(select(BILLS.c.number).order_by(BILLS.c.id))) == [1, 0]
    engine.dispose()
