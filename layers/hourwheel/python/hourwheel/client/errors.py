"""Defines every error that the client raises, and says what the caller should do about it.

    ClientError
    ├── AnswerError          the server refused the call, or did not answer
    │   ├── BadRequest       the request is wrong: fix it                                400, 405
    │   ├── Unauthorized     the token is missing or wrong; AWS refused the signature    401, 403
    │   ├── NotFound         the named thing does not exist                              404
    │   ├── Conflict         the request contradicts stored data                         409
    │   ├── TooLarge         the request is over a limit: split it                       413
    │   ├── ServerUnavailable  the request is right: send it again                        408, 429, 500, 502, 503, 504,
    │   │                                                                                no answer
    │   └── ServerFault      only the server's operator can help                         507, answers of other servers
    ├── DeliveryTimeout      the message was not accepted in time; it may be stored or not
    ├── NotSent              the producer was closed before the server accepted all of its messages
    └── Closed               the producer or the connection was closed meanwhile

``Reject`` and ``Retry`` do not belong to the tree: a handler raises them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from hourwheel.client.due import Delay, checked_retry_delay
from hourwheel.errors import HourwheelError
from hourwheel.wire.words import counted

if TYPE_CHECKING:
    from hourwheel.client.records.messages import AddressedMessage

_PREFIX = "urn:hourwheel:"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Holds an RFC 9457 problem document. ``field`` is the JSON path of the wrong field, ``instance`` the correlation
    id under which the server's log has the request.

    Example:
        >>> try:
        ...     api.produce("orders", [Message("")] * 1001)
        ... except TooLarge as error:
        ...     print(error.problem.field, error.problem.status)
        messages 413
    """

    type: str = "about:blank"
    title: str = ""
    status: int = 0
    detail: str = ""
    field: str | None = None
    instance: str | None = None

    @property
    def slug(self) -> str:
        """The stable word that names the kind of problem, such as ``field-invalid``."""
        return self.type.removeprefix(_PREFIX)


class ClientError(HourwheelError):
    """The base class of all errors that the client raises, except ``ValueError`` and ``TypeError`` for wrong arguments.

    Example:
        >>> try:
        ...     api.get_subject("nothing")
        ... except ClientError as error:
        ...     print(type(error).__name__)
        NotFound
    """


class AnswerError(ClientError):
    """Says that the server refused a call, or did not answer. ``problem`` holds the reason.

    Example:
        >>> try:
        ...     api.get_group("orders", "nothing")
        ... except AnswerError as error:
        ...     print(error.status, error.slug)
        404 group-unknown
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail or problem.title or f"the server answered {problem.status}")
        self.problem = problem

    @property
    def status(self) -> int:
        """The HTTP status; 0 where there was no answer."""
        return self.problem.status

    @property
    def slug(self) -> str:
        """The stable word that names the kind of problem, such as ``group-unknown``."""
        return self.problem.slug

    @property
    def is_ours(self) -> bool:
        """Whether Hourwheel made the answer, and not a gateway, a proxy, or another server."""
        return self.problem.type.startswith(_PREFIX) and self.slug != "gateway-error"


class BadRequest(AnswerError):
    """Says that the request is wrong: fix it. Nothing was stored.

    Example:
        >>> try:
        ...     api.put_subject("orders", queues=1000)
        ... except BadRequest as error:
        ...     print(error.slug, error.problem.field)
        field-invalid queues
    """


class Unauthorized(AnswerError):
    """Says that the token is missing or wrong, or that AWS refused the signature. Nothing was stored.

    Example:
        >>> raise Unauthorized(Problem(status=401, detail="the token is wrong"))
        Traceback (most recent call last):
        hourwheel.client.errors.Unauthorized: the token is wrong
    """


class NotFound(AnswerError):
    """Says that a subject, group, target, dead letter or delayed message does not exist.

    Example:
        >>> try:
        ...     api.lag("orders", "nothing")
        ... except NotFound as error:
        ...     print(error.slug)
        group-unknown
    """


class Conflict(AnswerError):
    """Says that the request contradicts stored settings or messages. Nothing was stored.

    Example:
        >>> try:
        ...     api.put_group("orders", "billing", start="latest")
        ... except Conflict as error:
        ...     print(error.slug)
        setting-fixed
    """


class TooLarge(AnswerError):
    """Says that a message, a batch or a request is over its limit: split it. Nothing was stored.

    Example:
        >>> try:
        ...     api.produce("orders", [Message("x" * (1 << 20) + "x")])
        ... except TooLarge as error:
        ...     print(error.slug, error.problem.field)
        message-too-large messages[0]
    """


class ServerUnavailable(AnswerError):
    """Says that the server did not answer, or is too busy: send the call again.

    ``sent`` is False if the call certainly had no effect: it did not reach the server, or the server refused it because
    of too many requests. ``retry_after_seconds`` is the pause for which the server asks; 0 if it asks for none.

    Example:
        >>> try:
        ...     Api("http://127.0.0.1:1", retry_seconds=0).health()
        ... except ServerUnavailable as error:
        ...     print(error.slug, error.sent)
        no-answer False
    """

    def __init__(self, problem: Problem, *, sent: bool = True, retry_after_seconds: float = 0.0) -> None:
        super().__init__(problem)
        self.sent = sent
        self.retry_after_seconds = retry_after_seconds


class ServerFault(AnswerError):
    """Says that only the operator of the server can help: its disk is full, or its answer is not from Hourwheel.

    Example:
        >>> raise ServerFault(Problem(status=507, detail="no room is left on the server's volume"))
        Traceback (most recent call last):
        hourwheel.client.errors.ServerFault: no room is left on the server's volume
    """


class DeliveryTimeout(ClientError):
    """Says that a message was not accepted in time, or that a later try was refused. It may be stored nevertheless if
    it was sent at least once. The last failure, if there was one, is the ``__cause__``.

    Example:
        >>> producer = Producer("http://127.0.0.1:1", subject="orders", delivery_timeout_seconds=0.01)
        >>> try:
        ...     producer.send_batch(["paid"])
        ... except DeliveryTimeout:
        ...     print("try later")
        try later
        >>> producer.close()
    """


class Closed(ClientError):
    """Says that the producer or the connection was closed before the call was answered.

    Example:
        >>> producer = Producer("http://127.0.0.1:7420", subject="orders")
        >>> producer.close()
        >>> try:
        ...     producer.send("paid")
        ... except Closed as error:
        ...     print(error)
        the producer was closed
    """


class NotSent(ClientError):
    """Says that a producer was closed with ``messages`` that were not accepted: the time ran out, or the server refused
    them. The ``__cause__`` is the error of the first message. A message that was under way may be stored.

    Example:
        >>> try:
        ...     with Producer("http://127.0.0.1:1", subject="orders", close_timeout_seconds=0.01) as producer:
        ...         future = producer.send("paid")
        ... except NotSent as error:
        ...     print([message.body for message in error.messages])
        ['paid']
    """

    def __init__(self, messages: Sequence["AddressedMessage"], reason: object) -> None:
        super().__init__(f"the producer was closed with {counted(len(messages), 'message')} not sent: {reason}")
        self.messages = messages


class Reject(Exception):
    """A handler raises this error for a message that can never be handled. The message becomes a dead letter, with the
    text of the error as its ``detail``.

    Example:
        >>> def bill(message):
        ...     if not message.body:
        ...         raise Reject("the order is empty")
    """


class Retry(Exception):
    """A handler raises this error to have its message retried after ``delay``, in place of the delay of the group's
    policy: seconds, text such as "10m", or a ``timedelta``, up to 732 days.

    Raises:
        ValueError: ``delay`` is no valid delay.

    Example:
        >>> def bill(message):
        ...     if message.headers.get("bank") == "closed":
        ...         raise Retry("the bank is closed", delay="10m")
    """

    def __init__(self, reason: str = "", *, delay: Delay) -> None:
        super().__init__(reason)
        self.delay = checked_retry_delay(delay)


_BY_STATUS: dict[int, type[AnswerError]] = {
    401: Unauthorized,
    403: Unauthorized,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
}
_UNAVAILABLE = {408, 429, 500, 502, 503, 504}

# By the status of a refusal of API Gateway, its slug and what to do. Its other answers have the slug ``gateway-error``.
_OF_GATEWAY = {
    403: ("forbidden", "; an API on AWS wants signed requests: sign='aws', or --sign aws"),
    404: (
        "route-unknown",
        "; this URL has no such route: if the stage of the API has a name, the URL must end with it",
    ),
    413: ("request-too-large", ""),
}


class _OfGateway(msgspec.Struct):
    """Holds an error of API Gateway, whose text is in the field ``message`` or ``Message``."""

    message: str = ""
    refusal: str = msgspec.field(name="Message", default="")


_problem_decoder = msgspec.json.Decoder(Problem)
_gateway_decoder = msgspec.json.Decoder(_OfGateway)


def from_answer(status: int, body: bytes, *, retry_after: str | None) -> AnswerError:
    """Returns the error for an answer that is not 2xx. A gateway answers no problem document: its text becomes the
    detail."""
    try:
        problem = msgspec.structs.replace(_problem_decoder.decode(body), status=status)
        of_gateway = _gateway_decoder.decode(body)
        if not problem.detail and (text := of_gateway.message or of_gateway.refusal):
            problem = _problem_of_gateway(status, text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        problem = Problem(status=status, detail=f"the server answered {status}: {body[:200].decode(errors='replace')}")
    if status in _UNAVAILABLE:
        # With 429 the server refuses a request before it carries out any of it.
        return ServerUnavailable(problem, sent=status != 429, retry_after_seconds=_seconds(retry_after))
    if status >= 500:
        return ServerFault(problem)
    return _BY_STATUS.get(status, BadRequest)(problem)


def _problem_of_gateway(status: int, text: str) -> Problem:
    slug, advice = _OF_GATEWAY.get(status, ("gateway-error", ""))
    return problem_of(slug, f"the gateway answered {status}: {text}{advice}", status=status, title=text)


def problem_of(slug: str, detail: str, *, status: int = 0, title: str = "") -> Problem:
    """Returns a problem document that the client makes itself."""
    return Problem(type=_PREFIX + slug, title=title, status=status, detail=detail)


def no_answer(detail: str, *, sent: bool) -> ServerUnavailable:
    """Returns the error of a request that got no whole answer. ``sent``: the request may have reached the server."""
    return ServerUnavailable(problem_of("no-answer", detail, title="no answer"), sent=sent)


def _seconds(retry_after: str | None) -> float:
    """Returns ``Retry-After`` in seconds; 0 without one, and for a date, which the server never sends."""
    return float(retry_after) if retry_after and retry_after.isdecimal() else 0.0
