"""Defines the options of the data source. Spark ignores the case of their names and passes their values as text."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from hourwheel.errors import Rejected
from hourwheel.times import parse_rfc3339
from hourwheel_pipeline.runs.option_faults import Location, Name, sentences_of

_OF_SPARK = {"checkpointlocation", "queryname"}
"""Options of Spark itself, which it passes along."""


class Number(BaseModel):
    """A bound by sequence, in each queue."""

    model_config = ConfigDict(frozen=True)

    number: int


class Moment(BaseModel):
    """A bound by the time of acceptance, in Unix milliseconds."""

    model_config = ConfigDict(frozen=True)

    ms: int


def _bound(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if re.fullmatch(r"\d{1,18}", value, re.ASCII):
        return Number(number=int(value))
    return _moment(value, "give a sequence, such as 1041, or a time with a zone, such as 2026-11-20T09:00:00Z")


def _position(value: Any) -> Any:
    if value in {"earliest", "latest"} or not isinstance(value, str):
        return value
    return _moment(value, "give earliest, latest, or a time with a zone, such as 2026-11-20T09:00:00Z")


def _moment(value: str, advice: str) -> Moment:
    try:
        return Moment(ms=parse_rfc3339(value, "it"))
    except Rejected:
        raise ValueError(f"{value!r} is none: {advice}") from None


Bound = Annotated[Number | Moment, BeforeValidator(_bound)]
StreamPosition = Annotated[Literal["earliest", "latest"] | Moment, BeforeValidator(_position)]


class ReadOptions(BaseModel):
    """The options of reads. ``archive``: a folder, or ``s3://bucket/prefix``. ``generation``: None stands for the
    newest generation of the subject."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    archive: Location
    subject: Name
    queue: int | None = Field(default=None, ge=0)
    generation: int | None = Field(default=None, ge=1)
    ondamage: Literal["fail", "skip"] = "fail"
    region: str | None = None
    endpoint: str | None = None


class BatchOptions(ReadOptions):
    """The options of a batch: it reads ``[start, end)``, as sequences of each queue or times of acceptance."""

    start: Bound | None = Field(default=None, alias="from")
    end: Bound | None = Field(default=None, alias="to")


class StreamOptions(ReadOptions):
    """The options of a stream. ``startingposition`` is for a new query; a query that continues begins at its
    checkpoint."""

    startingposition: StreamPosition = "earliest"
    maxrowspertrigger: int | None = Field(default=None, ge=1)


class WriteOptions(BaseModel):
    """The options of writes. ``runid`` names the write: see ``chunks.py``. ``retryseconds``: how long a chunk is
    retried while the server is unavailable."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(min_length=1)
    subject: Name
    token: str | None = None
    sign: Literal["aws"] | None = None
    region: str | None = None
    runid: str | None = Field(default=None, min_length=1)
    retryseconds: float = Field(default=120.0, ge=0, le=540)

    @model_validator(mode="after")
    def _one_kind_of_proof(self) -> Self:
        if self.token is not None and self.sign is not None:
            raise ValueError("give token or sign, not both")
        return self


Options = TypeVar("Options", bound=BaseModel)


def read_options(model: type[Options], texts: Mapping[str, str]) -> Options:
    """Reads the options from text. Raises ``ValueError`` with a sentence for each wrong option."""
    try:
        lower = {name.lower(): text for name, text in texts.items()}
        return model.model_validate({name: text for name, text in lower.items() if name not in _OF_SPARK})
    except ValidationError as error:
        raise ValueError("format hourwheel: " + "; ".join(sentences_of(model, error))) from None
