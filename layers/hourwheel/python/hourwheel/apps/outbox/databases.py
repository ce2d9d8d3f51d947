"""Opens the connections of a relay to the database of an outbox."""

import functools
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from hourwheel.apps.outbox.dialects import CHANNEL, Dialect, dialect_of, driver_of, native
from hourwheel.apps.outbox.errors import OutboxError, OutboxMissing, OutboxUnreachable, missing

_BUSY_SECONDS = 10  # SQLite waits this long for another writer, the others to connect
_MYSQL_TEXTS = ("ssl_ca", "ssl_cert", "ssl_key", "charset")
_MYSQL_SWITCHES = ("ssl_verify_cert", "ssl_verify_identity")
_SWITCH = {"true": True, "1": True, "false": False, "0": False}
_URLS = "sqlite:///FILE, postgresql://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE"


class RelayConnection:
    """Runs the statements and transactions of a relay on one connection of a driver. Not thread-safe."""

    def __init__(self, raw: Any) -> None:
        driver = driver_of(raw)
        if driver is None:
            raise OutboxError(
                f"the outbox does not know the driver of {type(raw).__module__}.{type(raw).__qualname__}: connect with"
                " sqlite3, psycopg, psycopg2, pymysql or MySQLdb"
            )
        self._raw = raw
        self._driver = driver
        self.dialect: Dialect = dialect_of(driver)
        if driver == "sqlite3":
            raw.isolation_level = None  # this class begins and commits by itself
        elif driver in {"pymysql", "MySQLdb"}:
            raw.autocommit(True)
            # MySQL reads from a snapshot otherwise: a relay must see rows that were committed after its transaction
            # began.
            self.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        else:
            raw.autocommit = True

    @property
    def raw(self) -> Any:
        """The connection of the driver. It commits each statement outside ``transaction``."""
        return self._raw

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Runs the block in a transaction. Commits at its end, and rolls back after an error."""
        self.execute(self.dialect.begin)
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def execute(self, sql: str, *parameters: Any) -> list[Any]:
        """Runs a statement and returns its rows."""
        return self._run(sql, parameters)[0]

    def change(self, sql: str, *parameters: Any) -> int:
        """Runs a statement and returns the number of rows that it changed."""
        return self._run(sql, parameters)[1]

    def _run(self, sql: str, parameters: Sequence[Any]) -> tuple[list[Any], int]:
        cursor = self._raw.cursor()
        try:
            if parameters:
                cursor.execute(native(sql, self._driver), parameters)
            else:
                cursor.execute(sql)
            return list(cursor.fetchall()) if cursor.description else [], cursor.rowcount
        except Exception as error:
            advice = missing(error)
            if advice is None:
                raise
            raise advice from error
        finally:
            cursor.close()

    def _roll_back(self) -> None:
        try:
            self.execute("ROLLBACK")
        except Exception:
            self.close()  # the server ends the transaction of a connection that is gone

    def listen(self) -> bool:
        """Subscribes to the announcements of senders. Returns False where the database or the driver has none."""
        if self._driver != "psycopg":
            return False
        self.execute(f"LISTEN {CHANNEL}")
        return True

    def announced(self, seconds: float) -> bool:
        """Waits ``seconds`` for an announcement at most, and returns whether one came."""
        return any(True for _ in self._raw.notifies(timeout=seconds, stop_after=1))

    def close(self) -> None:
        self._raw.close()


class Database(NamedTuple):
    """Opens and checks a database with an outbox. ``connect`` returns a new connection of the DB-API; ``shown`` names
    the database in messages, without its password."""

    connect: Callable[[], Any]
    shown: str

    def open(self) -> RelayConnection:
        """Returns a new connection. Raises ``OutboxUnreachable`` where the database refuses it or does not answer, and
        ``OutboxError`` where the driver is not installed."""
        try:
            return RelayConnection(self.connect())
        except OutboxError:
            raise
        except Exception as error:
            detail = " ".join(str(error).split())  # drivers write several lines
            raise OutboxUnreachable(f"cannot connect to {self.shown}: {detail}") from error

    def check(self) -> None:
        """Raises ``OutboxMissing`` where the tables are missing or of another version, and the errors of ``open``."""
        connection = self.open()
        try:
            connection.execute(
                "SELECT id, state, shard, subject, message, size_bytes, created_ms, settled_ms, reason"
                " FROM hourwheel_outbox WHERE id < 0"
            )
            connection.execute(
                "SELECT shard, sender, sequence, batch, token, relay, lease_until_ms FROM hourwheel_outbox_shard"
                " WHERE shard < 0"
            )
        except OutboxMissing as error:
            raise OutboxMissing(f"{self.shown}: {error}") from error
        finally:
            connection.close()


def database_of(database: Any) -> Database:
    """Returns the database of a URL, of an ``Engine`` of SQLAlchemy, of a connection of Django, or of a function that
    connects. Does not connect. Raises ``OutboxError`` for any other object and for the URL of another database."""
    if isinstance(database, Database):
        return database
    if isinstance(database, str):
        return _of_url(database)
    if "sqlalchemy" in sys.modules:
        from sqlalchemy.engine import Engine

        if isinstance(database, Engine):
            return Database(functools.partial(_from_engine, database), database.url.render_as_string())
    if hasattr(database, "get_new_connection"):
        return Database(functools.partial(_from_django, database), f"the database {database.alias!r}")
    if callable(database):
        return Database(database, "the database")
    raise OutboxError(
        f"the database is {_URLS}, an Engine of SQLAlchemy, a connection of Django or a function that connects, not"
        f" {type(database).__name__}"
    )


def _from_engine(engine: Any) -> Any:
    """Returns a connection that does not go back to the pool of the engine: a relay changes its settings."""
    pooled = engine.raw_connection()
    raw = pooled.driver_connection
    pooled.detach()
    return raw


def _from_django(database: Any) -> Any:
    """Returns a connection from outside the pool of the project: the relay closes its connections, and does not give
    them back."""
    unpooled = database.copy()
    unpooled.settings_dict.get("OPTIONS", {}).pop("pool", None)
    return unpooled.get_new_connection(unpooled.get_connection_params())


def _of_url(url: str) -> Database:
    parts = urlsplit(url)
    kind = parts.scheme.partition("+")[0]
    if kind == "sqlite" and parts.path.startswith("/") and len(parts.path) > 1:
        return Database(functools.partial(_sqlite, unquote(parts.path[1:])), url)
    shown = _shown(url)
    if kind in {"postgresql", "postgres"}:
        return Database(functools.partial(_postgresql, f"postgresql:{url.partition(':')[2]}"), shown)
    if kind in {"mysql", "mariadb"}:
        return Database(functools.partial(_mysql, url, _mysql_options(url)), shown)
    raise OutboxError(f"the URL of the database must be {_URLS}, got {shown}")


def _shown(url: str) -> str:
    """Returns a URL without user, password and parameters. Returns no more than the scheme where the password may be
    anywhere: a ``/``, ``?`` or ``#`` before the host is not escaped, or the text is a list of parameters."""
    kind, slashes, rest = url.partition("://")
    if not slashes:
        return "…" if "=" in url or "@" in url else url
    user, _, host = rest.rpartition("@")
    hidden = any(mark in user for mark in "/?#")
    return f"{kind.partition('+')[0]}://{'…' if hidden else host.partition('?')[0]}"


def _sqlite(path: str) -> Any:
    import sqlite3

    if not Path(path).exists():
        where = "" if Path(path).is_absolute() else f" in {Path.cwd()}"
        raise OutboxUnreachable(f"there is no file {path}{where}: name the database that your application writes")
    return sqlite3.connect(f"file:{quote(path)}?mode=rw", uri=True, timeout=_BUSY_SECONDS, check_same_thread=False)


def _postgresql(url: str) -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise OutboxError("PostgreSQL needs a driver: pip install 'psycopg[binary]'") from error
    options: dict[str, Any] = {} if "connect_timeout" in url else {"connect_timeout": _BUSY_SECONDS}
    name = f"hourwheel outbox {socket.gethostname()}"  # pg_stat_activity shows it
    return psycopg.connect(url, autocommit=True, application_name=name, **options)


def _mysql_options(url: str) -> dict[str, str | bool]:
    """Returns the parameters of a URL as options of the driver. Raises ``OutboxError`` for an unknown parameter: one
    about TLS that is dropped would leave the connection open to others."""
    options: dict[str, str | bool] = {}
    for name, value in parse_qsl(urlsplit(url).query, keep_blank_values=True):
        if name in _MYSQL_TEXTS and value:
            options[name] = value
        elif name in _MYSQL_SWITCHES and value.lower() in _SWITCH:
            options[name] = _SWITCH[value.lower()]
        else:
            names = ", ".join((*_MYSQL_TEXTS, *(f"{switch}=true" for switch in _MYSQL_SWITCHES)))
            raise OutboxError(f"the URL of a MySQL database takes the parameters {names}; {name!r} is none of them")
    return options


def _mysql(url: str, options: Mapping[str, str | bool]) -> Any:
    try:
        import pymysql
    except ImportError as error:
        raise OutboxError("MySQL needs a driver: pip install pymysql") from error
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname or "localhost",
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=unquote(parts.path[1:]),
        connect_timeout=_BUSY_SECONDS,
        # Otherwise MySQL does not count a row that an update leaves as it was, and the lease would seem lost.
        client_flag=pymysql.constants.CLIENT.FOUND_ROWS,
        **options,
    )
