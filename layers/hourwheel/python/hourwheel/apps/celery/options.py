"""Reads the server and the options of a transport from a broker's URL and ``broker_transport_options``."""

import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec
from msgspec import Meta, Struct

from hourwheel.client.records.messages import SendResult
from hourwheel.client.transport.signing import Sign
from hourwheel.model.fields import MAX_LEASE_SECONDS, MAX_WAIT_SECONDS

DEFAULT_PORT = 7420

Scheduled = Callable[[Mapping[str, Any], SendResult], object]


class TransportOptions(Struct, frozen=True, kw_only=True):
    """Declares the transport options of Hourwheel. ``options_of`` checks their types and ranges, and leaves the other
    options to Kombu, which adds some of its own."""

    token: str | None = None
    ca_file: str | None = None
    sign: Sign | None = None
    region: str | None = None
    group: Annotated[str, Meta(min_length=1, max_length=100)] = "celery"
    queue_name_prefix: str = ""
    visibility_timeout: Annotated[int, Meta(ge=1, le=MAX_LEASE_SECONDS)] = 60
    """The lease in seconds. A living worker extends it: the tasks of a killed worker run elsewhere once it has
    ended."""
    wait_seconds: Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS)] = 20.0
    settle_linger_seconds: Annotated[float, Meta(ge=0)] = 1.0
    """How long an acknowledgement waits for others, to share their request."""
    publish_timeout: Annotated[float, Meta(gt=0)] = 10.0
    """How long a send is repeated in seconds, before ``OperationalError``."""
    confirm_publish: bool = True
    """Whether ``apply_async`` waits until the task is durable."""
    retention_seconds: Annotated[int, Meta(ge=60, le=2_592_000)] = 604_800
    """How long a new queue keeps a task that no worker takes."""
    exchange_retention: dict[str, int] = msgspec.field(default_factory=lambda: {"celeryev": 3_600})
    """The retention of durable exchanges that differ from ``retention_seconds``."""
    max_attempts: Annotated[int, Meta(ge=1, le=1_000)] = 100
    """The number of deliveries after which a task is a dead letter. A delivery counts if the task was requeued, or its
    worker died while it held this task alone."""
    priority_steps: tuple[Annotated[int, Meta(ge=0, le=9)], ...] = ()
    """The lowest priorities of the levels that queues have, such as ``[0, 3, 6, 9]``. There is always a level 0."""
    on_scheduled: Scheduled | None = None
    """Called with the headers and the ``SendResult`` of each delayed task: its ``scheduled_id`` cancels the task."""


class Server(NamedTuple):
    url: str
    token: str | None


def options_of(options: Mapping[str, Any]) -> TransportOptions:
    """Returns the checked options. Raises ``ValueError``, which names the option, for a wrong value."""
    names = TransportOptions.__struct_fields__
    hook = options.get("on_scheduled")  # msgspec checks no functions
    if hook is not None and not callable(hook):
        raise ValueError(f"broker_transport_options['on_scheduled'] must be a function, got {hook!r}")
    chosen = {name: options[name] for name in names if name in options and name != "on_scheduled"}
    try:
        checked = msgspec.convert(chosen, TransportOptions)
    except msgspec.ValidationError as error:
        raise ValueError(f"broker_transport_options: {error}") from None
    # Without a level 0, nobody would pull the tasks of the lowest priorities.
    steps = sorted({0, *checked.priority_steps}) if checked.priority_steps else ()
    return msgspec.structs.replace(checked, on_scheduled=hook, priority_steps=tuple(steps))


def server_of(info: Any, options: TransportOptions) -> Server:
    """Returns the server of a ``kombu.Connection``.

    Its URL is ``hourwheel://[:TOKEN@]HOST[:PORT][/PREFIX]``, ``hourwheel+http://…`` or ``hourwheel+https://…``. The
    token is that of the options; without one that of the URL; without one ``HOURWHEEL_TOKEN``. Raises ``ValueError``
    for a URL with a user, which Kombu would log.
    """
    # Of a URL with a + in its scheme, Kombu gives all that follows the + as the name of the host.
    named = _of_url(info.hostname) if "://" in (info.hostname or "") else _of_parts(info)
    if named.user:
        raise ValueError("the broker's URL names a user, which logs would show: write hourwheel://:TOKEN@HOST")
    return Server(named.url, options.token or named.token or os.environ.get("HOURWHEEL_TOKEN") or None)


class _NamedServer(NamedTuple):
    """A server as the broker's URL names it."""

    url: str
    user: str | None
    token: str | None


def _of_url(url: str) -> _NamedServer:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    whole = urlunsplit((parts.scheme, host, parts.path, "", ""))
    return _NamedServer(whole, parts.username, unquote(parts.password or ""))


def _of_parts(info: Any) -> _NamedServer:
    """Returns the server of a URL that Kombu has parsed."""
    secure = str(info.transport_cls).endswith("+https") or bool(info.ssl)
    scheme, default_port = ("https", 443) if secure else ("http", DEFAULT_PORT)
    url = f"{scheme}://{info.hostname or 'localhost'}:{info.port or default_port}"
    prefix = (info.virtual_host or "").strip("/")
    return _NamedServer(f"{url}/{prefix}" if prefix else url, info.userid, info.password)
