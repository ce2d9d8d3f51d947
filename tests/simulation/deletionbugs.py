"""Plants bugs in the deletion of subjects and groups, of which another process learns later."""

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

from hourwheel.logs.cas import Versioned
from hourwheel.producing import batch_writer, part_rows
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import Checkpoint, Position, Tail
from hourwheel.pulling import source_logs
from tests.simulation.bugs import Bug, registrar
from tests.simulation.delaybugs import waiting
from tests.simulation.plan import Plan

DELETED: list[Bug] = []
planted = registrar(DELETED)


def _deleting(plan: Plan) -> Plan:
    """Returns the plan with operators who delete, in a store that removes rows at once, as SQLite does."""
    # An engine in the same process has no calls that land later.
    faults = replace(plan.faults, late=0.0)
    return replace(
        plan,
        transactional=True,
        trims=True,
        faults=faults,
        registry_seconds=60.0,
        moves=("delete-group",),
        operators=2,
        consumers=max(plan.consumers, 3),
    )


@planted(sharpen=_deleting)
def an_erased_pull_log_looks_as_if_it_never_began() -> Iterator[None]:
    def beginning(self: PullLog, checkpoint: Versioned[Checkpoint] | None = None) -> Tail:
        checkpoint = checkpoint or self.checkpoint_record.load()
        if checkpoint is None or checkpoint.value.erased:
            return Tail(0, Position(self.origin), 0)
        return Tail(checkpoint.value.row_no, checkpoint.value.position, checkpoint.value.seq)

    with patch.object(PullLog, "beginning", beginning), patch.object(source_logs, "is_erased", lambda *_: False):
        yield


@planted(
    sharpen=waiting(
        transactional=True,
        trims=True,
        operators=2,
        moves=("delete-subject",),
        share=0.5,
        calls=600,
        registry_seconds=60.0,
        batches=20,
        reach_ms=60_000,
    )
)
def delayed_messages_go_to_the_subject_before() -> Iterator[None]:
    with (
        patch.object(batch_writer, "check_current", lambda *_: None),
        patch.object(part_rows, "check_current", lambda *_: None),
    ):
        yield
