"""The options that jobs and the data source share, and the sentences about options that are wrong.

The model of a job's options is a subclass of ``LakeOptions`` or of ``ArchiveOptions``; a job that can be limited to
some days adds ``Days``.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt, ValidationError, model_validator

from hourwheel.errors import Rejected
from hourwheel.model import check_name
from hourwheel.ports import Blobs
from hourwheel_pipeline.lake import NAMESPACE, Lake
from hourwheel_pipeline.locations import blobs_at
from hourwheel_pipeline.segment_rows import ArchivePlace

_SENTENCES: Final = {
    "bool_parsing": "give true or false, not {input!r}",
    "date_from_datetime_inexact": "give a day, such as 2026-11-20, not {input!r}",
    "date_from_datetime_parsing": "give a day, such as 2026-11-20, not {input!r}",
    "date_parsing": "give a day, such as 2026-11-20, not {input!r}",
    "datetime_from_date_parsing": "give a time with a zone, such as 2026-11-20T09:00:00Z, not {input!r}",
    "datetime_parsing": "give a time with a zone, such as 2026-11-20T09:00:00Z, not {input!r}",
    "float_parsing": "give a number, not {input!r}",
    "greater_than": "give a number above {gt}, not {input}",
    "greater_than_equal": "give a number of at least {ge}, not {input}",
    "int_from_float": "give a whole number, not {input!r}",
    "int_parsing": "give a whole number, not {input!r}",
    "int_parsing_size": "give a smaller number than {input}",
    "less_than_equal": "give a number of at most {le}, not {input}",
    "literal_error": "give {expected}, not {input!r}",
    "string_too_long": "give at most {max_length} characters",
    "string_too_short": "it is empty",
    "timezone_aware": "give a time with a zone, such as 2026-11-20T09:00:00Z, not {input!r}",
    "value_error": "{error}",
}
"""The sentence for each type of pydantic's faults that these models can have."""


def _name(value: Any) -> Any:
    try:
        return check_name(value, "it") if isinstance(value, str) else value
    except Rejected as error:
        raise ValueError(str(error)) from None


Name = Annotated[str, BeforeValidator(_name)]
"""The name of a subject, a group or a replay."""

Location = Annotated[str, Field(min_length=1)]
"""A folder, or ``s3://bucket/prefix``."""


class LakeOptions(BaseModel):
    """The options of a job on a lake. On AWS ``namespace`` is the cell's database in Glue; ``region`` and
    ``endpoint_url`` say where S3 and Glue are."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lake: Location
    namespace: str = NAMESPACE
    region: str | None = None
    endpoint_url: str | None = None

    def open_lake(self) -> Lake:
        """Opens the lake, and creates it if there is none. Raises ``Broken``."""
        return Lake.open(self.lake, namespace=self.namespace, region=self.region, endpoint_url=self.endpoint_url)

    def find_lake(self) -> Lake | None:
        """Opens the lake. Returns None if there is none. Raises ``Broken``."""
        return Lake.find(self.lake, namespace=self.namespace, region=self.region, endpoint_url=self.endpoint_url)


class ArchiveOptions(LakeOptions):
    """The options of a job on an archive and the lake that is made of it."""

    archive: Location

    @property
    def place(self) -> ArchivePlace:
        """The archive, as workers open it."""
        return ArchivePlace(self.archive, self.region, self.endpoint_url)

    def open_archive(self) -> Blobs:
        return blobs_at(*self.place)


class Days(BaseModel):
    """The days from ``since`` on, or today and the ``days`` before it; without either all days."""

    since: date | None = None
    days: PositiveInt | None = None

    @model_validator(mode="after")
    def _not_both(self) -> Self:
        if self.since is not None and self.days is not None:
            raise ValueError("give since or days, not both")
        return self

    def first_day(self, now_ms: int) -> date | None:
        """Returns the first of the days; None if all days are meant."""
        if self.days is None:
            return self.since
        return datetime.fromtimestamp(now_ms / 1_000, UTC).date() - timedelta(days=self.days)


def sentences_of(model: type[BaseModel], error: ValidationError) -> list[str]:
    """Returns a sentence for each option that is wrong, unknown or missing, and each sentence once."""
    return list(dict.fromkeys(_sentence(model, fault) for fault in error.errors(include_url=False)))


def _sentence(model: type[BaseModel], fault: Mapping[str, Any]) -> str:
    name = str(fault["loc"][0]) if fault["loc"] else ""
    if fault["type"] == "extra_forbidden":
        names = sorted(field.alias or name for name, field in model.model_fields.items())
        return f"there is no option {name!r} here; the options are {', '.join(names)}"
    if fault["type"] == "missing":
        return f"the option {name!r} is missing"
    facts = {"input": fault["input"], **fault.get("ctx", {})}
    text = _SENTENCES[fault["type"]].format(**facts) if fault["type"] in _SENTENCES else f"{fault['input']!r} is wrong"
    return f"option {name!r}: {text}" if name else text
