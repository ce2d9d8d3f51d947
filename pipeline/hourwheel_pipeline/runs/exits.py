"""Defines the exit status of the commands, so that cron and CI can act on it: see ``docs/pipeline.md``.

0    all went well, without findings that are errors
1    a job failed
2    the command or one of its options is wrong
3    a reconciliation has findings that are errors
4    the archive or the lake is damaged, with or without findings
"""

from collections.abc import Iterable
from typing import Final

from hourwheel.errors import Corrupt, Rejected

FINE: Final = 0
FAULT: Final = 1
USAGE: Final = 2
FINDINGS: Final = 3
DAMAGE: Final = 4

OPTION_WRONG: Final = "option-wrong"
_USAGE: Final = (OPTION_WRONG, "condition-wrong", "header-too-many")
"""Slugs of refusals that the caller of the command can fix."""


_WORST_FIRST: Final = (DAMAGE, FAULT, USAGE, FINDINGS, FINE)


def worst_of(statuses: Iterable[int]) -> int:
    """Returns the exit status of a command with several jobs: damage first, which somebody has to repair."""
    return min(statuses, key=_WORST_FIRST.index, default=FINE)


class DamagedLake(Corrupt):
    """A file of the lake is missing or damaged: ``repair`` restores its rows from the archive."""


def of_error(error: BaseException) -> int:
    """Returns the exit status of a command that failed with this error."""
    if isinstance(error, Rejected) and error.slug in _USAGE:
        return USAGE
    return DAMAGE if isinstance(error, Corrupt) else FAULT
