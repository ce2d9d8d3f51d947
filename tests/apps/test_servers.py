"""The servers that the integrations are tested with run, and listen on no network."""

from __future__ import annotations

import psycopg
import redis


def test_postgres_is_new_for_each_test_and_listens_on_a_socket_only(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        assert connection.execute("SELECT count(*) FROM pg_stat_user_tables").fetchone() == (0,)
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)


def test_redis_is_new_for_each_test_and_listens_on_a_socket_only(redis_socket: str) -> None:
    client = redis.Redis(unix_socket_path=redis_socket)
    assert client.dbsize() == 0
    assert client.config_get("port") == {"port": "0"}
