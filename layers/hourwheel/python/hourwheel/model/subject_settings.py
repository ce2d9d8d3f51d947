"""Declares the settings of a subject."""

from typing import Annotated

from msgspec import Struct

from hourwheel.model.fields import (
    DEFAULT_RETENTION_SECONDS,
    MAX_QUEUES,
    MAX_RETENTION_SECONDS,
    MIN_RETENTION_SECONDS,
)
from hourwheel.model.settings import Setting


class SubjectSettings(Struct, frozen=True, kw_only=True):
    """The settings of a subject. The stored record of a subject and the answer to a client both have them."""

    queues: Annotated[
        int, Setting("Queues", "how many queues the subject has", least=1, most=MAX_QUEUES, rises=True)
    ] = 1

    retention_seconds: Annotated[
        int,
        Setting(
            "Retention",
            "how long a message is kept; a change applies to messages sent after it, and never shortens the time of"
            " retries of earlier ones",
            least=MIN_RETENTION_SECONDS,
            most=MAX_RETENTION_SECONDS,
        ),
    ] = DEFAULT_RETENTION_SECONDS

    clamp_delays: Annotated[bool, Setting("Clamp delays", "whether longer delays become 732 days")] = False

    read_only: Annotated[bool, Setting("Read-only", "whether [new messages are refused](#read-only-subjects)")] = False
