"""URLs of databases: what they say about TLS reaches the driver."""

from typing import Any

import pymysql
import pytest

from hourwheel.apps.outbox.databases import database_of
from hourwheel.apps.outbox.errors import OutboxError

URL = "mysql://relay:secret@db.example.org/shop"


def test_the_options_of_tls_reach_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def connect(**options: Any) -> None:
        given.update(options)
        raise ConnectionRefusedError("no server in this test")

    monkeypatch.setattr(pymysql, "connect", connect)
    database = database_of(f"{URL}?ssl_ca=/etc/ca.pem&ssl_verify_identity=true&ssl_verify_cert=1")
    with pytest.raises(ConnectionRefusedError):
        database.connect()
    assert (given["ssl_ca"], given["ssl_verify_cert"], given["ssl_verify_identity"]) == ("/etc/ca.pem", True, True)
    assert (given["host"], given["database"]) == ("db.example.org", "shop")


@pytest.mark.parametrize("parameter", ["ssl=true", "sslmode=require", "ssl_verify_cert=perhaps", "ssl_ca"])
def test_a_parameter_that_would_be_dropped_is_refused_by_its_name(parameter: str) -> None:
    name = parameter.partition("=")[0]
    with pytest.raises(OutboxError, match=f"'{name}'"):
        database_of(f"{URL}?{parameter}")
