"""Defines the answers of a server about itself and its tokens."""

from datetime import datetime

from msgspec import Struct


class Health(Struct, frozen=True, kw_only=True):
    """The answer of a server that runs. ``version`` is "" if the server needs a token and the client has none.

    Example:
        >>> api.health().status
        'ok'
    """

    status: str
    version: str = ""


class CreatedGrant(Struct, frozen=True, kw_only=True):
    """A token for function URLs. Clients renew it by themselves until ``renewable_until``.

    Example:
        >>> at = datetime(2027, 1, 1, tzinfo=UTC)
        >>> CreatedGrant(token="hwg_abc", expires_at=at, renewable_until=at).token
        'hwg_abc'
    """

    token: str
    expires_at: datetime
    renewable_until: datetime


class GrantVersion(Struct, frozen=True):
    version: int
