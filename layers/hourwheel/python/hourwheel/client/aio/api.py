"""Offers every call of the HTTP API as a coroutine."""

import functools
import os
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from hourwheel.client.aio.http import AsyncHttp
from hourwheel.client.api import DEFAULT_RETRY_SECONDS, DEFAULT_TIMEOUT_SECONDS, DEFAULT_URL
from hourwheel.client.calls.cells import CellCalls
from hourwheel.client.calls.dead import DeadLetterCalls
from hourwheel.client.calls.groups import GroupCalls
from hourwheel.client.calls.health import HealthCalls
from hourwheel.client.calls.messages import MessageCalls
from hourwheel.client.calls.overview import OverviewCalls
from hourwheel.client.calls.produce import ProduceCalls
from hourwheel.client.calls.pull import PullCalls
from hourwheel.client.calls.scheduled import ScheduledCalls
from hourwheel.client.calls.subjects import SubjectCalls
from hourwheel.client.transport.http import Http
from hourwheel.client.transport.signing import Sign
from hourwheel.ports.machine import Clock, Ids
from hourwheel.system import SystemClock, SystemIds

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")


class AsyncCalls(
    ProduceCalls,
    ScheduledCalls,
    PullCalls,
    SubjectCalls,
    GroupCalls,
    DeadLetterCalls,
    MessageCalls,
    OverviewCalls,
    CellCalls,
    HealthCalls,
):
    """Has the calls of ``Api`` over an ``AsyncHttp``, whose ``call`` returns a coroutine. Each call returns that
    coroutine."""

    def __init__(self, http: AsyncHttp, clock: Clock) -> None:
        self._http = cast(Http, http)  # the families of calls pass on whatever ``call`` returns, also a coroutine
        self._clock = clock


def _awaited(method: Callable[Concatenate[C, P], T]) -> Callable[Concatenate["AsyncApi", P], Coroutine[Any, Any, T]]:
    """Returns the coroutine function of a call. Its arguments and its answer are those of the method of ``Api``."""

    @functools.wraps(method)
    async def call(api: "AsyncApi", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await cast(Awaitable[T], method(cast(Any, api.calls), *args, **kwargs))

    return call


class AsyncApi:
    """Makes every call of the HTTP API from the tasks of one event loop. Each method is a coroutine with the arguments,
    the answer and the errors of the method of ``Api`` that has its name.

    The constructor takes the arguments of ``Api``. A cancelled call ends its connection: a pull that waits then leases
    nothing; any other call may have had its effect or not.

    Raises:
        ValueError: the URL is no HTTP URL, or ``token``, ``sign`` and ``region`` contradict each other.
        ClientError: requests are to be signed, and botocore is not installed.
        AnswerError: each method raises a subclass where the server refuses the call.
        Closed: each method, after ``close``.

    Example:
        >>> async def main():
        ...     async with AsyncApi("http://127.0.0.1:7420") as api:
        ...         return (await api.health()).status
        >>> asyncio.run(main())
        'ok'
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        sign: Sign | None = None,
        region: str | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        retry_seconds: float = DEFAULT_RETRY_SECONDS,
        ids: Ids | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._http = AsyncHttp(
            url,
            token=token,
            ca_file=ca_file,
            sign=sign,
            region=region,
            timeout_seconds=timeout_seconds,
            retry_seconds=retry_seconds,
            ids=ids or SystemIds(),
        )
        self._calls = AsyncCalls(self._http, clock or SystemClock())

    @property
    def calls(self) -> AsyncCalls:
        """The calls that return coroutines, which the methods of this class await."""
        return self._calls

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections. A call under way in another task raises ``Closed``.

        Raises nothing.

        Example:
            >>> asyncio.run(AsyncApi().close())
        """
        await self._http.close()

    produce = _awaited(ProduceCalls.produce)
    produce_many = _awaited(ProduceCalls.produce_many)

    get_scheduled = _awaited(ScheduledCalls.get_scheduled)
    cancel = _awaited(ScheduledCalls.cancel)
    reschedule = _awaited(ScheduledCalls.reschedule)
    list_delayed = _awaited(ScheduledCalls.list_delayed)
    cancel_chosen = _awaited(ScheduledCalls.cancel_chosen)
    move_chosen = _awaited(ScheduledCalls.move_chosen)
    list_subject_delayed = _awaited(ScheduledCalls.list_subject_delayed)
    pending = _awaited(ScheduledCalls.pending)

    pull = _awaited(PullCalls.pull)
    settle = _awaited(PullCalls.settle)

    put_subject = _awaited(SubjectCalls.put_subject)
    get_subject = _awaited(SubjectCalls.get_subject)
    list_subjects = _awaited(SubjectCalls.list_subjects)
    pause_subject = _awaited(SubjectCalls.pause_subject)
    resume_subject = _awaited(SubjectCalls.resume_subject)
    delete_subject = _awaited(SubjectCalls.delete_subject)

    put_group = _awaited(GroupCalls.put_group)
    get_group = _awaited(GroupCalls.get_group)
    decide_held = _awaited(GroupCalls.decide_held)
    list_groups = _awaited(GroupCalls.list_groups)
    pause_group = _awaited(GroupCalls.pause_group)
    resume_group = _awaited(GroupCalls.resume_group)
    delete_group = _awaited(GroupCalls.delete_group)
    seek = _awaited(GroupCalls.seek)
    push = _awaited(GroupCalls.push)
    list_consumers = _awaited(GroupCalls.list_consumers)
    list_leases = _awaited(GroupCalls.list_leases)
    count_retries = _awaited(GroupCalls.count_retries)
    leave = _awaited(GroupCalls.leave)
    lag = _awaited(GroupCalls.lag)

    retry_now = _awaited(DeadLetterCalls.retry_now)
    list_dead = _awaited(DeadLetterCalls.list_dead)
    dead_reasons = _awaited(DeadLetterCalls.dead_reasons)
    get_dead = _awaited(DeadLetterCalls.get_dead)
    redrive = _awaited(DeadLetterCalls.redrive)
    drop = _awaited(DeadLetterCalls.drop)
    list_orphans = _awaited(DeadLetterCalls.list_orphans)

    peek = _awaited(MessageCalls.peek)
    trace = _awaited(MessageCalls.trace)

    overview = _awaited(OverviewCalls.overview)
    attention = _awaited(OverviewCalls.attention)
    subject_overview = _awaited(OverviewCalls.subject_overview)
    history = _awaited(OverviewCalls.history)
    due = _awaited(OverviewCalls.due)
    wheels = _awaited(OverviewCalls.wheels)
    archive = _awaited(OverviewCalls.archive)

    get_route = _awaited(CellCalls.get_route)
    move_queue = _awaited(CellCalls.move_queue)
    withdraw_route_changes = _awaited(CellCalls.withdraw_route_changes)
    spread_queues = _awaited(CellCalls.spread_queues)
    add_queues = _awaited(CellCalls.add_queues)
    list_cells = _awaited(CellCalls.list_cells)
    get_cell = _awaited(CellCalls.get_cell)
    put_cell = _awaited(CellCalls.put_cell)
    drain_cell = _awaited(CellCalls.drain_cell)
    remove_cell = _awaited(CellCalls.remove_cell)

    health = _awaited(HealthCalls.health)
    create_grant = _awaited(HealthCalls.create_grant)
    rotate_grants = _awaited(HealthCalls.rotate_grants)
