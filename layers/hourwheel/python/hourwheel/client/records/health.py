"""Defines the answer of a server that runs."""

from msgspec import Struct


class Health(Struct, frozen=True, kw_only=True):
    """The answer of a server that runs.

    Example:
        >>> api.health().status
        'ok'
    """

    status: str
    version: str
