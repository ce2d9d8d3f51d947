"""Adds, shows, drains and removes cells."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from hourwheel.cells.cells import (
    HOME_NAME,
    all_cells,
    cell_record,
    cells_beside,
    changed_meanwhile,
    check_cell_name,
    load_cell,
    name_is_used_up,
    reachable,
    registered_cells,
    shown,
)
from hourwheel.cells.moves import Unmoved, finish_change
from hourwheel.cells.plans import Plan, plan_drain
from hourwheel.cells.requests import Routes
from hourwheel.context import Context
from hourwheel.errors import Conflict, NotFound, Rejected, Unavailable
from hourwheel.logs.cas import Versioned
from hourwheel.model.log_names import HOME
from hourwheel.model.route_records import (
    CellContent,
    CellDescription,
    CellKind,
    CellState,
    DrainResult,
    LostPart,
    RemovedCell,
    RouteStep,
    UnmovedQueue,
)
from hourwheel.model.routes import KINDS, CellRecord
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Cells
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import CLOSED
from hourwheel.reach.outages import reached
from hourwheel.registry.registry import Registry
from hourwheel.times import rfc3339
from hourwheel.wire.words import counted

_LISTED = 20
"""A refusal names at most this many parts of queues."""


_LAST_ROWS = 8
"""The rows of a log in which the one is looked for that expires last: the very last may be fillers."""


class _CellPart(NamedTuple):
    """A part of a queue in a cell, and whether it takes messages."""

    subject: Subject
    queue: int
    log: str
    writable: bool


@dataclass(frozen=True)
class CellOperations:
    """The operations on the cells of a deployment."""

    registry: Registry

    @property
    def context(self) -> Context:
        return self.registry.context

    def all(self) -> list[CellDescription]:
        """Returns the home cell and the registered cells."""
        return self._shown(all_cells(self.context))

    def out_of_reach(self) -> list[str]:
        """Returns the names of the registered cells that this process cannot read. A query, and a read of each."""
        registered = registered_cells(self.context.store, self.context.ids)
        return [cell.name for cell in registered if not reachable(self.context, cell.name)]

    def show(self, cell: str) -> CellDescription:
        """Returns a cell. Raises ``NotFound``."""
        return self._shown([load_cell(self.context, check_cell_name(cell))])[0]

    def add(self, cell: str, kinds: Sequence[CellKind] | None = None, *, dry_run: bool = False) -> CellDescription:
        """Registers a cell whose storage this process can open, or changes its kinds (None: keeps them, or all kinds
        for a new cell). Raises ``NotFound`` for a cell that the process does not know, ``Rejected`` for one that would
        be of no kind. Raises ``Conflict`` for a storage of another deployment, and for one that would no longer be
        ``real-time`` while it takes the messages of queues."""
        self._check_other(cell, "is always there")
        current = cell_record(self.context, cell).load()
        _check_kept(current)
        cells, location = self._storage_of(cell)
        if kinds is not None:
            self._check_kinds(cell, kinds)
        fresh = CellRecord(name=cell, kinds=cells.kinds(cell) or KINDS, created_ms=self.context.clock.now_ms())

        def change(record: CellRecord) -> CellRecord:
            return msgspec.structs.replace(record, kinds=tuple(kinds or record.kinds), location=location)

        if dry_run:
            return self._shown([change(_present(current) or fresh)])[0]
        # Claimed before it is registered: no process may write to the storage of another deployment.
        cells.claim(cell, new=next(self._parts(cell), None) is None)
        self._change(cell, change, fresh)
        return self.show(cell)

    def _check_kinds(self, cell: str, kinds: Sequence[CellKind]) -> None:
        if not kinds:
            raise Rejected("field-invalid", "a cell has at least one kind: real-time or delay", field="kinds")
        if "real-time" not in kinds:
            self._check_takes_none(cell, "kinds")

    def _storage_of(self, cell: str) -> tuple[Cells, str]:
        """Returns the ``Cells`` that open the cell, and where its storage is. Raises ``NotFound`` for a cell that this
        process does not know."""
        cells = self.context.cells
        location = None if cells is None else cells.location(cell)
        if cells is None or location is None:
            how = f"start the servers with --cell {cell}=DIRECTORY, or on AWS deploy it with hourwheel:cells"
            raise NotFound("cell-unknown", f"this deployment has no storage for cell {cell!r}: {how}", field="cell")
        return cells, location

    def set_state(self, cell: str, state: CellState, *, dry_run: bool = False) -> CellDescription:
        """Sets the state of a cell. The result names the parts with messages that cannot be read while the cell is
        offline. Raises ``Conflict`` for a state in which producers would meet queues that they cannot send to."""
        self._check_other(cell, "is always normal")
        record = load_cell(self.context, cell)
        # Producers cannot send to a cell that is out of reach in any case.
        if state == "read_only" or (state == "offline" and reachable(self.context, cell)):
            self._check_takes_none(cell, "state")
        # Before the change: afterwards nobody can count the messages.
        unreadable = [part for part in self.left(cell) if part.messages != 0] if state == "offline" else []
        if not dry_run:
            self._change(cell, lambda record: msgspec.structs.replace(record, state=state))
        shown_cell = self._shown([record])[0]
        return msgspec.structs.replace(shown_cell, state=state, unreadable=unreadable)

    def _check_takes_none(self, cell: str, field: str) -> None:
        """Raises ``Conflict`` if queues send their messages to the cell."""
        writable = sorted(f"{part.subject.name}/{part.queue}" for part in self._parts(cell) if part.writable)
        if writable:
            listed = ", ".join(writable[:_LISTED]) + _more(writable)
            detail = f"cell {cell!r} takes the messages of {counted(len(writable), 'queue')} ({listed})"
            raise Conflict("cell-in-use", f"{detail}: drain the cell, or move these queues", field=field)

    def drain(self, cell: str, *, dry_run: bool = False) -> DrainResult:
        """Moves every queue of the cell to other cells that take queues, and lets no queue move to it. A queue that
        cannot move holds up no other one: the result names it, and the cell stays ``draining``. Messages that are there
        stay until they are consumed and expire."""
        self._check_other(cell, "cannot be drained")
        record = load_cell(self.context, cell)
        others = cells_beside(self.context, cell)
        if not others:
            raise Conflict("cell-state", "no other cell takes queues: add one", field="cell")
        if not dry_run:
            self._change(cell, lambda record: msgspec.structs.replace(record, state="draining"))
        # The parts are listed after the state was written: a move to this cell sees the state, or is in the list.
        parts = [part for part in self._parts(cell) if part.writable and not part.subject.deleted]
        if not dry_run:
            self._give_up_moves(cell, {part.subject.name: part.subject for part in parts}.values())
        moved, unmoved = self._moved_out(parts, plan_drain(cell, others), dry_run=dry_run)
        return DrainResult(
            cell=cell,
            moved=moved,
            left=self.left(cell),
            dry_run=dry_run,
            unmoved=unmoved,
            state=record.state if dry_run else "draining",
        )

    def _give_up_moves(self, cell: str, subjects: Iterable[Subject]) -> None:
        """Gives up pending moves to the cell, which takes no queues any more."""
        for subject in (subject for subject in subjects if subject.targets_in(cell)):
            with suppress(Unavailable):
                finish_change(self.registry, subject.name)

    def _moved_out(
        self, parts: Sequence[_CellPart], plan: Plan, *, dry_run: bool
    ) -> tuple[list[RouteStep], list[UnmovedQueue]]:
        """Moves the queues of these parts; returns what has moved, and the queues that could not."""
        queues: dict[str, list[int]] = defaultdict(list)
        for part in parts:
            queues[part.subject.name].append(part.queue)
        drained = [self._drained(name, numbers, plan, dry_run=dry_run) for name, numbers in queues.items()]
        moved = [step for step, _ in drained if step is not None and step.before.epoch != step.after.epoch]
        return moved, [queue for _, left in drained for queue in left]

    def _drained(
        self, subject: str, queues: Sequence[int], plan: Plan, *, dry_run: bool
    ) -> tuple[RouteStep | None, list[UnmovedQueue]]:
        """Moves the queues of one subject out of a cell, as far as that is possible."""
        step = None
        try:
            step, left = Routes(self.registry).change_partly(subject, plan, dry_run=dry_run)
        except NotFound:
            left = []  # the subject was deleted meanwhile
        except (Rejected, Unavailable) as error:
            left = [Unmoved(queue, error) for queue in queues]
        return step, [
            UnmovedQueue(subject=subject, queue=queue.queue, pending=queue.pending, reason=str(queue.error))
            for queue in left
        ]

    def remove(self, cell: str, *, lost: bool = False, dry_run: bool = False) -> RemovedCell:
        """Removes a drained cell. Raises ``Conflict``, which names the remaining contents, while the cell is not empty.
        With ``lost`` removes one whose storage is gone, and gives up what it holds: see ``LostCells.give_up``."""
        self._check_other(cell, "cannot be removed")
        if lost:
            from hourwheel.cells.give_up import LostCells  # rare: no process that starts shall read the file

            record, parts = LostCells(self.registry).give_up(cell, dry_run=dry_run)
            return self._removed(record, parts)
        record = load_cell(self.context, cell)
        self._remove(record, dry_run)
        return self._removed(record, [])

    def _removed(self, record: CellRecord, parts: list[LostPart]) -> RemovedCell:
        """Returns the cell as it is after its removal: it holds nothing."""
        return RemovedCell(
            cell=record.name,
            kinds=record.kinds,
            state="removed",
            location=record.location,
            queues=0,
            parts=0,
            reachable=reachable(self.context, record.name),
            lost=parts,
        )

    def _remove(self, record: CellRecord, dry_run: bool) -> None:
        cell = record.name
        # The state is written first: a move that does not see it yet is in the list that is read afterwards.
        if record.state == "normal":
            lost = "" if reachable(self.context, cell) else _if_gone(record)
            raise Conflict("cell-in-use", f"cell {cell!r} is normal: drain it first{lost}", field="cell")
        if left := self.left(cell):
            lost = _if_gone(record) if any(use.messages is None for use in left) else ""
            raise Conflict("cell-in-use", f"cell {cell!r} still holds {_told(left)}{lost}", field="cell")
        if not dry_run:
            self._change(cell, lambda record: msgspec.structs.replace(record, state="removed"))

    def left(self, cell: str) -> list[CellContent]:
        """Returns the remaining contents of the cell."""
        return [self._remains(part) for part in self._parts(cell)]

    def _remains(self, part: _CellPart) -> CellContent:
        content = CellContent(
            subject=part.subject.name,
            queue=part.queue,
            log=part.log,
            writable=part.writable,
            messages=None,
            leases=None,
        )
        # A part out of reach is listed all the same, with unknown numbers.
        content = reached(lambda: self._with_messages(content), content)
        return reached(lambda: msgspec.structs.replace(content, leases=self._leases(part)), content)

    def _with_messages(self, content: CellContent) -> CellContent:
        """Returns the content with the number of its messages, and the time until which they are kept."""
        source = self.context.log(content.log)
        first = source.first()
        messages = max(0, source.totals().numbers - first[1].first_seq) if first and not first[1].filler else 0
        last_rows = source.newest(_LAST_ROWS) if messages else []
        kept_ms = max((row.expires_ms for _, row in last_rows if not row.filler), default=None)
        kept_until = None if kept_ms is None else rfc3339(kept_ms)
        return msgspec.structs.replace(content, messages=messages, kept_until=kept_until)

    def _leases(self, part: _CellPart) -> int:
        count = 0
        for group in self.registry.groups(part.subject):
            # The number of the queue does not matter: the rows are only counted.
            log = PullLog(self.context, group, self.context.log(part.log), 0)
            checkpoint = log.checkpoint_record.load()
            start = 0 if checkpoint is None else checkpoint.value.row_no
            count += sum(pull_row.value.state != CLOSED for _, pull_row in log.rows(start, limit=1_000))
        return count

    def _parts(self, cell: str) -> Iterator[_CellPart]:
        """Yields the parts of queues that are in the cell, or are about to move to it."""
        for subject in self.registry.all_subjects():
            held = subject.parts_in(cell)
            yield from (_CellPart(subject, queue, log, part.end is None) for queue, part, log in held)
            # A move that is under way counts as done: the cell must not be removed before the queue arrives.
            coming = [] if subject.erased else subject.targets_in(cell)
            yield from (_CellPart(subject, to.queue, subject.log_of(to.queue, to), True) for to in coming)

    def _shown(self, records: Sequence[CellRecord]) -> list[CellDescription]:
        parts: dict[str, list[bool]] = {record.name: [] for record in records}
        held = (part for subject in self.registry.all_subjects() for _, part, _ in subject.held_parts())
        for part in held:
            parts.get(part.cell, []).append(part.end is None)
        return [
            CellDescription(
                cell=shown(record.name),
                kinds=record.kinds,
                state=record.state,
                location=record.location,
                queues=sum(parts[record.name]),
                parts=len(parts[record.name]) - sum(parts[record.name]),
                reachable=reachable(self.context, record.name),
            )
            for record in records
        ]

    def _check_other(self, cell: str, why: str) -> None:
        """Raises ``Conflict`` for the home cell; ``why`` ends the sentence that refuses it."""
        if check_cell_name(cell) == HOME:
            raise Conflict("cell-home", f"cell {HOME_NAME!r} holds subjects and groups: it {why}", field="cell")

    def _change(self, cell: str, change: Callable[[CellRecord], CellRecord], fresh: CellRecord | None = None) -> None:
        """Changes the record of a cell, or ``fresh`` for a cell that is not registered. Raises ``Conflict`` if another
        process changes it meanwhile."""
        record = cell_record(self.context, cell)
        current = record.load()
        _check_kept(current)
        value = change(_present(current) or fresh or CellRecord(name=cell, created_ms=self.context.clock.now_ms()))
        if not record.swap(current, value).stored:
            raise changed_meanwhile(cell)
        if self.context.cells is not None:
            self.context.cells.forget(cell)


def _check_kept(record: Versioned[CellRecord] | None) -> None:
    """Raises ``Conflict`` for a cell that was given up: logs that are lost may be in its storage, if that turns up."""
    if record is not None and record.value.lost_ms:
        name = record.value.name
        detail = f"cell {name!r} was given up: finish with hourwheel cell remove {name} --lost"
        raise Conflict("cell-state", name_is_used_up(name) if record.value.removed else detail, field="cell")


def _present(record: Versioned[CellRecord] | None) -> CellRecord | None:
    """Returns the record of a cell; None for a cell that is not registered, or was removed."""
    return None if record is None or record.value.removed else record.value


def _told(left: Sequence[CellContent]) -> str:
    """Returns the part of a sentence that names the remaining contents."""
    parts = [
        f"{use.subject}/{use.queue} ({_counted(use.messages, 'message')}, {_counted(use.leases, 'lease')})"
        for use in left[:_LISTED]
    ]
    more = _more(left)
    last = max((use.kept_until for use in left if use.kept_until is not None), default=None)
    when = "" if last is None else f", at {last} at the earliest"
    advice = f"wait until their messages have expired{when}"
    if open_ := sum(use.writable for use in left):
        advice = f"drain the cell, which still takes the messages of {counted(open_, 'queue')}"
    noun = "part" if open_ else "closed part"
    return f"{counted(len(left), noun)} of queues: {', '.join(parts)}{more}; {advice}"


def _if_gone(record: CellRecord) -> str:
    """Returns the end of a sentence that refuses to remove a cell out of reach: what to do if it is lost."""
    first = "" if record.state == "offline" else f"hourwheel cell set-state {record.name} offline, then "
    command = f"hourwheel cell remove {record.name} --lost"
    return f". If the storage of the cell is gone for good, give it up: {first}{command}"


def _counted(number: int | None, noun: str) -> str:
    """Returns a number with its noun; a number that is not known is that of a cell out of reach."""
    return f"an unknown number of {noun}s" if number is None else counted(number, noun)


def _more(items: Sequence[object]) -> str:
    """Returns how many items a list in a sentence leaves out."""
    return f" and {len(items) - _LISTED} more" if len(items) > _LISTED else ""
