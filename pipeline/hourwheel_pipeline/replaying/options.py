"""Defines the options of a replay: the messages to send, and the server and subject to which it sends them."""

from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from hourwheel_pipeline.runs.job_options import LakeOptions
from hourwheel_pipeline.runs.option_faults import Name


def _list(value: Any) -> Any:
    return tuple(part for part in value.split(",") if part) if isinstance(value, str) else value


List = Annotated[tuple[str, ...], BeforeValidator(_list)]


class Selection(BaseModel):
    """Selects the messages that ``subject`` accepted in ``[since, until)``; with ``dead_of`` the dead letters of that
    group that died in that time and are not known to have been redriven. ``keys``, ``tags`` and ``where`` select among
    them. They take messages with one of the keys, with one of the tags, and for which ``where`` holds, a condition in
    Spark's SQL on the columns of the table ``messages``. Lists are Python's, or text with commas."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    subject: Name
    dead_of: Name | None = None
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None
    keys: List = ()
    tags: List = ()
    where: str | None = None


class ReplayOptions(Selection, LakeOptions):
    """The options of ``replay``: the selection of messages, and where to send them.

    A replay of one ``name`` continues where the run before stopped. It sends to the subject ``to`` of the server at
    ``url`` (default: the subject that the messages are from), at most ``rate`` messages a second, and repeats a request
    for ``retry_seconds``. ``header`` names a header for the id that the message had. ``assume`` says whether a chunk
    was stored, where the server cannot tell any more. ``dry_run`` counts, and sends nothing.

    Raises:
        ValidationError: an option is unknown, missing or out of its range; or ``token`` and ``sign`` are both given, or
            neither ``url`` nor ``dry_run``.

    Example:
        >>> options = replay.ReplayOptions(lake="orders-data/lake", name="again", subject="orders", dry_run=True)
        >>> options.target
        'orders'
    """

    name: Name
    to: Name | None = None
    url: str | None = None
    token: str | None = None
    sign: Literal["aws"] | None = None
    header: str | None = Field(default=None, min_length=1, max_length=100)
    rate: float | None = Field(default=None, gt=0)
    retry_seconds: float = Field(default=120.0, ge=0, le=400)
    dry_run: bool = False
    assume: Literal["sent", "unsent"] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.url is None and not self.dry_run:
            raise ValueError("a replay needs the url of the server, or dry_run")
        if self.token is not None and self.sign is not None:
            raise ValueError("give token or sign, not both")
        return self

    @property
    def target(self) -> str:
        """Returns the subject to send to."""
        return self.to or self.subject

    @property
    def identity(self) -> str:
        """Returns the options that a run must share with the earlier runs of its name, as JSON."""
        return self.model_dump_json(include={*Selection.model_fields, "to", "header", "url"})
