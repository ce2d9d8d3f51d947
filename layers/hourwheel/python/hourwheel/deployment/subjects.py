"""Makes the calls of operators on subjects."""

from dataclasses import dataclass
from typing import Any

import msgspec

from hourwheel.cells.moves import request_change
from hourwheel.cells.plans import fewer_queues, plan_queues, queues_to_be
from hourwheel.groups.deletions import delete_subject
from hourwheel.model.subjects import Subject
from hourwheel.push.pauses import pause_subject
from hourwheel.registry.registry import Registry


@dataclass(frozen=True)
class SubjectService:
    """Creates, changes, shows and deletes subjects. Every method raises ``NotFound`` for an unknown subject, unless it
    creates it."""

    registry: Registry

    def put(self, name: str, *, queues: int | None = None, **settings: Any) -> Subject:
        """Creates or changes a subject and returns it; None keeps a setting. Raises ``Conflict`` for fewer queues."""

        def change(subject: Subject) -> Subject:
            if queues is not None and queues < queues_to_be(subject):
                raise fewer_queues(subject)
            named = {setting: value for setting, value in settings.items() if value is not None}
            return msgspec.structs.replace(subject, **named)

        subject = self.registry.change_subject(name, change, queues=queues or 1)
        # More queues are not one write: each old queue is sealed and goes on in a new log (``cells/moves.py``).
        if queues is None or queues <= queues_to_be(subject):
            return subject
        return request_change(self.registry, name, plan_queues(queues))[1]

    def get(self, name: str) -> Subject:
        """Returns the subject as it is now, not as this process cached it."""
        return self.registry.current_subject(name)

    def page(self, after: str, limit: int) -> tuple[list[Subject], str | None]:
        """Returns up to ``limit`` subjects behind the name ``after``, and the ``after`` of the next page, or None."""
        return self.registry.subjects(after, limit)

    def pause(self, name: str, *, paused: bool) -> Subject:
        """Pauses or resumes the delivery to all groups of the subject, and returns the subject."""
        return pause_subject(self.registry.context, self.registry, name, paused=paused)

    def delete(self, name: str) -> list[str]:
        """Removes the subject, its groups and messages; returns the cells in which the sweeper does this once they can
        be reached. Messages that are sent meanwhile go to a new subject of that name."""
        return delete_subject(self.registry, name)
