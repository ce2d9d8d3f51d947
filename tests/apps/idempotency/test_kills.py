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

DRIVERS = {"killed": ("sqlite", "postgresql+psycopg"), "killed_async": ("sqlite+aiosqlite", "postgresql+asyncpg")}


@pytest.mark.parametrize("consumer", ["killed", "killed_async"])
@pytest.mark.parametrize("database", ["postgresql", "sqlite"])
def test_a_killed_consumer_has_billed_each_order_once(
    request: pytest.FixtureRequest, tmp_path: Path, database: str, consumer: str
) -> None:
    path = f"sqlite:///{tmp_path / 'shop.db'}"
    url = str(request.getfixturevalue("postgres")) if database == "postgresql" else path
    engine = create_engine(url.replace("postgresql", "postgresql+psycopg", 1))
    for driver in DRIVERS[consumer]:
        url = url.replace(f"{driver.partition('+')[0]}://", f"{driver}://", 1)
    BILLS.create(engine)
    create_table(engine)
    server = Server(tmp_path / "data")
    try:
        command = [sys.executable, "-m", f"tests.apps.idempotency.{consumer}", f"http://127.0.0.1:{server.port}", url]
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
