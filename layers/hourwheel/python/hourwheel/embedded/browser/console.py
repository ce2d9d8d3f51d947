"""Serves the console at ``/console/``, to which ``/`` leads. Its files need no token, because they hold no data; the
calls that they make need one."""

from hourwheel import __version__
from hourwheel.api.events import Response, ok
from hourwheel.api.problems import problem
from hourwheel.api.router import wrong_method
from hourwheel.console.files import SECURITY_HEADERS, file_answer
from hourwheel.console.settings import ConsoleSettings
from hourwheel.embedded.credentials.access import Grant, Headers, header

PREFIX = "/console"
_FILES = f"{PREFIX}/"
_LEADING = ("/", PREFIX)  # answered with the way to the page
_SETTINGS = f"{_FILES}settings.json"


def is_console(path: str) -> bool:
    return path in _LEADING or path.startswith(_FILES)


def console_answer(method: str, path: str, headers: Headers, settings: ConsoleSettings, request_id: str) -> Response:
    """Returns the answer to a request for a file of the console, or for its settings."""
    if method not in {"GET", "HEAD"}:
        detail = wrong_method(path, method, ("GET",))
        return problem(405, "method-not-allowed", detail, instance=request_id, headers={"allow": "GET, HEAD"})
    if path in _LEADING:
        # Relative, as a proxy may serve this server below a path of its own.
        return {"statusCode": 307, "headers": {**SECURITY_HEADERS, "location": "console/"}, "body": ""}
    if path == _SETTINGS:
        answer = ok(settings)
        return {**answer, "headers": {**answer["headers"], **SECURITY_HEADERS, "cache-control": "no-store"}}
    answered = file_answer(
        path.removeprefix(_FILES),
        if_none_match=_text(headers, b"if-none-match"),
        accept_encoding=_text(headers, b"accept-encoding"),
    )
    if answered is None:
        detail = f"the console has no file {path[:200]}: it begins at {_FILES}"
        return problem(404, "route-unknown", detail, instance=request_id)
    return {"statusCode": answered.status, "headers": answered.headers, "body": answered.body}


def settings_for(grant: Grant, *, is_open: bool) -> ConsoleSettings:
    """Returns the settings of the console for a person with this grant. Without one they tell no version, as the answer
    to a probe does not."""
    version = "" if grant is Grant.NONE else __version__
    return ConsoleSettings(read_only=grant is Grant.READ, needs_token=not is_open, version=version)


def _text(headers: Headers, name: bytes) -> str:
    return (header(headers, name) or b"").decode("latin-1")
