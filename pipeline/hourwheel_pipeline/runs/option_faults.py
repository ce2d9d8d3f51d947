"""Checks names and locations in the options of jobs and of the data source, and describes the faults of an option in
sentences.

Imports nothing that opens a lake: the data source runs where pyiceberg is not installed.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from hourwheel.errors import Rejected
from hourwheel.model.fields import check_name

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
