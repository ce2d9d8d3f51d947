"""Lists the scenarios of ``make load``. A bound under ``aims`` does not hold yet; ``make load`` says by how much."""

from dataclasses import replace
from functools import partial

from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest
from hourwheel.times import rfc3339
from tests.load.deployment import Conditions
from tests.load.limits import value
from tests.load.scenario import Bound, Scenario, Stage

_ORDERS = "orders"
_NOTHING_REFUSED = (Bound("refused", most=0), Bound("refused by quotas", most=0))
_META = Bound("busiest key of meta", most=0.25)
_RAISED = Conditions(requests=50_000, concurrency=10_000, warm_units=40_000, warm_processes=1_500)
"""An account whose quotas were raised, with tables and processes that are warm."""

_STORE_ALONE = Conditions(requests=50_000, has_overheads=False, sweeps=False)
"""Only calls of the store take time."""

_ALL = (
    "messages a second",
    "produce p50 ms",
    "produce p99 ms",
    "pull p50 ms",
    "pull p99 ms",
    "delivery p50 ms",
    "delivery p99 ms",
    "write units a message",
    "read units a message",
    "dollars a million",
    "executions at most",
)
_DELAYED = ("late p50 ms", "late p99 ms", "late at most ms", "undelivered share", "wheels failed")


def _steady(
    stage: Stage,
    *,
    subjects: int = 1,
    groups: int = 1,
    batches: float,
    batch: int,
    pulled: int,
    consumers: int = 1,
    queues: int = 1,
) -> None:
    """Sends ``batches`` a second to all subjects together, each of which has groups with consumers."""
    for number in range(subjects):
        subject = f"s{number}"
        stage.library.subjects.put(subject, queues=queues)
        stage.traffic.producer(subject, batches / subjects, stage.samples, batch=batch)
        for group in range(groups):
            stage.library.groups.put(subject, f"g{group}")
            for consumer in range(consumers):
                stage.traffic.consumer(subject, f"g{group}", f"c{consumer}", stage.samples, messages=pulled)


def _claims(stage: Stage, *, consumers: int, queues: int) -> None:
    """Consumers take single messages, of which there are always some, and handle each in 50 ms."""
    stage.library.subjects.put(_ORDERS, queues=queues)
    stage.fill(_ORDERS, batches=max(1_500 * queues, 170 * consumers), batch=1)
    for number in range(consumers):
        stage.traffic.consumer(_ORDERS, "g", f"c{number}", stage.samples, handling_ms=50)


def _hot(stage: Stage, *, factor: float, rate: float = 10) -> None:
    """Others offer the queue of one subject ``factor`` times its units. That subject and another one get delayed
    messages. The samples are those of the other."""
    rng = stage.deployment.machine.rng
    for subject in ("hot", _ORDERS):
        stage.library.subjects.put(subject, queues=1)
        samples = stage.samples if subject == _ORDERS else type(stage.samples)()
        stage.traffic.producer(subject, rate, samples, delay_seconds=lambda: rng.uniform(20, 60))
        stage.traffic.consumer(subject, "g", "c", samples, messages=100)
    log = stage.library.registry.subject("hot").log(0)
    for table in ("consume", "counters"):
        stage.deployment.throughputs.of(table, log, "writes").offered = factor * value("partition writes")


def _lonely(stage: Stage, *, rate: float) -> None:
    """Single messages are sent, each of which is due at a time of its own within a minute."""
    rng = stage.deployment.machine.rng
    stage.library.subjects.put(_ORDERS, queues=4)
    for _ in range(10):
        stage.traffic.producer(_ORDERS, rate / 10, stage.samples, delay_seconds=lambda: rng.uniform(10, 60))
    for number in range(8):
        stage.traffic.consumer(_ORDERS, "g", f"c{number}", stage.samples, messages=500)


def _midnight(stage: Stage, *, herd: int, batch: int, others: int = 1_000) -> None:
    """The messages of a herd are due at one instant, and a message of each of many other subjects within a second from
    then on. All were sent before. The samples are those of the others."""
    rng, texts = stage.deployment.machine.rng, stage.traffic.texts
    sent, due = stage.deployment.machine.now, stage.deployment.machine.now + 60_000
    stage.library.subjects.put("herd", queues=4)
    for _ in range(herd // batch):
        bodies = [texts.body(sent, due) for _ in range(batch)]
        stage.library.produce("herd", [NewMessage(body=body, deliver_at=rfc3339(int(due))) for body in bodies])
    for number in range(others):
        subject, at = f"s{number}", due + rng.uniform(0, 1_000)
        stage.library.produce(subject, [NewMessage(body=texts.body(sent, at), deliver_at=rfc3339(int(at)))])
        stage.traffic.consumer(subject, "g", "c", stage.samples)
    stage.samples.counts["sent"] = others


def _hour(stage: Stage) -> None:
    rng = stage.deployment.machine.rng
    stage.library.subjects.put(_ORDERS)
    stage.traffic.producer(_ORDERS, 2, stage.samples, batch=10)
    stage.traffic.producer(_ORDERS, 2, stage.samples, delay_seconds=lambda: rng.uniform(20, 600))
    for group in ("g0", "g1"):
        stage.traffic.consumer(_ORDERS, group, "c", stage.samples, messages=100, dozes=True)


def _idle(stage: Stage, *, subjects: int, consumers: int) -> None:
    """Consumers of idle groups wait at the wake-up queues of their groups."""
    for number in range(subjects):
        subject = f"s{number}"
        stage.library.subjects.put(subject)
        stage.fill(subject, batches=1, batch=1)
        for consumer in range(consumers):
            stage.traffic.consumer(subject, "g", f"c{consumer}", stage.samples, dozes=True)


def _swept(stage: Stage, *, subjects: int, groups: int) -> None:
    """Each subject gets a message a minute, which its groups take, so that none of them rests."""
    for number in range(subjects):
        subject = f"s{number}"
        stage.library.subjects.put(subject)
        for group in range(groups):
            stage.library.groups.put(subject, f"g{group}")
        stage.fill(subject, batches=1, batch=1)
        for group in range(groups):
            stage.library.pull(subject, f"g{group}", PullRequest(consumer="c", max_messages=1))


def _quota(stage: Stage) -> None:
    """Others use a table up to one and a half times its quota."""
    _steady(stage, subjects=10, batches=50, batch=10, pulled=100)
    offered = 1.5 * value("table quota")
    stage.deployment.throughputs.of("consume", "", "writes").offered = offered


def _named_claims(
    consumers: int, queues: int = 1, *, holds: tuple[Bound, ...] = (), aims: tuple[Bound, ...] = ()
) -> Scenario:
    return Scenario(
        name=f"claims-{consumers}" + f"-{queues}-queues" * (queues > 1),
        says=f"one group, single messages, 50 ms of handling; consumers: {consumers}, queues: {queues}",
        play=partial(_claims, consumers=consumers, queues=queues),
        seconds=10,
        conditions=_STORE_ALONE,
        holds=holds,
        aims=aims,
        numbers=("messages a second", "lost puts", "pull units a message", "read units a message", "pull p99 ms"),
        quick=queues == 1,
    )


def _priced_claims(consumers: int) -> Scenario:
    return Scenario(
        name=f"priced-{consumers}",
        says=f"what it costs to take single messages of one queue, each handled in 50 ms; consumers: {consumers}",
        play=partial(_claims, consumers=consumers, queues=1),
        seconds=8,
        conditions=Conditions(requests=50_000, warm_processes=100, sweeps=False),
        holds=(*_NOTHING_REFUSED, Bound("dollars a million", most=5)),
        numbers=("messages a second", "lost puts", "pull units a message", "dollars a million", "pull p99 ms"),
    )


def _named_hot(factor: int) -> Scenario:
    return Scenario(
        name=f"hot-{factor}",
        says=f"one subject is offered {factor} times the units of its queue, beside another with delayed messages",
        play=partial(_hot, factor=factor),
        seconds=300,
        conditions=Conditions(requests=10_000),
        holds=(Bound("given up", most=0), Bound("wheels failed", most=0), Bound("late at most ms", most=3_000)),
        aims=(Bound("late p99 ms", most=1_000),),
        numbers=("refused by quotas", "over 5 s late", *_DELAYED, *_ALL),
    )


def _late(p99_ms: int) -> tuple[Bound, ...]:
    return Bound("late p99 ms", most=p99_ms), Bound("undelivered share", most=0), Bound("wheels failed", most=0)


def _named_midnight(
    name: str, *, batch: int = 1_000, shards: int = 32, others: int = 1_000, holds: tuple[Bound, ...] = ()
) -> Scenario:
    return Scenario(
        name=name,
        says=f"100,000 messages of one subject due at one instant, {batch:,} in a row, beside {others:,} other subjects"
        f" with a message each in that second; shards: {shards}",
        play=partial(_midnight, herd=100_000, batch=batch, others=others),
        seconds=100,
        conditions=replace(_RAISED, settings={"shards": shards}),
        holds=holds,
        aims=(Bound("late p99 ms", most=1_000),),
        numbers=_DELAYED,
        quick=others < 100,
    )


def _named_sweep(subjects: int) -> Scenario:
    return Scenario(
        name=f"sweep-{subjects}",
        says=f"sweeps of {subjects:,} subjects of 3 groups, each busy, on the defaults",
        play=partial(_swept, subjects=subjects, groups=3),
        seconds=660 if subjects <= 200 else 1_200,
        holds=(
            Bound("longest sweep s", most=45),
            Bound("longest delayed work s", most=5),
            Bound("untended at most s", most=90),
            Bound("sweeps failed", most=0),
        ),
        numbers=(
            "longest sweep s",
            "longest delayed work s",
            "untended at most s",
            "sweeps failed",
            "executions at most",
        ),
        quick=subjects <= 200,
    )


THROUGHPUT = (
    Scenario(
        name="hundreds",
        says="10,000 messages a second in hundreds, on the defaults",
        play=partial(_steady, batches=100, batch=100, pulled=1_000, consumers=2),
        seconds=8,
        holds=(*_NOTHING_REFUSED, Bound("produce p99 ms", most=1_000), Bound("messages a second", least=9_000)),
        numbers=_ALL,
        quick=True,
    ),
    Scenario(
        name="hundred-thousand",
        says="100,000 messages a second in hundreds, on 8 queues, with warm tables and a rate of 2,000",
        play=partial(_steady, batches=1_000, batch=100, pulled=1_000, queues=8, consumers=24),
        seconds=2.5,
        conditions=Conditions(warm_units=40_000, requests=2_000),
        holds=(*_NOTHING_REFUSED, Bound("produce p99 ms", most=1_000), Bound("messages a second", least=85_000)),
        numbers=("refused", "refused by quotas", *_ALL),
    ),
    Scenario(
        name="singles",
        says="10,000 messages a second one by one, on 50 subjects, with raised quotas",
        play=partial(_steady, subjects=50, batches=10_000, batch=1, pulled=100),
        seconds=3,
        conditions=_RAISED,
        holds=(*_NOTHING_REFUSED, _META, Bound("messages a second", least=9_500), Bound("produce p99 ms", most=150)),
        numbers=("refused", "busiest key of meta", *_ALL),
        quick=True,
    ),
    Scenario(
        name="thousand",
        says="10,000 messages a second one by one, on 1,000 subjects, with raised quotas",
        play=partial(_steady, subjects=1_000, batches=10_000, batch=1, pulled=100),
        seconds=3,
        conditions=_RAISED,
        holds=(*_NOTHING_REFUSED, _META, Bound("produce p99 ms", most=150)),
        numbers=("refused", "busiest key of meta", *_ALL),
    ),
    Scenario(
        name="one-subject",
        says="10,000 messages a second one by one, on one subject of 32 queues, with raised quotas",
        play=partial(_steady, batches=10_000, batch=1, pulled=1_000, queues=32, consumers=8),
        seconds=3,
        conditions=_RAISED,
        holds=(*_NOTHING_REFUSED, _META, Bound("produce p99 ms", most=150)),
        numbers=("refused", "busiest key of meta", *_ALL),
    ),
    Scenario(
        name="singles-default",
        says="10,000 messages a second one by one, on 50 subjects, on the defaults",
        play=partial(_steady, subjects=50, batches=10_000, batch=1, pulled=100),
        seconds=3,
        aims=(Bound("refused by quotas", most=0),),
        numbers=("refused by quotas", *_ALL),
    ),
    Scenario(
        name="subjects",
        says="1,000 subjects share 1,000 requests a second, with raised quotas",
        play=partial(_steady, subjects=1_000, batches=1_000, batch=1, pulled=100),
        seconds=5,
        conditions=_RAISED,
        holds=(*_NOTHING_REFUSED, _META),
        numbers=("busiest key of meta", *_ALL),
    ),
    Scenario(
        name="groups",
        says="70 groups of one subject, 10 batches of a hundred a second, with warm tables",
        play=partial(_steady, groups=70, batches=10, batch=100, pulled=1_000),
        seconds=6,
        conditions=Conditions(warm_units=40_000),
        holds=(*_NOTHING_REFUSED, Bound("messages a second", least=60_000)),
        numbers=_ALL,
    ),
    Scenario(
        name="hour",
        says="an hour of 2 batches of ten and 2 delayed messages a second, for 2 groups, on the defaults",
        play=_hour,
        seconds=3_600,
        holds=(*_NOTHING_REFUSED, Bound("late p99 ms", most=1_500), Bound("wheels failed", most=0)),
        numbers=(*_ALL, *_DELAYED),
    ),
    Scenario(
        name="idle",
        says="2,000 idle consumers of 100 groups, with raised quotas",
        play=partial(_idle, subjects=100, consumers=20),
        seconds=600,
        conditions=_RAISED,
        holds=_NOTHING_REFUSED,
        numbers=("executions at most", "dollars a month", "longest sweep s", "cold starts"),
    ),
)

DELAYED = (
    _named_midnight("midnight", holds=_late(1_500)),
    _named_midnight("midnight-singles", batch=1),
    _named_midnight("midnight-quiet", shards=1, others=40, holds=_late(1_500)),
    _named_midnight("midnight-one-shard", shards=1, holds=_late(16_000)),
    Scenario(
        name="lonely",
        says="1,000 delayed messages a second, each due at a time of its own, with raised quotas",
        play=partial(_lonely, rate=1_000),
        seconds=90,
        conditions=_RAISED,
        holds=(*_NOTHING_REFUSED, Bound("late p99 ms", most=1_500)),
        aims=(Bound("late p99 ms", most=1_000),),
        numbers=("refused", *_ALL, *_DELAYED),
    ),
    *map(_named_hot, (5, 10, 20)),
)

_FEW_LOST = Bound("lost puts", most=0.05)
_UNITS = Bound("pull units a message", most=1.2)
_MORE_UNITS = Bound("pull units a message", most=1.25)

CROWDS = (
    _named_claims(1, holds=(Bound("messages a second", least=14), Bound("lost puts", most=0))),
    _named_claims(8, holds=(Bound("messages a second", least=100), _FEW_LOST, _UNITS)),
    _named_claims(32, holds=(Bound("messages a second", least=380), Bound("lost puts", most=0.1), _UNITS)),
    _named_claims(
        64,
        holds=(Bound("messages a second", least=720), Bound("lost puts", most=0.15), _MORE_UNITS),
        aims=(Bound("messages a second", least=900), _FEW_LOST, _UNITS),
    ),
    _named_claims(8, 8, holds=(Bound("messages a second", least=100), _FEW_LOST, _MORE_UNITS), aims=(_UNITS,)),
    _named_claims(32, 8, holds=(Bound("messages a second", least=390), _FEW_LOST, _UNITS)),
    _named_claims(
        64,
        8,
        holds=(Bound("messages a second", least=785), Bound("lost puts", most=0.06), _UNITS),
        aims=(_FEW_LOST,),
    ),
    *map(_priced_claims, (1, 8, 32)),
    *map(_named_sweep, (200, 1_200, 10_000)),
    Scenario(
        name="quota",
        says="a table of which others use one and a half times its quota",
        play=_quota,
        seconds=20,
        conditions=Conditions(warm_units=40_000),
        holds=(Bound("given up", most=0), Bound("refused", least=1), Bound("produce p99 ms", most=2_000)),
        numbers=("refused", *_ALL),
        quick=True,
    ),
)

SCENARIOS = (*THROUGHPUT, *DELAYED, *CROWDS)
