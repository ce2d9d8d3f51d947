"""Sorts the operations by tags: generators make one class or folder of the operations of each tag."""

from types import MappingProxyType

from hourwheel.client import Api

_TAGS = {
    "produce": ("Produce", "Stores messages."),
    "pull": ("Pull", "Pulls messages and settles them."),
    "scheduled": ("Delayed messages", "Looks up, cancels, moves, lists and counts delayed messages."),
    "subjects": ("Subjects", "Creates, changes, shows, pauses and deletes subjects."),
    "groups": ("Groups", "Creates, changes, shows, pauses, moves and deletes groups."),
    "dead": ("Dead letters", "Lists, shows, counts, redrives and drops dead letters."),
    "messages": ("Messages", "Shows the messages of a queue without a group, and traces messages."),
    "overview": ("Overview", "Shows the numbers of subjects and groups side by side, and the background work."),
    "cells": ("Routes and cells", "Shows and changes routes and cells."),
    "health": ("Server", "Checks that the server answers, and returns this document."),
}
"""The tag of each module of ``hourwheel.client.calls``."""

TAGS = MappingProxyType(dict(_TAGS.values()))
"""Each tag with its description, in the order of the document."""


def tag_of(operation: str) -> str:
    """Returns the tag of an operation, by the module whose method makes the call. Raises ``KeyError`` for a module
    without a tag."""
    method = getattr(Api, operation, None)
    family = "health" if method is None else method.__module__.rpartition(".")[2]
    return _TAGS[family][0]
