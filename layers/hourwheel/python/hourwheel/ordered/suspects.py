"""Finds the suspects among the messages that a claim of an ordered group may take. A pull takes a suspect alone.

The lease of a suspect ended while a consumer held it. If it is the message that ended the consumer, it ends the next
one, too: the messages beside it would be lost again, and their attempts used up.
"""

from collections.abc import Sequence

from hourwheel.ordered.key_states import KeyStates
from hourwheel.pull_log.ordered_rows import Parked


def without_suspects(
    ready: Sequence[tuple[bytes, tuple[Parked, ...]]],
) -> tuple[list[tuple[bytes, tuple[Parked, ...]]], tuple[bytes, Parked] | None]:
    """Returns the messages of each digest before its first suspect, and the first of the suspects whose turn it is;
    None if there is none."""
    others: list[tuple[bytes, tuple[Parked, ...]]] = []
    heads: list[tuple[bytes, Parked]] = []
    for digest, entries in ready:
        end = next((at for at, entry in enumerate(entries) if entry.suspect), len(entries))
        if end:
            others.append((digest, entries[:end]))
        elif entries:
            heads.append((digest, entries[0]))
    return others, min(heads, key=lambda head: head[1], default=None)


def has_suspect(state: KeyStates | None, now_ms: int) -> bool:
    """Returns whether the first message of a key is a suspect whose time has come. Its key may be busy."""
    if state is None:
        return False
    return any(due_ms <= now_ms and state.parked[digest][0].suspect for digest, due_ms in state.retries.items())
