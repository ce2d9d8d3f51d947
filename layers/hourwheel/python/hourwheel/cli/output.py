"""Results on stdout: JSON for programs, tables and plain lines for people."""

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from hourwheel.client.records import rfc3339

if TYPE_CHECKING:
    from rich.table import Table


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
    sys.stdout.write(json_line(value).decode())
    sys.stdout.flush()


def write_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def table_of(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*(Text(text_of(cell)) for cell in row))
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
