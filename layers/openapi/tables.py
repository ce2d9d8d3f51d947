"""Writes the settings that records declare into the tables of docs/api/."""

import re
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from hourwheel.model.group_settings import AllGroupSettings
from hourwheel.model.settings import DeclaredField, declared
from hourwheel.model.subject_settings import SubjectSettings

_DAY_SECONDS = 86_400


class SettingTable(NamedTuple):
    """The table of a page whose first column has this head."""

    page: str
    head: str
    record: type[Struct]


TABLES = (
    SettingTable("groups.md", "field of a group", AllGroupSettings),
    SettingTable("subjects.md", "field of a subject", SubjectSettings),
)


def write_tables(folder: Path) -> None:
    """Brings the tables of the pages in a folder up to date."""
    for table in TABLES:
        path = folder / table.page
        path.write_text(with_settings(path.read_text(), table))


def with_settings(page: str, table: SettingTable) -> str:
    """Returns the page with a row for each setting in its table. Other rows stay, and new rows come last. Raises
    ``ValueError`` for a page without the table."""
    match = re.search(rf"^\| {table.head} \|.*\n\| ---.*\n(?P<rows>(?:\|.*\n)+)", page, re.MULTILINE)
    if match is None:
        raise ValueError(f"{table.page} has no table of each {table.head}")
    rows = {line.split("`")[1]: line for line in match["rows"].splitlines()}
    rows |= {field.name: row(field) for field in declared(table.record)}
    return page[: match.start("rows")] + "".join(f"{line}\n" for line in rows.values()) + page[match.end("rows") :]


def row(field: DeclaredField) -> str:
    """Returns the row of a setting."""
    values = "; ".join([_values(field), *_limits(field)])
    return f"| `{field.name}` | {values} | {_default(field)} | {field.setting.text} |"


def _values(field: DeclaredField) -> str:
    if field.setting.least is not None:
        return f"{field.setting.least:,} to {field.setting.most:,}"
    return ", ".join(f"`{choice}`" for choice in field.choices) or "true, false"


def _limits(field: DeclaredField) -> list[str]:
    limits = {
        "can only grow": field.setting.rises,
        "at creation only": field.setting.fixed,
        f"with `{field.setting.needs}`": field.setting.needs,
    }
    return [limit for limit, holds in limits.items() if holds]


def _default(field: DeclaredField) -> str:
    default = field.default
    if isinstance(default, str):
        return f"`{default}`"
    if isinstance(default, bool):
        return str(default).lower()
    if field.setting.zero and not default:
        return f"0: {field.setting.zero}"
    days = f" ({default // _DAY_SECONDS} days)" if field.in_seconds and default >= 2 * _DAY_SECONDS else ""
    return f"{default:,.15g}{days}"
