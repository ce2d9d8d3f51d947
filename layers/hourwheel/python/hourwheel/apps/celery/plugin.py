"""Tells Kombu the names of the transport.

Kombu looks for serializers of other packages when it is imported, and for no transports. So this package offers a
serializer, JSON under another name, and registers the transport when Kombu loads it.
"""

from collections.abc import Callable
from typing import Any

from kombu.transport import TRANSPORT_ALIASES
from kombu.utils.json import dumps, loads

TRANSPORT = "hourwheel.apps.celery.transport:Transport"
SCHEMES = ("hourwheel", "hourwheel+http", "hourwheel+https")


def register() -> None:
    """Registers the transport under its schemes. A further call changes nothing."""
    for scheme in SCHEMES:
        TRANSPORT_ALIASES.setdefault(scheme, TRANSPORT)


class _Registration:
    """Registers the transport when Kombu unpacks this entry point into arguments of
    ``kombu.serialization.register``."""

    def __iter__(self) -> Any:
        register()
        arguments: tuple[Callable[..., Any], Callable[..., Any], str, str] = (
            dumps,
            loads,
            "application/vnd.hourwheel+json",
            "utf-8",
        )
        return iter(arguments)


serializer = _Registration()
