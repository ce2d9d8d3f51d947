"""Results on stdout: JSON for programs, tables and plain lines for people.

Bodies, ids, keys, headers and errors hold what anybody sent. A terminal obeys some of it (escape sequences set titles
and the clipboard, and draw what is not there), so on a terminal everything goes through ``shown``; into a pipe, and
with ``--raw``, it goes as it is.
"""

import sys
import unicodedata
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from hourwheel.client.records import rfc3339

if TYPE_CHECKING:
    from rich.table import Table


_raw: ContextVar[bool] = ContextVar("raw", default=False)

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def write_raw(wanted: bool) -> None:
    """Has what follows written as it is, on a terminal too."""
    _raw.set(wanted)


def shown(text: str) -> str:
    """The text with escapes in place of what a terminal would obey or hide: controls (line ends too, so that no row is
    forged), marks that turn the direction of writing, what has no width, and what is not assigned."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    # Blanks of other widths are not printable to Python, and do no harm.
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    code = ord(character)
    form = f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return _SHORT.get(character, form)


def _shown_json(line: str) -> str:
    """JSON of one line that means the same."""
    return "".join(one if one == _shown(one) else _json_escape(one) for one in line)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _for_eyes() -> bool:
    return sys.stdout.isatty() and not _raw.get()


def json_line(value: Any) -> bytes:
    """Times have milliseconds, as in the HTTP API."""
    return msgspec.json.encode(_with_times(msgspec.to_builtins(value, builtin_types=[datetime]))) + b"\n"


def _with_times(value: Any) -> Any:
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, dict):
        return {name: _with_times(item) for name, item in value.items()}
    return [_with_times(item) for item in value] if isinstance(value, list | tuple) else value


def write_json(value: Any) -> None:
    line = json_line(value).decode().removesuffix("\n")
    _write_bytes((_shown_json(line) if _for_eyes() and not line.isprintable() else line).encode())


def write_line(text: str) -> None:
    sys.stdout.write((shown(text) if _for_eyes() else text) + "\n")
    sys.stdout.flush()


def write_body(body: str | bytes) -> None:
    """A message on a line of its own. Flushed: what is acknowledged then has left this process."""
    if _for_eyes():
        write_line(body if isinstance(body, str) else body.decode(errors="backslashreplace"))
    else:
        _write_bytes(body.encode() if isinstance(body, str) else body)


def write_error(text: str) -> None:
    """One line, wherever it goes: into a log it would forge rows as well."""
    sys.stderr.write(f"hourwheel: {shown(text)}\n")
    sys.stderr.flush()


def _write_bytes(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def table_of(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=box.SIMPLE_HEAD)
    clean = shown if _for_eyes() else str
    for row in rows:
        table.add_row(*(Text(clean(text_of(cell))) for cell in row))
    return table


def write_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    from rich.console import Console

    rows = list(rows)
    if not rows:
        write_line("none")
        return
    Console(soft_wrap=not sys.stdout.isatty()).print(table_of(columns, rows))


def write_fields(record: msgspec.Struct) -> None:
    """One record, a field on each line."""
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    width = max(map(len, fields))
    for name, value in fields.items():
        if value is not None and value != [] and value != {}:
            write_line(f"{name:<{width}}  {text_of(value)}")


def text_of(value: Any) -> str:
    """As people read it."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}Z"
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list | tuple):
        return ", ".join(map(text_of, value))
    if isinstance(value, msgspec.Struct):
        return text_of(msgspec.to_builtins(value))
    if isinstance(value, dict):
        return ", ".join(f"{name}={text_of(item)}" for name, item in value.items())
    return "-" if value is None else str(value)
