"""Lowers the pages, blocks, steps and tries of the library, so that a run of a few hundred calls goes beyond them.

A loop that stops after its first page, or a bound that is off by one, shows only beyond the page. ``WHOLE`` names the
constants of this kind that stay as they are, each with the reason: a test finds those that are in neither list.
"""

import ast
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from random import Random
from unittest.mock import patch

import hourwheel
from hourwheel.dead_letters.dead import DeadLetters
from hourwheel.ports.storage import items_of
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.registry.registry import Registry

LIBRARY = Path(hourwheel.__file__).parent
ROOMS = (
    *("logs", "registry", "buckets", "retention", "handover", "pull_log", "cells", "ordered", "producing", "settling"),
    *("dozing", "pulling", "dead_letters", "delay", "push", "groups", "sweep"),
)
_KIND = (
    *("PAGE", "ROWS", "BLOCK", "BLOCKS", "PICKS", "BATCHES", "ONCE", "MOST", "AHEAD", "RACES", "TRIES"),
    *("FENCES", "PREPARED", "NAMED", "PAGES", "BUCKETS", "REMEMBERED", "NEAR", "RELOADS", "OPEN", "SORTED", "CROWD"),
    *("GROUPS", "LINES", "MESSAGES", "PARKED", "HELD", "MANY", "SHOWN", "DOZING", "BODIES", "COUNTED"),
)
_SHARE = 0.35

SMALL: dict[str, dict[str, int]] = {
    "logs.log": {"_FIRST_PAGE": 2, "_LARGEST_PAGE": 3, "_FILLED_AT_ONCE": 2},
    "settling.leases": {"_PAGE": 3, "_THROTTLED_ROWS": 2, "_CHECKPOINT_ROWS": 4},
    "pulling.flow": {"_PAGE": 3, "GET_MANY": 2},
    "ordered.key_state_cache": {"_CLAIMED_ROWS": 2},
    "ordered.read_states": {"_PAGE": 3, "_NEAR": 1, "GET_MANY": 2},
    "pull_log.keyed_rows": {"_CACHED_ROWS": 2},
    "dead_letters.dead": {"_FIRST_PAGE": 1, "_PAGE": 2, "_LARGE_PAGE": 3},
    "pull_log.log_rows": {"_FIRST_PAGE": 1, "_PAGE": 2, "_NEAR": 2},
    "pull_log.pull_log": {"_RACES": 2, "_RACES_AT_ONCE": 1},
    "ordered.claims": {"_RACES": 2},
    "pulling.claimer": {"_RACES": 1},
    "ordered.selection": {"_MOST_AHEAD": 4},
    "ordered.source_rows": {"_ROWS_AT_ONCE": 2, "GET_MANY": 2},
    "ordered.turns": {"_TURNS_SORTED": 1},
    "pull_log.claiming.selection": {"_PASSED_ROWS": 2},
    "ordered.snapshots": {"_SCANNED_PAGES": 1},
    "ordered.stopped_keys": {"_AT_ONCE": 1},
    "pull_log.claiming.growth": {"_MOST_ROWS": 3, "_MOST_MESSAGES": 6},
    "pull_log.claiming.ahead": {"AHEAD_PULLS": 2, "_MOST_ROWS": 4},
    "pull_log.totals": {"GET_MANY": 2},
    "producing.idempotency": {"_TRIES": 2},
    "producing.produce": {"_TRIES": 2},
    "cells.moves": {"_TRIES": 2},
    "groups.early_retries": {"_MOST": 1, "GET_MANY": 2},
    "delay.lists.delayed_list": {"_STRETCH_ROWS": 2, "_STRETCH_MESSAGES": 2, "_BUCKETS": 1},
    "delay.dispatch": {"_STEP_BATCHES": 1},
    "delay.held_batches": {
        "_MOST_OPEN_PICKS": 2,
        "_MOST_OPEN": 1,
        "_MOST_OPEN_HOME_PICKS": 4,
        "_MOST_OPEN_HOME": 2,
    },
    "delay.maintenance": {"_PAGE": 2, "REMOVE_MANY": 2},
    "delay.ownership": {"_PAGE": 2},
    "delay.bucket_reader": {"_RENEWAL_ROWS": 2, "_TAIL_ROWS": 8},
    "delay.timing": {"_CROWD": 2, "_COUNTED": 3},
    "delay.wheel": {"_PREPARED": 2},
    "delay.schedule_rows": {"GET_MANY": 2},
    "delay.lists.pending_counts": {"GET_MANY": 2},
    "delay.wheel_steps": {"CROWD": 2},
    "buckets.buckets": {"_PAGE": 2, "_FIRST_BUCKETS": 1, "_REMEMBERED": 1},
    "buckets.lease": {"_REMEMBERED": 1, "_RACES": 2},
    "cells.cells": {"_PAGE": 1},
    "registry.registry": {"_PAGE": 2},
    "registry.stored_records": {"_PAGE": 2, "_RECORDS_AT_ONCE": 1},
    "registry.subject_list": {
        "_FIRST_PAGE": 2,
        "_LEAST_PAGE": 1,
        "_LARGEST_PAGE": 2,
        "_MOST_SHARDS": 4,
        "_MOST_NAMES": 0,
    },
    "registry.broadcast": {"_PAGE": 1},
    "sweep.retention": {"_PAGE": 2},
    "sweep.passes": {"_AT_ONCE": 2},
    "retention.watermarks": {"_PAGE": 2},
}
"""Values by module and name. ``GET_MANY`` is lowered where a module divides its reads by it."""

_DEFAULTS = (PullLog.rows, PullLog.unread, Registry.subjects)
"""Functions whose default is a page, and so was read before the page is lowered."""


def constants() -> dict[str, int]:
    """Returns the constants of this kind in the protocol's rooms, by module and name: whole numbers whose names speak
    of pages and the like, and of no time or size."""
    found: dict[str, int] = {}
    for path in sorted(path for room in ROOMS for path in (LIBRARY / room).rglob("*.py")):
        module = ".".join(path.relative_to(LIBRARY).with_suffix("").parts)
        loaded = import_module(f"hourwheel.{module}")
        for name in _named(ast.parse(path.read_text())):
            value = getattr(loaded, name)
            words = name.strip("_").split("_")
            timed = words[-1] in ("MS", "SECONDS", "BYTES")
            if type(value) is int and not timed and set(words) & set(_KIND):
                found[f"{module}.{name}"] = value
    return found


def _named(tree: ast.Module) -> Iterator[str]:
    """Yields the names that the module assigns, and those of other modules' constants that it imports."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names if alias.name.isupper())


def has_small_pages(seed: int) -> bool:
    """Returns whether the run of this seed has small pages."""
    return Random(seed ^ 0x9A6E).random() < _SHARE


@contextmanager
def small_pages() -> Iterator[None]:
    with ExitStack() as stack:
        # Each sweep tends one subject: the next one has to go on where it stopped.
        stack.enter_context(patch("hourwheel.sweep.sweep._SWEEP_MS", 0))
        for module, values in SMALL.items():
            for name, value in values.items():
                stack.enter_context(patch.object(import_module(f"hourwheel.{module}"), name, value))
        for function in _DEFAULTS:
            stack.enter_context(patch.object(function, "__defaults__", (*(function.__defaults__ or ())[:-1], 2)))
        for function in (items_of, DeadLetters._rows):
            stack.enter_context(patch.dict(function.__kwdefaults__ or {}, page=2))
        yield
