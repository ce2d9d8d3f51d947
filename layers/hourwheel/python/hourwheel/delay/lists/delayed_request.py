"""Says which delayed messages a caller asks for."""

from typing import NamedTuple

from hourwheel.model.messages import Message


class DelayedFilter(NamedTuple):
    """Chooses delayed messages by key, by one of their tags, and by the id that their sender gave. None takes any."""

    key: str | None = None
    tag: str | None = None
    id: str | None = None

    def takes(self, message: Message) -> bool:
        return (
            self.key in (None, message.key)
            and (self.tag is None or self.tag in (message.tags or ()))
            and self.id in (None, message.id)
        )


ANY_MESSAGE = DelayedFilter()


class DelayedRequest(NamedTuple):
    """Asks for up to ``limit`` messages that are due from ``since_ms`` (Unix milliseconds; None: the current hour) on
    and before ``until_ms`` (None: whenever), behind the cursor ``after``. With ``bodies`` they come with the beginnings
    of their bodies. ``which`` chooses some of them."""

    since_ms: int | None = None
    until_ms: int | None = None
    after: str | None = None
    limit: int = 100
    bodies: bool = False
    which: DelayedFilter = ANY_MESSAGE
