"""Pull: settle what came before, claim what is next, the group's retries first."""

from collections.abc import Sequence
from dataclasses import dataclass

from hourwheel.context import Context
from hourwheel.errors import Rejected
from hourwheel.logs.segments import messages_of
from hourwheel.meta.directory import Directory
from hourwheel.model import Group, Message, Pulled, PullRequest, PullResult, Settled, Settlement, Subject
from hourwheel.queueing.leases import Leases
from hourwheel.queueing.moving import complete
from hourwheel.queueing.pulllog import PULL_BYTES, Claim, PullLog
from hourwheel.queueing.receipts import Receipt, open_receipt, seal_receipt
from hourwheel.queueing.settle import Settler, Verdict, verdict
from hourwheel.times import rfc3339


def pull_logs(context: Context, subject: Subject, group: Group) -> list[PullLog]:
    """The group's pull logs: that of its retry log, then one for each queue."""
    queues = [PullLog(context, group, context.log(subject.log(queue)), queue) for queue in range(subject.queues)]
    return [PullLog(context, group, context.log(group.retry_log), None), *queues]


@dataclass(frozen=True)
class _Attempt:
    """What one look brought: answers to the settlements, and the claims."""

    subject: Subject
    group: Group
    settled: list[Settled]
    claims: list[tuple[PullLog, Claim]]


@dataclass(frozen=True)
class Puller:
    """Pulls and settles for one group of one subject."""

    context: Context
    directory: Directory
    leases: Leases
    secret: bytes
    subject: str
    group: str

    def pull(self, request: PullRequest) -> PullResult:
        """Settles, then claims; waits for messages as long as the request asks."""
        opened = self._open(request.settle or ())
        until_ms = self.context.clock.now_ms() + int(request.wait_seconds * 1_000)
        arrivals = self.context.arrivals
        mark = arrivals.mark(self.subject)
        attempt = self._attempt(request, opened)
        settled = attempt.settled
        tries = 0
        while not attempt.claims:
            left_ms = until_ms - self.context.clock.now_ms()
            if left_ms <= 0 or not arrivals.wait(
                self.subject, self.group, mark=mark, tries=tries, seconds=left_ms / 1_000
            ):
                break
            mark = arrivals.mark(self.subject)
            attempt = self._attempt(request, [])
            tries += 1
        if sum(claim.held.value.size for _, claim in attempt.claims) >= request.max_messages:
            # There may be more: let the next one that waits have a look.
            arrivals.announce(self.subject, self.group)
        pulls = [self._pulled(attempt, log, claim) for log, claim in attempt.claims]
        return PullResult(pulls, None if request.settle is None else settled)

    def settle(self, settlements: list[Settlement]) -> list[Settled]:
        """Carries out settlements, entry by entry. Raises ``Rejected``, nothing done, when a receipt is not ours."""
        opened = self._open(settlements)
        subject = self.directory.subject(self.subject)
        group = self.directory.group(subject, self.group)
        settled = self.context.atomically(lambda context: self._settle(context, subject, group, opened))
        if any(wish.moves for _, wish in opened):
            self.context.arrivals.announce(self.subject, self.group)
        return settled

    def _open(self, settlements: Sequence[Settlement]) -> list[tuple[Receipt, Verdict]]:
        opened = []
        for index, settlement in enumerate(settlements):
            try:
                receipt = open_receipt(self.secret, settlement.receipt, subject=self.subject, group=self.group)
                opened.append((receipt, verdict(settlement, receipt.value.size)))
            except Rejected as error:
                error.field = f"settle[{index}].{error.field}"
                raise
        return opened

    def _settle(
        self, context: Context, subject: Subject, group: Group, opened: list[tuple[Receipt, Verdict]]
    ) -> list[Settled]:
        def settle(receipt: Receipt, wish: Verdict) -> Settled:
            if (subject.generation, group.generation) != (receipt.subject_generation, receipt.group_generation):
                return Settled("stale")
            source = context.log(group.retry_log if receipt.queue is None else subject.log(receipt.queue))
            settler = Settler(PullLog(context, group, source, receipt.queue), subject)
            return settler.settle(receipt.row, receipt.held, wish)

        return [settle(receipt, wish) for receipt, wish in opened]

    def _attempt(self, request: PullRequest, opened: list[tuple[Receipt, Verdict]]) -> _Attempt:
        # Looked up anew for each attempt: during a wait the subject may have got more queues, or become another.
        subject = self.directory.subject(self.subject, create=True)
        group = self.directory.group(subject, self.group, create=True)
        for log in pull_logs(self.context, subject, group):
            self.leases.glance(log, subject)

        def work(context: Context) -> _Attempt:
            settled = self._settle(context, subject, group, opened)
            return _Attempt(subject, group, settled, self._claim(context, request, subject, group))

        return self.context.atomically(work)

    def _claim(
        self, context: Context, request: PullRequest, subject: Subject, group: Group
    ) -> list[tuple[PullLog, Claim]]:
        retries, *queues = pull_logs(context, subject, group)
        turn = int(context.ids.jitter() * len(queues))
        claims: list[tuple[PullLog, Claim]] = []
        messages, size = request.max_messages, PULL_BYTES
        for log in [retries, *queues[turn:], *queues[:turn]]:
            claim = log.claim(
                consumer=request.consumer,
                max_messages=messages,
                max_bytes=size,
                lease_ms=request.lease_seconds * 1_000,
            )
            if claim is not None:
                claims.append((log, claim))
                messages -= claim.held.value.size
                size -= sum(row.raw_bytes for _, row in claim.rows)
                if messages <= 0 or size <= 0:
                    break
        return claims

    def _pulled(self, attempt: _Attempt, log: PullLog, claim: Claim) -> Pulled:
        value = claim.held.value
        receipt = Receipt(
            attempt.subject.name,
            attempt.subject.generation,
            attempt.group.name,
            attempt.group.generation,
            log.queue,
            claim.row,
            claim.held.token,
            value,
        )
        return Pulled(
            seal_receipt(self.secret, receipt),
            "retry" if log.queue is None else log.queue,
            rfc3339(value.lease_until_ms),
            self._messages(log, claim),
        )

    def _messages(self, log: PullLog, claim: Claim) -> list[Message]:
        value = claim.held.value
        found: list[Message] = []
        for (number, row), count in zip(claim.rows, value.counts, strict=True):
            if count:
                skip = value.first.index if number == value.first.row else 0
                messages = complete(row, messages_of(row, self.context.blobs), log.queue)
                found += messages[skip : skip + count] if count < len(messages) else messages
        return found
