"""Commits in groups: callers queue up, and all queued work runs in one transaction with one sync.

A caller that finds no other caller writing leads: it runs and commits all queued work, then hands the lead on. Callers
that cannot wait are invited to lead instead, and a thread commits for them.

A pull that waits is woken while the transaction of the send is open, and its claim joins it: one sync covers the rows
and the claim, where a message took two before. If the transaction fails, each piece of its work runs again in one of
its own, the send before the claim. A claim without a sync of its own was rejected: after a power failure its message
would be handed out twice within its lease.
"""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

from hourwheel.adapters.sqlite.writer import SqliteWriter, translated
from hourwheel.errors import Broken
from hourwheel.ports.storage import Store


class Ticket:
    """A piece of work in the queue, and its outcome."""

    __slots__ = ("done", "error", "invite", "joined", "notify", "owner", "result", "signal", "work")

    def __init__(
        self,
        work: Callable[[Store], Any],
        notify: "Notify | None" = None,
        invite: Callable[[], object] | None = None,
        owner: Any = None,
    ) -> None:
        self.work = work
        self.notify = notify
        self.invite = invite
        self.owner = owner
        self.joined = False
        """Whether the work was queued while the transaction ran that it joined."""
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.signal: threading.Lock | None = None
        """Locked until the work is done, or its owner is to lead. None for an owner that does not wait: ``notify`` is
        called when the work is done, ``invite`` when the owner is to call ``lead``."""
        if notify is None:
            self.signal = threading.Lock()
            self.signal.acquire()

    def outcome(self) -> Any:
        """Returns the result of work that is done, or raises the error with which it ended."""
        assert self.done
        if self.error is not None:
            raise self.error
        return self.result


Notify: TypeAlias = Callable[[list[Ticket]], object]
"""Tells the owners of some tickets of a group that their work is done. Called from any thread."""


class GroupCommit:
    """The queue in front of one writer. Thread-safe."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer
        self._mutex = threading.Lock()
        self._waiting: list[Ticket] = []
        self._leading = False
        self._closed = False
        self._committer: threading.Thread | None = None
        self._turn = threading.Lock()
        """Locked until the thread is to commit. A semaphore would do as well, but is written in Python."""
        self._turn.acquire()
        self._inviting = True
        self._invited = False
        self._handed: tuple[list[Ticket], bool] = ([], False)

    def close(self) -> None:
        """Ends the thread that commits for others. No caller may be using the queue."""
        self._closed = True
        if self._committer is not None:
            self._turn.release()
            self._committer.join()

    def run(self, work: Callable[[Store], Any]) -> Any:
        """Runs the work in the next transaction, and returns its result once the transaction is durable. Raises the
        work's errors, and the library's errors when the transaction fails."""
        ticket = Ticket(work)
        with self._mutex:
            self._waiting.append(ticket)
            # Decided under the mutex: exactly one caller leads, and every other one is in the group of a leader.
            lead = not self._leading
            self._leading = True
        # Woken with its work done, or as the leader of the next group.
        if not lead and ticket.signal is not None:
            ticket.signal.acquire()
        if not ticket.done:
            self._lead()
        return ticket.outcome()

    def submit(
        self, work: Callable[[Store], Any], *, notify: Notify, invite: Callable[[], object], owner: Any = None
    ) -> Ticket:
        """Queues the work of a caller that cannot wait, and returns its ticket, which keeps ``owner``. Calls ``notify``
        when the work is done, once for all tickets of a group that have this very ``notify``. Calls ``invite`` when the
        caller is to call ``lead``. Both come from any thread, ``invite`` perhaps before this returns."""
        ticket = Ticket(work, notify, invite, owner)
        with self._mutex:
            if self._committer is None:
                committer = threading.Thread(target=self._commit_for_others, name="commit", daemon=True)
                committer.start()
                self._committer = committer
            self._waiting.append(ticket)
            lead = not self._leading
            self._leading = True
        if lead:
            self._invite(ticket)
        return ticket

    def lead(self, before_commit: Callable[[], object] | None = None) -> None:
        """Runs the queued work in the thread of a caller that was invited, and has another thread commit it. Only the
        sync takes long, and it needs no interpreter. Does nothing if the invitation was withdrawn. The work that
        ``before_commit`` queues joins the transaction."""
        with self._mutex:
            # The thread of the queue may have taken the lead over: then the group is not this caller's any more.
            if not self._invited:
                return
            self._invited = False
        group, ready = self._take(), False
        try:
            # Work of callers that wait in threads may take long: the committing thread runs it.
            if all(ticket.notify for ticket in group):
                self._writer.try_begin()
                self._run(group)
                if before_commit is not None:
                    before_commit()
                    late = self._take_unattended()
                    group += late
                    self._run(late)
                ready = True
        except Exception:
            # Another process is writing, or a piece of work raised: the committing thread runs the group again.
            self._writer.roll_back()
        finally:
            self._handed = (group, ready)
            self._turn.release()

    def uninvite(self) -> None:
        """Withdraws all invitations, once the callers that took them have ended. From now on the thread of the queue
        leads."""
        with self._mutex:
            self._inviting = False
            invited, self._invited = self._invited, False
        if invited:
            self._lead_elsewhere()

    def _lead(self) -> None:
        """Runs and commits the queued work, then hands the lead on."""
        group = self._take()
        try:
            self._commit(group)
        finally:
            self._hand_on(group)

    def _take(self) -> list[Ticket]:
        with self._mutex:
            group, self._waiting = self._waiting, []
        return group

    def _take_unattended(self) -> list[Ticket]:
        """Removes the queued work of callers that do not wait in threads."""
        with self._mutex:
            late = [ticket for ticket in self._waiting if ticket.notify is not None]
            if late:
                self._waiting = [ticket for ticket in self._waiting if ticket.notify is None]
        for ticket in late:
            ticket.joined = True
        return late

    def _hand_on(self, group: list[Ticket]) -> None:
        """Tells the owners of the group that their work is done, and the first caller that queued meanwhile to
        lead."""
        with self._mutex:
            following = self._waiting[0] if self._waiting else None
            self._leading = following is not None
        # Outside the mutex: a woken caller may queue further work at once.
        notified: dict[Notify, list[Ticket]] = {}
        for ticket in group:
            ticket.done = True
            if ticket.notify is not None:
                notified.setdefault(ticket.notify, []).append(ticket)
            elif ticket.signal is not None:
                ticket.signal.release()
        for notify, tickets in notified.items():
            # An event loop that has ended raises this; none of its callers waits any more.
            with suppress(RuntimeError):
                notify(tickets)
        if following is not None and following.signal is not None:
            following.signal.release()
        elif following is not None:
            self._invite(following)

    def _invite(self, ticket: Ticket) -> None:
        assert ticket.invite is not None
        with self._mutex:
            # Read once: ``uninvite`` hands on what is invited here, and nothing else may hand it on again.
            self._invited = inviting = self._inviting
        if inviting:
            try:
                ticket.invite()
                return
            # The event loop of the caller has ended: nobody would come to lead.
            except RuntimeError:
                with self._mutex:
                    withdrawn, self._invited = not self._invited, False
                if withdrawn:
                    return
        self._lead_elsewhere()

    def _lead_elsewhere(self) -> None:
        self._handed = (self._take(), False)
        self._turn.release()

    def _commit_for_others(self) -> None:
        """Commits groups for the callers that do not wait, until ``close``."""
        while True:
            self._turn.acquire()
            if self._closed:
                return
            group, ready = self._handed
            try:
                self._commit(group, ready=ready)
            finally:
                self._hand_on(group)

    def _commit(self, group: list[Ticket], *, ready: bool = False) -> None:
        """Runs the group in one transaction and commits it; with ``ready`` the group was run already. If a piece of
        work raises, each piece runs again in a transaction of its own: that is rare, and savepoints would cost every
        piece two statements."""
        # Replaced by the outcome; it stays for the owners of the group if this thread ends in between.
        for ticket in group:
            ticket.error = Broken("the transaction was not committed")
        if not ready and not self._begun(group):
            return
        try:
            if not ready:
                self._run(group)
            self._writer.commit()
        except BaseException as error:
            self._writer.roll_back()
            _fail(group, error)
            if not isinstance(error, Exception):
                raise
            self._commit_each(group)
        else:
            for ticket in group:
                ticket.error = None

    def _begun(self, group: list[Ticket]) -> bool:
        """Begins the transaction and returns True. If the file stays locked for too long, fails the whole group and
        returns False: each piece of work alone would only wait as long again."""
        try:
            self._writer.begin()
        except sqlite3.Error as error:
            _fail(group, error)
            return False
        return True

    def _run(self, group: list[Ticket]) -> None:
        session = self._writer.session
        for ticket in group:
            ticket.result = ticket.work(session)

    def _commit_each(self, group: list[Ticket]) -> None:
        if len(group) > 1:
            for ticket in group:
                self._commit([ticket])


def _fail(group: list[Ticket], error: BaseException) -> None:
    for ticket in group:
        ticket.error = translated(error) if isinstance(error, sqlite3.Error) else error
