"""Writes ``settings.json``, which the pages read before anything else."""

import msgspec

from hourwheel import __version__


class ConsoleSettings(msgspec.Struct, frozen=True, kw_only=True):
    title: str = "Hourwheel"
    """What the pages are titled with: the deployment."""

    read_only: bool = False
    """Whether the pages offer nothing that changes something."""

    needs_token: bool = False
    """Whether the API takes a token, which the pages ask for."""

    passes_on: bool = False
    """Whether ``hourwheel console`` passes the calls on, with a token or signatures of its own."""

    aws: bool = False
    """Whether each call is billed: the pages then read less often, and show what they cost."""

    call_usd: float = 0.0
    """What a call costs, before it reads anything."""

    read_usd: float = 0.0
    """What reading a subject or a group costs."""

    version: str = __version__


def encode_settings(settings: ConsoleSettings) -> bytes:
    return msgspec.json.encode(settings)
