"""Offers every call of the HTTP API as a typed method.

with Api("http://127.0.0.1:7420") as api:
    api.put_subject("orders", queues=4)
    api.produce("orders", [Message("paid", key="customer-42")], idempotency_key="order-7-paid")
"""

import os
from types import TracebackType
from typing import Self

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

DEFAULT_URL = "http://127.0.0.1:7420"
"""The URL of a server that ``hourwheel serve`` started on this machine."""

DEFAULT_TIMEOUT_SECONDS = 30.0  # as long as API Gateway waits for a function
DEFAULT_RETRY_SECONDS = 30.0  # outlasts a restart of a server


class Api(
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
    """Makes every call of the HTTP API, one method each. Thread-safe; keeps its connections alive.

    While the server is unavailable, repeats a call for ``retry_seconds`` if the call certainly had no effect, or if
    repeating it does no harm. These are all calls but deletions, ``redrive``, ``drop``, ``move_queue``,
    ``spread_queues``, ``rotate_grants``, and ``produce`` without an idempotency key. Waits ``timeout_seconds`` for one
    answer, in addition to the time that a pull waits for messages.

    Sends ``token`` to a server that was started with tokens. For an ``https`` URL, trusts the certificates of
    ``ca_file`` (PEM) in place of the certificates of the system and of ``SSL_CERT_FILE``.

    Signs requests to an API on AWS (``https://….execute-api.REGION.amazonaws.com``), and to any other URL with
    ``sign="aws"``; ``region`` overrides the region of the AWS configuration. Signing needs
    ``pip install 'hourwheel[aws]'`` and takes the credentials from the configuration of the AWS tools.

    Raises:
        ValueError: the URL is no HTTP URL, or ``token``, ``sign`` and ``region`` contradict each other.
        ClientError: requests are to be signed, and botocore is not installed.
        AnswerError: each method raises a subclass if the server refuses the call: ``BadRequest`` for a wrong argument,
            ``Unauthorized`` for a wrong token or signature, ``ServerUnavailable`` if no server answers in time. The
            methods name their other errors.
        Closed: each method, after ``close``.

    Example:
        >>> with Api("http://127.0.0.1:7420") as api:
        ...     api.health().status
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
        self._clock = clock or SystemClock()
        self._http = Http(
            url,
            token=token,
            ca_file=ca_file,
            sign=sign,
            region=region,
            timeout_seconds=timeout_seconds,
            retry_seconds=retry_seconds,
            ids=ids or SystemIds(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. A call under way in another thread raises ``Closed``.

        Raises nothing.

        Example:
            >>> Api().close()
        """
        self._http.close()
