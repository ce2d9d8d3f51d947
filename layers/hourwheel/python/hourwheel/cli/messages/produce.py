"""``hourwheel produce``"""

import contextlib
import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Annotated, BinaryIO, NamedTuple

import msgspec
import typer

from hourwheel.cli.output import text_of, write_json, write_line
from hourwheel.cli.settings import (
    CommandSettings,
    DelayOption,
    DeliverAtOption,
    SubjectArgument,
    seconds,
    settings_of,
    to_server,
)
from hourwheel.client import Message, Producer, SendResult
from hourwheel.errors import Rejected
from hourwheel.model.fields import MAX_QUEUES, Precision
from hourwheel.model.messages import NewMessage
from hourwheel.wire.misfits import decode
from hourwheel.wire.words import counted

_DELIVERY_SECONDS = 10.0  # a user waits at the terminal


def produce(
    ctx: typer.Context,
    subject: SubjectArgument,
    bodies: Annotated[
        list[str] | None, typer.Argument(metavar="BODY", help="The messages; behind -- they may begin with a dash.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Read messages from this file, one on each line.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="The key of every message.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag of every message; repeatable.")] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header of every message; repeatable.")
    ] = None,
    delay: DelayOption = None,
    deliver_at: DeliverAtOption = None,
    precision: Annotated[
        Precision | None,
        typer.Option(help="minute: every message may come up to a minute late, and costs less on AWS."),
    ] = None,
    queue: Annotated[
        int | None,
        typer.Option(min=0, max=MAX_QUEUES - 1, help="The queue of every message (by default that of the key)."),
    ] = None,
    message_id: Annotated[
        str | None,
        typer.Option("--id", help="The id of the message, by which message find finds it; for one BODY only."),
    ] = None,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Each BODY or line is a JSON object, as in the HTTP API.")
    ] = False,
) -> None:
    """Send messages: each BODY, or without one each line of a file or of stdin.

    Example: hourwheel produce orders '{"order": 7}' --key customer-42
    """
    fields = _SharedFields(key, tag, header, message_id, delay, deliver_at, queue, precision)
    make = fields.maker(jsonl=jsonl)
    texts = bodies or []
    if message_id is not None and len(texts) != 1:
        raise typer.BadParameter("an id names one message: give one BODY, or with --jsonl an id in each object")
    if texts and file:
        raise typer.BadParameter("give bodies or --file, not both")
    settings = settings_of(ctx)
    with _opened_lines(texts, file) as lines:
        count = _send(settings, subject, itertools.starmap(make, enumerate(lines, 1)), bool(texts))
    if not settings.json and not texts:
        write_line(counted(count, "message"))


@contextlib.contextmanager
def _opened_lines(bodies: list[str], file: Path | None) -> Iterator[Iterator[bytes]]:
    """Yields these bodies; without any, the lines of the file, or of stdin."""
    if bodies:
        # Python decodes arguments with surrogateescape: this gives back the bytes of the command line.
        yield (body.encode(errors="surrogateescape") for body in bodies)
    elif file is None:
        yield _lines(sys.stdin.buffer)
    else:
        with file.open("rb") as stream:
            yield _lines(stream)


def _send(settings: CommandSettings, subject: str, messages: Iterator[Message], print_each: bool) -> int:
    """Sends messages, and prints the results in their order. Returns the number of messages; raises ``AnswerError`` at
    the first refusal."""
    waiting: deque[Future[SendResult]] = deque()
    count = 0
    with (
        to_server(Producer, settings, subject=subject, delivery_timeout_seconds=_DELIVERY_SECONDS) as producer,
        _progress(settings, print_each) as advance,
    ):

        def report(result: SendResult) -> None:
            nonlocal count
            count += 1
            advance()
            if settings.json:
                write_json(result)
            elif print_each:
                write_line(f"{result.id}  {_position(result)}")

        for message in messages:
            waiting.append(
                producer.send(
                    message.body,
                    key=message.key,
                    tags=list(message.tags) if message.tags is not None else None,
                    headers=message.headers,
                    message_id=message.id,
                    delay=message.delay,
                    deliver_at=message.deliver_at,
                    queue=message.queue,
                    precision=message.precision,
                )
            )
            while waiting and waiting[0].done():  # a large file must not fill the memory with futures
                report(waiting.popleft().result())
        while waiting:
            report(waiting.popleft().result())
    return count


def _position(result: SendResult) -> str:
    if result.scheduled is None:
        return f"queue {result.queue}  offset {result.offset}"
    return f"scheduled {text_of(result.scheduled)}  {result.scheduled_id}"


class _SharedFields(NamedTuple):
    """The fields that the options give every message."""

    key: str | None
    tags: list[str] | None
    headers: list[str] | None
    message_id: str | None
    delay: str | None
    deliver_at: str | None
    queue: int | None
    precision: Precision | None

    def maker(self, *, jsonl: bool) -> Callable[[int, bytes], Message]:
        """Returns a function that makes a message of the number and the bytes of a body. Raises
        ``typer.BadParameter``."""
        if not jsonl:
            return _Maker(self.message())
        if any(self) or self.queue is not None:
            raise typer.BadParameter(
                "with --jsonl, key, tags, headers, delays, queues and ids stand in the objects: leave out these options"
            )
        return _parse_object

    def message(self) -> Message:
        """Returns a message with these fields and an empty body. Raises ``typer.BadParameter``."""
        headers, delay = _headers(self.headers or []), seconds(self.delay)
        try:
            return Message(
                "", self.key, self.tags, headers, self.message_id, delay, self.deliver_at, self.queue, self.precision
            )
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error


class _Maker:
    """Makes messages whose body is a line: text, or bytes if the line is not UTF-8."""

    def __init__(self, like: Message) -> None:
        self._like = like

    def __call__(self, number: int, line: bytes) -> Message:
        try:
            body: str | bytes = line.decode()
        except UnicodeDecodeError:
            body = line
        return msgspec.structs.replace(self._like, body=body)


_decoder = msgspec.json.Decoder(NewMessage)


def _parse_object(number: int, line: bytes) -> Message:
    try:
        parsed = decode(_decoder, line, noun="the line")
    except Rejected as error:
        raise typer.BadParameter(f"message {number}: {error}") from error
    if (parsed.body is None) == (parsed.body_base64 is None):
        raise typer.BadParameter(f"message {number} must have exactly one of body and body_base64")
    body = parsed.body if parsed.body is not None else parsed.body_base64
    assert body is not None
    try:
        return Message(
            body,
            parsed.key,
            parsed.tags,
            parsed.headers,
            parsed.id,
            parsed.delay,
            parsed.deliver_at,
            parsed.queue,
            parsed.precision,
        )
    except ValueError as error:
        raise typer.BadParameter(f"message {number}: {error}") from error


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    for line in stream:
        yield line.removesuffix(b"\n").removesuffix(b"\r")  # programs on Windows end a line by both


def _headers(pairs: list[str]) -> dict[str, str] | None:
    headers: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"a header is NAME=VALUE, got {pair!r}")
        headers[name] = value
    return headers or None


@contextlib.contextmanager
def _progress(settings: CommandSettings, print_each: bool) -> Iterator[Callable[[], object]]:
    """Yields a function to call for each message. On a terminal without other output it advances a progress bar."""
    if settings.json or print_each or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), MofNCompleteColumn(), TextColumn("messages"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda: progress.advance(task)
