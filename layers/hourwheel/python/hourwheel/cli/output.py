"""Writes results to stdout: JSON for programs, tables and plain lines for people.

Bodies, ids, keys, headers and errors contain text of any sender. A terminal obeys escape sequences in it, which can set
the title and the clipboard and forge output. So text for a terminal is escaped by ``shown``; text for a pipe, and all
text with ``--raw``, stays unchanged.
"""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from hourwheel.client.due import utc_text
from hourwheel.wire.words import shown

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


_raw: ContextVar[bool] = ContextVar("raw", default=False)

_FREE_TEXT = {"body", "command", "detail", "key", "location", "reason", "remark", "what"}
"""Columns that may fold on a narrow terminal. Ids, dates and numbers stay on one line, so that they can be copied."""

_LEAST_FREE_TEXT = 20  # characters; a narrower column would be hard to read, so the terminal breaks the row instead
_ENDLESS = 1_000_000_000  # no table is wider, so none folds

_REPEAT = re.compile(
    r"send the request again(, with the same idempotency key if it had one)?|repeat the\s+request(?![a-z])"
)
"""What servers say to callers of the API, who send requests."""


def write_raw(raw: bool) -> None:
    """Sets whether text for a terminal stays unchanged from now on."""
    _raw.set(raw)


def _shown_json(line: str) -> str:
    """Returns an equal line of JSON, in which the characters that ``shown`` replaces are JSON escapes."""
    return "".join(character if character == shown(character) else _json_escape(character) for character in line)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _to_terminal() -> bool:
    return sys.stdout.isatty() and not _raw.get()


def json_line(value: Any) -> bytes:
    """Returns the value as a line of JSON. Times have milliseconds, as in the HTTP API."""
    return msgspec.json.encode(_with_times(msgspec.to_builtins(value, builtin_types=[datetime]))) + b"\n"


def _with_times(value: Any) -> Any:
    if isinstance(value, datetime):
        return utc_text(value)
    if isinstance(value, dict):
        return {name: _with_times(item) for name, item in value.items()}
    return [_with_times(item) for item in value] if isinstance(value, list | tuple) else value


def write_json(value: Any) -> None:
    line = json_line(value).decode().removesuffix("\n")
    _write_bytes((_shown_json(line) if _to_terminal() and not line.isprintable() else line).encode())


def write_line(text: str) -> None:
    sys.stdout.write((shown(text) if _to_terminal() else text) + "\n")
    sys.stdout.flush()


def write_body(body: str | bytes) -> None:
    """Writes a body on a line of its own, and flushes it, so that it has left this process before the message is
    acknowledged."""
    if _to_terminal():
        write_line(body if isinstance(body, str) else body.decode(errors="backslashreplace"))
    else:
        _write_bytes(body.encode() if isinstance(body, str) else body)


def write_error(text: str) -> None:
    """Writes one line to stderr, always escaped: a line end within it would forge a line, in a log too. Where an answer
    of the server says to send the request again, the line says to run the command again."""
    sys.stderr.write(f"hourwheel: {shown(_REPEAT.sub('run the command again', text))}\n")
    sys.stderr.flush()


def without_advice(text: str) -> str:
    """Returns the text of an answer without the sentence that says to send the request again; "" if it says no more."""
    return _REPEAT.sub("", text).strip("; ")


def _write_bytes(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def table_of(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column not in _FREE_TEXT)
    clean = shown if _to_terminal() else str
    for row in rows:
        table.add_row(*(Text(clean(text_of(cell))) for cell in row))
    return table


def write_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    from rich.console import Console

    rows = list(rows)
    if not rows:
        write_line("none")
        return
    table = table_of(columns, rows)
    endless = _console(_ENDLESS)
    width = endless.measure(table).maximum
    if sys.stdout.isatty():
        width = max(Console().width, width - _spare_width(table, endless))
    _console(width).print(table)


def _console(width: int) -> "Console":
    from rich.console import Console

    return Console(width=width, height=25)  # rich ignores a width without a height


def _spare_width(table: "Table", endless: "Console") -> int:
    """Returns how many characters narrower than its text a table may be, because its columns of free text fold."""
    free = [column for column in table.columns if not column.no_wrap]
    widths = (max(endless.measure(cell).maximum for cell in column.cells) for column in free)
    return sum(max(0, width - _LEAST_FREE_TEXT) for width in widths)


_LABELS = {"text": "body", "data": "body"}  # a message has one of the two, which all else calls its body


def write_fields(record: msgspec.Struct, labels: Mapping[str, str] | None = None) -> None:
    """Writes a record, one field on each line. ``labels``: what to write in place of the names of fields."""
    named = {**_LABELS, **(labels or {})}
    required = [field.name for field in msgspec.structs.fields(record) if field.required]  # what names the record
    names = dict.fromkeys([*required, *record.__struct_fields__])
    fields = [(named.get(name) or name, getattr(record, name)) for name in names]
    width = max(len(name) for name, _ in fields)
    for name, value in fields:
        if value not in (None, [], {}):
            write_line(f"{name:<{width}}  {text_of(value)}")


def text_of(value: Any) -> str:
    """Returns the value as text for people."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}Z"
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list | tuple):
        return ", ".join(map(text_of, value))
    if isinstance(value, msgspec.Struct):
        return text_of(msgspec.to_builtins(value))
    if isinstance(value, dict):
        return ", ".join(f"{name}={text_of(item)}" for name, item in value.items() if item not in ([], ()))
    return "-" if value is None else str(value)
