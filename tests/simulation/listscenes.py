"""Defines the scenes in which a subject is deleted and created, so that its entry in the list changes twice."""

from dataclasses import replace

import msgspec

from hourwheel.registry.records import subject_record
from tests.simulation.preparations import a_queue
from tests.simulation.scenes import PLAN, Scene
from tests.simulation.sides import DELETING, PRODUCING, SUBJECT, SWEEPING, Action, Side, Stage
from tests.simulation.world import Violation


def _create(side: Side, stage: Stage) -> None:
    side.actor.ask("create", lambda: side.actor.deployment.subjects.put(SUBJECT))


_ACTIONS = [DELETING[1], Action("create the subject", _create), *SWEEPING, PRODUCING[0]]
_PLAN = replace(PLAN, delays=None)


def _a_deletion_that_was_cut_off(stage: Stage) -> None:
    """Prepares a deleted subject, whose process stopped before it erased anything."""
    a_queue(stage)
    keeper = stage.keeper.actor
    record = subject_record(keeper.deployment.context, SUBJECT)

    def delete() -> None:
        current = record.load()
        assert current is not None
        record.swap(current, msgspec.structs.replace(current.value, deleted=True))

    keeper.ask("delete-subject", delete)


def _an_erased_subject(stage: Stage) -> None:
    """Prepares a subject that is erased, with an entry that says so."""
    a_queue(stage)
    stage.keeper.operator.delete_subject(SUBJECT)


def _a_creation_that_was_cut_off(stage: Stage) -> None:
    """Prepares an erased subject, whose entry was changed by a creation that stopped before it stored the record."""
    _an_erased_subject(stage)
    keeper = stage.keeper.actor
    context = keeper.deployment.context
    keeper.ask("create", lambda: keeper.deployment.registry.listed.add(context.store, SUBJECT))


def _look(stage: Stage) -> None:
    """Checks that the list names a subject that can be read."""
    actor = stage.keeper.actor

    def look() -> None:
        current = subject_record(actor.deployment.context, SUBJECT).load()
        listed = [subject.name for subject in actor.deployment.registry.all_subjects() if not subject.deleted]
        if current is not None and not current.value.deleted and SUBJECT not in listed:
            raise Violation("1", f"subject {SUBJECT} is there, and the list has {listed}")

    actor.ask("look", look)


LIST_SCENES = [
    Scene("a subject to delete and create", a_queue, _ACTIONS, _ACTIONS, plan=_PLAN, afterwards=_look),
    Scene("a cut-off deletion", _a_deletion_that_was_cut_off, _ACTIONS, _ACTIONS, plan=_PLAN, afterwards=_look),
    Scene("an erased subject", _an_erased_subject, _ACTIONS, _ACTIONS, plan=_PLAN, afterwards=_look),
    Scene("a cut-off creation", _a_creation_that_was_cut_off, _ACTIONS, _ACTIONS, plan=_PLAN, afterwards=_look),
]
