"""Says in requests that they create nothing: a subject or group that is missing is an error then."""

from collections.abc import Mapping

from hourwheel.client.errors import BadRequest

_FIELD = "create"


def names_field(error: BadRequest, *fields: str) -> bool:
    """Returns whether the server refused a request because of one of these fields. The text of such an error lists the
    fields that the server knows, so it counts only where the error names no field."""
    named = error.problem.field
    return named in fields if named else any(field in str(error) for field in fields)


class Creation:
    """The field of pulls and sends that says whether they create what is missing. By default they do, and say
    nothing."""

    def __init__(self, create: bool = True) -> None:
        self._create = create

    def fields(self) -> Mapping[str, bool]:
        return {} if self._create else {_FIELD: False}

    def refused(self, error: Exception) -> bool:
        """Returns whether a server of an earlier version refused the request because of ``fields``. From then on
        ``fields`` returns none."""
        unknown = not self._create and isinstance(error, BadRequest) and names_field(error, _FIELD)
        self._create = self._create or unknown
        return unknown
